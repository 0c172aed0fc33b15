"""How far behind a client is, asked of the kernel.

The HTTP server takes whatever a stream is given into a queue without bound, so nothing would ever tell a stream that
its client has stopped reading. The kernel knows: TCP counts the bytes that the other side has acknowledged. A stream
that waits here before each chunk holds at most HIGH_WATER undelivered bytes; what comes meanwhile waits in its own
bounded queue and, if that overflows, ends the stream with an error instead of filling the memory.

One connection may carry several streams and other answers, so the account is kept per connection, and one stream that
nobody reads can hold up the others there. So a connection on which nothing moves for a while loses its streams; clients
open watches again. Where the kernel does not tell (not Linux, or not TCP), streams run unpaced.
"""

import asyncio
import os
import socket
import stat
import struct

HIGH_WATER = 1024 * 1024
POLL_SECONDS = 0.05
STALL_SECONDS = 5.0

_TCP_INFO_SIZE = 128
_BYTES_ACKED = struct.Struct("=120xQ")
"""Where Linux puts tcpi_bytes_acked in struct tcp_info."""


class Account:
    """One connection's bytes: handed over, and acknowledged."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._acknowledged = self._asked()
        self.outstanding = 0
        self.users = 0

    def add(self, size: int) -> None:
        self.outstanding += size

    def is_full(self) -> bool:
        """Whether the client has too much to catch up with. The kernel is only asked when it could be so."""
        if self.outstanding < HIGH_WATER:
            return False
        acknowledged = self._asked()
        # What TLS and other answers add counts as acknowledged, too; below zero it must not become credit.
        self.outstanding = max(0, self.outstanding - (acknowledged - self._acknowledged))
        self._acknowledged = acknowledged
        return self.outstanding >= HIGH_WATER

    def close(self) -> None:
        self._connection.close()

    def _asked(self) -> int:
        info = self._connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_SIZE)
        acknowledged: int = _BYTES_ACKED.unpack(info[: _BYTES_ACKED.size])[0]
        return acknowledged


class Paces:
    """The accounts of all connections that carry streams, by the client's address and port."""

    def __init__(self) -> None:
        self._accounts: dict[str, Account] = {}
        self._descriptors: dict[str, int] = {}

    def enter(self, client: str) -> "Pace":
        """The pace of a new stream to a client. Leave it when the stream ends."""
        account = self._accounts.get(client)
        if account is None:
            connection = self._connection_to(client)
            if connection is None:
                return Pace(None)
            account = self._accounts[client] = Account(connection)
        account.users += 1
        return Pace(account)

    def note(self, client: str, size: int) -> None:
        """Another answer goes over a client's connection. Reading it is no credit for the streams there."""
        account = self._accounts.get(client) if self._accounts else None
        if account is not None:
            account.add(size)

    def leave(self, client: str, pace: "Pace") -> None:
        if pace.account is None:
            return
        pace.account.users -= 1
        if not pace.account.users:
            del self._accounts[client]
            pace.account.close()

    def _connection_to(self, client: str) -> socket.socket | None:
        """A handle of our own on the HTTP server's socket, found among the descriptors of this process."""
        if not hasattr(socket, "TCP_INFO") or not os.path.isdir("/proc/self/fd"):
            return None
        known = self._descriptors.get(client)
        connection = _connection(known, client) if known is not None else None
        if connection is None:
            self._descriptors = _peers()
            known = self._descriptors.get(client)
            connection = _connection(known, client) if known is not None else None
        return connection


class Pace:
    """What a stream asks before each chunk."""

    __slots__ = ("account",)

    def __init__(self, account: Account | None) -> None:
        self.account = account

    async def may_go_on(self) -> bool:
        """Returns when the client has caught up far enough; False if it has read nothing for STALL_SECONDS."""
        if self.account is None or not self.account.is_full():
            return True
        patience = STALL_SECONDS
        while patience > 0:
            await asyncio.sleep(POLL_SECONDS)
            before = self.account.outstanding
            if not self.account.is_full():
                return True
            patience = patience - POLL_SECONDS if self.account.outstanding >= before else STALL_SECONDS
        return False

    def sent(self, size: int) -> None:
        if self.account is not None:
            self.account.add(size)


def _peers() -> dict[str, int]:
    """Every connection of this process: the other side's address, and our descriptor."""
    found: dict[str, int] = {}
    for name in os.listdir("/proc/self/fd"):
        descriptor = int(name)
        peer = _peer(descriptor)
        if peer:
            found[peer] = descriptor
    return found


def _peer(descriptor: int) -> str:
    try:
        if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            return ""
        with socket.socket(fileno=os.dup(descriptor)) as connection:
            if connection.family not in (socket.AF_INET, socket.AF_INET6):
                return ""
            host, port, *_ = connection.getpeername()
    except OSError:  # closed meanwhile, or not connected
        return ""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _connection(descriptor: int, client: str) -> socket.socket | None:
    if _peer(descriptor) != client:
        return None
    try:
        return socket.socket(fileno=os.dup(descriptor))
    except OSError:
        return None
