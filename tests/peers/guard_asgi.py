"""Serves an ASGI app on a free loopback port, behind a check of the Authorization field where
REQUIRED_AUTHORIZATION is set.

Prints one JSON object a line: first {"port": n}, then one for each HTTP request with what it carried.
"""

import json
import os
import socket

import uvicorn


def say(value):
    print(json.dumps(value), flush=True)


def guarded(app):
    required = os.environ.get("REQUIRED_AUTHORIZATION")

    async def guard(scope, receive, send):
        if scope["type"] != "http":
            return await app(scope, receive, send)
        fields = [value.decode() for name, value in scope["headers"] if name == b"authorization"]
        say({"method": scope["method"], "path": scope["path"], "authorization": fields})
        if required is None or fields == [required]:
            return await app(scope, receive, send)
        headers = [(b"content-type", b"text/plain"), (b"www-authenticate", b"Bearer")]
        await send({"type": "http.response.start", "status": 401, "headers": headers})
        await send({"type": "http.response.body", "body": b"who are you?\n"})

    return guard


def serve(app):
    listener = socket.create_server(("127.0.0.1", 0))
    say({"port": listener.getsockname()[1]})
    config = uvicorn.Config(guarded(app), log_level="warning", lifespan="on")
    uvicorn.Server(config).run(sockets=[listener])
