"""Fingerprints of the secrets that all replicas of a store must share, kept in that store.

The secrets themselves (the pepper of access keys, the encryption keys) are configured on the servers and never
stored. A replica with different secrets would start, and then reject all access keys or write values that the others
cannot decrypt. So the first server stores fingerprints, and the others compare: see `encrypted.load_keyring` and
`authn/bootstrap.py`.

No kind serves these records, so they appear in no list or watch.
"""

import hashlib
from dataclasses import dataclass

import orjson

from fairlead.storage.contract import Change, Key, Store

RESOURCE = "fingerprints"


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """The fingerprint of one secret. `id` distinguishes several secrets with the same name."""

    digest: str
    id: str = ""


def key_of(name: str) -> Key:
    return ("", RESOURCE, "", name)


def fingerprint(name: str, secret: bytes, id: str = "") -> Fingerprint:
    """Irreversible, because the secrets are random and long. Half of a SHA-256 is enough to distinguish them."""
    return Fingerprint(hashlib.sha256(f"fairlead {name}\0".encode() + secret).hexdigest()[:32], id)


async def kept(store: Store, name: str) -> tuple[Fingerprint | None, int]:
    """The stored fingerprint, and the revision to expect when replacing it."""
    record = await store.read(key_of(name))
    if record is None:
        return None, 0
    value = orjson.loads(record.value)
    return Fingerprint(value["digest"], value["id"]), record.revision


async def keep(store: Store, name: str, found: Fingerprint, expected: int) -> None:
    """Store a fingerprint. Raises RevisionConflict if another server was faster."""
    header = {"apiVersion": "v1", "kind": "Fingerprint", "metadata": {"name": name}}
    value = orjson.dumps({**header, "id": found.id, "digest": found.digest})
    await store.commit([Change(key_of(name), value, expected)])
