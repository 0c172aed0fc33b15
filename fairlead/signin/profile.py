"""The handler of `users/<name>/profile`: display name, email, icon, custom settings and password of a user.

Access to the path is already authorized. To change the profile of another user, the requester must also be an
administrator or have permission to impersonate that user. Only administrators can change members of the built-in admin
groups. Users need their current password to set a new one, so that a leaked access key is not enough to take over the
account. Keys with a scope cannot set passwords, because a password login issues keys without a scope.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import orjson

from fairlead.authn.principals import USERS
from fairlead.authz.name_index import is_user
from fairlead.core.call import MANAGEMENT, Authorize, RequestInfo
from fairlead.core.errors import SCOPE, Details, Forbidden, Invalid, Problem
from fairlead.core.objects import Object, annotations_of, deep_copy, get_path, metadata, name_of
from fairlead.core.user import ADMIN_GROUPS, User
from fairlead.domain.user_settings import SETTINGS_ANNOTATION, read_settings
from fairlead.registry.codec import decode
from fairlead.registry.registry import Registry
from fairlead.registry.resource import Resource
from fairlead.registry.write_options import WriteOptions
from fairlead.server.api.actions import ActionRequest
from fairlead.server.flow.attempts import Throttle
from fairlead.signin.passwords import PasswordStore

MAX_CUSTOM_BYTES = 16 * 1024
_EDITABLE_FIELDS = ("displayName", "email", "icon")


@dataclass(frozen=True, slots=True)
class ProfileHandler:
    """The handler of both verbs. `authorize` checks further permissions; `is_admin_user` tells who is protected."""

    registry: Registry
    api_group: str
    passwords: PasswordStore
    throttle: Throttle
    authorize: Authorize
    is_admin_user: Callable[[str], bool]

    async def __call__(self, request: ActionRequest) -> Object:
        users = self.registry.resource(self.api_group, USERS)
        user = decode(await users.get("", request.name))
        if request.verb == "create":
            user = await self._update(request, users, user)
        return _build_profile(request, user)

    async def _update(self, request: ActionRequest, users: Resource, user: Object) -> Object:
        """Checks everything before it changes anything."""
        acts_for = self._can_act_for(request.user, user)
        if not acts_for and not is_user(request.user, (request.name,)):
            raise Forbidden(
                f'User "{request.user.name}" cannot change the profile of user "{request.name}": this requires an '
                "administrator or permission to impersonate that user",
                Details(request.name, self.api_group, USERS),
            )
        _check_body(request, user)
        edit = _build_edit(request.body)
        password = request.body.get("password")
        if password is not None:
            await self._check_password(request, user, password, needs_current=not acts_for)
        writing = WriteOptions(request.user, "fairlead", dry_run=request.dry_run, is_patch=True)
        changed: Object = orjson.loads(await users.modify("", request.name, edit, writing))
        if password is not None and not request.dry_run:
            await self.passwords.set_password(request.name, password, request.user)
        return changed

    def _can_act_for(self, requester: User, user: Object) -> bool:
        if requester.is_admin:
            return True
        if ADMIN_GROUPS.intersection(get_path(user, "spec.groups") or ()) or self.is_admin_user(name_of(user)):
            return False
        target = RequestInfo("impersonate", "", MANAGEMENT, version="v1", resource="users", name=name_of(user))
        return requester.scope is None and self.authorize(requester, target).allowed

    async def _check_password(
        self, request: ActionRequest, user: Object, password: str, *, needs_current: bool
    ) -> None:
        if request.user.scope is not None:
            reason = "an access key with a scope cannot set a password; use one without, or sign in"
            raise Forbidden(reason, refused_by=SCOPE)
        self.passwords.check_local(user)
        self.passwords.check_strength(request.name, password)
        current = request.body.get("currentPassword")
        if needs_current and not self.passwords.has_password(user):
            self._check_key_expiry(request.user)
        if not self.passwords.has_password(user) or not (needs_current or current):
            return
        if not current:
            raise _invalid(
                request, Problem.required("currentPassword", "the current password is required to set a new one")
            )
        username = get_path(user, "spec.username") or request.name
        async with self.throttle.attempt(username, request.call.source) as attempt:
            if await self.passwords.verify(user, current) is not None:
                attempt.succeed()
        if not attempt.succeeded:
            raise Forbidden("the current password is wrong; an administrator can set a new one without it")

    def _check_key_expiry(self, user: User) -> None:
        """An expiring key must not set a first password: a password login would issue keys that outlive it."""
        key = (user.impersonator or user).key
        if key and self.passwords.would_outlive(key):
            raise Forbidden(
                "an access key that expires cannot set a first password, which would outlive it; "
                "use a key that does not expire, or ask an administrator to set the password"
            )


def _check_body(request: ActionRequest, user: Object) -> None:
    wanted = request.body.get("username")
    if wanted and wanted != (get_path(user, "spec.username") or request.name):
        raise _invalid(request, Problem.invalid("username", wanted, "cannot be changed"))
    custom = request.body.get("custom")
    if custom is not None and len(orjson.dumps(custom)) > MAX_CUSTOM_BYTES:
        raise _invalid(request, Problem.too_long("custom", MAX_CUSTOM_BYTES))


def _invalid(request: ActionRequest, problem: Problem) -> Invalid:
    return Invalid.of(request.kind.name, request.kind.group, request.name, [problem])


def _build_edit(body: Object) -> Callable[[Object], Object]:
    """A function that applies the body to the user. Fields that the body omits stay unchanged."""

    def edit(old: Object) -> Object:
        new = deep_copy(old)
        new["spec"] = {**(new.get("spec") or {}), **{name: body[name] for name in _EDITABLE_FIELDS if name in body}}
        if body.get("custom") is not None:
            annotations = annotations_of(new)
            metadata(new)["annotations"] = {**annotations, SETTINGS_ANNOTATION: orjson.dumps(body["custom"]).decode()}
        return new

    return edit


def _build_profile(request: ActionRequest, user: Object) -> Object:
    """The profile of a user. It contains no credentials."""
    spec = user.get("spec") or {}
    meta = metadata(user)
    meta_fields = ("name", "uid", "creationTimestamp")
    fields: dict[str, Any] = {name: spec[name] for name in (*_EDITABLE_FIELDS, "username") if spec.get(name)}
    custom = read_settings(user)
    shown = {name: meta[name] for name in meta_fields if name in meta}
    return request.kind.build(shown, **fields, **({"custom": custom} if custom else {}))
