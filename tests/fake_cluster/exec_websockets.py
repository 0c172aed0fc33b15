"""WebSockets of the fake cluster, framed like those of Kubernetes' exec and port-forward.

A path ending in `/exec` or `/attach` speaks v5.channel.k8s.io: the first byte of each message is a channel. What comes
on stdin (0) goes back on stdout (1); the line `fail` ends it with a failure on the error channel (3); a close of stdin
(255, 0) ends it with success. Any other path returns every message as it came, whatever a tunnel's bytes mean, which is
what `/portforward` needs. `/fake/refuse` responds with 403 and keeps the connection open; `/fake/deaf` opens and never
reads; `/fake/slam` opens and closes without a close frame.
"""

import asyncio
from collections.abc import Callable

from websockets.frames import Frame, Opcode
from websockets.protocol import OPEN
from websockets.server import ServerProtocol
from websockets.utils import accept_key

from tests.fake_cluster.exchange import RecordedRequest, build_status_response

PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io", "SPDY/3.1+portforward.k8s.io", "v2.portforward.k8s.io")
SUCCESS = b'{"metadata":{},"status":"Success"}'
FAILURE = b'{"metadata":{},"status":"Failure","reason":"NonZeroExitCode","message":"exit code 1"}'

MessageHandler = Callable[[ServerProtocol, Frame], None]


async def serve_websocket(request: RecordedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    if request.path.endswith("/fake/refuse"):
        writer.write(build_status_response(403, "Forbidden", "exec is forbidden").encode(request.method))
        await reader.read()
        return False
    writer.write(build_upgrade_response(request))
    protocol = ServerProtocol(state=OPEN, max_size=None)
    if request.path == "/fake/slam":
        return False
    if request.path == "/fake/deaf":
        await asyncio.Event().wait()
    handle_message = _handle_exec if request.path.endswith(("/exec", "/attach")) else _handle_tunnel
    while protocol.state is OPEN and (data := await reader.read(65536)):
        protocol.receive_data(data)
        for event in protocol.events_received():
            if isinstance(event, Frame) and event.opcode in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT):
                handle_message(protocol, event)
        _flush(protocol, writer)
        await writer.drain()
    return False


def build_upgrade_response(request: RecordedRequest) -> bytes:
    """Built by hand: the library rejects protocol names with a slash, which Kubernetes' tunnels have."""
    offered = [each.strip() for each in request.header("sec-websocket-protocol").split(",")]
    lines = ["HTTP/1.1 101 Switching Protocols", "Upgrade: websocket", "Connection: Upgrade"]
    lines.append(f"Sec-WebSocket-Accept: {accept_key(request.header('sec-websocket-key'))}")
    lines += [f"Sec-WebSocket-Protocol: {name}" for name in PROTOCOLS if name in offered][:1]
    return "\r\n".join([*lines, "", ""]).encode()


def _handle_exec(protocol: ServerProtocol, frame: Frame) -> None:
    data = bytes(frame.data)
    if data == b"\xff\x00":
        protocol.send_binary(b"\x03" + SUCCESS)
        protocol.send_close(1000)
    elif data == b"\x00fail\n":
        protocol.send_binary(b"\x03" + FAILURE)
        protocol.send_close(1000)
    elif data[:1] == b"\x00":
        protocol.send_binary(b"\x01" + data[1:])


def _handle_tunnel(protocol: ServerProtocol, frame: Frame) -> None:
    if frame.opcode is Opcode.TEXT:
        protocol.send_text(frame.data, frame.fin)
    elif frame.opcode is Opcode.BINARY:
        protocol.send_binary(frame.data, frame.fin)
    else:
        protocol.send_continuation(frame.data, frame.fin)


def _flush(protocol: ServerProtocol, writer: asyncio.StreamWriter) -> None:
    for data in protocol.data_to_send():
        if data:
            writer.write(data)
