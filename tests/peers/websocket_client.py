"""A client of PyPI's websockets: talks to an echo server, through a proxy or not, and prints what came of it.

Arguments: the URL, and the proxy's URL or "direct". A CA bundle is taken from SSL_CERT_FILE.
"""

import asyncio
import hashlib
import json
import os
import ssl
import sys

from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed


def shown(message):
    data = message.encode() if isinstance(message, str) else message
    return [type(message).__name__, len(data), hashlib.sha256(data).hexdigest()]


async def pieces():
    for at in range(64):
        yield bytes([at]) * (1000 + at)


async def main():
    url, proxy = sys.argv[1], sys.argv[2]
    tls = ssl.create_default_context(cafile=os.environ["SSL_CERT_FILE"]) if url.startswith("wss:") else None
    result = {"echoes": []}
    async with connect(url, ssl=tls, proxy=None if proxy == "direct" else proxy, max_size=None) as connection:
        result["extensions"] = connection.response.headers.get("Sec-WebSocket-Extensions")
        for message in ["", "hello", "\u00fc\U0001f600" * 1000, b"", os.urandom(1000) * 1000, pieces(), b"x" * (1 << 20)]:
            await connection.send(message)
            echo = await connection.recv()
            result["echoes"].append(shown(echo) if not isinstance(message, bytes) else [echo == message, len(echo)])
        await (await connection.ping(b"still there"))
        await connection.close(4001, "enough")
        try:
            await connection.recv()
        except ConnectionClosed as closed:
            result["close"] = [closed.rcvd.code, closed.rcvd.reason]
    print(json.dumps(result))


asyncio.run(main())
