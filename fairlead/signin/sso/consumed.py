"""Values that can be used once: the state of a sign-on, the id of a logout token.

Each is recorded as a Lease in the system namespace, named after its hash. Creating it is atomic over all replicas: of
two uses at the same time, one fails. `ConsumedValueController` deletes records that have expired. Only call
this for values that were verified: unauthenticated clients must not be able to write to the store.
"""

import hashlib
from collections.abc import Iterable
from datetime import datetime, timedelta

from fairlead.core.clock import micro_timestamp, parse_rfc3339
from fairlead.core.errors import AlreadyExists, NotFound
from fairlead.core.objects import Object, get_path, labels_of
from fairlead.kinds.core.lease import LEASE
from fairlead.kinds.core.server_objects import CONSUMED_LEASE_PREFIX
from fairlead.registry.codec import decode
from fairlead.registry.registry import Registry
from fairlead.registry.write_options import server_write_options
from fairlead.storage.contract import Key
from fairlead.storage.view.view import Entry

CONSUMED_LABEL = "service.sh/consumed"
"""Label of the records; its value says what was consumed."""
MAX_SECONDS = 24 * 3600


class ConsumedValues:
    def __init__(self, registry: Registry, namespace: str) -> None:
        self._leases = registry.resource_for(LEASE)
        self._clock = registry.clock
        self._namespace = namespace

    async def consume(self, purpose: str, value: str, seconds: float) -> bool:
        """Records a value for so many seconds. Returns False if it is recorded already."""
        meta = {
            "name": _record_name(purpose, value),
            "namespace": self._namespace,
            "labels": {CONSUMED_LABEL: purpose},
        }
        spec = {
            "holderIdentity": purpose,
            "acquireTime": micro_timestamp(self._clock.now()),
            "leaseDurationSeconds": max(1, min(int(seconds) + 1, MAX_SECONDS)),
        }
        lease = LEASE.build(meta, spec=spec)
        try:
            await self._leases.create(lease, self._namespace, server_write_options())
        except AlreadyExists:
            return False
        return True

    async def is_consumed(self, purpose: str, value: str) -> bool:
        """Whether a value was consumed. Two callers at the same time may both get False."""
        try:
            await self._leases.get(self._namespace, _record_name(purpose, value))
        except NotFound:
            return False
        return True


def _record_name(purpose: str, value: str) -> str:
    digest = hashlib.sha256(f"{purpose}\0{value}".encode("utf-8", "replace")).hexdigest()[:48]
    return f"{CONSUMED_LEASE_PREFIX}{purpose}-{digest}"


def is_consumed_record(lease: Object) -> bool:
    return CONSUMED_LABEL in labels_of(lease)


def record_expiry(lease: Object) -> datetime | None:
    """When a record can be deleted; None if it is not readable."""
    acquired = parse_rfc3339(get_path(lease, "spec.acquireTime"))
    seconds = get_path(lease, "spec.leaseDurationSeconds")
    if acquired is None or not isinstance(seconds, int):
        return None
    return acquired + timedelta(seconds=seconds)


_MARK = f'"{CONSUMED_LABEL}":'.encode()


class ConsumedValueController:
    name, workers = "consumed-values", 1

    def __init__(self, registry: Registry, namespace: str) -> None:
        self.watches = ((LEASE.group, LEASE.plural),)
        self._leases = registry.resource_for(LEASE)
        self._clock = registry.clock
        self._namespace = namespace

    def keys_for(self, key: Key, entry: Entry | None) -> Iterable[Key]:
        return (key,) if entry is not None and key[2] == self._namespace and _MARK in entry.body else ()

    async def reconcile(self, key: Key) -> float | None:
        entry = self._leases.get_cached(*key[2:])
        lease = decode(entry) if entry is not None else {}
        if not is_consumed_record(lease):
            return None
        expiry = record_expiry(lease)
        now = self._clock.now()
        if expiry is not None and now < expiry:
            return (expiry - now).total_seconds()
        await self._leases.delete_if_exists(key[2], key[3])
        return None
