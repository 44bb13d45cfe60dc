"""An echo server of PyPI's websockets, which judges every frame by RFC 6455 and offers compression (RFC 7692).

Prints its port. With a certificate and a key as arguments it speaks TLS.
"""

import asyncio
import json
import ssl
import sys

from websockets.asyncio.server import serve
from websockets.exceptions import ConnectionClosed


async def echo(connection):
    try:
        async for message in connection:
            await connection.send(message)
    except ConnectionClosed:
        pass


async def main():
    tls = None
    if len(sys.argv) > 1:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(sys.argv[1], sys.argv[2])
    # What has no end is closed soon, and nothing is sent but what a client has asked for.
    async with serve(echo, "127.0.0.1", 0, ssl=tls, max_size=1 << 20, ping_interval=None, close_timeout=1) as server:
        print(json.dumps({"port": server.sockets[0].getsockname()[1]}), flush=True)
        await asyncio.get_running_loop().create_future()


asyncio.run(main())
