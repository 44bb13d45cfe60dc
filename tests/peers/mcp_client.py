"""Lists the tools of the MCP server at URL and calls one: mcp_client.py [--ask] URL TOOL JSON-ARGUMENTS.

Reaches it as the environment says (HTTPS_PROXY, SSL_CERT_FILE). With --ask there is a user, who accepts whatever they
are asked. Prints {"tools": [names], "asked": questions, "text": result}.
"""

import asyncio
import json
import sys

from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client
from mcp.types import ElicitResult


async def main(url, tool, arguments):
    asked = []

    async def accept(context, params):
        asked.append(params.message)
        return ElicitResult(action="accept", content={"name": "Ann", "answer": "yes"})

    user = {"elicitation_callback": accept} if "--ask" in sys.argv else {}
    async with streamable_http_client(url) as (read, write, _):
        async with ClientSession(read, write, **user) as session:
            await session.initialize()
            tools = await session.list_tools()
            result = await session.call_tool(tool, json.loads(arguments))
            text = " ".join(part.text for part in result.content)
            print(json.dumps({"tools": [tool.name for tool in tools.tools], "asked": asked, "text": text}))


asyncio.run(main(*[argument for argument in sys.argv[1:] if not argument.startswith("--")]))
