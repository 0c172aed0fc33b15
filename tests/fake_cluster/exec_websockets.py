"""WebSockets of the far side, framed as Kubernetes' exec and port-forward are.

A path ending in `/exec` or `/attach` speaks v5.channel.k8s.io: the first byte of each message is a channel. What comes
on stdin (0) goes back on stdout (1); the line `fail` ends it with a failure on the error channel (3); a close of stdin
(255, 0) ends it with success. Any other path returns every message as it came, whatever a tunnel's bytes mean, which is
what `/portforward` needs. `/far/refuse` answers 403 and keeps the connection open; `/far/deaf` opens and never reads;
`/far/slam` opens and hangs up without a goodbye.
"""

import asyncio
from collections.abc import Callable

from websockets.frames import Frame, Opcode
from websockets.protocol import OPEN
from websockets.server import ServerProtocol
from websockets.utils import accept_key

from tests.fake_cluster.exchange import RecordedRequest, status_object

PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io", "SPDY/3.1+portforward.k8s.io", "v2.portforward.k8s.io")
SUCCESS = b'{"metadata":{},"status":"Success"}'
FAILURE = b'{"metadata":{},"status":"Failure","reason":"NonZeroExitCode","message":"exit code 1"}'

Talk = Callable[[ServerProtocol, Frame], None]


async def socket(asked: RecordedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    if asked.path == "/far/refuse":
        writer.write(status_object(403, "Forbidden", "no exec for you").wire(asked.method))
        await reader.read()
        return False
    writer.write(accepted(asked))
    protocol = ServerProtocol(state=OPEN, max_size=None)
    if asked.path == "/far/slam":
        return False
    if asked.path == "/far/deaf":
        await asyncio.Event().wait()
    talk = _exec if asked.path.endswith(("/exec", "/attach")) else _tunnel
    while protocol.state is OPEN and (data := await reader.read(65536)):
        protocol.receive_data(data)
        for event in protocol.events_received():
            if isinstance(event, Frame) and event.opcode in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT):
                talk(protocol, event)
        _flush(protocol, writer)
        await writer.drain()
    return False


def accepted(asked: RecordedRequest) -> bytes:
    """Handwritten: the library takes no names with a slash in them, which Kubernetes' tunnels have."""
    offered = [each.strip() for each in asked.header("sec-websocket-protocol").split(",")]
    lines = ["HTTP/1.1 101 Switching Protocols", "Upgrade: websocket", "Connection: Upgrade"]
    lines.append(f"Sec-WebSocket-Accept: {accept_key(asked.header('sec-websocket-key'))}")
    lines += [f"Sec-WebSocket-Protocol: {name}" for name in PROTOCOLS if name in offered][:1]
    return "\r\n".join([*lines, "", ""]).encode()


def _exec(protocol: ServerProtocol, frame: Frame) -> None:
    data = bytes(frame.data)
    if data == b"\xff\x00":
        protocol.send_binary(b"\x03" + SUCCESS)
        protocol.send_close(1000)
    elif data == b"\x00fail\n":
        protocol.send_binary(b"\x03" + FAILURE)
        protocol.send_close(1000)
    elif data[:1] == b"\x00":
        protocol.send_binary(b"\x01" + data[1:])


def _tunnel(protocol: ServerProtocol, frame: Frame) -> None:
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
