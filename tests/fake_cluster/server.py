"""A small API server for tests, in a thread of its own, with TLS: well-behaved, or broken in any way that is asked for.

    with FakeCluster() as far:
        far.url, far.ca_pem, far.kubeconfig(token="...")    how to reach it
        far.seen                                            every request that came, as it came
        far.answer("/some/path", Answer(...)), far.behave("/some/path", behaviour)

Without any of these it says what a Kubernetes of one node says at /version, /readyz, /api/v1/nodes and for the
namespace kube-system, and reviews what may be impersonated; does what `behaviours.py` lists at /far/...; opens
WebSockets as `exec_websockets.py` says; and anything else comes back as JSON of what was asked. The fixture is
`from tests.fake_cluster.server import fake_cluster` in a conftest.
"""

import asyncio
import json
import ssl
import tempfile
import threading
from base64 import b64encode
from collections.abc import Coroutine, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import pytest
import yaml

from tests.fake_cluster.behaviours import BEHAVIOURS
from tests.fake_cluster.certificates import Authority, authority
from tests.fake_cluster.exchange import Answer, Answering, Behaviour, RecordedRequest, as_json, status_object
from tests.fake_cluster.exec_websockets import socket

REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
VERSION = {"major": "1", "minor": "34", "gitVersion": "v1.34.1", "platform": "linux/amd64"}


@dataclass(frozen=True, slots=True)
class ClusterBehaviour:
    """How a far side presents itself. `token`: the only one it lets in; empty: everybody is welcome."""

    names: tuple[str, ...] = ("127.0.0.1", "localhost")
    days: int = 2
    issuer: Authority | None = None
    token: str = ""
    wants_certificate: bool = False
    uid: str = "00000000-0000-4000-8000-00000000fa12"
    nodes: int = 1
    refused: tuple[str, ...] = ()
    """Resources, such as `users` or `userextras/x`, that nobody may impersonate here."""


class FakeCluster:
    def __init__(self, answering: Answering | None = None, manner: ClusterBehaviour | None = None) -> None:
        self.manner = manner or ClusterBehaviour()
        self.seen: list[RecordedRequest] = []
        self.connections = 0
        """How many were ever made."""
        self.open: set[int] = set()
        """Those that are open now, by number."""
        self.port = 0
        self._answering = answering
        self._answers: dict[str, Answer] = {}
        self._behaviours = dict(BEHAVIOURS)
        self._upgrades: dict[str, Behaviour] = {}
        self._early: dict[str, bytes] = {}
        self._authority = authority()
        self._loop = asyncio.SelectorEventLoop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._server: asyncio.Server | None = None
        self._tls: ssl.SSLContext | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    # --- for tests ---------------------------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    @property
    def ca_pem(self) -> str:
        return self._authority.pem

    def kubeconfig(self, token: str = "far-token", certificate: bool = False, server: str = "") -> bytes:
        """With a token, or with a client certificate for `far-client` in its stead."""
        user: dict[str, Any] = {"token": token}
        if certificate:
            pem = self._authority.issue(common_name="far-client")
            user = {"client-certificate-data": _base64(pem.certificate), "client-key-data": _base64(pem.key)}
        cluster = {"server": server or self.url, "certificate-authority-data": _base64(self.ca_pem)}
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "far",
            "contexts": [{"name": "far", "context": {"cluster": "far", "user": "far"}}],
            "clusters": [{"name": "far", "cluster": cluster}],
            "users": [{"name": "far", "user": user}],
        }
        return yaml.safe_dump(content).encode()

    def answer(self, path: str, answer: Answer) -> None:
        """From now on, whatever the method, this is what comes from this path."""
        self._answers[path] = answer

    def behave(self, path: str, behaviour: Behaviour) -> None:
        self._behaviours[path] = behaviour

    def behave_on_upgrade(self, path: str, behaviour: Behaviour) -> None:
        """The same for those who ask for a WebSocket there."""
        self._upgrades[path] = behaviour

    def early(self, path: str, content: bytes) -> None:
        """Writes these bytes as soon as a head for this path has come, and never reads the body."""
        self._early[path] = content

    def paths(self) -> list[str]:
        return [f"{each.method} {each.target}" for each in self.seen]

    def stop(self) -> None:
        """Gone, as a dead cluster is: open connections break, new ones are refused. `start` brings it back."""
        self._run(self._stop())

    def start(self) -> None:
        """At the same port, if it has had one."""
        self._run(self._start())

    def reload(self, manner: ClusterBehaviour) -> None:
        """Presents another certificate from now on, as an API server does whose files have changed: connections that
        are open stay."""
        self.manner = manner
        if self._tls is not None:
            load_certificate(self._tls, manner, self._authority)

    def __enter__(self) -> Self:
        self._thread.start()
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    # --- in its own thread -------------------------------------------------------------------------------------------

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    async def _start(self) -> None:
        self._tls = self._context()
        self._server = await asyncio.start_server(
            self._serve, "127.0.0.1", self.port, ssl=self._tls, limit=2**20, backlog=512
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def _stop(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _context(self) -> ssl.SSLContext:
        context = server_context(self.manner, self._authority)
        if self.manner.wants_certificate:
            context.load_verify_locations(cadata=self.ca_pem)
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        number = self.connections
        self.open.add(number)
        try:
            while await self._once(number, reader, writer):
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError, asyncio.LimitOverrunError):
            writer.transport.abort()
        finally:
            self._tasks.discard(task)
            self.open.discard(number)
            writer.close()
            with suppress(OSError, asyncio.CancelledError):
                await writer.wait_closed()

    async def _once(self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        asked = await _head(number, reader)
        if asked.path in self._early:
            writer.write(self._early[asked.path])
            await asyncio.Event().wait()
        asked = replace(asked, body=await _body(asked, reader))
        self.seen.append(asked)
        if self.manner.token and asked.header("authorization") != f"Bearer {self.manner.token}":
            writer.write(status_object(401, "Unauthorized", "Unauthorized").wire(asked.method))
            return True
        if asked.header("upgrade").lower() == "websocket":
            return await self._upgrades.get(asked.path, socket)(asked, reader, writer)
        answer = self._answers.get(asked.path) or (self._answering(asked) if self._answering else None)
        behaviour = self._behaviours.get(asked.path)
        if answer is None and behaviour is not None:
            return await behaviour(asked, reader, writer)
        writer.write((answer or self._usual(asked)).wire(asked.method))
        return asked.header("connection").lower() != "close"

    def _reviewed(self, review: dict[str, Any]) -> Answer:
        """As a real server answers: 201, with what was asked and the verdict."""
        return as_json({**review, "status": {"allowed": review_resource(review) not in self.manner.refused}}, 201)

    def _usual(self, asked: RecordedRequest) -> Answer:
        known = {
            "/version": VERSION,
            "/api/v1/namespaces/kube-system": {
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {"name": "kube-system", "uid": self.manner.uid},
            },
            "/api/v1/nodes": {
                "apiVersion": "v1",
                "kind": "NodeList",
                "metadata": {"resourceVersion": "1"},
                "items": [{"metadata": {"name": f"node-{number}"}} for number in range(self.manner.nodes)],
            },
        }
        if asked.path in ("/readyz", "/livez", "/healthz"):
            return Answer(body=b"ok", content_type="text/plain; charset=utf-8")
        if asked.path == REVIEWS and asked.method == "POST" and asked.body:
            return self._reviewed(json.loads(asked.body))
        if asked.path in known:
            return as_json(known[asked.path])
        return as_json(
            {
                "method": asked.method,
                "path": asked.target,
                "headers": [list(each) for each in asked.headers],
                "body": asked.body.decode("latin-1"),
            }
        )


def review_resource(review: dict[str, Any]) -> str:
    attributes = review["spec"]["resourceAttributes"]
    return "/".join(attributes[each] for each in ("resource", "subresource") if each in attributes)


def server_context(manner: ClusterBehaviour, usual: Authority) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    load_certificate(context, manner, usual)
    return context


def load_certificate(context: ssl.SSLContext, manner: ClusterBehaviour, usual: Authority) -> None:
    pem = (manner.issuer or usual).issue(*manner.names, days=manner.days)
    with tempfile.TemporaryDirectory() as folder:
        certificate, key = Path(folder, "cert"), Path(folder, "key")
        certificate.write_text(pem.certificate)
        key.write_text(pem.key)
        context.load_cert_chain(certificate, key)


async def _head(number: int, reader: asyncio.StreamReader) -> RecordedRequest:
    head = await reader.readuntil(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    method, target, _ = first.split(" ")
    headers = [(name.lower(), value.strip()) for name, _, value in (line.partition(":") for line in lines)]
    return RecordedRequest(method, target, tuple(headers), b"", number, head)


async def _body(asked: RecordedRequest, reader: asyncio.StreamReader) -> bytes:
    if asked.header("transfer-encoding"):
        return await _chunks(reader)
    return await reader.readexactly(int(asked.header("content-length") or "0"))


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    body = b""
    while size := int(await reader.readuntil(b"\r\n"), 16):
        body += (await reader.readexactly(size + 2))[:-2]
    await reader.readexactly(2)
    return body


def _base64(text: str) -> str:
    return b64encode(text.encode()).decode()


@pytest.fixture
def fake_cluster() -> Iterator[FakeCluster]:
    with FakeCluster() as far:
        yield far
