"""The stored requests for logins with a device code, until a user has decided about them.

Clients without a credential make these requests, so they are few, small and short-lived: the count is bounded in total
and for each network, and exact under concurrency, as in `registry/quota/write_locks.py`. They are records in the store,
so that any replica can serve the next request. No kind serves these records, so they occur in no list or watch. Neither
code is stored, only digests of both.
"""

import ipaddress
import math
from collections import OrderedDict
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import msgspec

from fairlead.core.clock import Clock
from fairlead.core.errors import Details, TooManyRequests
from fairlead.registry.quota.write_locks import acquire_lock, lock_key
from fairlead.registry.storage_errors import translate_storage_errors
from fairlead.server.flow.attempts import client_network
from fairlead.signin.cli_tokens import (
    NamedSecret,
    TokenValues,
    new_secret,
    new_user_code,
)
from fairlead.storage.contract import Key, RevisionConflict, Store, Write
from fairlead.storage.view.entry import Entry
from fairlead.storage.view.view import View

PLURAL = "cliloginrequests"
REQUEST_SECONDS = 600
POLL_SECONDS = 5
MAX_POLL_SECONDS = 60
MAX_REQUESTS = 256
MAX_REQUESTS_PER_NETWORK = 16
MAX_REQUESTS_PER_SITE = 64
SITE_PREFIX_BITS = 48
"""The IPv6 networks of one site: it has many /64 networks, and must not use up the requests of all others."""
MAX_POLLERS = 1_024
MAX_ATTEMPTS = 20
PENDING, APPROVED, DENIED = "pending", "approved", "denied"


@dataclass(frozen=True, slots=True)
class DeviceRequest:
    """A stored request. `address` is that of the client, `login` the name of the login that a user has allowed."""

    name: str
    secret_digest: str
    machine: str
    address: str
    requested_at: datetime
    expires_at: datetime
    state: str = PENDING
    login: str = ""


@dataclass(frozen=True, slots=True)
class StoredRequest:
    request: DeviceRequest
    revision: int


class _Record(msgspec.Struct):
    request: DeviceRequest


_decode = msgspec.json.Decoder(_Record).decode


class DeviceRequests:
    def __init__(self, store: Store, view: View, api_group: str, values: TokenValues, clock: Clock) -> None:
        self._store = store
        self._view = view
        self._group = api_group
        self._values = values
        self._clock = clock
        self._pollers: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """By device code: when it was last presented, and the interval in seconds that its client has to keep."""

    async def open(self, machine: str, client: str) -> tuple[NamedSecret, str]:
        """Stores a new request, and returns its device code and its user code. Raises TooManyRequests."""
        now = self._clock.now()
        secret = new_secret()
        code = new_user_code()
        request = DeviceRequest(
            name=self._values.device_name(code),
            secret_digest=self._values.device_secret_digest(secret),
            machine=machine,
            address=client_network(client),
            requested_at=now,
            expires_at=now + timedelta(seconds=REQUEST_SECONDS),
        )
        for _ in range(MAX_ATTEMPTS):
            with translate_storage_errors():
                await self._view.wait_current()
                writes = [acquire_lock(self._view, lock_key(self._group, "devices:")), *self._make_room(request, now)]
                writes.append(Write(self._key(request.name), _encode(self._group, request), 0))
                try:
                    await self._view.wait_for(await self._store.commit(writes))
                except RevisionConflict:  # another request was faster
                    continue
                return NamedSecret(request.name, secret), code
        raise TooManyRequests("too many logins are being started; try again", Details(retry_after=1))

    def _make_room(self, request: DeviceRequest, now: datetime) -> list[Write]:
        """The writes that remove expired requests. Raises TooManyRequests if there are too many others."""
        entries = self._view.entries(self._group, PLURAL)
        stored = [(entry, _decode(entry.body).request) for entry in entries]
        live = [each for _, each in stored if each.expires_at > now]
        same_network = [each for each in live if each.address == request.address]
        site = _site_of(request.address)
        same_site = [each for each in live if site and _site_of(each.address) == site]
        limits = (MAX_REQUESTS, MAX_REQUESTS_PER_SITE, MAX_REQUESTS_PER_NETWORK)
        for found, limit in zip((live, same_site, same_network), limits, strict=True):
            if len(found) >= limit:
                seconds = math.ceil((min(each.expires_at for each in found) - now).total_seconds())
                message = f"{limit} logins with a code are waiting for their users; try again in {seconds} s"
                raise TooManyRequests(message, Details(retry_after=max(1, seconds)))
        return [Write(entry.key, None, entry.revision) for entry, each in stored if each.expires_at <= now]

    async def find(self, name: str) -> StoredRequest | None:
        """The request with that name, unless it has expired."""
        with translate_storage_errors():
            await self._view.wait_current()
        entry: Entry | None = self._view.get(self._key(name))
        if entry is None:
            return None
        request = _decode(entry.body).request
        return StoredRequest(request, entry.revision) if request.expires_at > self._clock.now() else None

    async def find_by_user_code(self, code: str) -> StoredRequest | None:
        return await self.find(self._values.device_name(code))

    async def decide(self, stored: StoredRequest, state: str, login: str = "") -> bool:
        """Records the decision of a user; returns False if another one was faster."""
        request = replace(stored.request, state=state, login=login)
        write = Write(self._key(request.name), _encode(self._group, request), stored.revision)
        return await self._commit(write)

    async def remove(self, stored: StoredRequest) -> bool:
        """Removes a request that was redeemed; returns False if another client was faster."""
        return await self._commit(Write(self._key(stored.request.name), None, stored.revision))

    async def _commit(self, write: Write) -> bool:
        with translate_storage_errors():
            try:
                await self._view.wait_for(await self._store.commit([write]))
            except RevisionConflict:
                return False
        return True

    def is_too_early(self, name: str) -> bool:
        """Records that a client asks for its tokens; whether it asks more often than it may. If so, its interval
        grows, as the RFC requires. Each worker process counts by itself."""
        now = self._clock.monotonic()
        latest, interval = self._pollers.get(name, (-math.inf, float(POLL_SECONDS)))
        early = now - latest < interval - 1
        self._pollers[name] = now, min(interval + POLL_SECONDS, MAX_POLL_SECONDS) if early else interval
        self._pollers.move_to_end(name)
        if len(self._pollers) > MAX_POLLERS:
            self._pollers.popitem(last=False)
        return early

    def _key(self, name: str) -> Key:
        return (self._group, PLURAL, "", name)


def _site_of(network: str) -> str:
    """The /48 of an IPv6 network; empty for other addresses."""
    try:
        found = ipaddress.ip_network(network)
    except ValueError:
        return ""
    return str(found.supernet(new_prefix=SITE_PREFIX_BITS)) if isinstance(found, ipaddress.IPv6Network) else ""


def _encode(api_group: str, request: DeviceRequest) -> bytes:
    kind = {"apiVersion": f"{api_group}/v1", "kind": "CliLoginRequest", "metadata": {"name": request.name}}
    return msgspec.json.encode({**kind, "request": request})
