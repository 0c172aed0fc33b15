"""One HTTP/1.1 connection to a cluster: one exchange at a time, no pipelining, responses parsed as they arrive.

`pool.py` owns connections, `upstream.py` starts exchanges on them. The parser (llhttp, in C) is strict. An ambiguous
end of a response is an error and closes the connection. So do unsolicited bytes: they would be taken for the response
to the next request on this connection.
"""

import asyncio
import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import cast

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from fairlead.upstream.dial import tls_alert_error
from fairlead.upstream.errors import ProtocolError, TimedOut, Unreachable, UpstreamError
from fairlead.upstream.messages import BODYLESS_STATUSES, HOP_BY_HOP, Response
from fairlead.upstream.transport import ByteTransport

MAX_HEAD_BYTES = 64 * 1024
MAX_FRAMING_BYTES = 64 * 1024
"""Maximum of consecutive bytes without body data: chunk sizes, chunk extensions and trailers."""
_STANDARD_CONNECTION_TOKENS = frozenset({b"close", b"keep-alive", b"upgrade"})

UpgradeHandler = Callable[[ByteTransport, Sequence[tuple[str, str]], bytes], None]
"""Takes over a connection after a 101, with its headers and the bytes that follow. Raises ProtocolError."""


class Connection:
    """`on_released` is called when the connection is free again, or closed. The pool enforces `deadline`."""

    __slots__ = (
        "_bytes_without_body",
        "_connection_headers",
        "_drain_waiter",
        "_end_deadline",
        "_had_body_data",
        "_has_known_length",
        "_head_size",
        "_headers",
        "_is_finished",
        "_is_head_request",
        "_is_in_head",
        "_is_interim",
        "_is_paused",
        "_is_reusable",
        "_on_released",
        "_parser",
        "_transport",
        "deadline",
        "idle_since",
        "on_upgrade",
        "response",
        "upload",
        "use_count",
    )

    def __init__(self, on_released: Callable[["Connection"], None]) -> None:
        self._on_released = on_released
        self._transport: ByteTransport | None = None
        self._parser = HttpResponseParser(self)
        self._drain_waiter: asyncio.Future[None] | None = None
        self._is_reusable = True
        self._is_paused = False
        self._reset_parse_state()
        self.response: Response | None = None
        self.deadline = self._end_deadline = math.inf
        self.idle_since = 0.0
        self.use_count = 0
        self.upload: asyncio.Task[None] | None = None
        self.on_upgrade: UpgradeHandler | None = None

    def _reset_parse_state(self) -> None:
        """Resets the state of the response parser."""
        self._headers: list[tuple[str, str]] = []
        self._head_size = self._bytes_without_body = 0
        self._is_in_head = True
        self._had_body_data = self._is_head_request = self._is_interim = self._has_known_length = self._is_finished = (
            False
        )
        self._connection_headers: frozenset[str] = frozenset()

    # --- for the pool and upstream -----------------------------------------------------------------------------------

    @property
    def is_usable(self) -> bool:
        return self._is_reusable and self._transport is not None and not self._transport.is_closing()

    def start_exchange(self, is_head_request: bool, deadline: float, end_deadline: float) -> Response:
        """Starts an exchange: a response is expected from now on. The caller then sends the request with `write`."""
        self.use_count += 1
        self._is_head_request = is_head_request
        self.deadline, self._end_deadline = deadline, end_deadline
        self.response = Response(self, asyncio.get_running_loop().create_future())
        return self.response

    def write(self, data: bytes) -> None:
        assert self._transport is not None
        self._transport.write(data)

    async def drain(self) -> None:
        """Waits until the write buffer has room, or the exchange is over."""
        if self._drain_waiter is not None:
            await self._drain_waiter

    def fail(self, error: BaseException) -> None:
        """Fails the exchange and closes the connection."""
        self._is_reusable = False
        response, self.response = self.response, None
        if response is not None:
            response.fail(error)
        if self._transport is not None:
            self._transport.abort()
        self._stop_upload()
        self._wake()
        self._on_released(self)

    def _stop_upload(self) -> None:
        upload, self.upload = self.upload, None
        if upload is not None:
            upload.cancel()

    def time_out(self) -> None:
        self.fail(TimedOut("the cluster did not respond in time; check whether it is overloaded, or request less"))

    # --- for the response --------------------------------------------------------------------------------------------

    def pause(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._is_paused = True
            self._transport.pause_reading()

    def resume(self) -> None:
        if self._transport is not None and self._is_paused:
            self._is_paused = False
            self._transport.resume_reading()

    def abort(self) -> None:
        self.fail(ProtocolError("the response was closed before its end"))

    # --- for the event loop ------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(ByteTransport, transport)

    def data_received(self, data: memoryview) -> None:
        if self.response is None:
            self.fail(ProtocolError("the cluster sent unsolicited data"))
            return
        try:
            self._parser.feed_data(data)
        except HttpParserError as error:
            cause = error.__context__
            self.fail(
                cause if isinstance(cause, UpstreamError) else ProtocolError("the cluster's response is not valid HTTP")
            )
        except HttpParserUpgrade as upgrade:
            self._switch_protocols(bytes(data[upgrade.args[0] :]))
        else:
            if self._is_finished:
                self._finish_exchange()
            else:
                self._check_progress(len(data))

    def _check_progress(self, nbytes: int) -> None:
        """Fails a response that goes on without body data."""
        self._bytes_without_body = 0 if self._had_body_data else self._bytes_without_body + nbytes
        self._had_body_data = False
        if self._is_in_head and self._bytes_without_body > MAX_HEAD_BYTES:
            self.fail(_head_too_large())
        elif self._bytes_without_body > MAX_FRAMING_BYTES:
            self.fail(_no_progress())

    def _switch_protocols(self, rest: bytes) -> None:
        """Handles a 101: passes the connection to the upgrade handler, which speaks another protocol on it."""
        response, transport = self.response, self._transport
        try:
            if self.on_upgrade is None or response is None or transport is None:
                raise ProtocolError("the cluster switched protocols without an upgrade request")
            self.on_upgrade(transport, self._headers, rest)
        except ProtocolError as error:
            self.fail(error)
            return
        self._is_reusable, self._transport, self.response = False, None, None
        response.status = 101
        response.head_received.set_result(None)
        response.finish()

    def connection_lost(self, exc: Exception | None) -> None:
        response, self._is_reusable, self._transport = self.response, False, None
        if response is not None and response.head_received.done() and not self._has_known_length and exc is None:
            self.response = None
            response.finish()
        self.fail(self._connection_lost_error(exc))

    def pause_writing(self) -> None:
        self._drain_waiter = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        self._wake()

    def _wake(self) -> None:
        drained, self._drain_waiter = self._drain_waiter, None
        if drained is not None and not drained.done():
            drained.set_result(None)

    def _connection_lost_error(self, exc: Exception | None) -> UpstreamError:
        if self.response is not None and self.response.head_received.done():
            return ProtocolError("the cluster closed the connection in the middle of its response")
        alert = tls_alert_error(exc)
        return alert or Unreachable("the cluster closed the connection without a response; try again")

    # --- for the parser ----------------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self._is_finished:
            # The response was complete. What follows it is discarded, and the connection is not reused.
            self._is_reusable = False

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head_size += len(name) + len(value)
        if not self._is_in_head:  # a trailer
            if self._head_size > MAX_FRAMING_BYTES:
                raise _no_progress()
            return
        if self._head_size > MAX_HEAD_BYTES:
            raise _head_too_large()
        known = _normalize_header_name(name)
        if known:
            self._headers.append((known, value.decode("latin-1")))
            if known == "content-length":
                self._has_known_length = True
        else:
            self._on_hop_by_hop_header(name.lower(), value.lower())

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if self._parser.get_http_version() not in ("1.1", "1.0"):
            raise ProtocolError("the cluster's response has an unknown HTTP version")
        if status < 200:
            self._is_interim = status != 101  # no other head follows a 101
            return
        response = self.response
        if response is None or self._is_finished:
            return
        self._is_in_head = False
        self._head_size = self._bytes_without_body = 0
        self._is_reusable = self._is_reusable and self._parser.should_keep_alive()
        self._has_known_length = self._has_known_length or self._is_head_request or status in BODYLESS_STATUSES
        named = self._connection_headers
        response.status = status
        response.headers = [each for each in self._headers if each[0] not in named] if named else self._headers
        self.deadline = self._end_deadline
        if self._is_head_request:
            self._is_finished = True
        if not response.head_received.done():
            response.head_received.set_result(None)

    def on_body(self, data: bytes) -> None:
        if self._is_finished:
            self._is_reusable = False
        elif self.response is not None:
            self._had_body_data = True
            self.response.feed(data)

    def on_message_complete(self) -> None:
        if self._is_interim:
            self._is_interim = False
            self._headers = []
        else:
            self._is_finished = True

    def _on_hop_by_hop_header(self, name: bytes, value: bytes) -> None:
        """Handles hop-by-hop headers."""
        if name == b"transfer-encoding":
            if value.strip() != b"chunked":
                raise ProtocolError("the cluster's response has an unsupported transfer-encoding")
            self._has_known_length = True
        elif name == b"connection":
            tokens = {token.strip() for token in value.split(b",")} - _STANDARD_CONNECTION_TOKENS
            self._connection_headers |= {token.decode("latin-1") for token in tokens}

    def _finish_exchange(self) -> None:
        response, self.response = self.response, None
        if self._is_head_request:
            self._parser = HttpResponseParser(self)  # the old parser waits for a body, which HEAD does not have
        if self.upload is not None:
            self._is_reusable = self._is_reusable and _is_complete(
                self.upload
            )  # the cluster may respond before the upload ends
            self._stop_upload()
        self._reset_parse_state()
        if response is not None:
            response.finish()
        self.deadline = math.inf
        if self._is_reusable:
            self.resume()
        else:
            self.close()
        self._on_released(self)

    def close(self) -> None:
        self._is_reusable = False
        if self._transport is not None:
            self._transport.close()


def _is_complete(upload: asyncio.Task[None]) -> bool:
    """Whether the whole body was sent. The done callback may not have run yet."""
    return upload.done() and not upload.cancelled() and upload.exception() is None


def _head_too_large() -> ProtocolError:
    return ProtocolError(f"the head of the cluster's response is larger than {MAX_HEAD_BYTES} bytes")


def _no_progress() -> ProtocolError:
    return ProtocolError("the cluster's response goes on without any body data; contact the cluster's administrator")


@lru_cache(1024)
def _normalize_header_name(name: bytes) -> str:
    """A header name in lower case; empty for hop-by-hop headers."""
    lower = name.decode("latin-1").lower()
    return "" if lower in HOP_BY_HOP else lower
