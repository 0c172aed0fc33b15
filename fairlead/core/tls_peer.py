"""What a listener for client certificates has verified about a connection."""

from dataclasses import dataclass

FRONT_PROXY, CLIENT = "front proxy", "client"
"""What a certificate is for: it says which CA has verified it."""


@dataclass(frozen=True, slots=True)
class TlsPeer:
    """A verified client certificate. `purpose` is FRONT_PROXY or CLIENT; `expires` is in seconds since the epoch."""

    purpose: str
    common_name: str
    organizations: tuple[str, ...]
    expires: float
    fingerprint: str
    """SHA-256 of the certificate, in hexadecimal digits."""
