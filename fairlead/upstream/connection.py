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

from fairlead.upstream.dial import refusal
from fairlead.upstream.errors import Broken, TimedOut, Unreachable, UpstreamError
from fairlead.upstream.messages import HOP_BY_HOP, Response
from fairlead.upstream.transport import TlsTransport

MAX_HEAD = 64 * 1024
MAX_BETWEEN = 64 * 1024
"""Maximum of consecutive bytes without body data: chunk sizes, chunk extensions and trailers."""
_PLAIN_CONNECTION = frozenset({b"close", b"keep-alive", b"upgrade"})
_NO_BODY = frozenset({204, 304})

Switch = Callable[[TlsTransport, Sequence[tuple[str, str]], bytes], None]
"""Takes over a connection after a 101, with its headers and the bytes that follow. Raises ProtocolError."""


class Connection:
    """`on_released` is called when the connection is free again, or closed. The pool enforces `deadline`."""

    __slots__ = (
        "_delivered",
        "_drained",
        "_end_deadline",
        "_finished",
        "_head_only",
        "_head_size",
        "_headers",
        "_in_head",
        "_interim",
        "_named",
        "_parser",
        "_paused",
        "_raw_size",
        "_settled",
        "_sized",
        "_sound",
        "_transport",
        "deadline",
        "idle_since",
        "response",
        "switch",
        "upload",
        "uses",
    )

    def __init__(self, settled: Callable[["Connection"], None]) -> None:
        self._settled = settled
        self._transport: TlsTransport | None = None
        self._parser = HttpResponseParser(self)
        self._drained: asyncio.Future[None] | None = None
        self._sound = True
        self._paused = False
        self._forget()
        self.response: Response | None = None
        self.deadline = self._end_deadline = math.inf
        self.idle_since = 0.0
        self.uses = 0
        self.upload: asyncio.Task[None] | None = None
        self.switch: Switch | None = None

    def _forget(self) -> None:
        """Resets the state of the response parser."""
        self._headers: list[tuple[str, str]] = []
        self._head_size = self._raw_size = 0
        self._in_head = True
        self._delivered = self._head_only = self._interim = self._sized = self._finished = False
        self._named: frozenset[str] = frozenset()

    # --- for the pool and upstream -----------------------------------------------------------------------------------

    @property
    def usable(self) -> bool:
        return self._sound and self._transport is not None and not self._transport.is_closing()

    def start(self, head_only: bool, deadline: float, end_deadline: float) -> Response:
        """Starts an exchange: a response is expected from now on. The caller then sends the request with `write`."""
        self.uses += 1
        self._head_only = head_only
        self.deadline, self._end_deadline = deadline, end_deadline
        self.response = Response(self, asyncio.get_running_loop().create_future())
        return self.response

    def write(self, data: bytes) -> None:
        assert self._transport is not None
        self._transport.write(data)

    async def drain(self) -> None:
        """Waits until the write buffer has room, or the exchange is over."""
        if self._drained is not None:
            await self._drained

    def fail(self, error: BaseException) -> None:
        """Fails the exchange and closes the connection."""
        self._sound = False
        response, self.response = self.response, None
        if response is not None:
            response.fail(error)
        if self._transport is not None:
            self._transport.abort()
        self._stop_upload()
        self._wake()
        self._settled(self)

    def _stop_upload(self) -> None:
        upload, self.upload = self.upload, None
        if upload is not None:
            upload.cancel()

    def time_out(self) -> None:
        self.fail(TimedOut("the cluster did not respond in time; check whether it is overloaded, or request less"))

    # --- for the response --------------------------------------------------------------------------------------------

    def pause(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._paused = True
            self._transport.pause_reading()

    def resume(self) -> None:
        if self._transport is not None and self._paused:
            self._paused = False
            self._transport.resume_reading()

    def abandon(self) -> None:
        self.fail(Broken("the response was closed before its end"))

    # --- for the event loop ------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(TlsTransport, transport)

    def data_received(self, data: memoryview) -> None:
        if self.response is None:
            self.fail(Broken("the cluster sent unsolicited data"))
            return
        try:
            self._parser.feed_data(data)
        except HttpParserError as error:
            cause = error.__context__
            self.fail(cause if isinstance(cause, UpstreamError) else Broken("the cluster's response is not valid HTTP"))
        except HttpParserUpgrade as upgrade:
            self._hand_over(bytes(data[upgrade.args[0] :]))
        else:
            if self._finished:
                self._finish()
            else:
                self._limit(len(data))

    def _limit(self, nbytes: int) -> None:
        """Fails a response that goes on without body data."""
        self._raw_size = 0 if self._delivered else self._raw_size + nbytes
        self._delivered = False
        if self._in_head and self._raw_size > MAX_HEAD:
            self.fail(_too_large())
        elif self._raw_size > MAX_BETWEEN:
            self.fail(_idle_talk())

    def _hand_over(self, rest: bytes) -> None:
        """Handles a 101: passes the connection to the upgrade handler, which speaks another protocol on it."""
        response, transport = self.response, self._transport
        try:
            if self.switch is None or response is None or transport is None:
                raise Broken("the cluster switched protocols without an upgrade request")
            self.switch(transport, self._headers, rest)
        except Broken as error:
            self.fail(error)
            return
        self._sound, self._transport, self.response = False, None, None
        response.status = 101
        response.arrival.set_result(None)
        response.finish()

    def connection_lost(self, exc: Exception | None) -> None:
        response, self._sound, self._transport = self.response, False, None
        if response is not None and response.arrival.done() and not self._sized and exc is None:
            self.response = None
            response.finish()
        self.fail(self._lost(exc))

    def pause_writing(self) -> None:
        self._drained = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        self._wake()

    def _wake(self) -> None:
        drained, self._drained = self._drained, None
        if drained is not None and not drained.done():
            drained.set_result(None)

    def _lost(self, exc: Exception | None) -> UpstreamError:
        if self.response is not None and self.response.arrival.done():
            return Broken("the cluster closed the connection in the middle of its response")
        alert = refusal(exc)
        return alert or Unreachable("the cluster closed the connection without a response; try again")

    # --- for the parser ----------------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self._finished:
            # The response was complete. What follows it is discarded, and the connection is not reused.
            self._sound = False

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head_size += len(name) + len(value)
        if not self._in_head:  # a trailer
            if self._head_size > MAX_BETWEEN:
                raise _idle_talk()
            return
        if self._head_size > MAX_HEAD:
            raise _too_large()
        known = _known(name)
        if known:
            self._headers.append((known, value.decode("latin-1")))
            if known == "content-length":
                self._sized = True
        else:
            self._hop(name.lower(), value.lower())

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if self._parser.get_http_version() not in ("1.1", "1.0"):
            raise Broken("the cluster's response has an unknown HTTP version")
        if status < 200:
            self._interim = status != 101  # no other head follows a 101
            return
        response = self.response
        if response is None or self._finished:
            return
        self._in_head = False
        self._head_size = self._raw_size = 0
        self._sound = self._sound and self._parser.should_keep_alive()
        self._sized = self._sized or self._head_only or status in _NO_BODY
        named = self._named
        response.status = status
        response.headers = [each for each in self._headers if each[0] not in named] if named else self._headers
        self.deadline = self._end_deadline
        if self._head_only:
            self._finished = True
        if not response.arrival.done():
            response.arrival.set_result(None)

    def on_body(self, data: bytes) -> None:
        if self._finished:
            self._sound = False
        elif self.response is not None:
            self._delivered = True
            self.response.feed(data)

    def on_message_complete(self) -> None:
        if self._interim:
            self._interim = False
            self._headers = []
        else:
            self._finished = True

    def _hop(self, name: bytes, value: bytes) -> None:
        """Handles hop-by-hop headers."""
        if name == b"transfer-encoding":
            if value.strip() != b"chunked":
                raise Broken("the cluster's response has an unsupported transfer-encoding")
            self._sized = True
        elif name == b"connection":
            tokens = {token.strip() for token in value.split(b",")} - _PLAIN_CONNECTION
            self._named |= {token.decode("latin-1") for token in tokens}

    def _finish(self) -> None:
        response, self.response = self.response, None
        if self._head_only:
            self._parser = HttpResponseParser(self)  # the old parser waits for a body, which HEAD does not have
        if self.upload is not None:
            self._sound = self._sound and _is_complete(self.upload)  # the cluster may respond before the upload ends
            self._stop_upload()
        self._forget()
        if response is not None:
            response.finish()
        self.deadline = math.inf
        if self._sound:
            self.resume()
        else:
            self.close()
        self._settled(self)

    def close(self) -> None:
        self._sound = False
        if self._transport is not None:
            self._transport.close()


def _is_complete(upload: asyncio.Task[None]) -> bool:
    """Whether the whole body was sent. The done callback may not have run yet."""
    return upload.done() and not upload.cancelled() and upload.exception() is None


def _too_large() -> Broken:
    return Broken(f"the head of the cluster's response is larger than {MAX_HEAD} bytes")


def _idle_talk() -> Broken:
    return Broken("the cluster's response goes on without any body data; contact the cluster's administrator")


@lru_cache(1024)
def _known(name: bytes) -> str:
    """A header name in lower case; empty for hop-by-hop headers."""
    lower = name.decode("latin-1").lower()
    return "" if lower in HOP_BY_HOP else lower
