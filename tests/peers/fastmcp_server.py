"""An MCP server that speaks both eras (2025-11-25 and before, 2026-07-28) with one tool."""

from fastmcp import FastMCP

from guard_asgi import serve

server = FastMCP("peer")


@server.tool
def echo(text: str) -> str:
    """Gives the text back."""
    return f"echo: {text}"


serve(server.http_app(host_origin_protection=False))
