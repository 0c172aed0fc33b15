"""Allows users to read their own User and teams and the audit events of their own requests, and to manage their own
access keys.
"""

import msgspec

from fairlead.authz.name_index import is_user, owns
from fairlead.core.call import Decision, RequestInfo
from fairlead.core.user import User
from fairlead.kinds.access.access_key import OWNED_ACCESS_KEY
from fairlead.kinds.access.audit_event import AUDIT_EVENT
from fairlead.kinds.access.direct_token import DIRECT_CLUSTER_ENDPOINT_TOKEN
from fairlead.kinds.access.users import TEAM, USER
from fairlead.storage.view.view import Entry, View

USERS, TEAMS, KEYS = USER.plural, TEAM.plural, OWNED_ACCESS_KEY.plural
AUDIT_EVENTS = AUDIT_EVENT.plural
_KEY_VERBS = frozenset({"get", "update", "patch", "delete"})
_ALLOW_READ = Decision(True, "the user's own User or team")
_ALLOW_KEY = Decision(True, "the user's own access key")
OWN_AUDIT_EVENTS = Decision(True, "an event of the user's own request, if there is one")
"""The handler of audit events shows no others to a request that was allowed for this reason."""
_ALLOW_LOGIN = Decision(True, "the user's own login")
_ALLOW_TOKEN = Decision(True, "the user's own direct token")
_CREATABLE = {KEYS: _ALLOW_KEY, DIRECT_CLUSTER_ENDPOINT_TOKEN.plural: _ALLOW_TOKEN}
"""What users may create for themselves. Admission checks the scope when it is created."""
LOGOUT = ("post", "/auth/logout")
AUTHORIZE_READ, AUTHORIZE_WRITE = ("get", "/auth/authorize"), ("post", "/auth/authorize")
DEVICE_REQUEST, DEVICE_DECISION = ("post", "/auth/device/request"), ("post", "/auth/device/decision")
_LOGIN_ENDPOINTS = frozenset({LOGOUT, AUTHORIZE_READ, AUTHORIZE_WRITE, DEVICE_REQUEST, DEVICE_DECISION})
"""Verb and path, relative to the platform root. Their handlers check which credentials may use them."""


class _KeySpec(msgspec.Struct):
    user: str | None = None


class _Key(msgspec.Struct):
    """The owner of an access key, decoded without the rest."""

    spec: _KeySpec | None = None


_decode_key = msgspec.json.Decoder(_Key).decode


class SelfAuthorizer:
    """The authorizer for a user's own objects. It never applies to keys of teams, runners or agents."""

    def __init__(self, api_group: str, view: View) -> None:
        self._group = api_group
        self._view = view

    def __call__(self, user: User, target: RequestInfo) -> Decision | None:
        if not target.root and (target.verb, target.path) in _LOGIN_ENDPOINTS:
            return _ALLOW_LOGIN
        if target.group != self._group or not is_user(user, (user.name,)):
            return None
        if target.resource == USERS and target.name == user.name:
            return self._authorize_user(target)
        if target.resource == TEAMS and target.verb == "get" and not target.subresource:
            return _ALLOW_READ if owns(user, None, target.name) else None
        if target.resource == AUDIT_EVENTS:
            return OWN_AUDIT_EVENTS if target.verb == "get" and target.name and not target.subresource else None
        if target.verb == "create" and not target.subresource and target.resource in _CREATABLE:
            return _CREATABLE[target.resource]
        if target.resource == KEYS and target.name:
            entry = self._view.get((self._group, KEYS, "", target.name))
            return None if entry is None else self._authorize_key(user, target, entry)
        return None

    def _authorize_user(self, target: RequestInfo) -> Decision | None:
        own = {("get", ""), ("get", "accesskeys"), ("get", "profile"), ("create", "profile")}
        return _ALLOW_READ if (target.verb, target.subresource) in own else None

    def _authorize_key(self, user: User, target: RequestInfo, entry: Entry) -> Decision | None:
        if target.subresource and (target.verb, target.subresource) != ("create", "rotate"):
            return None
        if not target.subresource and target.verb not in _KEY_VERBS:
            return None
        spec = _decode_key(entry.body).spec
        return _ALLOW_KEY if spec is not None and spec.user == user.name else None

    def authorize_object(self, user: User, target: RequestInfo, entry: Entry) -> Decision | None:
        if (entry.key[0], entry.key[1]) == (self._group, KEYS) and is_user(user, (user.name,)):
            return self._authorize_key(user, target, entry)
        return self(user, target)

    def may_see_some(self, user: User, target: RequestInfo) -> bool:
        """Users may list at least their own User, teams and keys, and the audit events of their own requests."""
        if target.group != self._group:
            return False
        return target.resource in (USERS, TEAMS, KEYS) or (
            target.resource == AUDIT_EVENTS and is_user(user, (user.name,))
        )
