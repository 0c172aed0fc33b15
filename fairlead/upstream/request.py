"""A request to a cluster, before our credential is on it. Gateways and `ClusterApi` make it, `Upstream` sends it."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass


@dataclass(slots=True)  # not frozen: that would take several times as long to make, for every request
class Request:
    """A value. `target` is path and query, raw, below the path that the kubeconfig's server may have.

    Header values are one byte per character, as servers hand them over; whoever has other text encodes it first. The
    length of a body that is streamed is taken from `content-length`, if there is one.
    """

    method: str
    target: str
    headers: Sequence[tuple[str, str]] = ()
    body: bytes | AsyncIterator[bytes] = b""
