"""How replicas find each other: each has a Lease in the system namespace with its address, and renews it.

The address in a Lease is not trusted: the certificate of a replica has the identity that is the name of its Lease. A
wrong address leads to a connection that fails. Leases are observed with the monotonic clock of this process, so the
clocks of replicas need not agree.
"""

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

import structlog

from fairlead.core.clock import micro_timestamp, parse_rfc3339
from fairlead.core.errors import AlreadyExists, ApiError, NotFound
from fairlead.core.objects import Object, annotations_of, get_path, metadata
from fairlead.kinds.clusters.runner import LEASES, LEASES_GROUP
from fairlead.kinds.core.server_objects import REPLICA_LEASE_PREFIX
from fairlead.registry.codec import decode
from fairlead.registry.registry import Registry
from fairlead.registry.write_options import server_write_options

PREFIX = REPLICA_LEASE_PREFIX
ADDRESS_ANNOTATION = "service.sh/replica-address"
RENEW_SECONDS, LEASE_SECONDS = 5.0, 20
RETRY_SECONDS = 1.0
FORGET_SECONDS = 600.0
"""The Lease of a replica that has ended without releasing it is deleted after this time."""
MAX_REPLICAS = 64

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Replica:
    identity: str
    host: str
    port: int


class ReplicaLeases:
    """The Leases of all replicas. `address` is where this one is reached, as `host:port`.

    Only the process that listens there renews its Lease; other workers of the same replica only read.
    """

    def __init__(self, registry: Registry, namespace: str, identity: str, address: str) -> None:
        self._registry = registry
        self._leases = registry.resource(LEASES_GROUP, LEASES)
        self._clock = registry.clock
        self._namespace = namespace
        self._identity = identity
        self._address = address
        self._renewals: dict[str, tuple[str, float]] = {}
        """For each Lease its renewal, and when it was by the monotonic clock of this process."""

    def others(self) -> list[Replica]:
        """The other replicas that have renewed their Lease lately, sorted by name; at most MAX_REPLICAS."""
        found = []
        for name, lease, age in self._observe():
            address = str(annotations_of(lease).get(ADDRESS_ANNOTATION) or "")
            is_own = name == PREFIX + self._identity or address == self._address
            replica = _parse_address(name.removeprefix(PREFIX), address)
            if replica is not None and not is_own and age < LEASE_SECONDS:
                found.append(replica)
        return found[:MAX_REPLICAS]

    async def renew_forever(self) -> None:
        while True:
            delay = RENEW_SECONDS
            try:
                async with asyncio.timeout(RENEW_SECONDS):
                    await self._renew()
                    await self._delete_abandoned()
            except (ApiError, TimeoutError) as error:
                log.warning("the Lease of this replica could not be renewed", reason=str(error) or "timed out")
                delay = RETRY_SECONDS
            await asyncio.sleep(delay)

    async def release(self) -> None:
        """Other replicas do not connect to this one any more."""
        with suppress(ApiError, TimeoutError):
            async with asyncio.timeout(RETRY_SECONDS):
                await self._leases.delete_if_exists(self._namespace, PREFIX + self._identity)

    def _observe(self) -> list[tuple[str, Object, float]]:
        """Name, Lease and seconds since its renewal, of all replicas."""
        entries = self._registry.view.entries(LEASES_GROUP, LEASES, self._namespace)
        leases = {entry.key[3]: decode(entry) for entry in entries if entry.key[3].startswith(PREFIX)}
        self._renewals = {name: known for name, known in self._renewals.items() if name in leases}
        return [(name, leases[name], self._age(name, leases[name])) for name in sorted(leases)]

    def _age(self, name: str, lease: Object) -> float:
        renewed = str(get_path(lease, "spec.renewTime") or "")
        now = self._clock.monotonic()
        known = self._renewals.get(name)
        if known is None or known[0] != renewed:
            moment = parse_rfc3339(renewed) if known is None else None
            age = max(0.0, (self._clock.now() - moment).total_seconds()) if moment is not None else 0.0
            known = self._renewals[name] = (renewed, now - age)
        return now - known[1]

    async def _renew(self) -> None:
        name = PREFIX + self._identity
        try:
            await self._leases.modify(self._namespace, name, self._renewed, server_write_options())
        except NotFound:
            body = self._leases.kind.build({"name": name})
            with suppress(AlreadyExists):
                await self._leases.create(self._renewed(body), self._namespace, server_write_options())

    def _renewed(self, lease: Object) -> Object:
        meta = metadata(lease)
        annotations = {**(meta.get("annotations") or {}), ADDRESS_ANNOTATION: self._address}
        spec = {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": LEASE_SECONDS,
            "renewTime": micro_timestamp(self._clock.now()),
        }
        return {**lease, "metadata": {**meta, "annotations": annotations}, "spec": spec}

    async def _delete_abandoned(self) -> None:
        for name, _, age in self._observe():
            if age > FORGET_SECONDS:
                await self._leases.delete_if_exists(self._namespace, name)


def _parse_address(identity: str, address: str) -> Replica | None:
    try:
        parts = urlsplit(f"//{address}")
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    is_plain = parts.netloc == address and "@" not in address
    return Replica(identity, host, port) if host and port and is_plain else None
