"""Rotates the value of an access key. The old value ends at once, or after an overlap in which both work.

Implements `POST ownedaccesskeys/<name>/rotate`. The object keeps its name, owner, scope and lifetime. The requester
receives the new value, so the same delegation checks apply as when creating a key.
"""

from datetime import datetime, timedelta

from fairlead.authn.access_keys import ACCESS_KEYS, Pepper, generate_key
from fairlead.core.clock import parse_rfc3339, timestamp
from fairlead.core.errors import Conflict, Details, Forbidden, Invalid, Problem, qualified_resource
from fairlead.core.objects import Object, deep_copy, get_path, name_of
from fairlead.core.user import CONTROLLER_USER, User
from fairlead.domain.key_delegation import ScopeCovers, delegation_problem, delegator_for
from fairlead.kinds.access.access_key import KEY_ROTATION, MAX_OVERLAP_SECONDS
from fairlead.registry.codec import decode, with_one_time_fields
from fairlead.registry.registry import Registry
from fairlead.registry.write_options import WriteOptions

MAX_PREVIOUS_VALUES = 4
"""Previous values that stay valid beside the current one; the oldest are dropped."""


class KeyRotator:
    """Rotates keys. Callers authorize the request first."""

    def __init__(self, registry: Registry, api_group: str, pepper: Pepper, covers: ScopeCovers) -> None:
        self._keys = registry.resource(api_group, ACCESS_KEYS)
        self._clock = registry.clock
        self._pepper = pepper
        self._covers = covers

    async def rotate(self, user: User, name: str, body: Object, new_value: str = "") -> bytes:
        """Returns the key with its new value in clear text, once. `new_value` is the value to use, if not empty."""
        overlap = get_path(body, "spec.overlapSeconds") or 0
        if overlap > MAX_OVERLAP_SECONDS:
            why = f"must be at most {MAX_OVERLAP_SECONDS} seconds"
            problem = Problem.invalid("spec.overlapSeconds", overlap, why)
            raise Invalid.of(KEY_ROTATION.name, self._keys.kind.group, name, [problem])
        while True:
            old = decode(await self._keys.get("", name))
            self._check_allowed(user, old)
            value = new_value or generate_key()
            response = await self._replace_digest(old, value, overlap)
            if response is not None:
                return with_one_time_fields(response, {"spec.key": value})

    def _check_allowed(self, user: User, key: Object) -> None:
        kind = self._keys.kind
        name = name_of(key)
        now = self._clock.now()
        if get_path(key, "status.expired"):
            why = "the key has expired, and rotation cannot renew it; create another key"
            raise Conflict.of(kind.plural, kind.group, name, why)
        why_not = delegation_problem(delegator_for(user, self._keys), key, self._covers, now)
        if why_not is not None:
            message = f'{qualified_resource(kind.plural, kind.group)} "{name}" is forbidden: {why_not}'
            raise Forbidden(message, Details(name, kind.group, kind.plural))

    async def _replace_digest(self, old: Object, value: str, overlap: int) -> bytes | None:
        """Saves the old digest in the status if there is an overlap, then replaces it in the spec, so that there is a
        valid value at any time. Without an overlap, earlier saved digests are removed. Records the time first, which
        ends logins that were allowed with the old value. Returns None after a concurrent rotation.
        """
        name = name_of(old)
        digest = get_path(old, "spec.key")
        fresh = self._pepper.digest(value)
        now = self._clock.now()
        previous = _previous_values(old, now, overlap)
        status = {"rotated": timestamp(now), **({"previous": previous} if previous else {})}
        if await self._write_if_unchanged(name, digest, "status", status) is None:
            return None
        response = await self._write_if_unchanged(name, digest, "spec", {"key": fresh})
        if response is not None and not previous and get_path(old, "status.previous"):
            return await self._write_if_unchanged(name, fresh, "status", {"previous": []}) or response
        return response

    async def _write_if_unchanged(self, name: str, digest: str, section: str, fields: Object) -> bytes | None:
        """Sets fields of the spec or the status if the key still has that digest; otherwise returns None."""
        is_same = True

        def edit(key: Object) -> Object:
            nonlocal is_same
            is_same = get_path(key, "spec.key") == digest
            new = deep_copy(key)
            if is_same:
                new[section] = {**(new.get(section) or {}), **fields}
            return new

        subresource = "status" if section == "status" else ""
        response = await self._keys.modify(
            "", name, edit, WriteOptions(CONTROLLER_USER, "fairlead", subresource=subresource)
        )
        return response if is_same else None


def _previous_values(key: Object, now: datetime, overlap: int) -> list[Object]:
    """The previous values that stay valid; none without an overlap, also not those of earlier rotations."""
    if not overlap:
        return []
    valid = [each for each in get_path(key, "status.previous") or () if (parse_rfc3339(each["until"]) or now) > now]
    until = timestamp(now + timedelta(seconds=overlap))
    return [*valid, {"key": get_path(key, "spec.key"), "until": until}][-MAX_PREVIOUS_VALUES:]
