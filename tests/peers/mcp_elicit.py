"""Calls a tool of the MCP server at URL that asks the user something: mcp_elicit.py URL TOOL.

The user accepts whatever they are asked. Prints {"asked": questions, "text": result}.
"""

import asyncio
import json
import sys

from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client
from mcp.types import ElicitResult


async def main(url, tool):
    asked = []

    async def accept(context, params):
        asked.append(params.message)
        return ElicitResult(action="accept", content={"name": "Ann", "answer": "yes"})

    async with streamable_http_client(url) as (read, write, _):
        async with ClientSession(read, write, elicitation_callback=accept) as session:
            await session.initialize()
            result = await session.call_tool(tool, {})
            print(json.dumps({"asked": asked, "text": " ".join(part.text for part in result.content)}))


asyncio.run(main(*sys.argv[1:]))
