"""How much one connected cluster may take of us. Each has its own, so that a dead one holds up nobody else."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    requests: int = 256
    """Under way at once, watches and other streams included."""
    sockets: int = 256
    waiting: int = 256
    """Requests that wait, for `connect_seconds` at most, until another is done. The next one is turned away."""
    connect_seconds: float = 5
    head_seconds: float = 60
    """From the end of the request to the head of the answer. The body may take its time: watches do."""
    idle_seconds: float = 60
    """How long an unused connection is kept: less than the 90 seconds after which Kubernetes' own server closes it."""
