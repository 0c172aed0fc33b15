"""The keys of runners and of clusters' agents, which come back when they are asked for: `GET runners/<name>/accesskey`,
`GET clusters/<name>/accesskey`, `POST runners/<name>/rotatekey`.

Such a key is an access key like others: it can be disabled, and deleting it ends it. It belongs to its Runner or
Cluster, its owner here, and goes with it. Beside it there is a Secret with its value, made in the same commit
(`admission/access_keys.py`), so of two who ask first one makes both and the other finds them. `subresources/runners.py`
and `subresources/cluster_agents.py` call this; who may ask was decided before.

    nobody has asked yet, or the key or its Secret is gone   a new key; what is left of an earlier one ends
    the key is disabled or has expired                       the same key: enabling it is up to whoever disabled it
    the access key was rotated without its Secret            409, until it is deleted, or rotated here
"""

from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from secrets import token_hex

from fairlead.authn.access_keys import ACCESS_KEYS, Pepper, new_key
from fairlead.authn.key_rotation import Rotation
from fairlead.core.errors import AlreadyExists, ApiError, Conflict, NotFound
from fairlead.core.objects import Object, copied, dig, metadata, name_of
from fairlead.core.user import CONTROLLER
from fairlead.kinds.access.access_key import owner_reference
from fairlead.kinds.access.components import KEY_ANNOTATION, Component
from fairlead.registry.codec import decode
from fairlead.registry.registry import Registry
from fairlead.registry.write_options import Deleting, Writing, by_the_server

ATTEMPTS = 20
CURRENT = "accessKey"

_ROTATED_ELSEWHERE = (
    "its access key was rotated by itself, and nobody can read that value again; delete the access key {key}, and the "
    "next who asks gets another"
)


@dataclass(frozen=True, slots=True)
class _Kept:
    """A component's access key and the Secret beside it."""

    key: Object
    secret: Object


class ComponentKeys:
    """Makes, finds and rotates the keys of one sort of components, as the server itself. `namespace` is where their
    Secrets are."""

    def __init__(
        self,
        registry: Registry,
        api_group: str,
        component: Component,
        namespace: str,
        pepper: Pepper,
        rotation: Rotation,
    ) -> None:
        self._component = component
        self._owners = registry.resource(api_group, component.plural)
        self._keys = registry.resource(api_group, ACCESS_KEYS)
        self._secrets = registry.resource("", "secrets")
        self._namespace = namespace
        self._pepper = pepper
        self._rotation = rotation

    async def of(self, name: str) -> str:
        """The key of a component, made if there is none. Raises NotFound where its owner does not exist."""
        kept = await self._kept(name)
        for value in _values(kept.secret):
            # While a key is being rotated, its Secret has both values; which one holds is for the key to say.
            if self._pepper.digest(value) == dig(kept.key, "spec.key"):
                return value
        raise self._conflict(name, _ROTATED_ELSEWHERE.format(key=name_of(kept.key)))

    async def rotated(self, name: str, body: Object) -> str:
        """A new key of a component. The old one ends at once, or after the overlap that the body asks for.

        The Secret has the new value before the key does: wherever this breaks off, the one that holds can be read.
        """
        kept = await self._kept(name)
        value, mark = new_key(), f"next-{token_hex(4)}"
        await self._edit(kept, lambda data: {**data, mark: _encoded(value)})
        try:
            await self._rotation.rotated(CONTROLLER, name_of(kept.key), body, value)
        except ApiError:
            await self._edit(kept, lambda data: _without(data, mark))
            raise

        def settled(data: Object) -> Object:
            entry = self._keys.peek("", name_of(kept.key))
            holds = entry is not None and dig(decode(entry), "spec.key") == self._pepper.digest(value)
            return _without(data, mark) | ({CURRENT: _encoded(value)} if holds else {})

        await self._edit(kept, settled)
        return value

    async def _kept(self, name: str) -> _Kept:
        for _ in range(ATTEMPTS):
            owner = decode(await self._owners.get("", name))
            found = self._find(owner)
            if found is not None:
                return found
            await self._make(owner)
        raise self._conflict(name, "its key keeps changing; try again")

    def _find(self, owner: Object) -> _Kept | None:
        """Only what was made for this very owner counts, and not for another one that had the name before."""
        entry = self._secrets.peek(self._namespace, self._component.key_secret(name_of(owner)))
        secret = decode(entry) if entry is not None else {}
        if not _belongs(secret, owner):
            return None
        entry = self._keys.peek("", (metadata(secret).get("annotations") or {}).get(KEY_ANNOTATION) or "")
        key = decode(entry) if entry is not None else {}
        if not _belongs(key, owner) or "deletionTimestamp" in metadata(key):
            return None
        return _Kept(key, secret)

    async def _make(self, owner: Object) -> None:
        """Makes a key, unless somebody else does so at the same time."""
        name = name_of(owner)
        if "deletionTimestamp" in metadata(owner):
            raise self._conflict(name, "it is being deleted, and gets no key any more")
        before = list(self._keys_of(owner))
        try:
            await self._drop_secret(name)
            await self._keys.create(self._body(owner), "", _as_server())
        except (AlreadyExists, Conflict, NotFound):
            return
        for key in before:
            with suppress(NotFound):
                await self._keys.delete("", name_of(key), Deleting(metadata(key)["uid"]), _as_server())

    def _body(self, owner: Object) -> Object:
        kind, sort, name = self._keys.kind, self._component, name_of(owner)
        return {
            "apiVersion": kind.api_version,
            "kind": kind.name,
            "metadata": {
                # Anybody may make keys of any name, and must not be in the way here.
                "name": f"{sort.word}-{sort.label_value(name)}-{token_hex(4)}",
                "labels": {sort.label: sort.label_value(name)},
                "ownerReferences": [owner_reference(owner)],
            },
            "spec": {
                "displayName": f"{sort.word.capitalize()} {name}",
                "subject": sort.subject(name),
                "groups": [sort.group, sort.subject(name)],
                "type": "Other",
            },
        }

    def _keys_of(self, owner: Object) -> Iterator[Object]:
        """What is left of earlier keys: they would go on working, and nobody could read them."""
        sort, name = self._component, name_of(owner)
        for entry in self._keys.view.entries(self._keys.kind.group, self._keys.kind.plural):
            if entry.labels.get(sort.label) == sort.label_value(name):
                key = decode(entry)
                if _belongs(key, owner) and dig(key, "spec.subject") == sort.subject(name):
                    yield key

    async def _drop_secret(self, owner: str) -> None:
        """Takes away a Secret that is of no use: that very one, as it was judged."""
        entry = self._secrets.peek(self._namespace, self._component.key_secret(owner))
        if entry is not None:
            meta = metadata(decode(entry))
            deleting = Deleting(meta["uid"], meta["resourceVersion"])
            await self._secrets.delete(self._namespace, entry.key[3], deleting, _as_server())

    async def _edit(self, kept: _Kept, change: Callable[[Object], Object]) -> None:
        """Changes the data of the Secret, if it is still the same one."""

        def edit(secret: Object) -> Object:
            new = copied(secret)
            if metadata(secret)["uid"] == metadata(kept.secret)["uid"]:
                new["data"] = change(new.get("data") or {})
            return new

        with suppress(NotFound):  # then the next who asks gets another key
            await self._secrets.modify(self._namespace, name_of(kept.secret), edit, _as_server())

    def _conflict(self, name: str, why: str) -> Conflict:
        return Conflict.of(self._component.plural, self._owners.kind.group, name, why)


def _as_server() -> Writing:
    return by_the_server()


def _belongs(obj: Object, owner: Object) -> bool:
    references = metadata(obj).get("ownerReferences") or ()
    return any(each.get("uid") == metadata(owner)["uid"] for each in references)


def _values(secret: Object) -> Iterator[str]:
    for text in (secret.get("data") or {}).values():
        with suppress(NotBase64, ValueError):  # somebody has meddled with it
            yield b64decode(text).decode()


def _encoded(value: str) -> str:
    return b64encode(value.encode()).decode()


def _without(data: Object, name: str) -> Object:
    return {key: value for key, value in data.items() if key != name}
