"""Response headers, and the pipeline stages that change a response: gzip compression, custom headers of the Config."""

import gzip
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping

from fairlead.core.call import Call, Reply
from fairlead.core.concurrency import COMPUTE_POOL

MIN_GZIP_BYTES = 128 * 1024
GZIP_LEVEL = 1
"""The fastest: on typical networks, latency matters more than size."""
MAX_WARNING_BYTES = 4 * 1024
NOT_MODIFIED = 304
NOSNIFF = (b"x-content-type-options", b"nosniff")
"""Sent with every response to prevent MIME sniffing, unless the custom headers of the Config set it."""
BODYLESS_STATUSES = frozenset({204, NOT_MODIFIED})
"""Responses without a body have no Content-Type: clients copy the headers of a 304 into their cached response."""

NOT_CACHEABLE = (b"cache-control", b"no-cache, private")
_PLAIN_REPLIES = frozenset({(200, "application/json", False), (201, "application/json", False)})
"""Status, content type, and whether it is cacheable, of nearly all responses."""
_PLAIN_HEADERS = (NOSNIFF, (b"content-type", b"application/json"), NOT_CACHEABLE)


def compress(call: Call, reply: Reply) -> Awaitable[Reply] | None:
    """The stage that compresses large responses with gzip, in a thread, if the client accepts it."""
    if len(reply.body) <= MIN_GZIP_BYTES or not accepts_gzip(call.headers.get("accept-encoding", "")):
        return None
    is_encoded = any(name.lower() == "content-encoding" for name, _ in reply.headers)
    return None if is_encoded else _compress_body(reply)


async def _compress_body(reply: Reply) -> Reply:
    reply.body = await COMPUTE_POOL.run(len(reply.body), gzip.compress, reply.body, GZIP_LEVEL)
    reply.headers += [("content-encoding", "gzip"), ("vary", "Accept-Encoding")]
    return reply


def accepts_gzip(header: str) -> bool:
    """Whether an Accept-Encoding header lists gzip with a quality other than zero."""
    for entry in header.split(","):
        coding, *parameters = (part.strip().lower() for part in entry.split(";"))
        if coding == "gzip":
            return not any(part.replace(" ", "") in ("q=0", "q=0.0", "q=0.00", "q=0.000") for part in parameters)
    return False


def custom_headers_stage(headers: Callable[[], Mapping[str, str]]) -> Callable[[Call, Reply], None]:
    """The stage that adds the custom headers of the Config."""

    def add_headers(call: Call, reply: Reply) -> None:
        added = headers()
        if added:
            existing = {name.lower() for name, _ in reply.headers}
            new = [(name.lower(), value) for name, value in added.items() if name.lower() not in existing]
            reply.headers = [*reply.headers, *new]

    return add_headers


def build_headers(call: Call, reply: Reply) -> list[tuple[bytes, bytes]]:
    if reply.is_relayed:
        return [(name.encode(), value.encode("latin-1")) for name, value in reply.headers]
    headers = [(b"audit-id", call.audit_id.encode())]
    if (
        not reply.headers
        and not call.warnings
        and (reply.status, reply.content_type, reply.cacheable) in _PLAIN_REPLIES
    ):
        headers += _PLAIN_HEADERS
        return headers
    if reply.status != NOT_MODIFIED:
        headers.append(NOSNIFF)
    if reply.content_type and reply.status not in BODYLESS_STATUSES:
        headers.append((b"content-type", reply.content_type.encode("latin-1")))
    if not reply.cacheable:
        headers.append(NOT_CACHEABLE)
    if reply.headers:
        encoded = [(name.encode(), value.encode("latin-1")) for name, value in reply.headers]
        if reply.status != NOT_MODIFIED and any(name == NOSNIFF[0] for name, _ in encoded):
            headers.remove(NOSNIFF)
        headers += encoded
    if call.warnings:
        headers += [(b"warning", f"299 - {warning}".encode()) for warning in _format_warnings(call.warnings)]
    return headers


def _format_warnings(warnings: Iterable[str]) -> Iterator[str]:
    """Deduplicated warnings as header values, up to `MAX_WARNING_BYTES` in total."""
    room = MAX_WARNING_BYTES
    for warning in dict.fromkeys(warnings):
        quoted = _quote_header_text(warning)
        room -= len(quoted)
        if room < 0:
            return
        yield quoted


def _quote_header_text(text: str) -> str:
    """Text as a quoted header value: printable ASCII, everything else as escape sequences."""
    plain = "".join(each if each.isascii() and each.isprintable() else ascii(each)[1:-1] for each in text)
    return '"' + plain.replace("\\", "\\\\").replace('"', '\\"') + '"'
