"""Drives the cases of an HTTP/2 rule table over raw frames, with the hyperframe and hpack packages and no client library.

    http2_rules.py MODE HOST:PORT CA AUTHORITY SCHEME < cases.json

MODE is `plain` (prior knowledge), `tls` (ALPN with the proxy port) or `tunnel` (ALPN inside an intercepted CONNECT).
Prints one JSON object a case: its id, what was seen, and whether that is what was expected.
"""

import json
import socket
import ssl
import struct
import sys
from concurrent.futures import ThreadPoolExecutor

import hpack
from hyperframe.frame import Frame

MODE, ADDRESS, CA, AUTHORITY, SCHEME = sys.argv[1:]
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
TYPES = {
    "DATA": 0, "HEADERS": 1, "PRIORITY": 2, "RST_STREAM": 3, "SETTINGS": 4, "PUSH_PROMISE": 5, "PING": 6, "GOAWAY": 7,
    "WINDOW_UPDATE": 8, "CONTINUATION": 9, "UNKNOWN": 0xFA,
}
FLAGS = {"ACK": 1, "END_STREAM": 1, "END_HEADERS": 4, "PADDED": 8, "PRIORITY": 32, "ALL": 0xFE}
CODES = [
    "NO_ERROR", "PROTOCOL_ERROR", "INTERNAL_ERROR", "FLOW_CONTROL_ERROR", "SETTINGS_TIMEOUT", "STREAM_CLOSED",
    "FRAME_SIZE_ERROR", "REFUSED_STREAM", "CANCEL", "COMPRESSION_ERROR", "CONNECT_ERROR", "ENHANCE_YOUR_CALM",
]
# A frame whose answer shows that the connection is alive and everything before it was looked at.
MARK = b"\xe2marked!"


def literal(text):
    raw = text.encode("latin-1").decode("unicode_escape").encode("latin-1")
    assert len(raw) < 127, "the encoder below writes short strings only"
    return bytes([len(raw)]) + raw


def block(fields, path):
    """A header block of literal fields, never indexed, so that what no encoder would write can be written."""
    out = b""
    for field in fields:
        if field.startswith("@"):
            method, _, rest = field[1:].partition(" ")
            fields = [f":method={method}", f":scheme={SCHEME}", f":path={path}", f":authority={AUTHORITY}"]
            out += block(fields, path) + (block(rest.split(" "), path) if rest else b"")
            continue
        name, _, value = field[1:].partition("=") if field.startswith(":") else field.partition("=")
        name = (":" if field.startswith(":") else "") + name
        value = value.replace("{authority}", AUTHORITY).replace("{path}", path).replace("{scheme}", SCHEME)
        out += b"\x00" + literal(name) + literal(value)
    return out


def payload(step, path):
    if "fields" in step:
        body = block(step["fields"], path) * step.get("repeat", 1)
    elif "zeros" in step:
        body = bytes(step["zeros"])
    elif "settings" in step:
        body = b"".join(struct.pack(">HI", key, value) for key, value in step["settings"])
    elif "u32" in step:
        body = b"".join(struct.pack(">I", value) for value in step["u32"])
    else:
        body = bytes.fromhex(step.get("hex", ""))
    return bytes.fromhex(step.get("before", "")) + body + bytes.fromhex(step.get("after", ""))


def frame(step, path):
    if "raw" in step:
        return step["raw"].encode("latin-1").decode("unicode_escape").encode("latin-1")
    name, *flags = step["frame"].split(".")
    body = payload(step, path)
    flags = sum(FLAGS[flag] for flag in flags)
    head = struct.pack(">I", len(body))[1:] + bytes([TYPES[name], flags]) + struct.pack(">I", step.get("stream", 0))
    return (head + body) * step.get("times", 1)


def connect():
    host, _, port = ADDRESS.rpartition(":")
    stream = socket.create_connection((host, int(port)), timeout=15)
    if MODE == "plain":
        return stream
    if MODE == "tunnel":
        stream.sendall(f"CONNECT {AUTHORITY} HTTP/1.1\r\nHost: {AUTHORITY}\r\n\r\n".encode())
        answer = b""
        while b"\r\n\r\n" not in answer:
            answer += stream.recv(1)
        assert answer.startswith(b"HTTP/1.1 200"), answer
    context = ssl.create_default_context(cafile=CA)
    context.set_alpn_protocols(["h2"])
    name = AUTHORITY.rpartition(":")[0] if MODE == "tunnel" else "proxy.example.test"
    stream = context.wrap_socket(stream, server_hostname=name)
    assert stream.selected_alpn_protocol() == "h2"
    return stream


def frames(stream):
    """The frames that come, as events; ends when the connection does."""
    decoder = hpack.Decoder()
    buffer, sections = b"", {}
    while True:
        while len(buffer) >= 9:
            parsed, length = Frame.parse_frame_header(memoryview(buffer[:9]))
            if len(buffer) < 9 + length:
                break
            body, buffer = buffer[9:9 + length], buffer[9 + length:]
            kind, flags, number = type(parsed).__name__, parsed.flags, parsed.stream_id
            if kind == "GoAwayFrame":
                yield "goaway:" + CODES[struct.unpack(">I", body[4:8])[0]]
            elif kind == "RstStreamFrame":
                yield f"rst:{number}:" + CODES[struct.unpack(">I", body)[0]]
            elif kind == "SettingsFrame":
                yield "settings_ack" if "ACK" in flags else "settings"
            elif kind == "PingFrame":
                yield ("ping_ack:" if "ACK" in flags else "ping:") + body.hex()
            elif kind in ("HeadersFrame", "ContinuationFrame"):
                sections[number] = sections.get(number, b"") + body
                if "END_HEADERS" in flags:
                    fields = dict(decoder.decode(sections.pop(number)))
                    yield f"status:{number}:" + fields.get(":status", "trailers")
            elif kind == "DataFrame":
                yield f"data:{number}:{len(body)}" + (":end" if "END_STREAM" in flags else "")
        try:
            piece = stream.recv(65536)
        except ConnectionError:
            piece = b""
        if not piece:
            yield "closed"
            return
        buffer += piece


def run(case):
    path = "/v1/" + case["id"]
    steps = case["send"]
    opening = b"" if case.get("bare") else PREFACE + frame({"frame": "SETTINGS"}, path)
    batches, batch = [], opening
    for step in steps:
        if "await" in step:
            batches.append((batch, step["await"]))
            batch = b""
        else:
            batch += frame(step, path)
    if case.get("marked", True):
        batch += frame({"frame": "PING", "hex": MARK.hex()}, path)
    batches.append((batch, None))
    expected, seen = case["expect"], []
    wanted = set(expected)
    specific = [f"goaway:{code}_ERROR" for code in ("COMPRESSION", "FRAME_SIZE", "FLOW_CONTROL")] + ["goaway:STREAM_CLOSED"]
    if wanted.intersection(specific):
        wanted.add("goaway:PROTOCOL_ERROR")
    with connect() as stream:
        events = frames(stream)
        for batch, until in batches:
            try:
                stream.sendall(batch)
            except (ConnectionError, ssl.SSLError):
                pass
            while True:
                try:
                    event = next(events, "ended")
                except (TimeoutError, ssl.SSLError) as error:
                    event = f"nothing more: {error}"
                seen.append(event)
                if until is None and event in wanted:
                    # An accepted case shows its answer and that the connection lives on.
                    alive = "ping_ack:" + MARK.hex()
                    if not case.get("alive") or alive in seen:
                        return {"id": case["id"], "passed": True, "seen": seen}
                    wanted = {alive}
                if until is not None and event.startswith(until):
                    break
                if event in ("closed", "ended") or event.startswith("nothing"):
                    return {"id": case["id"], "passed": event in wanted, "seen": seen}
    return {"id": case["id"], "passed": False, "seen": seen}


def attempt(case):
    try:
        return run(case)
    except Exception as error:
        return {"id": case["id"], "passed": False, "seen": [repr(error)]}


with ThreadPoolExecutor(8) as pool:
    for result in pool.map(attempt, json.load(sys.stdin)):
        print(json.dumps(result), flush=True)
