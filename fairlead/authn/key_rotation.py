"""Rotates the value of an access key. The old value ends at once, or after an overlap in which both work.

Implements `POST ownedaccesskeys/<name>/rotate`. The object keeps its name, owner, scope and lifetime. The requester
receives the new value, so the same delegation checks apply as when creating a key.
"""

from datetime import datetime, timedelta

from fairlead.authn.access_keys import ACCESS_KEYS, Pepper, new_key
from fairlead.core.clock import parsed, timestamp
from fairlead.core.errors import Conflict, Details, Forbidden, Invalid, Problem, qualified
from fairlead.core.objects import Object, copied, dig, name_of
from fairlead.core.user import CONTROLLER, User
from fairlead.domain.key_delegation import Covers, holder_of, overreach
from fairlead.kinds.access.access_key import MAX_OVERLAP, ROTATION
from fairlead.registry.codec import decode, shown_once
from fairlead.registry.registry import Registry
from fairlead.registry.write_options import Writing

MOST_PREVIOUS = 4
"""Previous values that stay valid beside the current one; the oldest are dropped."""


class Rotation:
    """Rotates keys. Callers authorize the request first."""

    def __init__(self, registry: Registry, api_group: str, pepper: Pepper, covers: Covers) -> None:
        self._keys = registry.resource(api_group, ACCESS_KEYS)
        self._clock = registry.clock
        self._pepper = pepper
        self._covers = covers

    async def rotated(self, user: User, name: str, body: Object, fresh: str = "") -> bytes:
        """Returns the key with its new value in clear text, once. `new_value` is the value to use, if not empty."""
        overlap = dig(body, "spec.overlapSeconds") or 0
        if overlap > MAX_OVERLAP:
            why = f"must be at most {MAX_OVERLAP} seconds"
            problem = Problem.invalid("spec.overlapSeconds", overlap, why)
            raise Invalid.of(ROTATION.name, self._keys.kind.group, name, [problem])
        while True:
            old = decode(await self._keys.get("", name))
            self._refuse(user, old)
            value = fresh or new_key()
            response = await self._exchange(old, value, overlap)
            if response is not None:
                return shown_once(response, {"spec.key": value})

    def _refuse(self, user: User, key: Object) -> None:
        kind, name, now = self._keys.kind, name_of(key), self._clock.now()
        if dig(key, "status.expired"):
            why = "the key has expired, and rotation cannot renew it; create another key"
            raise Conflict.of(kind.plural, kind.group, name, why)
        why_not = overreach(holder_of(user, self._keys), key, self._covers, now)
        if why_not is not None:
            message = f'{qualified(kind.plural, kind.group)} "{name}" is forbidden: {why_not}'
            raise Forbidden(message, Details(name, kind.group, kind.plural))

    async def _exchange(self, old: Object, value: str, overlap: int) -> bytes | None:
        """Saves the old digest in the status if there is an overlap, then replaces it in the spec, so that there is a
        valid value at any time. Without an overlap, earlier saved digests are removed. Returns None after a concurrent
        rotation.
        """
        name, digest, fresh = name_of(old), dig(old, "spec.key"), self._pepper.digest(value)
        previous = _previous(old, self._clock.now(), overlap)
        if previous and await self._write(name, digest, "status", {"previous": previous}) is None:
            return None
        response = await self._write(name, digest, "spec", {"key": fresh})
        if response is not None and not previous and dig(old, "status.previous"):
            return await self._write(name, fresh, "status", {"previous": []}) or response
        return response

    async def _write(self, name: str, digest: str, part: str, fields: Object) -> bytes | None:
        """Sets fields of the spec or the status if the key still has that digest; otherwise returns None."""
        is_same = True

        def edit(key: Object) -> Object:
            nonlocal is_same
            is_same, new = dig(key, "spec.key") == digest, copied(key)
            if is_same:
                new[part] = {**(new.get(part) or {}), **fields}
            return new

        subresource = "status" if part == "status" else ""
        response = await self._keys.modify("", name, edit, Writing(CONTROLLER, "fairlead", subresource=subresource))
        return response if is_same else None


def _previous(key: Object, now: datetime, overlap: int) -> list[Object]:
    """The previous values that stay valid; none without an overlap, also not those of earlier rotations."""
    if not overlap:
        return []
    valid = [each for each in dig(key, "status.previous") or () if (parsed(each["until"]) or now) > now]
    until = timestamp(now + timedelta(seconds=overlap))
    return [*valid, {"key": dig(key, "spec.key"), "until": until}][-MOST_PREVIOUS:]
