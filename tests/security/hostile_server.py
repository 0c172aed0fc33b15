"""A server that was broken into, as a runner sees it: it answers requests and drives the link as a test says.

The victim is a real `fairlead runner start`. Without instructions the server behaves, so that a test can see whether
the runner still works after an attack.
"""

import asyncio
import base64
import hashlib
import json
import ssl
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from fairlead.core.crypto.certificates import ensure_certificates
from fairlead.links import frames
from fairlead.links.frames import FrameType, Hello
from fairlead.links.requests import OpenRequest
from tests.harness.server_process import TIMEOUT_SECONDS, Server
from tests.live.runner_process import RunnerProcess

NAMESPACE = "service-p-web"
WATCH, LEASE, CONFIG, CREDENTIALS = "/devpodworkspaceinstances", "/leases/", "/config", "/credentials"
RUNNER, STATUS, EVENTS, LINK = "/runners/local", "/status", "/events", "/link"
HELLO = frames.encode_hello(Hello(1, 1, "broken-into"))
WEBSOCKET_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
BINARY, CLOSE = 2, 8
UID = "11111111-2222-4333-8444-555555555555"
SYNCED = {
    "type": "BOOKMARK",
    "object": {"metadata": {"resourceVersion": "10", "annotations": {"k8s.io/initial-events-end": "true"}}},
}

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Answer:
    """A response. `endless` goes on for ever after `content`."""

    content: bytes = b"{}"
    status: int = 200
    headers: tuple[str, ...] = ()
    endless: bytes = b""


def answer_json(value: object, status: int = 200) -> Answer:
    return Answer(json.dumps(value).encode(), status)


def build_workspace(uid: str = UID, name: str = "dev", **changes: Any) -> Json:
    """A workspace as a right server sends it. `changes` replace whole fields of the object."""
    right: Json = {
        "apiVersion": "management.service.sh/v1",
        "kind": "DevPodWorkspaceInstance",
        "metadata": {
            "uid": uid,
            "name": name,
            "namespace": NAMESPACE,
            "generation": 1,
            "resourceVersion": "7",
            "annotations": {"service.sh/workspace-source": "git:https://example.com/repository.git"},
        },
        "spec": {"owner": {"user": "ada"}, "runnerRef": {"runner": "local"}},
        "status": {"instance": {"provider": {"name": "fake"}}, "templateTrust": "Trusted"},
    }
    return right | changes


class HostileLink:
    """The server's end of the WebSocket. The runner has opened it, so streams of the server have even numbers."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def send(self, *messages: bytes) -> None:
        for message in messages:
            self._writer.write(_encode_websocket(message))
            await self._writer.drain()

    async def receive(self, kind: FrameType, stream: int | None = None) -> tuple[int, bytes]:
        """The stream and the payload of the next frame of this type. Raises ConnectionError if the runner ends it."""
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while True:
                found, number, payload = frames.decode_frame(await self._read_message())
                if found is kind and stream in (None, number):
                    return number, payload

    async def wait_ended(self) -> list[tuple[FrameType, int, bytes]]:
        """All frames until the runner ends the link."""
        received = []
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            async with asyncio.timeout(TIMEOUT_SECONDS):
                while True:
                    received.append(frames.decode_frame(await self._read_message()))
        return received

    async def converse(self, request: OpenRequest, stream: int) -> tuple[int, bytes]:
        """The exit code and the output of a stream; or the code of its refusal and the message."""
        await self.send(frames.encode_open(stream, request))
        output = b""
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while True:
                kind, number, payload = frames.decode_frame(await self._read_message())
                if kind is FrameType.PING:
                    await self.send(frames.encode_ping(FrameType.PONG, payload))
                if number != stream:
                    continue
                if kind is FrameType.REFUSE:
                    refusal = frames.decode_refuse(payload)
                    return refusal.code, refusal.message.encode()
                if kind is FrameType.DATA:
                    output += frames.decode_data(payload)[1]
                if kind is FrameType.RESET:
                    code, reason = frames.decode_reason(payload)
                    return -code, reason.encode()
                if kind is FrameType.EXIT:
                    await self.send(frames.encode_reason(FrameType.RESET, stream, 0, ""))
                    return frames.decode_exit(payload), output

    async def _read_message(self) -> bytes:
        first, second = await self._reader.readexactly(2)
        size = second & 0x7F
        if size == 126:
            (size,) = struct.unpack(">H", await self._reader.readexactly(2))
        elif size == 127:
            (size,) = struct.unpack(">Q", await self._reader.readexactly(8))
        mask = await self._reader.readexactly(4)
        masked = await self._reader.readexactly(size)
        if first & 0xF == CLOSE:
            raise ConnectionError("the runner has closed the link")
        return bytes(each ^ mask[index % 4] for index, each in enumerate(masked))


@dataclass(slots=True)
class HostileServer:
    """`answers` replace the response to a method and the end of a path. `lines` are what the watch begins with."""

    url: str = ""
    ca_file: str = ""
    answers: dict[tuple[str, str], Answer | Callable[[Json], Answer]] = field(default_factory=dict)
    lines: list[bytes] = field(default_factory=list)
    requests: list[tuple[str, str, Json]] = field(default_factory=list)
    links: "asyncio.Queue[HostileLink]" = field(default_factory=asyncio.Queue)
    watches: list[asyncio.StreamWriter] = field(default_factory=list)
    lease: Json = field(default_factory=dict)

    def set_workspaces(self, *workspaces: object) -> None:
        """What the next watch lists."""
        events = [{"type": "ADDED", "object": each} for each in workspaces]
        self.lines = [json.dumps(each).encode() for each in (*events, SYNCED)]

    async def send_lines(self, *lines: bytes) -> None:
        """More of the watch that is open."""
        for writer in self.watches:
            with suppress(ConnectionError):
                writer.write(b"".join(line + b"\n" for line in lines))
                await writer.drain()

    def patches(self, name: str = "dev") -> list[Json]:
        """What the runner has reported about a workspace."""
        end = f"/devpodworkspaceinstances/{name}/status"
        return [body for method, path, body in self.requests if method == "PATCH" and path.endswith(end)]

    async def next_link(self) -> HostileLink:
        """The next connection of the runner, after both ends have said hello."""
        async with asyncio.timeout(TIMEOUT_SECONDS):
            link = await self.links.get()
        await link.receive(FrameType.HELLO)
        await link.send(HELLO)
        return link

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError, ssl.SSLError):
            while await self._handle_request(reader, writer):
                pass
        writer.close()

    async def _handle_request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *rest = head.split("\r\n")
        method, target, _ = first.split(" ", 2)
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in rest if line)}
        content = await reader.readexactly(int(headers.get("content-length", "0")))
        path, _, query = target.partition("?")
        body = json.loads(content) if content else {}
        self.requests.append((method, path, body))
        instructed = next((each for (m, end), each in self.answers.items() if m == method and path.endswith(end)), None)
        if instructed is not None:
            await _send(writer, instructed if isinstance(instructed, Answer) else instructed(body))
        elif path.endswith(LINK):
            await self._accept_link(headers["sec-websocket-key"], reader, writer)
        elif path.endswith(WATCH) and "watch=true" in query:
            await self._serve_watch(reader, writer)
        else:
            await _send(writer, self._behave(method, path, body))
            return True
        return False

    def _behave(self, method: str, path: str, body: Json) -> Answer:
        if LEASE in path:
            if method == "GET":
                return answer_json(self.lease) if self.lease else answer_json({"kind": "Status", "message": "no"}, 404)
            self.lease = body
            return answer_json(body | {"metadata": body["metadata"] | {"resourceVersion": "1"}})
        if path.endswith(CONFIG):
            return answer_json({"serviceInstanceID": "installation"})
        if path.endswith(CREDENTIALS):
            return answer_json({})
        if path.endswith(RUNNER):
            return answer_json({"metadata": {"name": "local", "uid": "runner-uid"}, "status": {}})
        if method == "PATCH" and WATCH in path:
            name = path.split("/")[-2]
            listed = [json.loads(line).get("object") for line in self.lines]
            known: Json = next((each for each in listed if each.get("metadata", {}).get("name") == name), {})
            return answer_json(known | {"status": (known.get("status") or {}) | body["status"]})
        return answer_json(body)

    async def _serve_watch(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n")
        for line in self.lines:
            writer.write(line + b"\n")
            await writer.drain()
        self.watches.append(writer)
        try:
            await reader.read(1)
        finally:
            self.watches.remove(writer)

    async def _accept_link(self, key: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accept = base64.b64encode(hashlib.sha1(key.encode() + WEBSOCKET_GUID, usedforsecurity=False).digest()).decode()
        upgrade = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        writer.write(f"{upgrade}Sec-WebSocket-Accept: {accept}\r\n\r\n".encode())
        await writer.drain()
        self.links.put_nowait(HostileLink(reader, writer))
        await writer.wait_closed()


def _encode_websocket(message: bytes) -> bytes:
    size = len(message)
    if size < 126:
        length = bytes((size,))
    elif size < 2**16:
        length = b"\x7e" + struct.pack(">H", size)
    else:
        length = b"\x7f" + struct.pack(">Q", size)
    return bytes((0x80 | BINARY,)) + length + message


async def _send(writer: asyncio.StreamWriter, answer: Answer) -> None:
    lines = [f"HTTP/1.1 {answer.status} Answer", "content-type: application/json", *answer.headers]
    lines.append("connection: close" if answer.endless else f"content-length: {len(answer.content)}")
    writer.write("\r\n".join([*lines, "", ""]).encode() + answer.content)
    await writer.drain()
    while answer.endless:
        writer.write(answer.endless)
        await writer.drain()
        await asyncio.sleep(0)  # otherwise the end of the connection may never be noticed: `drain` need not wait


@dataclass(slots=True)
class Victim:
    """The runner process. `folder` has its state, its key and its log, and nothing else."""

    process: RunnerProcess
    folder: Path

    def is_alive(self) -> bool:
        return self.process.processes[-1].poll() is None

    def resident_bytes(self) -> int:
        status = Path(f"/proc/{self.process.processes[-1].pid}/status").read_text()
        (line,) = [line for line in status.splitlines() if line.startswith("VmRSS:")]
        return int(line.split()[1]) * 1024

    def count_descriptors(self) -> int:
        return len(list(Path(f"/proc/{self.process.processes[-1].pid}/fd").iterdir()))

    def check_folder(self) -> None:
        """Nothing was written beside the state folder."""
        assert sorted(path.name for path in self.folder.iterdir()) == ["key", "log", "state"]


@asynccontextmanager
async def hostile_server(folder: Path) -> AsyncIterator[HostileServer]:
    certificates = ensure_certificates(folder / "certificates", ("127.0.0.1",))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.cert_file, certificates.key_file)
    hostile = HostileServer(ca_file=str(certificates.ca_file))
    hostile.set_workspaces()
    server = await asyncio.start_server(hostile.handle, "127.0.0.1", 0, ssl=context)
    hostile.url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield hostile
    finally:
        server.close()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()


@asynccontextmanager
async def victim_of(
    server: HostileServer, folder: Path, engine: str = "", flags: tuple[str, ...] = ()
) -> AsyncIterator[Victim]:
    """A runner that has registered at the server."""
    _write_key(folder)
    environment = {"FAKE_ENGINE_SECONDS": "0.01"}
    process = RunnerProcess(cast(Server, server), folder, environment=environment, flags=flags)
    if engine:
        process.engine = engine
    try:
        await asyncio.to_thread(process.start)
        yield Victim(process, folder)
    finally:
        await asyncio.to_thread(process.close)


def _write_key(folder: Path) -> None:
    folder.mkdir()
    (folder / "key").write_text("key-of-the-runner")
    (folder / "key").chmod(0o600)
