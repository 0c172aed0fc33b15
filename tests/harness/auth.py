"""A registry with users, teams and access keys, and with the admission rules about them."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from fairlead.admission import Rule
from fairlead.admission.access_keys import KeyIssuer, issue_access_key
from fairlead.admission.users import check_users_and_teams
from fairlead.authn.access_keys import ACCESS_KEYS, AccessKeyAuthenticator, Pepper, generate_key
from fairlead.authn.last_used import LastUsedTracker
from fairlead.authn.principals import TEAMS, USERS, PrincipalDirectory
from fairlead.authz.scope import is_superset
from fairlead.core.call import Decision, RequestInfo
from fairlead.core.errors import Invalid, Unauthorized
from fairlead.core.objects import Object
from fairlead.core.user import CONTROLLER_USER, User
from fairlead.registry.informer import Informer
from fairlead.registry.kind import MANAGEMENT_GROUP as GROUP
from fairlead.registry.write_options import WriteOptions
from tests.harness.registry import RegistryFixture, open_registry

PEPPER = Pepper(bytes(range(32)))
ROOT = User("root", ("system:masters",))
ADA, BOB = User("ada", ("service:user:ada",)), User("bob", ("service:user:bob",))


def project_scope(*names: str) -> Object:
    return {"projects": [{"project": name} for name in names]}


@dataclass(slots=True)
class Permissions:
    """An authorizer: administrators may do everything, others what they were granted. Records its calls."""

    granted: set[tuple[str, str, str, str]] = field(default_factory=set)
    checks: list[RequestInfo] = field(default_factory=list)

    def grant(self, user: User, verb: str, resource: str, name: str) -> None:
        self.granted.add((user.name, verb, resource, name))

    def __call__(self, user: User, target: RequestInfo) -> Decision:
        self.checks.append(target)
        resource = f"{target.resource}.{target.group}" if target.group else target.resource
        return Decision(user.is_admin or (user.name, target.verb, resource, target.name) in self.granted)


class AuthFixture:
    def __init__(self, api: RegistryFixture, rights: Permissions) -> None:
        self.api = api
        self.permissions = rights
        self.registry = api.registry
        self.last_used = LastUsedTracker(api.clock)
        self._sign_ins = 0
        view = api.view
        accounts = Informer(view, "", "serviceaccounts")
        principals = PrincipalDirectory(Informer(view, GROUP, USERS), Informer(view, GROUP, TEAMS), accounts)
        keys = Informer(view, GROUP, ACCESS_KEYS)
        self.authenticator = AccessKeyAuthenticator(keys, principals, PEPPER, api.clock, self.last_used.last_use)

    async def create_user(self, name: str, by: User = ROOT, **spec: Any) -> Object:
        return await self.create("User", name, by, **spec)

    async def create_team(self, name: str, by: User = ROOT, **spec: Any) -> Object:
        return await self.create("Team", name, by, **spec)

    async def create_labelled_key(self, name: str, writer: User, labels: Mapping[str, str], **spec: Any) -> Object:
        body = self.api.build_object("OwnedAccessKey", name, metadata={"labels": dict(labels)}, spec=spec)
        return await self.api.submit("OwnedAccessKey", body, WriteOptions(writer, "tests"))

    async def create_key(self, name: str, by: User = ADA, **spec: Any) -> Object:
        return await self.create("OwnedAccessKey", name, by, **spec)

    async def create(self, kind: str, name: str, by: User, **spec: Any) -> Object:
        body = self.api.build_object(kind, name, spec=spec)
        return await self.api.submit(kind, body, WriteOptions(by, "tests"))

    async def update_spec(self, kind: str, name: str, by: User, **spec: Any) -> Object:
        """Patches fields of the spec; None removes a field."""

        def patch(obj: Object) -> None:
            changed = {**obj.get("spec", {}), **spec}
            obj["spec"] = {name: value for name, value in changed.items() if value is not None}

        return await self.api.patch(kind, name, patch, WriteOptions(by, "tests"))

    async def update_key_status(self, name: str, **status: Any) -> Object:
        """Patches the status of a key, as the server does."""
        writing = WriteOptions(CONTROLLER_USER, "fairlead", subresource="status")
        return await self.api.patch(
            "OwnedAccessKey", name, lambda obj: obj.setdefault("status", {}).update(status), writing
        )

    async def sign_in(self, user: str, **spec: Any) -> User:
        """Creates a key for the user and returns the user that it authenticates."""
        self._sign_ins += 1
        made = await self.create_key(f"{user}-{self._sign_ins}", CONTROLLER_USER, user=user, **spec)
        return self.authenticator.authenticate_token(made["spec"]["key"])

    def accepts(self, value: str) -> bool:
        try:
            return self.authenticator.authenticate_token(value).key != ""
        except Unauthorized:
            return False

    def stored_key(self, name: str) -> Object:
        """Returns a key as it is stored."""
        found = self.api.get("OwnedAccessKey", name)
        assert found is not None
        return found


@asynccontextmanager
async def open_auth(max_ttl: int = 0, rules: Sequence[Rule] = ()) -> AsyncIterator[AuthFixture]:
    """Creates the users root (an administrator), ada and bob. `rules` run after those for users and keys."""
    rights = Permissions()
    mint = KeyIssuer(PEPPER, generate_key, is_superset, lambda: max_ttl)
    async with open_registry(
        rules=(issue_access_key(mint, GROUP), check_users_and_teams(rights, lambda name: False, GROUP), *rules)
    ) as api:
        auth = AuthFixture(api, rights)
        await auth.create_user("root", groups=["system:masters"])
        await auth.create_user("ada")
        await auth.create_user("bob")
        yield auth


def problems_by_field(error: pytest.ExceptionInfo[Invalid]) -> dict[str, str]:
    return {problem.field: problem.message for problem in error.value.details.problems}
