"""Access keys as usage entries: their owner, category, size and expiry, and an index by digest.

`admission/access_key_limits.py` counts keys with it, and `authn/login_sessions.py` finds a user's older logins.
"""

from collections.abc import Sequence

import msgspec

from fairlead.kinds.access.access_key import OWNED_ACCESS_KEY, OWNERS
from fairlead.registry.owner_usage import Held, Holdings, size_of
from fairlead.storage.view.entry import Entry
from fairlead.storage.view.view import View

LOGIN = "Login"
"""The type of keys that a login creates. They are counted separately, because a new login replaces the oldest one."""

MOST_LOGINS = 50
"""Concurrent logins per user. A new login removes the oldest: a script that signs in every minute must not fill the
store, and must not lock its user out."""


class _Spec(msgspec.Struct):
    user: str | None = None
    team: str | None = None
    subject: str | None = None
    type: str | None = None
    key: str | None = None


class _Previous(msgspec.Struct):
    key: str | None = None


class _Status(msgspec.Struct):
    expired: str | None = None
    previous: list[_Previous] | None = None


class _Meta(msgspec.Struct):
    creationTimestamp: str | None = None
    finalizers: list[str] | None = None


class _Key(msgspec.Struct):
    metadata: _Meta
    spec: _Spec | None = None
    status: _Status | None = None


_decode = msgspec.json.Decoder(_Key).decode

Owner = tuple[str, str]
"""The field that names the owner, and the name."""


def sort_of(key_type: object) -> str:
    return LOGIN if key_type == LOGIN else ""


def describe_key(entry: Entry) -> Sequence[Held]:
    key = _decode(entry.body)
    spec, status, meta = key.spec or _Spec(), key.status or _Status(), key.metadata
    owner = next(((field, name) for field in OWNERS if (name := getattr(spec, field))), None)
    if owner is None:
        return ()
    created, ended = meta.creationTimestamp or "", status.expired or ""
    return (Held(owner, sort_of(spec.type), size_of(entry), created, ended, entry.revision, bool(meta.finalizers)),)


def key_holdings(view: View, api_group: str) -> Holdings:
    """The access keys of each user, team and subject."""
    return Holdings(view, api_group, OWNED_ACCESS_KEY.plural, describe_key)


def key_digests(view: View, api_group: str) -> Holdings:
    """The access keys by the digests of their values, including previous values that are still valid."""
    return Holdings(view, api_group, OWNED_ACCESS_KEY.plural, _digests)


def _digests(entry: Entry) -> Sequence[Held]:
    key = _decode(entry.whole or entry.body)
    values = (key.spec or _Spec()).key, *(each.key for each in (key.status or _Status()).previous or ())
    return tuple(Held(value) for value in dict.fromkeys(values) if value)
