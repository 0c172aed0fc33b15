"""A cluster with one pod, for kubectl: enough of Kubernetes that exec, attach, port-forward and logs work.

`serve_pod(cluster)` adds all of it to a FakeCluster. The command `cat` echoes its stdin; `exit N` fails with that code
after a line on stderr; attach prints a line and then echoes stdin. The pod's port 80 echoes what is sent to
it, over SPDY in a WebSocket as kubelets do: only the part of SPDY for opening streams and sending data.
"""

import asyncio
import json
import struct
import zlib
from collections.abc import AsyncIterator, Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

from websockets.frames import Frame, Opcode
from websockets.protocol import OPEN
from websockets.server import ServerProtocol

from tests.fake_cluster.behaviours import send_ticks
from tests.fake_cluster.exchange import CannedResponse, RecordedRequest, build_json_response, build_status_response
from tests.fake_cluster.exec_websockets import SUCCESS, build_upgrade_response
from tests.fake_cluster.server import FakeCluster
from tests.live.discovery import build_core_discovery, build_discovery_list, serve_discovery

POD_PATH, PENDING_POD_PATH = "/api/v1/namespaces/default/pods/p", "/api/v1/namespaces/default/pods/pending"
LOG_TEXT = "tick 0\ntick 1\ntick 2\n"

STDIN, STDOUT, STDERR, ERROR = b"\x00", b"\x01", b"\x02", b"\x03"
CLOSE_STDIN = b"\xff\x00"

_METADATA = {"name": "p", "namespace": "default", "uid": "1"}
_POD = {
    **{"apiVersion": "v1", "kind": "Pod", "metadata": _METADATA},
    "spec": {"containers": [{"name": "c", "image": "i", "stdin": True, "ports": [{"containerPort": 80}]}]},
    "status": {"phase": "Running", "containerStatuses": [{"name": "c", "ready": True}]},
}
_RESOURCES = [
    {"name": "pods", "singularName": "pod", "namespaced": True, "kind": "Pod", "verbs": ["get", "list", "watch"]},
    {"name": "pods/log", "singularName": "", "namespaced": True, "kind": "Pod", "verbs": ["get"]},
    *({"name": f"pods/{each}", "singularName": "", "namespaced": True, "kind": "Pod", "verbs": ["create", "get"]}
      for each in ("exec", "attach", "portforward")),
]  # fmt: skip
_DOCUMENTS = {
    "/api/v1": {"kind": "APIResourceList", "groupVersion": "v1", "resources": _RESOURCES},
    POD_PATH: _POD,
    PENDING_POD_PATH: {
        **_POD,
        "metadata": {"name": "pending", "namespace": "default", "uid": "2"},
        "status": {"phase": "Pending"},
    },
}


_VERSIONS = {"kind": "APIVersions", "versions": ["v1"]}
_GROUPS: dict[str, Any] = {"kind": "APIGroupList", "apiVersion": "v1", "groups": []}


def serve_pod(cluster: FakeCluster) -> None:
    cluster.set_behaviour("/api", serve_discovery(_VERSIONS, build_core_discovery(_RESOURCES)))
    cluster.set_behaviour("/apis", serve_discovery(_GROUPS, build_discovery_list([])))
    for path, content in _DOCUMENTS.items():
        cluster.set_response(path, build_json_response(content))
    serve_streams(cluster, POD_PATH)
    for name in ("exec", "attach", "portforward"):
        cluster.set_behaviour(f"{PENDING_POD_PATH}/{name}", _reject_pending_pod)
        cluster.set_upgrade_behaviour(f"{PENDING_POD_PATH}/{name}", _reject_pending_pod)


def serve_streams(cluster: FakeCluster, pod_path: str) -> None:
    """The log of a pod, and what runs over WebSockets."""
    cluster.set_behaviour(f"{pod_path}/log", _send_log)
    for name, behaviour in (("exec", _run_exec), ("attach", _run_attach), ("portforward", _run_port_forward)):
        cluster.set_upgrade_behaviour(f"{pod_path}/{name}", behaviour)
        cluster.set_behaviour(f"{pod_path}/{name}", _reject_without_upgrade)


async def _send_log(request: RecordedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    if request.query.get("follow") == "true":
        return await send_ticks(request, reader, writer)
    writer.write(CannedResponse(200, LOG_TEXT.encode(), "text/plain").encode(request.method))
    return True


class PodWebSocket:
    """The server's end of a WebSocket: receives and sends whole messages."""

    def __init__(self, request: RecordedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._protocol = ServerProtocol(state=OPEN, max_size=None)
        self.pings = 0
        writer.write(build_upgrade_response(request))

    async def messages(self) -> AsyncIterator[bytes]:
        message = b""
        while self._protocol.state is OPEN and (data := await self._reader.read(65536)):
            self._protocol.receive_data(data)
            for event in self._protocol.events_received():
                assert isinstance(event, Frame)
                self.pings += event.opcode is Opcode.PING
                if event.opcode in (Opcode.BINARY, Opcode.TEXT, Opcode.CONT):
                    message += bytes(event.data)
                    if event.fin:
                        yield message
                        message = b""
            self._flush()
            await self._writer.drain()

    def send(self, message: bytes) -> None:
        """What is sent after the client has closed the connection is dropped."""
        if self._protocol.state is OPEN:
            self._protocol.send_binary(message)
            self._flush()

    async def drain(self) -> None:
        """Waits while the client does not read."""
        await self._writer.drain()

    def end(self, exit_status: bytes) -> None:
        self.send(ERROR + exit_status)
        if self._protocol.state is OPEN:
            self._protocol.send_close(1000)
            self._flush()

    def _flush(self) -> None:
        for data in self._protocol.data_to_send():
            if data and not self._writer.is_closing():
                self._writer.write(data)


async def _reject_without_upgrade(
    request: RecordedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> bool:
    writer.write(build_status_response(400, "BadRequest", "Upgrade request required").encode(request.method))
    return True


async def _reject_pending_pod(
    request: RecordedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> bool:
    """An API server looks up the pod first, with or without an upgrade."""
    writer.write(
        build_status_response(400, "BadRequest", "pod pending does not have a host assigned").encode(request.method)
    )
    return True


async def _run_exec(request: RecordedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    websocket = PodWebSocket(request, reader, writer)
    command = parse_qs(urlsplit(request.target).query)["command"]
    if command[0] == "exit":
        websocket.send(STDERR + b"that went wrong\n")
        websocket.end(build_exit_status(int(command[1])))
        async for _ in websocket.messages():  # until the client closes, too
            pass
        return False
    return await _echo_stdin(websocket)


async def _run_attach(request: RecordedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    websocket = PodWebSocket(request, reader, writer)
    websocket.send(STDOUT + b"attached\n")
    return await _echo_stdin(websocket)


async def _echo_stdin(websocket: PodWebSocket) -> bool:
    async for message in websocket.messages():
        if message == CLOSE_STDIN:
            websocket.end(SUCCESS)
        elif message[:1] == STDIN and message[1:]:
            websocket.send(STDOUT + message[1:])
    return False


def build_exit_status(code: int) -> bytes:
    causes = [{"reason": "ExitCode", "message": str(code)}]
    status = {"metadata": {}, "status": "Failure", "reason": "NonZeroExitCode", "details": {"causes": causes}}
    return json.dumps({**status, "message": f"command terminated with exit code {code}"}).encode()


async def _run_port_forward(
    request: RecordedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> bool:
    websocket = PodWebSocket(request, reader, writer)
    spdy = SpdyServer(websocket.send)
    async for message in websocket.messages():
        spdy.feed(message)
    return False


class SpdyServer:
    """The server's end of SPDY/3.1: accepts every stream and echoes its data.

    Frames have a head of eight bytes. The first bit marks control frames, whose type is in the second half of the first
    word. In data frames the word is the stream. The compressed headers of streams are ignored; the reply has none,
    which is compressed, too.
    """

    SYN_REPLY, RST_STREAM, PING, FLAG_FIN = 2, 3, 6, 0x01
    SYN_STREAM = 1

    def __init__(self, send: Callable[[bytes], None]) -> None:
        self._send = send
        self._buffer = b""
        self._compressor = zlib.compressobj()

    def feed(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= 8:
            word, rest = struct.unpack(">II", self._buffer[:8])
            size = 8 + (rest & 0xFFFFFF)
            if len(self._buffer) < size:
                return
            frame, self._buffer = self._buffer[:size], self._buffer[size:]
            if word >> 31:
                self._handle_control_frame(word & 0xFFFF, frame)
            else:
                self._send(frame)

    def _handle_control_frame(self, frame_type: int, frame: bytes) -> None:
        if frame_type == self.SYN_STREAM:
            stream = frame[8:12]
            no_headers = self._compressor.compress(bytes(4)) + self._compressor.flush(zlib.Z_SYNC_FLUSH)
            self._send(struct.pack(">HHI", 0x8003, self.SYN_REPLY, 4 + len(no_headers)) + stream + no_headers)
            if frame[4] & self.FLAG_FIN:  # the client has finished, so the server finishes, too
                self._send(stream + struct.pack(">I", self.FLAG_FIN << 24))
        elif frame_type == self.PING:
            self._send(frame)
