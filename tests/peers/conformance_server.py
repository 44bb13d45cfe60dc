"""A server of the session era with what the public MCP conformance suite asks a server for."""

import asyncio
import base64

from mcp.server.fastmcp import Context, FastMCP
from mcp.server.fastmcp.prompts.base import UserMessage
from mcp.server.transport_security import TransportSecuritySettings
from mcp.types import (
    AudioContent,
    Completion,
    EmbeddedResource,
    ImageContent,
    SamplingMessage,
    TextContent,
    TextResourceContents,
)
from pydantic import BaseModel, Field

from guard_asgi import serve

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
SILENCE = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA="

server = FastMCP("peer", transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False))


def embedded(uri, text):
    resource = TextResourceContents(uri=uri, mimeType="text/plain", text=text)
    return EmbeddedResource(type="resource", resource=resource)


@server.tool()
def test_simple_text() -> str:
    """Text."""
    return "This is a simple text response for testing."


@server.tool()
def test_image_content() -> list[ImageContent]:
    """An image."""
    return [ImageContent(type="image", data=PIXEL, mimeType="image/png")]


@server.tool()
def test_audio_content() -> list[AudioContent]:
    """A sound."""
    return [AudioContent(type="audio", data=SILENCE, mimeType="audio/wav")]


@server.tool()
def test_embedded_resource() -> list[EmbeddedResource]:
    """A resource."""
    return [embedded("test://embedded-resource", "This is an embedded resource content.")]


@server.tool()
def test_multiple_content_types() -> list[TextContent | ImageContent | EmbeddedResource]:
    """Content of several kinds."""
    return [
        TextContent(type="text", text="Multiple content types test:"),
        ImageContent(type="image", data=PIXEL, mimeType="image/png"),
        embedded("test://mixed-content-resource", '{"test":"data","value":123}'),
    ]


@server.tool()
async def test_tool_with_logging(ctx: Context) -> str:
    """Logs while it works."""
    for message in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await ctx.info(message)
        await asyncio.sleep(0.05)
    return "done"


@server.tool()
async def test_tool_with_progress(ctx: Context) -> str:
    """Reports how far it is."""
    for progress in (0, 50, 100):
        await ctx.report_progress(progress, 100)
        await asyncio.sleep(0.05)
    return "done"


@server.tool()
def test_error_handling() -> str:
    """Fails."""
    raise ValueError("This tool intentionally returns an error for testing")


@server.tool()
async def test_sampling(prompt: str, ctx: Context) -> str:
    """Asks the client's model."""
    message = SamplingMessage(role="user", content=TextContent(type="text", text=prompt))
    # On the stream of the call: the client's other stream may not be open yet, and what is sent there then is lost.
    result = await ctx.session.create_message(
        messages=[message], max_tokens=100, related_request_id=ctx.request_id
    )
    return f"LLM response: {result.content.text}"


class Who(BaseModel):
    username: str = Field(description="User's response")
    email: str = Field(description="User's email address")


@server.tool()
async def test_elicitation(message: str, ctx: Context) -> str:
    """Asks the user."""
    result = await ctx.elicit(message, schema=Who)
    return f"User response: action={result.action}, content={getattr(result, 'data', None)}"


@server.resource("test://static-text", mime_type="text/plain")
def static_text() -> str:
    """Text."""
    return "This is the content of the static text resource."


@server.resource("test://static-binary", mime_type="image/png")
def static_binary() -> bytes:
    """An image."""
    return base64.b64decode(PIXEL)


@server.resource("test://template/{id}/data", mime_type="application/json")
def template(id: str) -> str:
    """One of many."""
    return f'{{"id":"{id}","templateTest":true,"data":"Data for ID: {id}"}}'


@server.prompt()
def test_simple_prompt() -> str:
    """A prompt."""
    return "This is a simple prompt for testing."


@server.prompt()
def test_prompt_with_arguments(arg1: str, arg2: str) -> str:
    """A prompt with arguments."""
    return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"


@server.prompt()
def test_prompt_with_embedded_resource(resourceUri: str) -> list[UserMessage]:
    """A prompt with a resource."""
    resource = EmbeddedResource(
        type="resource",
        resource=TextResourceContents(uri=resourceUri, mimeType="text/plain", text="Embedded resource content."),
    )
    return [UserMessage(content=resource), UserMessage(content="Please process the embedded resource above.")]


@server.prompt()
def test_prompt_with_image() -> list[UserMessage]:
    """A prompt with an image."""
    image = ImageContent(type="image", data=PIXEL, mimeType="image/png")
    return [UserMessage(content=image), UserMessage(content="Please analyze the image above.")]


@server.completion()
async def complete(ref, argument, context) -> Completion:
    return Completion(values=[], total=0, hasMore=False)


@server._mcp_server.set_logging_level()
async def set_level(level) -> None:
    pass


@server._mcp_server.subscribe_resource()
async def subscribe(uri) -> None:
    pass


@server._mcp_server.unsubscribe_resource()
async def unsubscribe(uri) -> None:
    pass


serve(server.streamable_http_app())
