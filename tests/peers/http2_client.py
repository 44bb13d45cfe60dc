"""Asks for a few paths at once on one connection, with the h2 package, which refuses every answer that breaks a rule.

    http2_client.py MODE HOST:PORT CA AUTHORITY SCHEME

MODE is as in http2_rules.py. Prints {path: [status, length of the body, trailer lines]}; the length of a refusal is -1.
"""

import json
import socket
import ssl
import sys

import h2.config
import h2.connection
import h2.events

MODE, ADDRESS, CA, AUTHORITY, SCHEME = sys.argv[1:]
UPLOAD = bytes(300_000)
PATHS = ["/v1/x", "/v1/trailers", "/v1/flood", "/v1/echo", "/v1/empty", "/v1/same", "/v2/x"]

host, _, port = ADDRESS.rpartition(":")
stream = socket.create_connection((host, int(port)), timeout=30)
if MODE != "plain":
    name = "proxy.example.test"
    if MODE == "tunnel":
        stream.sendall(f"CONNECT {AUTHORITY} HTTP/1.1\r\nHost: {AUTHORITY}\r\n\r\n".encode())
        answer = b""
        while b"\r\n\r\n" not in answer:
            answer += stream.recv(1)
        assert answer.startswith(b"HTTP/1.1 200"), answer
        name = AUTHORITY.rpartition(":")[0]
    context = ssl.create_default_context(cafile=CA)
    context.set_alpn_protocols(["h2"])
    stream = context.wrap_socket(stream, server_hostname=name)
    assert stream.selected_alpn_protocol() == "h2"

connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True, header_encoding="utf-8"))
connection.initiate_connection()
answers, asked, left, upload = {}, {}, set(), None
for path in PATHS:
    number = connection.get_next_available_stream_id()
    asked[number] = path
    answers[path] = [0, 0, []]
    left.add(number)
    echo = path == "/v1/echo"
    fields = [(":method", "POST" if echo else "GET"), (":scheme", SCHEME), (":authority", AUTHORITY), (":path", path)]
    connection.send_headers(number, fields, end_stream=not echo)
    if echo:
        upload = number
sent = 0
while left:
    if upload is not None:
        room = min(connection.local_flow_control_window(upload), connection.max_outbound_frame_size, len(UPLOAD) - sent)
        while room > 0:
            connection.send_data(upload, UPLOAD[sent:sent + room])
            sent += room
            room = min(
                connection.local_flow_control_window(upload), connection.max_outbound_frame_size, len(UPLOAD) - sent
            )
        if sent == len(UPLOAD):
            connection.end_stream(upload)
            upload = None
    stream.sendall(connection.data_to_send())
    piece = stream.recv(65536)
    assert piece, "the connection ended"
    for event in connection.receive_data(piece):
        answer = answers.get(asked.get(getattr(event, "stream_id", None)))
        if isinstance(event, h2.events.ResponseReceived):
            answer[0] = int(dict(event.headers)[":status"])
        elif isinstance(event, h2.events.DataReceived):
            answer[1] += len(event.data)
            connection.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        elif isinstance(event, h2.events.TrailersReceived):
            answer[2] = [f"{name}: {value}" for name, value in event.headers]
        elif isinstance(event, h2.events.StreamEnded):
            left.discard(event.stream_id)
        elif isinstance(event, (h2.events.StreamReset, h2.events.ConnectionTerminated)):
            raise SystemExit(repr(event))
for answer in answers.values():
    if answer[0] == 403:
        answer[1] = -1
print(json.dumps(answers))
