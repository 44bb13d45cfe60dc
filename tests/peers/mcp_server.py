"""An MCP server of the session era (2025-11-25 and before) with one tool."""

from mcp.server.fastmcp import FastMCP
from mcp.server.transport_security import TransportSecuritySettings

from guard_asgi import serve

server = FastMCP("peer", transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False))


@server.tool()
def echo(text: str) -> str:
    """Gives the text back."""
    return f"echo: {text}"


serve(server.streamable_http_app())
