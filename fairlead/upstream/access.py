"""How to reach one API server. `kubeconfig.py` makes it, `upstream.py` uses it; nothing else needs what is inside."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Access:
    """An address, whom to trust there, and a credential that its text never shows.

    Of the two sorts of credentials either may be empty: a token, or a certificate with its key, both PEM.
    """

    host: str
    port: int
    path: str
    """What the server's URL has after the port: empty, or starting with a slash and not ending with one."""
    server_name: str
    """The name or address that its certificate must be for."""
    authority: str
    """The certificates that are trusted, PEM; empty: those that this machine trusts."""
    token: str = field(default="", repr=False)
    certificate: str = field(default="", repr=False)
    key: str = field(default="", repr=False)
