"""A cluster with one pod, for kubectl: enough of Kubernetes that exec, attach, port-forward and logs work.

`serve_pod(far)` teaches a FakeCluster all of it. A command `cat` returns what it reads; `exit N` fails with that code
after a word on stderr; attach says something and then returns what it reads. The pod's port 80 returns what is sent to
it, over SPDY in a WebSocket as kubelets have it: of SPDY, what a client needs that opens streams and sends data.
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

from tests.fake_cluster.behaviours import ticks
from tests.fake_cluster.exchange import Answer, RecordedRequest, as_json, status_object
from tests.fake_cluster.exec_websockets import SUCCESS, accepted
from tests.fake_cluster.server import FakeCluster
from tests.live.discovery import aggregated, discovering, discovery_list

POD, PENDING = "/api/v1/namespaces/default/pods/p", "/api/v1/namespaces/default/pods/pending"
LINES = "tick 0\ntick 1\ntick 2\n"

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
    POD: _POD,
    PENDING: {
        **_POD,
        "metadata": {"name": "pending", "namespace": "default", "uid": "2"},
        "status": {"phase": "Pending"},
    },
}


_VERSIONS = {"kind": "APIVersions", "versions": ["v1"]}
_GROUPS: dict[str, Any] = {"kind": "APIGroupList", "apiVersion": "v1", "groups": []}


def serve_pod(far: FakeCluster) -> None:
    far.behave("/api", discovering(_VERSIONS, aggregated(_RESOURCES)))
    far.behave("/apis", discovering(_GROUPS, discovery_list([])))
    for path, content in _DOCUMENTS.items():
        far.answer(path, as_json(content))
    far.behave(f"{POD}/log", _log)
    for name, behaviour in (("exec", _exec), ("attach", _attach), ("portforward", _forward)):
        far.behave_on_upgrade(f"{POD}/{name}", behaviour)
        far.behave(f"{POD}/{name}", _without_upgrade)
        far.behave(f"{PENDING}/{name}", _unassigned)
        far.behave_on_upgrade(f"{PENDING}/{name}", _unassigned)


async def _log(asked: RecordedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    if asked.query.get("follow") == "true":
        return await ticks(asked, reader, writer)
    writer.write(Answer(200, LINES.encode(), "text/plain").wire(asked.method))
    return True


class _Talk:
    """Our end of a WebSocket: whole messages in, messages out."""

    def __init__(self, asked: RecordedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._protocol = ServerProtocol(state=OPEN, max_size=None)
        writer.write(accepted(asked))

    async def messages(self) -> AsyncIterator[bytes]:
        message = b""
        while self._protocol.state is OPEN and (data := await self._reader.read(65536)):
            self._protocol.receive_data(data)
            for event in self._protocol.events_received():
                assert isinstance(event, Frame)
                if event.opcode in (Opcode.BINARY, Opcode.TEXT, Opcode.CONT):
                    message += bytes(event.data)
                    if event.fin:
                        yield message
                        message = b""
            self._flush()
            await self._writer.drain()

    def send(self, message: bytes) -> None:
        self._protocol.send_binary(message)
        self._flush()

    def end(self, outcome: bytes) -> None:
        self.send(ERROR + outcome)
        self._protocol.send_close(1000)
        self._flush()

    def _flush(self) -> None:
        for data in self._protocol.data_to_send():
            if data:
                self._writer.write(data)


async def _without_upgrade(asked: RecordedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    writer.write(status_object(400, "BadRequest", "Upgrade request required").wire(asked.method))
    return True


async def _unassigned(asked: RecordedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    """An API server looks everything up first, with an upgrade or without."""
    writer.write(status_object(400, "BadRequest", "pod pending does not have a host assigned").wire(asked.method))
    return True


async def _exec(asked: RecordedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    talk = _Talk(asked, reader, writer)
    command = parse_qs(urlsplit(asked.target).query)["command"]
    if command[0] == "exit":
        talk.send(STDERR + b"that went wrong\n")
        talk.end(_failure(int(command[1])))
        async for _ in talk.messages():  # until the other side has said goodbye, too
            pass
        return False
    return await _echo(talk)


async def _attach(asked: RecordedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    talk = _Talk(asked, reader, writer)
    talk.send(STDOUT + b"attached\n")
    return await _echo(talk)


async def _echo(talk: _Talk) -> bool:
    async for message in talk.messages():
        if message == CLOSE_STDIN:
            talk.end(SUCCESS)
        elif message[:1] == STDIN and message[1:]:
            talk.send(STDOUT + message[1:])
    return False


def _failure(code: int) -> bytes:
    causes = [{"reason": "ExitCode", "message": str(code)}]
    told = {"metadata": {}, "status": "Failure", "reason": "NonZeroExitCode", "details": {"causes": causes}}
    return json.dumps({**told, "message": f"command terminated with exit code {code}"}).encode()


async def _forward(asked: RecordedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    talk = _Talk(asked, reader, writer)
    spdy = Spdy(talk.send)
    async for message in talk.messages():
        spdy.take(message)
    return False


class Spdy:
    """The server's end of SPDY/3.1: agrees to every stream, and sends back what comes on it.

    Frames have a head of eight bytes. The first bit tells control frames, whose type is in the second half of the first
    word, from data, where the word is the stream. Headers of streams are compressed and nobody needs them here; the
    answer has none, which is compressed, too.
    """

    AGREE, RESET, PING, FINISH = 2, 3, 6, 0x01
    OPEN = 1

    def __init__(self, send: Callable[[bytes], None]) -> None:
        self._send = send
        self._waiting = b""
        self._compress = zlib.compressobj()

    def take(self, data: bytes) -> None:
        self._waiting += data
        while len(self._waiting) >= 8:
            word, rest = struct.unpack(">II", self._waiting[:8])
            size = 8 + (rest & 0xFFFFFF)
            if len(self._waiting) < size:
                return
            frame, self._waiting = self._waiting[:size], self._waiting[size:]
            if word >> 31:
                self._control(word & 0xFFFF, frame)
            else:
                self._send(frame)

    def _control(self, kind: int, frame: bytes) -> None:
        if kind == self.OPEN:
            stream = frame[8:12]
            nothing = self._compress.compress(bytes(4)) + self._compress.flush(zlib.Z_SYNC_FLUSH)
            self._send(struct.pack(">HHI", 0x8003, self.AGREE, 4 + len(nothing)) + stream + nothing)
            if frame[4] & self.FINISH:  # one who says nothing more is told nothing more
                self._send(stream + struct.pack(">I", self.FINISH << 24))
        elif kind == self.PING:
            self._send(frame)
