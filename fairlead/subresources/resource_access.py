"""The handler of ResourceAccessReview: the users, groups and teams that may perform an action, and why.

It runs the authorizers of requests for each subject: all active users and teams, and the subjects of all role bindings.
"""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice

from fairlead.authn.principals import PrincipalDirectory
from fairlead.authz.authorizer import AuthorizerChain, step_name
from fairlead.core.call import RequestInfo
from fairlead.core.concurrency import iter_slices
from fairlead.core.objects import Object, name_of
from fairlead.core.user import (
    ADMIN_GROUPS,
    AUTHENTICATED,
    AUTHENTICATED_GROUPS,
    SERVICE_ACCOUNT_PREFIX,
    SERVICE_ACCOUNTS_GROUP,
    User,
)
from fairlead.kinds.rbac.access_reviews import MAX_REVIEW_SUBJECTS
from fairlead.kinds.rbac.roles import GROUP
from fairlead.registry.codec import decode
from fairlead.registry.registry import Registry
from fairlead.server.api.actions import ActionHandler, ActionPath, ActionRequest
from fairlead.subresources.access_reviews import resolve_target

MAX_CHECKED = 10_000
"""How many users, groups and teams each are checked."""
MAX_BINDINGS = 10_000
_PER_STEP = 20
"""Subjects between two yields to the event loop."""

_Subject = tuple[str, User]
"""The name of a subject, and the identity of its requests."""


class ResourceAccess:
    """Lists who may perform an action."""

    def __init__(self, registry: Registry, authorizer: AuthorizerChain, principals: PrincipalDirectory) -> None:
        self._registry = registry
        self._authorizer = authorizer
        self._principals = principals

    def handlers(self, api_group: str) -> dict[ActionPath, ActionHandler]:
        return {(api_group, "resourceaccessreviews", ""): self.review}

    async def review(self, request: ActionRequest) -> Object:
        target = resolve_target(self._registry.catalog, request.body["spec"])
        bound, is_truncated = await self._bound_subjects(target.namespace)
        known = {user.name: user for _, user in self._principals.list_users()}
        teams = [self._principals.build_team(team) for team in self._principals.list_teams()]
        users = {**{user.name: user for user in map(_bound_user, bound["User"])}, **known}
        groups = {name: User("", (name,)) for name in {*bound["Group"], *ADMIN_GROUPS}}
        status: Object = {}
        named_teams = [(team.name.rpartition(":")[2], team) for team in teams]
        for field, subjects in (("users", users.items()), ("groups", groups.items()), ("teams", named_teams)):
            status[field], has_more = await self._allowed(sorted(subjects, key=lambda each: each[0]), target)
            is_truncated = is_truncated or has_more
        return {**request.body, "status": {**status, **({"truncated": True} if is_truncated else {})}}

    async def _allowed(self, subjects: Sequence[_Subject], target: RequestInfo) -> tuple[list[Object], bool]:
        """The subjects that are allowed, and whether there may be more."""
        found: list[Object] = []
        for count, (name, user) in enumerate(islice(subjects, MAX_CHECKED), 1):
            if count % _PER_STEP == 0:
                await asyncio.sleep(0)
            if (allowed := self._check(name, user, target)) is None:
                continue
            if len(found) == MAX_REVIEW_SUBJECTS:
                return found, True
            found.append(allowed)
        return found, len(subjects) > MAX_CHECKED

    def _check(self, name: str, user: User, target: RequestInfo) -> Object | None:
        for authorizer in self._authorizer.authorizers:
            decision = authorizer(user, target)
            if decision is not None:
                subject = {"name": name, "via": step_name(authorizer), "reason": decision.reason}
                return {field: value for field, value in subject.items() if value} if decision.allowed else None
        return None

    async def _bound_subjects(self, namespace: str) -> tuple[dict[str, set[str]], bool]:
        """The names of users and groups in the bindings that apply, and whether there are more bindings."""
        view = self._registry.view
        slices = [view.slice(GROUP, "clusterrolebindings")]
        if namespace:
            slices.append(view.slice(GROUP, "rolebindings", namespace))
        entries = list(islice(chain.from_iterable(each.entries() for each in slices), MAX_BINDINGS + 1))
        found: dict[str, set[str]] = {"User": set(), "Group": set()}
        async for some in iter_slices(entries[:MAX_BINDINGS], lambda entry: len(entry.body)):
            for entry in some:
                for kind, name in _subject_names(decode(entry).get("subjects") or ()):
                    found[kind].add(name)
        return found, len(entries) > MAX_BINDINGS


def _subject_names(subjects: Iterable[Object]) -> Iterator[tuple[str, str]]:
    for subject in subjects:
        if subject.get("kind") == "ServiceAccount":
            yield "User", f"{SERVICE_ACCOUNT_PREFIX}{subject.get('namespace', '')}:{name_of({'metadata': subject})}"
        elif subject.get("kind") in ("User", "Group"):
            yield subject["kind"], subject.get("name", "")


def _bound_user(name: str) -> User:
    """A user that only role bindings name: a subject of access keys, or a service account."""
    if not name.startswith(SERVICE_ACCOUNT_PREFIX):
        return User(name, AUTHENTICATED_GROUPS)
    namespace = name.removeprefix(SERVICE_ACCOUNT_PREFIX).partition(":")[0]
    return User(name, (SERVICE_ACCOUNTS_GROUP, f"{SERVICE_ACCOUNTS_GROUP}:{namespace}", AUTHENTICATED))
