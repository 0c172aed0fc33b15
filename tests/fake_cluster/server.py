"""A small API server for tests, in a thread of its own, with TLS: well-behaved, or broken in any way a test needs.

    with FakeCluster() as cluster:
        cluster.url, cluster.ca_pem, cluster.build_kubeconfig(token="...")    how to reach it
        cluster.requests                                                    every request, as received
        cluster.set_response("/path", CannedResponse(...)), cluster.set_behaviour("/path", behaviour)

By default it responds like a Kubernetes of one node at /version, /readyz, /api/v1/nodes and for the
namespace kube-system, and reviews who can be impersonated; does what `behaviours.py` lists at /fake/...; opens
WebSockets as in `exec_websockets.py`; and returns any other request as JSON. The fixture is
`from tests.fake_cluster.server import fake_cluster` in a conftest.
"""

import asyncio
import json
import ssl
import tempfile
import threading
from base64 import b64encode
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import pytest
import yaml

from tests.fake_cluster.behaviours import BEHAVIOURS
from tests.fake_cluster.certificates import CertificateAuthority, get_authority
from tests.fake_cluster.exchange import (
    Behaviour,
    CannedResponse,
    RecordedRequest,
    Responder,
    build_json_response,
    build_status_response,
)
from tests.fake_cluster.exec_websockets import serve_websocket

ACCESS_REVIEWS_PATH = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
VERSION = {"major": "1", "minor": "34", "gitVersion": "v1.34.1", "platform": "linux/amd64"}


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """The configuration of a fake cluster. With a `token`, requests need it; without, anonymous ones are accepted."""

    names: tuple[str, ...] = ("127.0.0.1", "localhost")
    days: int = 2
    issuer: CertificateAuthority | None = None
    token: str = ""
    requires_client_certificate: bool = False
    uid: str = "00000000-0000-4000-8000-00000000fa12"
    nodes: int = 1
    denied_impersonations: tuple[str, ...] = ()
    """Resources, such as `users` or `userextras/x`, whose impersonation is denied."""


class FakeCluster:
    def __init__(self, responder: Responder | None = None, options: ClusterOptions | None = None) -> None:
        self.options = options or ClusterOptions()
        self.requests: list[RecordedRequest] = []
        self.connection_count = 0
        """How many were ever opened."""
        self.open_connections: set[int] = set()
        """The numbers of the connections that are open now."""
        self.port = 0
        self._responder = responder
        self.other_requests: Behaviour | None = None
        """What it does with requests for which nothing else is set."""
        self._responses: dict[str, CannedResponse] = {}
        self._behaviours = dict(BEHAVIOURS)
        self._upgrades: dict[str, Behaviour] = {}
        self._early_responses: dict[str, bytes] = {}
        self._authority = get_authority()
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

    def build_kubeconfig(self, token: str = "fake-token", certificate: bool = False, server: str = "") -> bytes:
        """With a token, or with a client certificate for `fake-client` instead."""
        user: dict[str, Any] = {"token": token}
        if certificate:
            pem = self._authority.issue(common_name="fake-client")
            user = {
                "client-certificate-data": _encode_base64(pem.certificate),
                "client-key-data": _encode_base64(pem.key),
            }
        cluster = {"server": server or self.url, "certificate-authority-data": _encode_base64(self.ca_pem)}
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "fake",
            "contexts": [{"name": "fake", "context": {"cluster": "fake", "user": "fake"}}],
            "clusters": [{"name": "fake", "cluster": cluster}],
            "users": [{"name": "fake", "user": user}],
        }
        return yaml.safe_dump(content).encode()

    def set_response(self, path: str, response: CannedResponse) -> None:
        """Sets the response to every method at this path."""
        self._responses[path] = response

    def set_behaviour(self, path: str, behaviour: Behaviour) -> None:
        self._behaviours[path] = behaviour

    def set_upgrade_behaviour(self, path: str, behaviour: Behaviour) -> None:
        """Sets the behaviour for WebSocket requests at this path."""
        self._upgrades[path] = behaviour

    def set_early_response(self, path: str, content: bytes) -> None:
        """Writes these bytes after a request head for this path, and never reads the body."""
        self._early_responses[path] = content

    def request_lines(self) -> list[str]:
        return [f"{each.method} {each.target}" for each in self.requests]

    def stop(self) -> None:
        """Stops like a dead cluster: open connections break, new ones are refused. `start` starts it again."""
        self._run(self._stop())

    def start(self) -> None:
        """Listens at the same port as before, if there was one."""
        self._run(self._start())

    def reload(self, options: ClusterOptions) -> None:
        """Presents another certificate from now on, as an API server does whose files have changed. Open connections
        stay."""
        self.options = options
        if self._tls is not None:
            load_certificate(self._tls, options, self._authority)

    def run_in_thread(self, work: Callable[[], None]) -> None:
        """Runs `work` where the connections are served, and waits for it."""

        async def call() -> None:
            work()

        self._run(call())

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
        self._tls = self._build_context()
        self._server = await asyncio.start_server(
            self._serve, "127.0.0.1", self.port, ssl=self._tls, limit=2**20, backlog=512
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def _stop(self) -> None:
        if self._server is not None:
            # Connections that were accepted just now get their transport in a task that has not begun. It fails, and
            # leaves their socket open, if the server is closed by then (a fault of asyncio), or if it is cancelled.
            for listener in self._server.sockets:
                self._loop.remove_reader(listener.fileno())
            await asyncio.sleep(0)
            self._server.close()
            self._server = None
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        # Connections whose TLS handshake has not ended have no task of ours. Only the event loop knows them.
        for transport in list(vars(self._loop)["_transports"].values()):
            transport.abort()
        await asyncio.sleep(0)  # the event loop closes their sockets

    def _build_context(self) -> ssl.SSLContext:
        context = build_server_context(self.options, self._authority)
        if self.options.requires_client_certificate:
            context.load_verify_locations(cadata=self.ca_pem)
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connection_count += 1
        number = self.connection_count
        self.open_connections.add(number)
        try:
            while await self._serve_request(number, reader, writer):
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError, asyncio.LimitOverrunError):
            writer.transport.abort()
        finally:
            self.open_connections.discard(number)
            writer.close()
            with suppress(OSError, asyncio.CancelledError):
                await writer.wait_closed()
            self._tasks.discard(task)

    async def _serve_request(self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        request = await _read_head(number, reader)
        if request.path in self._early_responses:
            writer.write(self._early_responses[request.path])
            await asyncio.Event().wait()
        request = replace(request, body=await _read_body(request, reader))
        self.requests.append(request)
        if self.options.token and request.header("authorization") != f"Bearer {self.options.token}":
            writer.write(build_status_response(401, "Unauthorized", "Unauthorized").encode(request.method))
            return True
        if request.header("upgrade").lower() == "websocket":
            return await self._upgrades.get(request.path, serve_websocket)(request, reader, writer)
        response = self._responses.get(request.path) or (self._responder(request) if self._responder else None)
        behaviour = self._behaviours.get(request.path, self.other_requests)
        if response is None and behaviour is not None:
            return await behaviour(request, reader, writer)
        writer.write((response or self._build_default_response(request)).encode(request.method))
        return request.header("connection").lower() != "close"

    def _review_access(self, review: dict[str, Any]) -> CannedResponse:
        """As a real server: 201, with the review and its result."""
        return build_json_response(
            {**review, "status": {"allowed": get_reviewed_resource(review) not in self.options.denied_impersonations}},
            201,
        )

    def _build_default_response(self, request: RecordedRequest) -> CannedResponse:
        documents = {
            "/version": VERSION,
            "/api/v1/namespaces/kube-system": {
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {"name": "kube-system", "uid": self.options.uid},
            },
            "/api/v1/nodes": {
                "apiVersion": "v1",
                "kind": "NodeList",
                "metadata": {"resourceVersion": "1"},
                "items": [{"metadata": {"name": f"node-{number}"}} for number in range(self.options.nodes)],
            },
        }
        if request.path in ("/readyz", "/livez", "/healthz"):
            return CannedResponse(body=b"ok", content_type="text/plain; charset=utf-8")
        if request.path == ACCESS_REVIEWS_PATH and request.method == "POST" and request.body:
            return self._review_access(json.loads(request.body))
        if request.path in documents:
            return build_json_response(documents[request.path])
        return build_json_response(
            {
                "method": request.method,
                "path": request.target,
                "headers": [list(each) for each in request.headers],
                "body": request.body.decode("latin-1"),
            }
        )


def get_reviewed_resource(review: dict[str, Any]) -> str:
    attributes = review["spec"]["resourceAttributes"]
    return "/".join(attributes[each] for each in ("resource", "subresource") if each in attributes)


def build_server_context(options: ClusterOptions, default_issuer: CertificateAuthority) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    load_certificate(context, options, default_issuer)
    return context


def load_certificate(context: ssl.SSLContext, options: ClusterOptions, default_issuer: CertificateAuthority) -> None:
    pem = (options.issuer or default_issuer).issue(*options.names, days=options.days)
    with tempfile.TemporaryDirectory() as folder:
        certificate, key = Path(folder, "cert"), Path(folder, "key")
        certificate.write_text(pem.certificate)
        key.write_text(pem.key)
        context.load_cert_chain(certificate, key)


async def _read_head(number: int, reader: asyncio.StreamReader) -> RecordedRequest:
    head = await reader.readuntil(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    method, target, _ = first.split(" ")
    headers = [(name.lower(), value.strip()) for name, _, value in (line.partition(":") for line in lines)]
    return RecordedRequest(method, target, tuple(headers), b"", number, head)


async def _read_body(request: RecordedRequest, reader: asyncio.StreamReader) -> bytes:
    if request.header("transfer-encoding"):
        return await _read_chunks(reader)
    return await reader.readexactly(int(request.header("content-length") or "0"))


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    body = b""
    while size := int(await reader.readuntil(b"\r\n"), 16):
        body += (await reader.readexactly(size + 2))[:-2]
    await reader.readexactly(2)
    return body


def _encode_base64(text: str) -> str:
    return b64encode(text.encode()).decode()


@pytest.fixture
def fake_cluster() -> Iterator[FakeCluster]:
    with FakeCluster() as cluster:
        yield cluster
