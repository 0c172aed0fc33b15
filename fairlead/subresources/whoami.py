"""The handlers of Self (for the platform's tools), SelfSubjectReview (for kubectl) and TokenReview (for services).

Self reads users, teams and access keys from the registry for display names. Permissions only depend on the identity of
the request. No response contains the value of an access key.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from fairlead.authn import Authenticator, authenticate
from fairlead.authn.access_keys import ACCESS_KEYS
from fairlead.authn.principals import TEAMS, USERS
from fairlead.authz.name_index import in_team, is_user, owns
from fairlead.core.call import Call
from fairlead.core.clock import timestamp
from fairlead.core.errors import BadRequest, Forbidden, NotFound, Unauthorized
from fairlead.core.objects import Object, dig, metadata
from fairlead.core.user import TEAM_GROUP, USER_GROUP, User
from fairlead.registry.codec import decode
from fairlead.registry.registry import Registry
from fairlead.server.api.actions import Asked, Handler, Place

AUTHENTICATION = "authentication.k8s.io"

_SCOPED_TOKEN = "the access key has a scope, which a TokenReview cannot express; use an access key without a scope"


@dataclass(frozen=True, slots=True)
class InstallationInfo:
    """What Self returns about the server: the id of this installation, and the prefix of project namespaces."""

    id: str
    namespace_prefix: str


def self_handlers(api_group: str, selves: "Selves", tokens: "Tokens") -> dict[Place, Handler]:
    """The handlers by group, resource and subresource."""
    return {
        (api_group, "selves", ""): selves,
        (AUTHENTICATION, "selfsubjectreviews", ""): selves.review,
        (AUTHENTICATION, "tokenreviews", ""): tokens,
    }


class Selves:
    """The handlers of Self and SelfSubjectReview.

    `user_for_key` returns the user that an access key authenticates; None if the key is not valid.
    """

    def __init__(
        self, registry: Registry, api_group: str, identity: Callable[[str], User | None], installation: InstallationInfo
    ) -> None:
        self._registry = registry
        self._group = api_group
        self._identity = identity
        self._installation = installation

    async def __call__(self, asked: Asked) -> Object:
        name = (asked.body.get("spec") or {}).get("accessKey")
        if name:
            key = self.inspect(asked.user, name)
            user = self._identity(name) or _owner(key)
        else:
            user = asked.user
            name = user.key or (user.impersonator.key if user.impersonator else "")
            key = self._object(ACCESS_KEYS, name) or {}
        status = {**self._who(user), **_key_facts(name, key), **self._facts(user)}
        return {**asked.body, "status": status}

    async def review(self, asked: Asked) -> Object:
        """SelfSubjectReview, as sent by `kubectl auth whoami`."""
        metadata(asked.body)["creationTimestamp"] = timestamp(self._registry.clock.now())
        return {**asked.body, "status": {"userInfo": user_info(asked.user)}}

    def inspect(self, user: User, name: str) -> Object:
        """The access key of that name, if the user may see it: its owner, administrators, or the key itself.

        A key with a scope only sees itself. All others get 403, whether the key exists or not.
        """
        key = self._object(ACCESS_KEYS, name)
        if key is not None and (user.holds_everything or user.key == name or (user.scope is None and _owns(user, key))):
            return key
        if user.holds_everything:
            raise NotFound.of(ACCESS_KEYS, self._group, name)
        reason = f'User "{user.name}" cannot inspect this access key; only its owner and administrators can'
        raise Forbidden.of(ACCESS_KEYS, self._group, name, reason)

    def _object(self, plural: str, name: str) -> Object | None:
        entry = self._registry.resource(self._group, plural).peek("", name) if name else None
        return decode(entry) if entry is not None else None

    def _who(self, user: User) -> Object:
        """`team` or `user`: clients rely on one of the two. Identities without an object are returned as a user."""
        team = user.name.removeprefix(TEAM_GROUP)
        if team != user.name and in_team(user, (team,)):
            return {"team": self._entity(TEAMS, team, user.name)}
        known = is_user(user, (user.name,))
        info = self._entity(USERS, user.name, user.name) if known else _bare(user.name, user.name)
        teams = [group.removeprefix(TEAM_GROUP) for group in user.groups if group.startswith(TEAM_GROUP)]
        if teams:
            info["teams"] = [self._entity(TEAMS, name, f"{TEAM_GROUP}{name}") for name in dict.fromkeys(teams)]
        return {"user": info}

    def _entity(self, plural: str, name: str, subject: str) -> Object:
        spec = (self._object(plural, name) or {}).get("spec") or {}
        fields = {field: spec.get(field) for field in ("displayName", "icon", "username", "email", "subject")}
        return {**_bare(name, subject), **{field: value for field, value in fields.items() if value}}

    def _facts(self, user: User) -> Object:
        fields = {"subject": user.name, "uid": user.uid, "groups": list(user.groups)}
        fields["instanceID"] = self._installation.id
        non_empty: Object = {name: value for name, value in fields.items() if value}
        return {**non_empty, "projectNamespacePrefix": self._installation.namespace_prefix}


class Tokens:
    """The handler of TokenReview: authenticates a token as if a request had sent it."""

    def __init__(self, authenticators: Sequence[Authenticator]) -> None:
        self._authenticators = authenticators

    async def __call__(self, asked: Asked) -> Object:
        spec = dict(asked.body.get("spec") or {})
        token = spec.pop("token", "")
        if not token:
            raise BadRequest("token is required for TokenReview in authentication")
        return {**asked.body, "spec": spec, "status": self._status(token)}

    def _status(self, token: str) -> Object:
        try:
            user = authenticate(self._authenticators, _bearing(token))
        except Unauthorized as error:
            return {"authenticated": False, "error": error.message}
        if user.scope is not None:
            return {"authenticated": False, "error": _SCOPED_TOKEN}
        return {"authenticated": True, "user": user_info(user)}


def user_info(user: User) -> Object:
    """An identity as Kubernetes' UserInfo."""
    info: dict[str, Any] = {"username": user.name, "uid": user.uid, "groups": list(user.groups)}
    info["extra"] = {name: list(values) for name, values in user.extra}
    return {name: value for name, value in info.items() if value}


def _bare(name: str, subject: str) -> Object:
    return {"name": name, "username": name, "subject": subject}


def _key_facts(name: str, key: Object) -> Object:
    if not name:
        return {}
    fields = {"accessKey": name, "accessKeyType": dig(key, "spec.type"), "accessKeyScope": dig(key, "spec.scope")}
    return {field: value for field, value in fields.items() if value is not None}


def _owns(user: User, key: Object) -> bool:
    return owns(user, dig(key, "spec.user"), dig(key, "spec.team"))


def _owner(key: Object) -> User:
    """The owner of a key that is not valid now."""
    spec = key.get("spec") or {}
    if spec.get("user"):
        return User(spec["user"], (f"{USER_GROUP}{spec['user']}",))
    if spec.get("team"):
        return User(f"{TEAM_GROUP}{spec['team']}", (f"{TEAM_GROUP}{spec['team']}",))
    return User(spec.get("subject", ""))


class _Bearer:
    """The headers of a request with only a bearer token."""

    def __init__(self, token: str) -> None:
        self._headers = {"authorization": f"Bearer {token}"}

    def get(self, key: str, default: str = "") -> str:
        return self._headers.get(key, default)

    def get_all(self, key: str) -> list[str]:
        return [self._headers[key]] if key in self._headers else []

    def keys(self) -> list[str]:
        return list(self._headers)

    def any_begins(self, prefix: str) -> bool:
        return any(name.startswith(prefix) for name in self._headers)


def _bearing(token: str) -> Call:
    async def no_body() -> bytes:
        return b""

    return Call("GET", "/", {}, _Bearer(token), no_body)
