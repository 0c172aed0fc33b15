"""Deletes the records of consumed values after they have expired (`signin/sso/consumed.py`)."""

from collections.abc import Iterable
from contextlib import suppress

from fairlead.core.errors import NotFound
from fairlead.kinds.core.lease import LEASE
from fairlead.registry.codec import decode
from fairlead.registry.registry import Registry
from fairlead.registry.write_options import DeleteOptions, server_write_options
from fairlead.signin.sso.consumed import CONSUMED_LABEL, is_consumed_record, record_expiry
from fairlead.storage.contract import Key
from fairlead.storage.view.view import Entry

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
        with suppress(NotFound):
            await self._leases.delete(key[2], key[3], DeleteOptions(), server_write_options())
        return None
