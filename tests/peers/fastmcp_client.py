"""Lists the tools of the MCP server at URL and calls one, without a session where the server can do without.

fastmcp_client.py URL TOOL JSON-ARGUMENTS; prints {"tools": [names], "text": result}.
"""

import asyncio
import json
import sys

from fastmcp import Client


async def main(url, tool, arguments):
    async with Client(url) as client:
        tools = await client.list_tools()
        result = await client.call_tool(tool, json.loads(arguments))
        print(json.dumps({"tools": [tool.name for tool in tools], "text": result.content[0].text}))


asyncio.run(main(*sys.argv[1:]))
