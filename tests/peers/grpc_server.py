"""Serves gRPC on a free port of 127.0.0.1, over TLS with CERT KEY as arguments; prints {"port"}.

Services are test.Echo and secret.Echo, each with Unary, Stream (many answers), Chat (many both ways) and Fail.
Messages are bytes as they are, without a schema.
"""

import json
import sys
from concurrent import futures

import grpc


def unary(request, context):
    context.set_trailing_metadata((("x-sum", str(len(request))),))
    return b"echo " + request


def stream(request, _context):
    for number in range(int(request)):
        yield b"%d" % number


def chat(requests, _context):
    for request in requests:
        yield b"echo " + request


def fail(_request, context):
    context.abort(grpc.StatusCode.FAILED_PRECONDITION, "as asked")


METHODS = {
    "Unary": grpc.unary_unary_rpc_method_handler(unary),
    "Stream": grpc.unary_stream_rpc_method_handler(stream),
    "Chat": grpc.stream_stream_rpc_method_handler(chat),
    "Fail": grpc.unary_unary_rpc_method_handler(fail),
}


class Echo(grpc.GenericRpcHandler):
    def service(self, handler_call_details):
        return METHODS.get(handler_call_details.method.rsplit("/", 1)[-1])


server = grpc.server(futures.ThreadPoolExecutor(max_workers=8))
server.add_generic_rpc_handlers((Echo(),))
if len(sys.argv) > 1:
    certificate, key = (open(path, "rb").read() for path in sys.argv[1:])
    port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([(key, certificate)]))
else:
    port = server.add_insecure_port("127.0.0.1:0")
server.start()
print(json.dumps({"port": port}), flush=True)
server.wait_for_termination()
