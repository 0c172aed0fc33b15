"""Requests to go on in SPDY, which is not spoken here: why they are refused, in the cluster's words where it has any.

kubectl asks for a WebSocket first. When that is refused, for whatever reason, it asks again for SPDY, and shows the
answer to the second question only. So the second answer has to be the cluster's own: not allowed, no such pod, no such
container. The cluster is asked for it with the same request, but without an upgrade and without the command, so there
is nothing that could be run: it looks everything up and then says that an upgrade is missing. `forward.py` calls.
"""

import json
from collections.abc import Sequence
from typing import Any
from urllib.parse import parse_qsl, urlencode

from fairlead.core.call import Call, Reply
from fairlead.core.errors import BadRequest
from fairlead.gateway.answers import handed_back, refuse_unfit
from fairlead.upstream.request import Request
from fairlead.upstream.upstream import Upstream

STREAMED = frozenset({"exec", "attach", "portforward"})
"""The subresources of pods that do nothing at all without an upgrade. Others, such as `proxy`, would do something."""
MOST_BYTES = 64 * 1024
UPGRADE_MISSING = "Upgrade request required"
"""What a cluster says that would let the request through."""

_UNSPOKEN = (
    "this server does not speak SPDY; use a client that opens WebSockets for exec, attach and port-forward, such as "
    "kubectl 1.31 or newer"
)

Pairs = Sequence[tuple[str, str]]


async def refuse_spdy(upstream: Upstream, call: Call, inner: str, headers: Pairs, what: str) -> Reply:
    """The cluster's refusal, if it refuses; otherwise raises BadRequest. Raises UpstreamError, too."""
    target = call.target
    if target.group or target.resource != "pods" or target.subresource not in STREAMED:
        raise BadRequest(_UNSPOKEN)
    plain = [*((name, value) for name, value in headers if name not in ("accept", "content-length")), _AS_JSON]
    without_command = _without_command(inner)
    refusal = await _refusal(upstream, Request(call.method, without_command, plain), what)
    if refusal is not None:
        return refusal
    of_socket = await _refusal(upstream, Request("GET", without_command, plain), what)
    message = _message(of_socket.body) if of_socket is not None else ""
    raise BadRequest(f"{_UNSPOKEN}. The cluster refuses a WebSocket, too: {message}" if message else _UNSPOKEN)


_AS_JSON = ("accept", "application/json")


def _without_command(inner: str) -> str:
    path, mark, query = inner.partition("?")
    kept = [each for each in parse_qsl(query, keep_blank_values=True) if each[0] != "command"]
    return f"{path}{mark}{urlencode(kept)}"


async def _refusal(upstream: Upstream, request: Request, what: str) -> Reply | None:
    response = await upstream.send(request)
    try:
        refuse_unfit(response.status, what)
        body = await response.read(MOST_BYTES)
    except BaseException:
        await response.close()
        raise
    if response.status < 400 or _message(body) == UPGRADE_MISSING:
        return None
    reply, _ = handed_back(response.status, response.headers)
    reply.body = body
    return reply


def _message(body: bytes) -> str:
    """What a Status says; empty for anything else."""
    try:
        status: Any = json.loads(body)
    except ValueError:
        return ""
    message = status.get("message") if isinstance(status, dict) else None
    return message if isinstance(message, str) else ""
