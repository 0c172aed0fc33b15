"""Fingerprints of the secrets that all servers of a store must share, kept in that store.

The secrets themselves (the pepper of access keys, the keys for sealing) are with the servers and never in the store. A
server with other ones would start without complaint, and then refuse every key or write what nobody else can read. So
the first server leaves a fingerprint, and the others compare. `sealed.keyring_for` and `authn/bootstrap.py` do.

No kind serves these records, so they are seen in no list and by no watch.
"""

import hashlib
from dataclasses import dataclass

import orjson

from fairlead.storage.contract import Change, Key, Store

RESOURCE = "fingerprints"


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Of one secret. `id` tells apart those of which there can be several."""

    digest: str
    id: str = ""


def key_of(name: str) -> Key:
    return ("", RESOURCE, "", name)


def fingerprint(name: str, secret: bytes, id: str = "") -> Fingerprint:
    """What cannot be turned back, as the secrets are random and long. Half of a SHA-256 tells any two apart."""
    return Fingerprint(hashlib.sha256(f"fairlead {name}\0".encode() + secret).hexdigest()[:32], id)


async def kept(store: Store, name: str) -> tuple[Fingerprint | None, int]:
    """What the store has under this name, and the revision to expect when it is replaced."""
    record = await store.read(key_of(name))
    if record is None:
        return None, 0
    value = orjson.loads(record.value)
    return Fingerprint(value["digest"], value["id"]), record.revision


async def keep(store: Store, name: str, found: Fingerprint, expected: int) -> None:
    """Raises Conflict where another server was faster."""
    header = {"apiVersion": "v1", "kind": "Fingerprint", "metadata": {"name": name}}
    value = orjson.dumps({**header, "id": found.id, "digest": found.digest})
    await store.commit([Change(key_of(name), value, expected)])
