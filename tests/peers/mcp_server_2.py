"""An MCP server of version 2 of the SDK, which speaks both eras (2025-11-25 and before, 2026-07-28), with two tools:
one gives text back, the other one asks the user for a name first."""

from typing import Annotated

from mcp.server.mcpserver import Elicit, MCPServer, Resolve
from mcp.server.transport_security import TransportSecuritySettings
from pydantic import BaseModel

from guard_asgi import serve

server = MCPServer("peer")


class Name(BaseModel):
    name: str


def who() -> Elicit[Name]:
    return Elicit("Who are you?", Name)


@server.tool()
def echo(text: str) -> str:
    """Gives the text back."""
    return f"echo: {text}"


@server.tool()
def greet(answer: Annotated[Name, Resolve(who)]) -> str:
    """Asks for a name, and greets it."""
    return f"hello {answer.name}"


security = TransportSecuritySettings(enable_dns_rebinding_protection=False)
serve(server.streamable_http_app(transport_security=security))
