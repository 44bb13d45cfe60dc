"""Lists the tools of the MCP server at URL and calls one, without a session where the server can do without.

fastmcp_client.py [--ask] URL TOOL JSON-ARGUMENTS; with --ask there is a user, who accepts whatever they are asked.
Prints {"tools": [names], "asked": questions, "text": result}.
"""

import asyncio
import json
import sys

from fastmcp import Client


async def main(url, tool, arguments):
    asked = []

    async def accept(message, response_type, params, context):
        asked.append(message)
        return {"name": "Ann", "answer": "yes"}

    user = {"elicitation_handler": accept} if "--ask" in sys.argv else {}
    async with Client(url, **user) as client:
        tools = await client.list_tools()
        result = await client.call_tool(tool, json.loads(arguments))
        text = " ".join(part.text for part in result.content)
        print(json.dumps({"tools": [tool.name for tool in tools], "asked": asked, "text": text}))


asyncio.run(main(*[argument for argument in sys.argv[1:] if not argument.startswith("--")]))
