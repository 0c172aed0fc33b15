"""HTTP as the runner needs it: requests on one kept-alive connection, exactly as written, and streams on their own."""

import http.client
import json
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import yaml

Json = Any
USER_AGENT = "conformance-generated/1"
TIMEOUT_SECONDS = 30.0


class _Loader(yaml.SafeLoader):
    """YAML as Kubernetes reads it: what looks like a time is text."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


@dataclass(frozen=True, slots=True)
class Target:
    """An API server: its URL, the path below which it serves the API, and the key of an administrator.

    Without `ca_file`, certificates are not verified: a reference on loopback has one that it made itself.
    """

    url: str
    token: str
    prefix: str = ""
    ca_file: str = ""

    def connect(self) -> http.client.HTTPConnection:
        parts = urlsplit(self.url)
        host, port = parts.hostname or "", parts.port
        if parts.scheme != "https":
            return http.client.HTTPConnection(host, port or 80, timeout=TIMEOUT_SECONDS)
        context = ssl.create_default_context(cafile=self.ca_file or None)
        if not self.ca_file:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return http.client.HTTPSConnection(host, port or 443, timeout=TIMEOUT_SECONDS, context=context)

    @property
    def root(self) -> str:
        return urlsplit(self.url).path.rstrip("/") + self.prefix


_NO_EFFECT = re.compile(r'299 - "[^ "]+ (has no effect|is not supported|is deprecated and has no effect)\b')
"""A warning about a field without effect. The reference serves the kinds from definitions that know nothing of that."""


@dataclass(frozen=True, slots=True)
class Response:
    """A response: its body as JSON (also if it was YAML), or as text."""

    status: int
    format: str
    body: Json
    warnings: int


@dataclass(slots=True)
class Connection:
    """One connection to a target, made anew when the server has closed it."""

    target: Target
    _open: http.client.HTTPConnection | None = field(default=None)

    def send(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Response:
        for attempt in (1, 2):
            fresh = self._open is None
            connection = self._open = self._open or self.target.connect()
            try:
                response = _send(connection, self.target, (method, path, body), headers or {})
                data = response.read()
            except (http.client.HTTPException, OSError) as error:
                self.close()
                if (fresh or attempt > 1) and isinstance(error, http.client.RemoteDisconnected):
                    return Response(500, "closed", None, 0)  # what a server does that cannot answer
                if fresh or attempt > 1:
                    raise
                continue
            if response.will_close:
                self.close()
            return _decode(response, data)
        raise AssertionError("the second attempt returns or raises")

    def send_json(self, method: str, path: str, body: Json = None, media_type: str = "application/json") -> Response:
        data = None if body is None else json.dumps(body).encode()
        return self.send(method, path, data, {} if data is None else {"Content-Type": media_type})

    def stream(
        self, path: str, headers: Mapping[str, str]
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        connection = self.target.connect()
        return connection, _send(connection, self.target, ("GET", path, None), headers)

    def close(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None


def decode_stream_rejection(response: http.client.HTTPResponse) -> Response:
    return _decode(response, response.read())


def _send(
    connection: http.client.HTTPConnection,
    target: Target,
    request: tuple[str, str, bytes | None],
    headers: Mapping[str, str],
) -> http.client.HTTPResponse:
    method, path, body = request
    usual = {"Accept": "application/json", "User-Agent": USER_AGENT, "Authorization": f"Bearer {target.token}"}
    connection.putrequest(method, target.root + path, skip_accept_encoding=True)
    for name, value in (usual | dict(headers)).items():
        connection.putheader(name, value)
    if body is not None or method in ("POST", "PUT", "PATCH"):
        connection.putheader("Content-Length", str(len(body or b"")))
    connection.endheaders(body)
    return connection.getresponse()


def _decode(response: http.client.HTTPResponse, data: bytes) -> Response:
    texts = [text for name, text in response.getheaders() if name.lower() == "warning"]
    warnings = sum(1 for text in texts if _NO_EFFECT.match(text) is None)
    media_type = (response.getheader("Content-Type") or "").lower()
    text = data.decode("utf-8", "replace")
    if "json" in media_type:
        return Response(response.status, "json", json.loads(text), warnings)
    if "yaml" in media_type:
        return Response(response.status, "yaml", yaml.load(text, Loader=_Loader), warnings)
    return Response(response.status, "text" if text else "empty", None, warnings)
