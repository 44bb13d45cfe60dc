"""Asks each URL with the library LIBRARY: fetch.py LIBRARY URL...

Prints a line for each: the status, or the kind of error. A URL of wss:// opens a WebSocket and prints 101.
"""

import asyncio
import sys
import urllib.error
import urllib.request


def with_urllib(url):
    try:
        return urllib.request.urlopen(url, timeout=60).status
    except urllib.error.HTTPError as error:
        return error.code


def with_requests(url):
    import requests

    return requests.get(url, timeout=60).status_code


def with_httpx(url):
    import httpx

    return httpx.get(url, timeout=60).status_code


async def with_aiohttp(url, trust_env=False):
    import aiohttp

    async with aiohttp.ClientSession(trust_env=trust_env) as session, session.get(url) as response:
        return response.status


async def with_websockets(url):
    import websockets

    try:
        async with websockets.connect(url):
            return 101
    except websockets.exceptions.InvalidStatus as error:
        return error.response.status_code


async def with_grpc(url):
    import grpc

    host, method = url.removeprefix("https://").split("/", 1)
    async with grpc.aio.secure_channel(host, grpc.ssl_channel_credentials()) as channel:
        try:
            await channel.unary_unary("/" + method)(b"hello", timeout=60)
            return 200
        except grpc.aio.AioRpcError as error:
            return error.code().name


CLIENTS = {
    "urllib": with_urllib,
    "requests": with_requests,
    "httpx": with_httpx,
    "aiohttp": with_aiohttp,
    "aiohttp-env": lambda url: with_aiohttp(url, trust_env=True),
    "websockets": with_websockets,
    "grpc": with_grpc,
}

for url in sys.argv[2:]:
    try:
        answer = CLIENTS[sys.argv[1]](url)
        print(asyncio.run(answer) if asyncio.iscoroutine(answer) else answer, flush=True)
    except Exception as error:
        print(f"{type(error).__name__}: {error}".replace("\n", " "), flush=True)
