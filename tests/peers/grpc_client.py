"""Calls every method of test.Echo at TARGET, and secret.Echo/Unary; over TLS with a CA file as second argument.

The proxy comes from the environment. Prints what came as JSON.
"""

import json
import sys
import threading

import grpc

target = sys.argv[1]
if len(sys.argv) > 2:
    credentials = grpc.ssl_channel_credentials(open(sys.argv[2], "rb").read())
    channel = grpc.secure_channel(target, credentials)
else:
    channel = grpc.insecure_channel(target)

TIMEOUT = 60


def code(call):
    try:
        call()
    except grpc.RpcError as error:
        return [error.code().name, error.details()]
    return ["OK", ""]


answer, call = channel.unary_unary("/test.Echo/Unary").with_call(b"hello", timeout=TIMEOUT)
trailers = {key: value for key, value in call.trailing_metadata()}
streamed = [int(piece) for piece in channel.unary_stream("/test.Echo/Stream")(b"100", timeout=TIMEOUT)]

# Each message of the conversation waits for the answer to the one before, so nothing may hold messages back.
answered = threading.Semaphore(1)


def questions():
    for number in range(10):
        answered.acquire()
        yield b"%d" % number


chat = []
for message in channel.stream_stream("/test.Echo/Chat")(questions(), timeout=TIMEOUT):
    chat.append(message.decode())
    answered.release()

large = channel.unary_unary("/test.Echo/Unary")(b"x" * 2_000_000, timeout=TIMEOUT)
print(
    json.dumps(
        {
            "unary": answer.decode(),
            "sum": trailers.get("x-sum"),
            "streamed": streamed == list(range(100)),
            "chat": chat == [f"echo {number}" for number in range(10)],
            "large": len(large),
            "fail": code(lambda: channel.unary_unary("/test.Echo/Fail")(b"", timeout=TIMEOUT)),
            "secret": code(lambda: channel.unary_unary("/secret.Echo/Unary")(b"", timeout=TIMEOUT))[0],
        }
    )
)
