"""Access keys as usage entries: their owner, category, size and expiry, and indexes by digest and by session.

`admission/access_keys.py` counts keys with it, and `authn/login_sessions.py` finds a user's older logins.
"""

from collections.abc import Sequence

import msgspec

from fairlead.domain.key_lifetime import OWNER_FIELDS
from fairlead.kinds.access.access_key import OWNED_ACCESS_KEY
from fairlead.registry.owner_usage import OwnerUsageIndex, UsageEntry, entry_size
from fairlead.storage.view.entry import Entry
from fairlead.storage.view.view import View

LOGIN_TYPE = "Login"
"""The type of keys that a login creates. They are counted separately, because a new login replaces the oldest one."""

MAX_LOGINS = 50
"""Concurrent logins per user. A new login removes the oldest: a script that signs in every minute must not fill the
store, and must not lock its user out."""


SESSION_CLAIM = "sid"
"""The claim with the id of the session at the provider, which logout requests name."""


class _Identity(msgspec.Struct):
    connector: str | None = None
    extraClaims: dict[str, str] | None = None


class _Spec(msgspec.Struct):
    user: str | None = None
    team: str | None = None
    subject: str | None = None
    type: str | None = None
    key: str | None = None
    identity: _Identity | None = None


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


def usage_category(key_type: object) -> str:
    return LOGIN_TYPE if key_type == LOGIN_TYPE else ""


def read_key_usage(entry: Entry) -> Sequence[UsageEntry]:
    key = _decode(entry.body)
    spec = key.spec or _Spec()
    status = key.status or _Status()
    meta = key.metadata
    owner = next(((field, name) for field in OWNER_FIELDS if (name := getattr(spec, field))), None)
    if owner is None:
        return ()
    created, ended = meta.creationTimestamp or "", status.expired or ""
    return (
        UsageEntry(
            owner=owner,
            category=usage_category(spec.type),
            size=entry_size(entry),
            created_at=created,
            ended_at=ended,
            revision=entry.revision,
            has_finalizers=bool(meta.finalizers),
        ),
    )


def key_usage_index(view: View, api_group: str) -> OwnerUsageIndex:
    """The access keys of each user, team and subject."""
    return OwnerUsageIndex(view, api_group, OWNED_ACCESS_KEY.plural, read_key_usage)


def key_digest_index(view: View, api_group: str) -> OwnerUsageIndex:
    """The access keys by the digests of their values, including previous values that are still valid."""
    return OwnerUsageIndex(view, api_group, OWNED_ACCESS_KEY.plural, _read_digests)


def _read_digests(entry: Entry) -> Sequence[UsageEntry]:
    key = _decode(entry.full_body or entry.body)
    values = (key.spec or _Spec()).key, *(each.key for each in (key.status or _Status()).previous or ())
    return tuple(UsageEntry(value) for value in dict.fromkeys(values) if value)


def login_session_index(view: View, api_group: str) -> OwnerUsageIndex:
    """The logins by single sign-on, by connector and id of the session at the provider."""
    return OwnerUsageIndex(view, api_group, OWNED_ACCESS_KEY.plural, _read_sessions)


def _read_sessions(entry: Entry) -> Sequence[UsageEntry]:
    spec = _decode(entry.body).spec or _Spec()
    identity = spec.identity or _Identity()
    session = (identity.extraClaims or {}).get(SESSION_CLAIM)
    is_login = bool(session) and spec.type == LOGIN_TYPE
    return (UsageEntry((identity.connector or "", session)),) if is_login else ()
