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

from fairlead.storage.contract import Key, Store, Write

FINGERPRINT_RESOURCE = "fingerprints"


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """The fingerprint of one secret. `id` distinguishes several secrets with the same name."""

    digest: str
    id: str = ""


def fingerprint_key(name: str) -> Key:
    return ("", FINGERPRINT_RESOURCE, "", name)


def compute_fingerprint(name: str, secret: bytes, id: str = "") -> Fingerprint:
    """Irreversible, because the secrets are random and long. Half of a SHA-256 is enough to distinguish them."""
    return Fingerprint(hashlib.sha256(f"fairlead {name}\0".encode() + secret).hexdigest()[:32], id)


async def load_fingerprint(store: Store, name: str) -> tuple[Fingerprint | None, int]:
    """The stored fingerprint, and the revision to expect when replacing it."""
    record = await store.read(fingerprint_key(name))
    if record is None:
        return None, 0
    value = orjson.loads(record.value)
    return Fingerprint(value["digest"], value["id"]), record.revision


async def save_fingerprint(store: Store, name: str, new_fingerprint: Fingerprint, expected: int) -> None:
    """Store a fingerprint. Raises RevisionConflict if another server was faster."""
    header = {"apiVersion": "v1", "kind": "Fingerprint", "metadata": {"name": name}}
    value = orjson.dumps({**header, "id": new_fingerprint.id, "digest": new_fingerprint.digest})
    await store.commit([Write(fingerprint_key(name), value, expected)])
