"""The client itself: get, list, watch, create, patch and delete on the kinds of the management group.

The key travels in the Authorization header and nowhere else: never in a URL, which proxies and logs keep. No redirect
is followed, as it would take the key along. The HTTP library is imported with the first client, so that commands which
need none start fast.
"""

from __future__ import annotations

import ipaddress
import math
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from fairlead import __version__
from fairlead.client.errors import ApiProblem, ClientError, unreachable
from fairlead.client.tls import trusting
from fairlead.client.watch import Event, followed, split_lines
from fairlead.core import json
from fairlead.core.body_errors import Malformed
from fairlead.core.files import read_file
from fairlead.core.objects import Object

if TYPE_CHECKING:
    import httpx

MANAGEMENT = "/kubernetes/management"
DEFAULT_GROUP = "management.service.sh"
VERSION = "v1"
PAGE = 500
TIMEOUT = 65.0
"""Seconds. A server answers within its own limit, a minute by default, and then says what it waited for."""

WARNING = re.compile(r'\d{3} \S+ "((?:[^"\\]|\\.)*)"')
"""One warning of a Warning header, as RFC 7234 writes it: `299 - "the text"`."""

STRICT = {"fieldValidation": "Strict"}
DRY_RUN = {"dryRun": "All"}
MERGE_PATCH = "application/merge-patch+json"
JSON = "application/json"


class Client:
    """A server and a key. Usable as a context manager; one instance may be shared by threads.

    `ca_file` names a PEM file with the authority that signed the server's certificate, `authority` is such a text
    itself; without either, the machine's authorities are trusted. `insecure` trusts anybody, for a test on a desk.
    `on_warning` is called with each warning that an answer carries; set it to hear them. `timeout` is how many seconds
    to wait for an answer.
    """

    def __init__(
        self,
        url: str,
        key: str = "",
        *,
        ca_file: str | Path | None = None,
        authority: str = "",
        insecure: bool = False,
        group: str = DEFAULT_GROUP,
    ) -> None:
        import httpx

        self.url = normalized(url)
        self.group = group
        self.on_warning: Callable[[str], None] = _pass_over
        self.timeout = TIMEOUT
        if ca_file is not None:
            authority = read_authority(Path(ca_file))
        self._own_authority = bool(authority)
        host = urlsplit(self.url).hostname or ""
        self._http = httpx.Client(
            base_url=self.url,
            verify=_context(authority, insecure),
            headers={"User-Agent": f"fairlead-cli/{__version__}", "Accept": JSON},
            auth=_bearer(key) if key else None,
            # A proxy for the world outside cannot reach this machine's own addresses.
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
        return self.send("GET", self.path(plural, name, subresource, namespace=namespace))

    def list(self, plural: str, *, namespace: str = "", labels: str = "", fields: str = "") -> Iterator[Object]:
        """Every object, in pages of one consistent snapshot. `labels` and `fields` are Kubernetes' selectors."""
        query = {"limit": str(PAGE), **_selection(labels, fields)}
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
        """What is there, as ADDED, then one SYNCED, then every change as it happens, without end: break off to stop.

        A watch that the server ends goes on where it was. One that the server can no longer serve is raised, with the
        code 410; it then takes another call, which begins anew. After so many `seconds`, DeadlinePassed is raised.
        """
        path = self.path(plural, namespace=namespace)
        return followed(lambda query: self._lines(path, query), _selection(labels, fields), seconds)

    def create(self, plural: str, body: Object, *, namespace: str = "") -> Object:
        """The object as the server made it, with what is said only once, such as `spec.key`.

        A body names its kind, unless it is a question that is not stored; its apiVersion may be left out. A field that
        the server does not know is refused: a restriction that is mistyped would otherwise be none.
        """
        path = self.path(plural, namespace=namespace)
        if "kind" not in body:
            return self.send("POST", path, body)
        return self.send("POST", path, {"apiVersion": f"{self.group}/{VERSION}"} | body, query=STRICT)

    def act(
        self, plural: str, name: str, action: str, body: Object, *, namespace: str = "", dry_run: bool = False
    ) -> Object:
        """POST on a subresource that does something: `client.act("ownedaccesskeys", "ci", "rotate", {})`.

        With `dry_run` the server answers as if it did, and does nothing.
        """
        path = self.path(plural, name, action, namespace=namespace)
        if "kind" in body:
            body = {"apiVersion": f"{self.group}/{VERSION}"} | body
        return self.send("POST", path, body, query=DRY_RUN if dry_run else None)

    def patch(self, plural: str, name: str, change: Object, *, namespace: str = "") -> Object:
        """A merge patch: what is named is set, null removes, all else stays."""
        return self.send("PATCH", self.path(plural, name, namespace=namespace), change, media_type=MERGE_PATCH)

    def delete(self, plural: str, name: str, *, namespace: str = "") -> Object:
        return self.send("DELETE", self.path(plural, name, namespace=namespace))

    def whoami(self) -> Object:
        """The status of a Self: who the key stands for, and what it is cut down to."""
        status: Object = self.create("selves", {}).get("status") or {}
        return status

    def path(self, plural: str, *names: str, namespace: str = "") -> str:
        """Where a resource of the management group is. Empty names are left out."""
        return _placed(f"{MANAGEMENT}/apis/{self.group}/{VERSION}", namespace, plural, *names)

    def core_path(self, plural: str, *names: str, namespace: str = "") -> str:
        """The same for the core group, where Secrets are. Such a path is for `send`."""
        return _placed(f"{MANAGEMENT}/api/v1", namespace, plural, *names)

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
        """Any request to the server, with the key. The answer is a JSON object; everything else is raised."""
        import httpx

        content = None if body is None else json.encode(body)
        headers = {"Accept": accept} | ({} if content is None else {"Content-Type": media_type})
        try:
            answer = self._http.request(
                method, path, content=content, params=query, headers=headers, timeout=self.timeout
            )
        except httpx.HTTPError as error:
            raise unreachable(self.url, error, self._own_authority) from error
        if not answer.is_success:
            raise ApiProblem.of(answer.status_code, answer.content, self.url)
        for text in WARNING.findall(", ".join(answer.headers.get_list("Warning"))):
            self.on_warning(re.sub(r"\\(.)", r"\1", text))
        return self._object(answer.content)

    def _lines(self, path: str, query: Mapping[str, str]) -> Iterator[Object]:
        """One streamed answer. The server's bookmarks come more often than the timeout, which so finds dead ends."""
        import httpx

        try:
            with self._http.stream("GET", path, params=query, timeout=self.timeout) as answer:
                if not answer.is_success:
                    raise ApiProblem.of(answer.status_code, answer.read(), self.url)
                for line in split_lines(answer.iter_bytes()):
                    event = self._object(line)
                    if event.get("type") == "ERROR":
                        status = event.get("object")
                        code = status.get("code") if isinstance(status, dict) else None
                        raise ApiProblem.of(code if isinstance(code, int) else 500, json.encode(status), self.url)
                    yield event
        except httpx.HTTPError as error:
            raise unreachable(self.url, error, self._own_authority) from error

    def _object(self, content: bytes) -> Object:
        try:
            value = json.decode(content) if content else {}
        except Malformed:
            value = None
        if not isinstance(value, dict):
            raise ClientError(f"{self.url} answered something that is no JSON object; is a Fairlead server behind it?")
        return value


def _selection(labels: str, fields: str) -> dict[str, str]:
    query = {"labelSelector": labels, "fieldSelector": fields}
    return {name: value for name, value in query.items() if value}


def _pass_over(warning: str) -> None:
    """Programs that do not ask for warnings get none."""


def _bearer(key: str) -> Callable[[httpx.Request], httpx.Request]:
    """Sets the header on each request. A header of the client would show up wherever the client is printed."""
    if not key.isascii() or not key.isprintable() or " " in key:
        raise ClientError("the key has characters that no key has; copy it again, without spaces or line breaks")

    def authorize(request: httpx.Request) -> httpx.Request:
        request.headers["Authorization"] = f"Bearer {key}"
        return request

    return authorize


def normalized(url: str) -> str:
    """The base address of a server: scheme, host and port. A kubeconfig's address is understood, too."""
    advice = "give it like https://fairlead.example.com or https://127.0.0.1:8443"
    text = url.strip().rstrip("/").removesuffix(MANAGEMENT)
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise ClientError(f"{url!r} is not the address of a server; {advice}") from None
    if parts.scheme == "http":
        raise ClientError(f"{url}: keys travel over https only; {advice}")
    if parts.scheme != "https" or not host or port == 0 or parts.path or parts.query or parts.fragment or "@" in text:
        # Not quoted: somebody may have put a password into it.
        raise ClientError(f"this is not the address of a server; {advice}, without anything behind it")
    return text


def read_authority(path: Path) -> str:
    """The text of a CA file. Raises ClientError, or FileProblem where it cannot be read."""
    content = read_file(path)
    if content is None:
        raise ClientError(f"{path}: no such file; name a PEM file with the authority's certificate")
    text = content.decode("ascii", "replace")
    try:
        trusting(text or "nothing")
    except ValueError as error:
        raise ClientError(f"{path}: {error}; name a file with the authority's certificate") from None
    return text


def _context(authority: str, insecure: bool) -> Any:
    try:
        return trusting(authority, insecure)
    except ValueError as error:
        raise ClientError(f"the authority to trust {error}; log in again with --ca-file") from None


def is_loopback(host: str) -> bool:
    """Whether this is the machine itself, to whoever is on it."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _placed(root: str, namespace: str, *names: str) -> str:
    place = ("namespaces", namespace) if namespace else ()
    return "/".join((root, *(segment(name) for name in (*place, *names) if name)))


def segment(name: str) -> str:
    """A name as a step of a path."""
    if not name or name in (".", ".."):
        raise ClientError(f"{name!r} is no name of an object; give its name as lists show it")
    return quote(name, safe="")
