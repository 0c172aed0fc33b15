"""Access keys of runners and cluster agents, which clients can fetch repeatedly.

Implements `GET runners/<name>/accesskey`, `GET clusters/<name>/accesskey` and `POST runners/<name>/rotatekey` for
`subresources/runners.py` and `subresources/clusters.py`, which authorize the request first.

The key is an ordinary access key, owned by its Runner or Cluster. Its value is in a Secret that is created in the same
commit (`admission/access_keys.py`), so of two concurrent first requests one creates both and the other one finds them.

    no key yet, or the key or its Secret was deleted   a new key; remains of an earlier one are deleted
    the key is disabled or has expired                 the same key; it has to be enabled again
    the access key was rotated without its Secret      409, until the key is deleted, or rotated here
"""

from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from secrets import token_hex

from fairlead.authn.access_keys import ACCESS_KEYS, Pepper, generate_key
from fairlead.authn.key_rotation import KeyRotator
from fairlead.core.errors import AlreadyExists, ApiError, Conflict, NotFound
from fairlead.core.objects import Object, annotations_of, deep_copy, get_path, metadata, name_of
from fairlead.core.user import CONTROLLER_USER
from fairlead.kinds.access.access_key import owner_reference
from fairlead.kinds.access.components import KEY_ANNOTATION, Component
from fairlead.registry.codec import decode
from fairlead.registry.registry import Registry
from fairlead.registry.write_options import DeleteOptions, WriteOptions, server_write_options

MAX_ATTEMPTS = 20
CURRENT_FIELD = "accessKey"

_ROTATED_ELSEWHERE = (
    "its access key was rotated separately, and the new value cannot be read again; delete the access key {key}, and "
    "the next request creates another one"
)


@dataclass(frozen=True, slots=True)
class _StoredKey:
    """A component's access key and the Secret with its value."""

    key: Object
    secret: Object


class ComponentKeys:
    """Creates, reads and rotates the keys of one type of component, as the server itself. Their Secrets are in
    `namespace`."""

    def __init__(
        self,
        registry: Registry,
        api_group: str,
        component: Component,
        namespace: str,
        pepper: Pepper,
        rotator: KeyRotator,
    ) -> None:
        self._component = component
        self._owners = registry.resource(api_group, component.plural)
        self._keys = registry.resource(api_group, ACCESS_KEYS)
        self._secrets = registry.resource("", "secrets")
        self._namespace = namespace
        self._pepper = pepper
        self._rotator = rotator

    async def get_or_create(self, name: str) -> str:
        """The key of a component, created if there is none. Raises NotFound if its owner does not exist."""
        stored = await self._ensure(name)
        for value in _decode_values(stored.secret):
            # During a rotation the Secret has both values; the digest in the key says which one is valid.
            if self._pepper.digest(value) == get_path(stored.key, "spec.key"):
                return value
        raise self._conflict(name, _ROTATED_ELSEWHERE.format(key=name_of(stored.key)))

    async def rotate(self, name: str, body: Object) -> str:
        """Rotates the key of a component. The old value ends at once, or after the overlap in the request body.

        The Secret gets the new value before the key does, so that the valid value can be read after a crash at any
        point.
        """
        stored = await self._ensure(name)
        value = generate_key()
        pending = f"next-{token_hex(4)}"
        await self._edit_secret(stored, lambda data: {**data, pending: _encode(value)})
        try:
            await self._rotator.rotate(CONTROLLER_USER, name_of(stored.key), body, value)
        except ApiError:
            await self._edit_secret(stored, lambda data: _without(data, pending))
            raise

        def promote(data: Object) -> Object:
            entry = self._keys.get_cached("", name_of(stored.key))
            is_current = entry is not None and get_path(decode(entry), "spec.key") == self._pepper.digest(value)
            return _without(data, pending) | ({CURRENT_FIELD: _encode(value)} if is_current else {})

        await self._edit_secret(stored, promote)
        return value

    async def _ensure(self, name: str) -> _StoredKey:
        for _ in range(MAX_ATTEMPTS):
            owner = decode(await self._owners.get("", name))
            found = self._find(owner)
            if found is not None:
                return found
            await self._create(owner)
        raise self._conflict(name, "its key was changed concurrently; try again")

    def _find(self, owner: Object) -> _StoredKey | None:
        """The key and Secret of this owner. Those of an earlier owner with the same name are ignored, and so is a
        Secret that the server did not create."""
        entry = self._secrets.get_cached(self._namespace, self._component.key_secret_name(name_of(owner)))
        secret = decode(entry) if entry is not None else {}
        if secret.get("type") != self._component.secret_type or not _is_owned_by(secret, owner):
            return None
        entry = self._keys.get_cached("", annotations_of(secret).get(KEY_ANNOTATION) or "")
        key = decode(entry) if entry is not None else {}
        if not _is_owned_by(key, owner) or "deletionTimestamp" in metadata(key):
            return None
        return _StoredKey(key, secret)

    async def _create(self, owner: Object) -> None:
        """Creates a key and deletes earlier ones, unless another request does so concurrently."""
        name = name_of(owner)
        if "deletionTimestamp" in metadata(owner):
            raise self._conflict(name, "it is being deleted, so no key is issued for it")
        before = list(self._earlier_keys(owner))
        try:
            await self._delete_secret(name)
            await self._keys.create(self._build_key(owner), "", _server_write_options())
        except (AlreadyExists, Conflict, NotFound):
            return
        for key in before:
            with suppress(NotFound):
                await self._keys.delete("", name_of(key), DeleteOptions(metadata(key)["uid"]), _server_write_options())

    def _build_key(self, owner: Object) -> Object:
        sort, name = self._component, name_of(owner)
        meta = {
            # Random suffix: users may create keys with any name, and must not be able to block this one.
            "name": f"{sort.singular}-{sort.label_value(name)}-{token_hex(4)}",
            "labels": {sort.label: sort.label_value(name)},
            "ownerReferences": [owner_reference(owner)],
        }
        spec = {
            "displayName": f"{sort.singular.capitalize()} {name}",
            "subject": sort.subject(name),
            "groups": [sort.group, sort.subject(name)],
            "type": "Other",
        }
        return self._keys.kind.build(meta, spec=spec)

    def _earlier_keys(self, owner: Object) -> Iterator[Object]:
        """Remaining earlier keys: they would stay valid although their values can no longer be read."""
        sort, name = self._component, name_of(owner)
        for entry in self._keys.view.entries(self._keys.kind.group, self._keys.kind.plural):
            if entry.labels.get(sort.label) == sort.label_value(name):
                key = decode(entry)
                if _is_owned_by(key, owner) and get_path(key, "spec.subject") == sort.subject(name):
                    yield key

    async def _delete_secret(self, owner: str) -> None:
        """Deletes an unusable Secret, with its uid and resourceVersion as preconditions."""
        entry = self._secrets.get_cached(self._namespace, self._component.key_secret_name(owner))
        if entry is not None:
            meta = metadata(decode(entry))
            deleting = DeleteOptions(meta["uid"], meta["resourceVersion"])
            await self._secrets.delete(self._namespace, entry.key[3], deleting, _server_write_options())

    async def _edit_secret(self, stored: _StoredKey, change: Callable[[Object], Object]) -> None:
        """Changes the data of the Secret, if it still has the same uid."""

        def edit(secret: Object) -> Object:
            new = deep_copy(secret)
            if metadata(secret)["uid"] == metadata(stored.secret)["uid"]:
                new["data"] = change(new.get("data") or {})
            return new

        with suppress(NotFound):  # the next request creates another key
            await self._secrets.modify(self._namespace, name_of(stored.secret), edit, _server_write_options())

    def _conflict(self, name: str, reason: str) -> Conflict:
        return Conflict.of(self._component.plural, self._owners.kind.group, name, reason)


def _server_write_options() -> WriteOptions:
    return server_write_options()


def _is_owned_by(obj: Object, owner: Object) -> bool:
    references = metadata(obj).get("ownerReferences") or ()
    return any(each.get("uid") == metadata(owner)["uid"] for each in references)


def _decode_values(secret: Object) -> Iterator[str]:
    for text in (secret.get("data") or {}).values():
        with suppress(NotBase64, ValueError):  # an administrator may have edited it
            yield b64decode(text).decode()


def _encode(value: str) -> str:
    return b64encode(value.encode()).decode()


def _without(data: Object, name: str) -> Object:
    return {key: value for key, value in data.items() if key != name}
