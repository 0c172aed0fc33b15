"""`Client`: get, list, watch, create, patch and delete for the resources of the management API.

The access key is sent only in the Authorization header, never in a URL, which proxies and logs record. Redirects are
not followed, because they would leak the key. httpx is imported with the first client, so that commands without
requests start fast.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from fairlead import __version__
from fairlead.client.errors import ApiStatusError, ClientError, Unreachable, connection_error
from fairlead.client.tls import build_ssl_context
from fairlead.client.watch import Event, split_lines, stream_events
from fairlead.core import json
from fairlead.core.addresses import is_loopback
from fairlead.core.body_errors import Malformed
from fairlead.core.files import read_file
from fairlead.core.objects import Object

if TYPE_CHECKING:
    import httpx

MANAGEMENT = "/kubernetes/management"
DEFAULT_GROUP = "management.service.sh"
GATEWAY_PATTERN = re.compile(r"/kubernetes/(cluster/[^/?#]+|project/[^/?#]+/(space|virtualcluster)/[^/?#]+)$")
"""The path of a gateway at the end of a URL, as kubeconfigs have it."""

PROGRAM = "fairlead-cli"
"""The program in the header User-Agent, which is also the field manager of what it writes."""
VERSION = "v1"
PAGE_SIZE = 500
TIMEOUT_SECONDS = 65.0
"""Longer than the server's own request timeout, a minute by default, whose error says what it waited for."""

MAX_RESPONSE_BYTES = 512 * 1024 * 1024
"""Of one response, decompressed, and of one line of a stream. A page of a list has at most 500 objects."""

WARNING_PATTERN = re.compile(r'\d{3} \S+ "((?:[^"\\]|\\.)*)"')
"""One warning of a Warning header (RFC 7234): `299 - "the text"`."""

NOT_UTF8 = "a part of the request is not valid UTF-8; check its names and values, and the locale of the terminal"
STRICT_VALIDATION = {"fieldValidation": "Strict"}
DRY_RUN = {"dryRun": "All"}
MERGE_PATCH = "application/merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
JSON = "application/json"


class Client:
    """Client for one server, with an access key. Usable as a context manager, and safe to share between threads.

    `key` can be a function that returns the key for each request, if it is short-lived.

    `ca_file` is a PEM file with the CA of the server certificate, `authority` the PEM text itself; without either, the
    system's CA certificates are trusted. `insecure` disables certificate verification, for tests only. `on_warning` is
    called with each warning of a response; by default warnings are ignored. `timeout` is the longest silence of the
    server in seconds; `max_response_bytes` and `max_response_seconds` bound a response as a whole.
    """

    def __init__(
        self,
        url: str,
        key: str | Callable[[], str] = "",
        *,
        ca_file: str | Path | None = None,
        authority: str = "",
        insecure: bool = False,
        group: str = DEFAULT_GROUP,
    ) -> None:
        import httpx

        self.url = normalize_url(url)
        self.group = group
        self.on_warning: Callable[[str], None] = _ignore_warning
        self.timeout = TIMEOUT_SECONDS
        self.max_response_bytes = MAX_RESPONSE_BYTES
        self.max_response_seconds = math.inf
        if ca_file is not None:
            authority = read_ca_file(Path(ca_file))
        self._has_custom_ca = bool(authority)
        host = urlsplit(self.url).hostname or ""
        self._http = httpx.Client(
            base_url=self.url,
            verify=_ssl_context(authority, insecure),
            headers={"User-Agent": f"{PROGRAM}/{__version__}", "Accept": JSON},
            auth=_bearer_auth(key) if key else None,
            # An HTTP proxy cannot reach loopback addresses of this host.
            trust_env=not is_loopback(host),
        )

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def get(self, plural: str, name: str, subresource: str = "", *, namespace: str = "") -> Object:
        names = (name, subresource) if subresource else (name,)
        return self.send("GET", self.path(plural, *names, namespace=namespace))

    def list(self, plural: str, *, namespace: str = "", labels: str = "", fields: str = "") -> Iterator[Object]:
        """Yields all objects, in pages of one consistent snapshot. `labels` and `fields` are Kubernetes selectors."""
        query = {"limit": str(PAGE_SIZE), **_selector_query(labels, fields)}
        while True:
            page = self.send("GET", self.path(plural, namespace=namespace), query=query)
            yield from page.get("items") or ()
            token = page.get("metadata", {}).get("continue")
            if not token:
                return
            query["continue"] = token

    def watch(
        self, plural: str, *, namespace: str = "", labels: str = "", fields: str = "", seconds: float = math.inf
    ) -> Iterator[Event]:
        """Yields existing objects as ADDED, then one SYNCED, then all changes, endlessly.

        Resumes a watch that the server closes. If its resourceVersion has expired, raises ApiStatusError with code 410;
        call `watch` again to start over. Raises DeadlineExceeded after `seconds`.
        """
        return self.watch_path(self.path(plural, namespace=namespace), labels=labels, fields=fields, seconds=seconds)

    def watch_path(
        self,
        path: str,
        *,
        labels: str = "",
        fields: str = "",
        seconds: float = math.inf,
        accept: str = JSON,
        since: str = "",
    ) -> Iterator[Event]:
        """Like `watch`, for the resource at a path. `accept` can select another form of the objects, such as tables.
        With `since`, a resourceVersion, only what happens after it."""
        selectors = _selector_query(labels, fields)
        return stream_events(lambda query: self._stream_events(path, query, accept), selectors, seconds, since)

    def create(self, plural: str, body: Object, *, namespace: str = "") -> Object:
        """Returns the created object, including one-time fields such as `spec.key`.

        The body must have a kind, unless it is a review that is not stored; apiVersion may be omitted. Field validation
        is strict: a mistyped restriction would otherwise be silently ignored.
        """
        path = self.path(plural, namespace=namespace)
        if "kind" not in body:
            return self.send("POST", path, body)
        return self.send("POST", path, {"apiVersion": f"{self.group}/{VERSION}"} | body, query=STRICT_VALIDATION)

    def invoke_action(
        self, plural: str, name: str, action: str, body: Object, *, namespace: str = "", dry_run: bool = False
    ) -> Object:
        """POST to an action subresource: `client.invoke_action("ownedaccesskeys", "ci", "rotate", {})`.

        `dry_run` is a server-side dry run.
        """
        path = self.path(plural, name, action, namespace=namespace)
        if "kind" in body:
            body = {"apiVersion": f"{self.group}/{VERSION}"} | body
        return self.send("POST", path, body, query=DRY_RUN if dry_run else None)

    def patch(self, plural: str, name: str, change: Object, *, namespace: str = "") -> Object:
        """Applies a JSON merge patch."""
        return self.send("PATCH", self.path(plural, name, namespace=namespace), change, media_type=MERGE_PATCH)

    def delete(self, plural: str, name: str, *, namespace: str = "", uid: str = "") -> Object:
        """Deletes an object. With a uid, only if it is that one and not a later object of the same name."""
        body = {"preconditions": {"uid": uid}} if uid else None
        return self.send("DELETE", self.path(plural, name, namespace=namespace), body)

    def whoami(self) -> Object:
        """Returns the status of a Self: the user of the access key, and the key's scope."""
        status: Object = self.create("selves", {}).get("status") or {}
        return status

    def path(self, plural: str, *names: str, namespace: str = "") -> str:
        """Path of a resource in the management group. Raises ClientError for an empty name."""
        return build_path(f"{MANAGEMENT}/apis/{self.group}/{VERSION}", namespace, plural, *names)

    def core_path(self, plural: str, *names: str, namespace: str = "") -> str:
        """Path of a resource in the core group, such as Secrets, for `send`. Raises ClientError for an empty name."""
        return build_path(f"{MANAGEMENT}/api/v1", namespace, plural, *names)

    def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: Mapping[str, str] | None = None,
        media_type: str = JSON,
        accept: str = JSON,
    ) -> Object:
        """Sends a request with the access key. Returns the JSON object of the response, or raises ClientError."""
        import httpx

        content = None if body is None else _encode_body(body)
        headers = {"Accept": accept} | ({} if content is None else {"Content-Type": media_type})
        try:
            with self._http.stream(
                method, path, content=content, params=query, headers=headers, timeout=self.timeout
            ) as response:
                answer = self._read_response(response)
        except UnicodeEncodeError as error:
            raise ClientError(f"{NOT_UTF8} ({error.object!r})") from None
        except httpx.HTTPError as error:
            raise connection_error(self.url, error, self._has_custom_ca) from error
        if not response.is_success:
            raise ApiStatusError.parse(response.status_code, answer, self.url)
        for text in WARNING_PATTERN.findall(", ".join(response.headers.get_list("Warning"))):
            self.on_warning(re.sub(r"\\(.)", r"\1", text))
        return self._decode_object(answer)

    def send_form(self, path: str, fields: Mapping[str, str]) -> Object:
        """Posts a form to an endpoint of OAuth. Returns the JSON object of the response, also of an error of OAuth."""
        import httpx

        try:
            response = self._http.post(path, data=dict(fields), timeout=self.timeout)
        except httpx.HTTPError as error:
            raise connection_error(self.url, error, self._has_custom_ca) from error
        try:
            value = json.decode(response.content)
        except Malformed:
            value = None
        if isinstance(value, dict) and (response.is_success or isinstance(value.get("error"), str)):
            return value
        raise ApiStatusError.parse(response.status_code, response.content, self.url)

    def _stream_events(self, path: str, query: Mapping[str, str], accept: str) -> Iterator[Object]:
        """Yields the events of one watch request. Bookmarks are frequent, so the timeout detects dead connections."""
        for event in self.stream_objects(path, query, accept=accept):
            if event.get("type") == "ERROR":
                status = event.get("object")
                code = status.get("code") if isinstance(status, dict) else None
                raise ApiStatusError.parse(code if isinstance(code, int) else 500, json.encode(status), self.url)
            if not isinstance(event.get("object") or {}, dict):
                raise ClientError(f"{self.url}: an event of the watch has no object; is this a Fairlead server?")
            yield event

    def stream_objects(
        self, path: str, query: Mapping[str, str], *, accept: str = JSON, timeout: float | None = None
    ) -> Iterator[Object]:
        """Yields the JSON objects of a response, one per line, as they arrive. `timeout` is the longest silence."""
        import httpx

        try:
            headers, seconds = {"Accept": accept}, self.timeout if timeout is None else timeout
            with self._http.stream("GET", path, params=query, headers=headers, timeout=seconds) as response:
                if not response.is_success:
                    raise ApiStatusError.parse(response.status_code, self._read_response(response), self.url)
                for line in split_lines(response.iter_bytes(), self._check_size):
                    yield self._decode_object(line)
        except UnicodeEncodeError as error:
            raise ClientError(f"{NOT_UTF8} ({error.object!r})") from None
        except httpx.HTTPError as error:
            raise connection_error(self.url, error, self._has_custom_ca) from error

    def _read_response(self, response: httpx.Response) -> bytes:
        """The body, unless it is too large or takes too long."""
        deadline = time.monotonic() + self.max_response_seconds
        body = bytearray()
        for chunk in response.iter_bytes():
            body += chunk
            self._check_size(len(body))
            if time.monotonic() > deadline:
                raise Unreachable(f"{self.url}: timed out in the middle of a response; check the network and try again")
        return bytes(body)

    def _check_size(self, size: int) -> None:
        if size > self.max_response_bytes:
            limit = f"{self.max_response_bytes >> 20} MiB"
            raise ClientError(f"{self.url}: a response has more than {limit}; is this a Fairlead server?")

    def _decode_object(self, content: bytes) -> Object:
        try:
            value = json.decode(content) if content else {}
        except Malformed:
            value = None
        if not isinstance(value, dict):
            raise ClientError(f"{self.url}: the response is not a JSON object; is this a Fairlead server?")
        return value


def _encode_body(body: Any) -> bytes:
    try:
        return json.encode(body)
    except TypeError as error:
        raise ClientError(f"{NOT_UTF8} ({error})") from None


def _selector_query(labels: str, fields: str) -> dict[str, str]:
    query = {"labelSelector": labels, "fieldSelector": fields}
    return {name: value for name, value in query.items() if value}


def _ignore_warning(warning: str) -> None:
    """The default `on_warning`."""


def _bearer_auth(key: str | Callable[[], str]) -> Callable[[httpx.Request], httpx.Request]:
    """Sets the header per request. A default header would show up when the httpx client is printed."""
    if not callable(key):
        _check_key(key)

    def add_header(request: httpx.Request) -> httpx.Request:
        request.headers["Authorization"] = f"Bearer {key() if callable(key) else key}"
        return request

    return add_header


def _check_key(key: str) -> None:
    if not key.isascii() or not key.isprintable() or " " in key:
        raise ClientError("the key has invalid characters; copy it again, without spaces or line breaks")


def normalize_url(url: str) -> str:
    """The base URL of a server: scheme, host and port. Also accepts a host, and the server URL of a kubeconfig, which
    has the path of the management API or of a gateway."""
    advice = "use a URL like https://fairlead.example.com or https://127.0.0.1:8443"
    text = GATEWAY_PATTERN.sub("", url.strip().rstrip("/").removesuffix(MANAGEMENT))
    if text and "://" not in url:
        text = f"https://{text}"
    quoted = "this" if "@" in url else repr(url)  # it may contain a password
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise ClientError(f"{quoted} is not a server URL; {advice}") from None
    if parts.scheme == "http":
        advice = advice if "@" in url else f"use https{text.removeprefix('http')}"
        raise ClientError(f"{quoted} is not an https URL, and access keys are sent over https only; {advice}")
    if parts.scheme != "https" or not host or port == 0 or parts.path or parts.query or parts.fragment or "@" in text:
        raise ClientError(f"{quoted} is not a server URL; {advice}, without path or query")
    return text


def read_ca_file(path: Path) -> str:
    """Reads a CA file. Raises ClientError, or FileProblem if it cannot be read."""
    content = read_file(path)
    if content is None:
        raise ClientError(f"{path}: no such file; specify a PEM file with the CA certificate")
    text = content.decode("ascii", "replace")
    try:
        build_ssl_context(text or "nothing")
    except ValueError as error:
        raise ClientError(f"{path}: {error}; specify a PEM file with the CA certificate") from None
    return text


def _ssl_context(authority: str, insecure: bool) -> Any:
    try:
        return build_ssl_context(authority, insecure)
    except ValueError as error:
        raise ClientError(f"the CA data {error}; log in again with --ca-file") from None


def build_path(root: str, namespace: str, *names: str) -> str:
    """Path of a resource below a group version. Raises ClientError for an empty name: the path without it is that of
    all objects, and a DELETE would delete them all."""
    scope = ("namespaces", namespace) if namespace else ()
    return "/".join((root, *(quote_segment(name) for name in (*scope, *names))))


def quote_segment(name: str) -> str:
    """Percent-encodes a name as a path segment."""
    if not name:
        raise ClientError("the name of the object is empty; use a name as shown in lists")
    if name in (".", "..") or "/" in name:  # servers decode %2F before they split a path
        raise ClientError(f"{name!r} is not a valid object name; use a name as shown in lists")
    try:
        return quote(name, safe="")
    except UnicodeEncodeError:
        raise ClientError(f"{NOT_UTF8} ({name!r})") from None
