"""Lists the tools of the MCP server at URL and calls one: mcp_client.py URL TOOL JSON-ARGUMENTS.

Reaches it as the environment says (HTTPS_PROXY, SSL_CERT_FILE). Prints {"tools": [names], "text": result}.
"""

import asyncio
import json
import sys

from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client


async def main(url, tool, arguments):
    async with streamable_http_client(url) as (read, write, _):
        async with ClientSession(read, write) as session:
            await session.initialize()
            tools = await session.list_tools()
            result = await session.call_tool(tool, json.loads(arguments))
            print(json.dumps({"tools": [tool.name for tool in tools.tools], "text": result.content[0].text}))


asyncio.run(main(*sys.argv[1:]))
