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

from fairlead.authn.login_throttle import Throttle
from fairlead.authn.password_store import PasswordStore
from fairlead.authn.principals import USERS
from fairlead.authz import Decide
from fairlead.authz.name_index import is_user
from fairlead.core.call import MANAGEMENT, Target
from fairlead.core.errors import Details, Forbidden, Invalid, Problem
from fairlead.core.objects import Object, copied, dig, metadata, name_of
from fairlead.core.user import ADMIN_GROUPS, User
from fairlead.registry.codec import decode
from fairlead.registry.registry import Registry
from fairlead.registry.resource import Resource
from fairlead.registry.write_options import Writing
from fairlead.server.api.actions import Asked

CUSTOM = "service.sh/profile"
"""The annotation that stores a user's `custom` settings as JSON."""
CUSTOM_LIMIT = 16 * 1024
_SHOWN = ("displayName", "email", "icon")


@dataclass(frozen=True, slots=True)
class Profiles:
    """The handler of both verbs. `authorize` checks further permissions."""

    registry: Registry
    api_group: str
    passwords: PasswordStore
    throttle: Throttle
    decide: Decide

    async def __call__(self, asked: Asked) -> Object:
        users = self.registry.resource(self.api_group, USERS)
        user = decode(await users.get("", asked.name))
        if asked.verb == "create":
            user = await self._change(asked, users, user)
        return _profile(asked, user)

    async def _change(self, asked: Asked, users: Resource, user: Object) -> Object:
        """Checks everything before it changes anything."""
        acts_for = self._may_act_for(asked.user, user)
        if not acts_for and not is_user(asked.user, (asked.name,)):
            raise Forbidden(
                f'User "{asked.user.name}" cannot change the profile of user "{asked.name}": this requires an '
                "administrator or permission to impersonate that user",
                Details(asked.name, self.api_group, USERS),
            )
        _refuse_unfit(asked, user)
        edit = _edit(asked.body)
        password = asked.body.get("password")
        if password is not None:
            await self._check_password(asked, user, password, needs_current=not acts_for)
        writing = Writing(asked.user, "fairlead", dry_run=asked.dry_run, patching=True)
        changed: Object = orjson.loads(await users.modify("", asked.name, edit, writing))
        if password is not None and not asked.dry_run:
            await self.passwords.set(asked.name, password, asked.user)
        return changed

    def _may_act_for(self, asker: User, user: Object) -> bool:
        if asker.is_admin:
            return True
        if ADMIN_GROUPS.intersection(dig(user, "spec.groups") or ()):
            return False
        target = Target("impersonate", "", MANAGEMENT, version="v1", resource="users", name=name_of(user))
        return asker.scope is None and self.decide(asker, target).allowed

    async def _check_password(self, asked: Asked, user: Object, password: str, *, needs_current: bool) -> None:
        if asked.user.scope is not None:
            raise Forbidden("an access key with a scope cannot set a password; use one without, or sign in")
        self.passwords.refuse_weak(asked.name, password)
        current = asked.body.get("currentPassword")
        if needs_current and not self.passwords.has_password(user):
            self._refuse_expiring(asked.user)
        if not self.passwords.has_password(user) or not (needs_current or current):
            return
        if not current:
            raise _invalid(
                asked, Problem.required("currentPassword", "the current password is required to set a new one")
            )
        username = dig(user, "spec.username") or asked.name
        with self.throttle.attempt(username, asked.call.client) as attempt:
            if await self.passwords.verified(user, current) is not None:
                attempt.succeed()
        if not attempt.succeeded:
            raise Forbidden("the current password is wrong; an administrator can set a new one without it")

    def _refuse_expiring(self, user: User) -> None:
        """An expiring key must not set a first password: a password login would issue keys that outlive it."""
        key = (user.impersonator or user).key
        if key and self.passwords.would_outlive(key):
            raise Forbidden(
                "an access key that expires cannot set a first password, which would outlive it; "
                "use a key that does not expire, or ask an administrator to set the password"
            )


def _refuse_unfit(asked: Asked, user: Object) -> None:
    wanted = asked.body.get("username")
    if wanted and wanted != (dig(user, "spec.username") or asked.name):
        raise _invalid(asked, Problem.invalid("username", wanted, "cannot be changed"))
    custom = asked.body.get("custom")
    if custom is not None and len(orjson.dumps(custom)) > CUSTOM_LIMIT:
        raise _invalid(asked, Problem.too_long("custom", CUSTOM_LIMIT))


def _invalid(asked: Asked, problem: Problem) -> Invalid:
    return Invalid.of(asked.kind.name, asked.kind.group, asked.name, [problem])


def _edit(body: Object) -> Callable[[Object], Object]:
    """A function that applies the body to the user. Fields that the body omits stay unchanged."""

    def edit(old: Object) -> Object:
        new = copied(old)
        new["spec"] = {**(new.get("spec") or {}), **{name: body[name] for name in _SHOWN if name in body}}
        if body.get("custom") is not None:
            annotations = metadata(new).get("annotations") or {}
            metadata(new)["annotations"] = {**annotations, CUSTOM: orjson.dumps(body["custom"]).decode()}
        return new

    return edit


def _profile(asked: Asked, user: Object) -> Object:
    """The profile of a user. It contains no credentials."""
    spec, meta = user.get("spec") or {}, metadata(user)
    meta_fields = ("name", "uid", "creationTimestamp")
    fields: dict[str, Any] = {name: spec[name] for name in (*_SHOWN, "username") if spec.get(name)}
    custom = _custom((meta.get("annotations") or {}).get(CUSTOM, ""))
    return {
        "apiVersion": asked.kind.api_version,
        "kind": asked.kind.name,
        "metadata": {name: meta[name] for name in meta_fields if name in meta},
        **fields,
        **({"custom": custom} if custom else {}),
    }


def _custom(text: str) -> Any:
    try:
        value = orjson.loads(text) if text else {}
    except orjson.JSONDecodeError:  # clients can also set the annotation directly
        return {}
    return value if isinstance(value, dict) else {}
