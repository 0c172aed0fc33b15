"""The first start: a user `admin` with one access key, without which nobody could ever sign in.

And the pepper that access keys are checked with: a file of the data folder, or a variable in the environment. Servers
that share a store must share it, too.
"""

import base64
import binascii
import os
import uuid
from pathlib import Path

import orjson

from fairlead.authn.access_keys import ACCESS_KEYS, USERS, Pepper, new_key
from fairlead.core.clock import Clock, timestamp
from fairlead.core.files import FileProblem, read_file, write_file
from fairlead.core.objects import Object
from fairlead.kinds.access.access_key import owner_reference
from fairlead.storage.contract import Change, Conflict, Store
from fairlead.storage.fingerprints import fingerprint, keep, kept
from fairlead.storage.view.view import View

ADMIN = "admin"
ADMIN_KEY = "admin-first-key"
PEPPER_BYTES = 32
PEPPER = "pepper"
"""The name of its fingerprint."""
PEPPER_VARIABLE = "FAIRLEAD_PEPPER"


def load_pepper(path: Path, *, keys_exist: bool = False, variable: str = "") -> Pepper:
    """The pepper of this installation, made when there is none. Only its owner can read the file.

    `variable` is what the environment says, in base64; where it is empty, the file counts.
    """
    if variable.strip():
        return _from_variable(variable.strip())
    secret = read_file(path)
    if secret is None and keys_exist:
        advice = "restore it from a backup, or copy it from another server of the same store"
        raise FileProblem(f"{path}: missing, so that none of the keys in the store can work; {advice}")
    if secret is None:
        secret = os.urandom(PEPPER_BYTES)
        write_file(path, secret)
    if len(secret) < PEPPER_BYTES:
        raise FileProblem(
            f"{path}: too short to be the secret that access keys are checked with; restore it from a backup"
        )
    return Pepper(secret)


def _from_variable(text: str) -> Pepper:
    try:
        secret = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        secret = b""
    if len(secret) < PEPPER_BYTES:
        advice = "take it from another server with `base64 -w0 pepper.key`, or make one with `openssl rand -base64 32`"
        raise FileProblem(f"the variable {PEPPER_VARIABLE}: not {PEPPER_BYTES} bytes or more in base64; {advice}")
    return Pepper(secret)


async def agree_on_pepper(store: Store, pepper: Pepper, path: Path) -> None:
    """The first server's pepper counts. Raises FileProblem where this is another one: no key would work with it."""
    mine = fingerprint(PEPPER, pepper.secret)
    while True:
        theirs, _ = await kept(store, PEPPER)
        if theirs == mine:
            return
        if theirs is not None:
            advice = f"copy theirs over it, or put theirs into the variable {PEPPER_VARIABLE} everywhere"
            raise FileProblem(f"{path}: not the secret that the store's servers check access keys with; {advice}")
        try:
            return await keep(store, PEPPER, mine, 0)
        except Conflict:  # a server that starts at the same moment was faster; its pepper counts
            continue


async def ensure_admin(store: Store, view: View, pepper: Pepper, api_group: str, clock: Clock) -> str | None:
    """Creates the admin and a key where there are no users yet; returns the key then, and only then."""
    if view.count(api_group, USERS):
        return None
    key = new_key()
    now = timestamp(clock.now())
    user = _object(api_group, "User", ADMIN, now, {"username": ADMIN, "groups": ["system:masters"]})
    spec = {"displayName": "First key", "user": ADMIN, "type": "User", "key": pepper.digest(key)}
    access_key = _object(api_group, "OwnedAccessKey", ADMIN_KEY, now, spec)
    access_key["metadata"]["ownerReferences"] = [owner_reference(user)]
    changes = [
        Change((api_group, USERS, "", ADMIN), orjson.dumps(user), 0),
        Change((api_group, ACCESS_KEYS, "", ADMIN_KEY), orjson.dumps(access_key), 0),
    ]
    try:
        await view.reached(await store.commit(changes))
    except Conflict:  # another replica was first
        await view.fresh()
        return None
    return key


def _object(api_group: str, kind: str, name: str, now: str, spec: Object) -> Object:
    return {
        "apiVersion": f"{api_group}/v1",
        "kind": kind,
        "metadata": {"name": name, "uid": str(uuid.uuid4()), "creationTimestamp": now, "generation": 1},
        "spec": spec,
    }
