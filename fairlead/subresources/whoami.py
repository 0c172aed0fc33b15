"""The handlers of Self (for the platform's tools), SelfSubjectReview (for kubectl) and TokenReview (for services).

Self reads users, teams and access keys from the registry for display names. Permissions only depend on the identity of
the request. No response contains the value of an access key.

Users and teams as responses show them: names and display fields, nothing else of the object.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from fairlead.authn import Authenticator
from fairlead.authn.access_keys import ACCESS_KEYS
from fairlead.authn.principals import TEAMS, USERS
from fairlead.authz.name_index import in_team, is_user, owns
from fairlead.core.call import Call
from fairlead.core.clock import timestamp
from fairlead.core.errors import BadRequest, Forbidden, NotFound, Unauthorized
from fairlead.core.objects import Object, get_path, metadata
from fairlead.core.user import TEAM_GROUP_PREFIX, USER_GROUP_PREFIX, User
from fairlead.registry.codec import decode
from fairlead.registry.registry import Registry
from fairlead.server.api.actions import ActionHandler, ActionPath, ActionRequest
from fairlead.server.auth.stages import authenticate

_DISPLAY_FIELDS = ("displayName", "icon", "username", "email", "subject")


def principal_info(plural: str, name: str, obj: Object | None) -> Object:
    """The user or team of that name; with its display fields if it has an object."""
    spec = (obj or {}).get("spec") or {}
    subject = f"{TEAM_GROUP_PREFIX}{name}" if plural == TEAMS else name
    shown = {field: spec[field] for field in _DISPLAY_FIELDS if spec.get(field)}
    return {"name": name, "username": name, "subject": subject, **shown}


AUTHENTICATION_GROUP = "authentication.k8s.io"

_SCOPED_TOKEN_ERROR = (
    "the access key has a scope, which a TokenReview cannot express; use an access key without a scope"
)


@dataclass(frozen=True, slots=True)
class InstallationInfo:
    """What Self returns about the server: the id of this installation, and the prefix of project namespaces."""

    id: Callable[[], str]
    namespace_prefix: str


def whoami_handlers(
    api_group: str, whoami: "WhoAmI", token_reviewer: "TokenReviewer"
) -> dict[ActionPath, ActionHandler]:
    """The handlers by group, resource and subresource."""
    return {
        (api_group, "selves", ""): whoami,
        (AUTHENTICATION_GROUP, "selfsubjectreviews", ""): whoami.review_self_subject,
        (AUTHENTICATION_GROUP, "tokenreviews", ""): token_reviewer,
    }


class WhoAmI:
    """The handlers of Self and SelfSubjectReview.

    `user_for_key` returns the user that an access key authenticates; None if the key is not valid.
    """

    def __init__(
        self,
        registry: Registry,
        api_group: str,
        user_for_key: Callable[[str], User | None],
        installation: InstallationInfo,
    ) -> None:
        self._registry = registry
        self._group = api_group
        self._user_for_key = user_for_key
        self._installation = installation

    async def __call__(self, request: ActionRequest) -> Object:
        name = (request.body.get("spec") or {}).get("accessKey")
        if name:
            key = self.get_visible_key(request.user, name)
            user = self._user_for_key(name) or _key_owner(key)
        else:
            user = request.user
            name = user.key or (user.impersonator.key if user.impersonator else "")
            key = self._get_cached(ACCESS_KEYS, name) or {}
        status = {**self._user_or_team(user), **_key_fields(name, key), **self._identity_fields(user)}
        return {**request.body, "status": status}

    async def review_self_subject(self, request: ActionRequest) -> Object:
        """SelfSubjectReview, as sent by `kubectl auth whoami`."""
        metadata(request.body)["creationTimestamp"] = timestamp(self._registry.clock.now())
        return {**request.body, "status": {"userInfo": user_info(request.user)}}

    def get_visible_key(self, user: User, name: str) -> Object:
        """The access key of that name, if the user may see it: its owner, administrators, or the key itself.

        A key with a scope only sees itself. All others get 403, whether the key exists or not.
        """
        key = self._get_cached(ACCESS_KEYS, name)
        if key is not None and (
            user.is_unscoped_admin or user.key == name or (user.scope is None and _owns_key(user, key))
        ):
            return key
        if user.is_unscoped_admin:
            raise NotFound.of(ACCESS_KEYS, self._group, name)
        reason = f'User "{user.name}" cannot inspect this access key; only its owner and administrators can'
        raise Forbidden.of(ACCESS_KEYS, self._group, name, reason)

    def _get_cached(self, plural: str, name: str) -> Object | None:
        entry = self._registry.resource(self._group, plural).get_cached("", name) if name else None
        return decode(entry) if entry is not None else None

    def _user_or_team(self, user: User) -> Object:
        """`team` or `user`: clients rely on one of the two. Identities without an object are returned as a user."""
        team = user.name.removeprefix(TEAM_GROUP_PREFIX)
        if team != user.name and in_team(user, (team,)):
            return {"team": self._principal_info(TEAMS, team)}
        known = is_user(user, (user.name,))
        info = self._principal_info(USERS, user.name) if known else principal_info(USERS, user.name, None)
        teams = [group.removeprefix(TEAM_GROUP_PREFIX) for group in user.groups if group.startswith(TEAM_GROUP_PREFIX)]
        if teams:
            info["teams"] = [self._principal_info(TEAMS, name) for name in dict.fromkeys(teams)]
        return {"user": info}

    def _principal_info(self, plural: str, name: str) -> Object:
        return principal_info(plural, name, self._get_cached(plural, name))

    def _identity_fields(self, user: User) -> Object:
        fields = {"subject": user.name, "uid": user.uid, "groups": list(user.groups)}
        fields["impersonator"] = user.impersonator.name if user.impersonator else ""
        fields["instanceID"] = self._installation.id()
        non_empty: Object = {name: value for name, value in fields.items() if value}
        return {**non_empty, "projectNamespacePrefix": self._installation.namespace_prefix}


class TokenReviewer:
    """The handler of TokenReview: authenticates a token as if a request had sent it."""

    def __init__(self, authenticators: Sequence[Authenticator]) -> None:
        self._authenticators = authenticators

    async def __call__(self, request: ActionRequest) -> Object:
        spec = dict(request.body.get("spec") or {})
        token = spec.pop("token", "")
        if not token:
            raise BadRequest("token is required for TokenReview in authentication")
        return {**request.body, "spec": spec, "status": self._status(token)}

    def _status(self, token: str) -> Object:
        try:
            user = authenticate(self._authenticators, _bearer_call(token))
        except Unauthorized as error:
            return {"authenticated": False, "error": error.message}
        if user.scope is not None:
            return {"authenticated": False, "error": _SCOPED_TOKEN_ERROR}
        return {"authenticated": True, "user": user_info(user)}


def user_info(user: User) -> Object:
    """An identity as Kubernetes' UserInfo."""
    info: dict[str, Any] = {"username": user.name, "uid": user.uid, "groups": list(user.groups)}
    info["extra"] = {name: list(values) for name, values in user.extra}
    return {name: value for name, value in info.items() if value}


def _key_fields(name: str, key: Object) -> Object:
    if not name:
        return {}
    fields = {
        "accessKey": name,
        "accessKeyType": get_path(key, "spec.type"),
        "accessKeyScope": get_path(key, "spec.scope"),
    }
    return {field: value for field, value in fields.items() if value is not None}


def _owns_key(user: User, key: Object) -> bool:
    return owns(user, get_path(key, "spec.user"), get_path(key, "spec.team"))


def _key_owner(key: Object) -> User:
    """The owner of a key that is not valid now."""
    spec = key.get("spec") or {}
    if spec.get("user"):
        return User(spec["user"], (f"{USER_GROUP_PREFIX}{spec['user']}",))
    if spec.get("team"):
        return User(f"{TEAM_GROUP_PREFIX}{spec['team']}", (f"{TEAM_GROUP_PREFIX}{spec['team']}",))
    return User(spec.get("subject", ""))


class _BearerHeaders:
    """The headers of a request with only a bearer token."""

    def __init__(self, token: str) -> None:
        self._headers = {"authorization": f"Bearer {token}"}

    def get(self, key: str, default: str = "") -> str:
        return self._headers.get(key, default)

    def get_all(self, key: str) -> list[str]:
        return [self._headers[key]] if key in self._headers else []

    def find_single(self, name: bytes) -> bytes | None:
        value = self._headers.get(name.decode())
        return None if value is None else value.encode()

    def keys(self) -> list[str]:
        return list(self._headers)

    def has_prefix(self, prefix: str) -> bool:
        return any(name.startswith(prefix) for name in self._headers)


def _bearer_call(token: str) -> Call:
    async def no_body() -> bytes:
        return b""

    return Call("GET", "/", {}, _BearerHeaders(token), no_body)
