"""Bootstrap on the first start: the user `admin` with one access key, and the pepper. The key can be replaced later.

The pepper is the HMAC secret for the digests of access keys. It comes from a file in the data directory or from an
environment variable. All servers that share a store must use the same one.

The key of the first administrator is for setting up another way in, and expires after a day without one. Its annotation
says when. The key itself has no TTL: no key may create one that outlives it, and this one has to. Keys from before this
rule have no annotation, and do not expire. `controllers/access/access_keys.py` enforces it.
"""

import base64
import binascii
import os
import uuid
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import orjson

from fairlead.authn.access_keys import ACCESS_KEYS, USERS, Pepper, generate_key
from fairlead.authn.principals import PrincipalDirectory
from fairlead.core.clock import Clock, timestamp
from fairlead.core.files import FileProblem, read_file, write_file
from fairlead.core.objects import Object, get_path, metadata
from fairlead.domain.key_lifetime import FIRST_KEY_ANNOTATION, temporary_until, ttl_seconds
from fairlead.kinds.access.access_key import OWNED_ACCESS_KEY, key_usage_index, owner_reference
from fairlead.registry.codec import decode
from fairlead.storage.contract import RevisionConflict, Store, Write
from fairlead.storage.fingerprints import compute_fingerprint, load_fingerprint, save_fingerprint
from fairlead.storage.view.view import View

FIRST_KEY_SECONDS = 24 * 3600
PERMANENT_TYPES = frozenset({None, "", "User", "Other"})


class OtherAdminAccess:
    """Whether an administrator can get in without the first key: with another key that does not expire, a password, or
    single sign-on. Disabled users do not count, and neither do keys with a scope."""

    def __init__(
        self, view: View, api_group: str, principals: PrincipalDirectory, is_password_enabled: Callable[[], bool]
    ) -> None:
        self._view = view
        self._group = api_group
        self._owned = key_usage_index(view, api_group)
        self._principals = principals
        self._is_password_enabled = is_password_enabled

    def __call__(self, first_key: str) -> bool:
        admins = [obj for obj, user in self._principals.list_users() if user.is_admin]
        return any(self._can_sign_in(admin) or self._has_key(admin, first_key) for admin in admins)

    def _can_sign_in(self, admin: Object) -> bool:
        has_password = bool(get_path(admin, "spec.passwordRef")) and self._is_password_enabled()
        return has_password or bool(get_path(admin, "spec.issuer") and get_path(admin, "spec.subject"))

    def _has_key(self, admin: Object, first_key: str) -> bool:
        names = (key[3] for key in self._owned.get(("user", metadata(admin)["name"])))
        entries = (
            self._view.get((self._group, OWNED_ACCESS_KEY.plural, "", name)) for name in names if name != first_key
        )
        return any(_is_permanent(decode(entry)) for entry in entries if entry is not None)


def _is_permanent(key: Object) -> bool:
    spec = key.get("spec") or {}
    ended = spec.get("disabled") or get_path(key, "status.expired") or "deletionTimestamp" in metadata(key)
    is_limited = ttl_seconds(key) or spec.get("scope") is not None or temporary_until(key) is not None
    return not ended and not is_limited and spec.get("type") in PERMANENT_TYPES


ADMIN_USER = "admin"
ADMIN_KEY = "admin-first-key"
ADMIN_GROUPS = ("system:masters",)
PEPPER_BYTES = 32
PEPPER_FINGERPRINT = "pepper"
"""The name of its fingerprint in the store."""
PEPPER_VARIABLE = "FAIRLEAD_PEPPER"


def load_pepper(path: Path, *, keys_exist: bool = False, variable: str = "") -> Pepper:
    """Loads the pepper, and generates it if there is none. The file is readable by its owner only.

    `variable` is the value of the environment variable, in base64; the file is used if it is empty.
    """
    if variable.strip():
        return _pepper_from_variable(variable.strip())
    secret = read_file(path)
    if secret is None and keys_exist:
        advice = "restore it from a backup, or copy it from another server of the same store"
        raise FileProblem(f"{path}: missing, so none of the access keys in the store can work; {advice}")
    if secret is None:
        secret = os.urandom(PEPPER_BYTES)
        write_file(path, secret)
    if len(secret) < PEPPER_BYTES:
        raise FileProblem(
            f"{path}: too short for the secret that access keys are verified with; restore it from a backup"
        )
    return Pepper(secret)


def _pepper_from_variable(text: str) -> Pepper:
    try:
        secret = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        secret = b""
    if len(secret) < PEPPER_BYTES:
        advice = "copy it from another server with `base64 -w0 pepper.key`, or create it with `openssl rand -base64 32`"
        raise FileProblem(f"the variable {PEPPER_VARIABLE}: not {PEPPER_BYTES} bytes or more in base64; {advice}")
    return Pepper(secret)


async def verify_pepper(store: Store, pepper: Pepper, path: Path, *, variable: str = "") -> None:
    """Compares the pepper with the fingerprint in the store, which the first server writes. Raises FileProblem if they
    differ: no key would work with this pepper. `variable` is as for `load_pepper`."""
    mine = compute_fingerprint(PEPPER_FINGERPRINT, pepper.secret)
    while True:
        stored, _ = await load_fingerprint(store, PEPPER_FINGERPRINT)
        if stored == mine:
            return
        if stored is not None:
            problem = "not the secret that the other servers of this store use"
            if variable.strip():
                raise FileProblem(f"the variable {PEPPER_VARIABLE}: {problem}; set it to theirs")
            advice = f"copy theirs over it, or set the variable {PEPPER_VARIABLE} to theirs on all servers"
            raise FileProblem(f"{path}: {problem}; {advice}")
        try:
            return await save_fingerprint(store, PEPPER_FINGERPRINT, mine, 0)
        except RevisionConflict:  # another server wrote its fingerprint at the same time
            continue


async def ensure_admin(store: Store, view: View, pepper: Pepper, api_group: str, clock: Clock) -> str | None:
    """Creates the user `admin` and a key if there are no users yet. Returns the key only in that case."""
    if view.count(api_group, USERS):
        return None
    key = generate_key()
    user = _build_admin(api_group, clock)
    access_key = _build_first_key(user, pepper.digest(key), api_group, clock)
    changes = [
        Write((api_group, USERS, "", ADMIN_USER), orjson.dumps(user), 0),
        Write((api_group, ACCESS_KEYS, "", ADMIN_KEY), orjson.dumps(access_key), 0),
    ]
    try:
        await view.wait_for(await store.commit(changes))
    except RevisionConflict:  # another replica was first
        await view.wait_current()
        return None
    return key


async def reset_admin(store: Store, view: View, pepper: Pepper, api_group: str, clock: Clock) -> str:
    """Replaces the first key with a new one, and returns it. The user `admin` is created again, enabled and made an
    administrator if needed: this is the way in when there is no other one."""
    user_key, key_key = (api_group, USERS, "", ADMIN_USER), (api_group, ACCESS_KEYS, "", ADMIN_KEY)
    while True:
        await view.wait_current()
        found = view.get(user_key)
        replaced = view.get(key_key)
        user = _restore_admin(orjson.loads(found.full_body or found.body) if found else {}, api_group, clock)
        key = generate_key()
        access_key = _build_first_key(user, pepper.digest(key), api_group, clock)
        changes = [
            Write(user_key, orjson.dumps(user), found.revision if found else 0),
            Write(key_key, orjson.dumps(access_key), replaced.revision if replaced else 0),
        ]
        try:
            await view.wait_for(await store.commit(changes))
        except RevisionConflict:  # one of them has changed meanwhile
            continue
        return key


def _restore_admin(user: Object, api_group: str, clock: Clock) -> Object:
    if not user or "deletionTimestamp" in user["metadata"]:
        return _build_admin(api_group, clock)
    spec = {name: value for name, value in (user.get("spec") or {}).items() if name != "disabled"}
    groups = list(dict.fromkeys((*(spec.get("groups") or ()), *ADMIN_GROUPS)))
    meta = {name: value for name, value in user["metadata"].items() if name != "resourceVersion"}
    generation = (meta.get("generation") or 0) + 1
    return {**user, "metadata": {**meta, "generation": generation}, "spec": {**spec, "groups": groups}}


def _build_admin(api_group: str, clock: Clock) -> Object:
    spec = {"username": ADMIN_USER, "groups": list(ADMIN_GROUPS)}
    return _build_object(api_group, "User", ADMIN_USER, timestamp(clock.now()), spec)


def _build_first_key(user: Object, digest: str, api_group: str, clock: Clock) -> Object:
    now = clock.now()
    spec = {"displayName": "First key", "user": ADMIN_USER, "type": "User", "key": digest}
    key = _build_object(api_group, "OwnedAccessKey", ADMIN_KEY, timestamp(now), spec)
    key["metadata"]["ownerReferences"] = [owner_reference(user)]
    key["metadata"]["annotations"] = {FIRST_KEY_ANNOTATION: timestamp(now + timedelta(seconds=FIRST_KEY_SECONDS))}
    return key


def _build_object(api_group: str, kind: str, name: str, now: str, spec: Object) -> Object:
    return {
        "apiVersion": f"{api_group}/v1",
        "kind": kind,
        "metadata": {"name": name, "uid": str(uuid.uuid4()), "creationTimestamp": now, "generation": 1},
        "spec": spec,
    }
