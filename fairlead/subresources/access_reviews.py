"""The handlers of access reviews: SubjectAccessReview and its variants, and SelfSubjectRulesReview.

They use the same authorizer as requests, so a review predicts the decision of a request. The reviews in the platform's
own API group also accept an access key as the subject, or a scope that restricts it, and return each step of the
decision in `status.path`. A batch has the decisions about many requests.

The handler of ResourceAccessReview: the users, groups and teams that may perform an action, and why.

It runs the authorizers of requests for each subject: all active users and teams, and the subjects of all role bindings.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain, islice

from fairlead.authn.principals import PrincipalDirectory
from fairlead.authz.authorizer import (
    ALLOW,
    DEFAULT_STEP,
    DENY,
    NO_OPINION,
    AuthorizerChain,
    ExplainStep,
    explain,
    step_name,
)
from fairlead.core.call import MANAGEMENT, NAMESPACE_RESOURCE, RequestInfo
from fairlead.core.concurrency import compute, iter_slices
from fairlead.core.errors import BadRequest
from fairlead.core.objects import Object, name_of
from fairlead.core.scope import Scope
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
from fairlead.registry.kind import Catalog
from fairlead.registry.registry import Registry
from fairlead.server.api.actions import ActionHandler, ActionPath, ActionRequest
from fairlead.server.auth.stages import PUBLIC_PATHS

AUTHORIZATION_GROUP = "authorization.k8s.io"

_REVIEWS_PER_STEP = 20
"""Reviews of a batch between two yields to the event loop. One takes about 0.1 ms."""
_LARGE_SCOPE = 500
"""A scope with more names is parsed and explained in a thread, and reviewed once per step: a review with another verb
or resource may have to look at each of its names."""

_LISTS_STEP = "lists"
"""The step that says that a list is filtered."""
_PUBLIC_REASON = "this path is public"
_FILTERED_REASON = "not all objects; a list or watch is filtered to the objects that the user may get"
_CLUSTER_SCOPED_REASON = "this resource is cluster-scoped, but a LocalSubjectAccessReview only covers one namespace"
_INVALID_KEY_REASON = "the access key does not exist, is disabled or has expired: requests with it get 401"
_SCOPED_KEY_ERROR = (
    "the access key has a scope, which may restrict these rules; check single requests with an access review"
)
_MORE_RULES_ERROR = "there are more rules than are listed here; check single requests with an access review"
_MEMBER_ERROR = (
    "permissions of project members, owners and access entries are not listed; "
    "check single requests with an access review"
)


@dataclass(frozen=True, slots=True)
class ReviewSources:
    """What reviews depend on.

    `list_rules` returns the rules of the roles that a user has in a namespace, and whether these are all. `find_user`
    returns a user with all groups, and `user_for_key` the user that an access key authenticates; None if there is none.
    `check_key_visible` raises if the user may not see the key. `matching_entry` returns the entry of the user's scope
    that allows a request; the scope is checked first. `is_project_member` is for the project of a namespace.
    """

    catalog: Catalog
    authorizer: AuthorizerChain
    list_rules: Callable[[User, str], tuple[Sequence[Object], bool]]
    find_user: Callable[[str], User | None]
    has_user: Callable[[str], bool]
    user_for_key: Callable[[str], User | None]
    check_key_visible: Callable[[User, str], object]
    matching_entry: Callable[[User, RequestInfo], str]
    is_project_member: Callable[[User, str], bool]


def review_handlers(api_group: str, sources: ReviewSources) -> dict[ActionPath, ActionHandler]:
    """The handlers by group, resource and subresource."""
    reviews = AccessReviews(sources)
    return {
        (AUTHORIZATION_GROUP, "selfsubjectaccessreviews", ""): reviews.review_self,
        (AUTHORIZATION_GROUP, "subjectaccessreviews", ""): reviews.review_subject,
        (AUTHORIZATION_GROUP, "localsubjectaccessreviews", ""): reviews.review_local_subject,
        (AUTHORIZATION_GROUP, "selfsubjectrulesreviews", ""): reviews.review_rules,
        (api_group, "selfsubjectaccessreviews", ""): reviews.explain_self,
        (api_group, "selfsubjectaccessreviewbatches", ""): reviews.review_batch,
        (api_group, "subjectaccessreviews", ""): reviews.explain_subject,
    }


class AccessReviews:
    """The handlers of all access reviews."""

    def __init__(self, sources: ReviewSources) -> None:
        self._sources = sources

    async def review_self(self, request: ActionRequest) -> Object:
        """For the requester, with the scope of its key and any impersonation."""
        return _with_status(
            request, self._decision_steps(request.user, resolve_target(self._sources.catalog, request.body["spec"]))
        )

    async def review_subject(self, request: ActionRequest) -> Object:
        spec = request.body["spec"]
        return _with_status(
            request, self._decision_steps(_parse_subject(spec), resolve_target(self._sources.catalog, spec))
        )

    async def review_local_subject(self, request: ActionRequest) -> Object:
        """Denies cluster-scoped resources: permissions in a namespace do not cover them, whatever the review says."""
        spec = request.body["spec"]
        target = resolve_target(self._sources.catalog, spec)
        if target.namespace != request.namespace:
            return _with_status(request, [ExplainStep("namespaces", DENY, _CLUSTER_SCOPED_REASON)])
        return _with_status(request, self._decision_steps(_parse_subject(spec), target))

    async def explain_self(self, request: ActionRequest) -> Object:
        spec = request.body["spec"]
        steps = await self._explain_steps(await self._self_subjects(request), spec)
        return _with_status(request, steps, include_path=True)

    async def review_batch(self, request: ActionRequest) -> Object:
        """The same as `explain_self` for each of the reviews, without the steps of the decisions."""
        subjects, results = await self._self_subjects(request), []
        per_step = 1 if any(_has_large_scope(user) for user in subjects) else _REVIEWS_PER_STEP
        for count, review in enumerate(request.body["spec"]["reviews"], 1):
            _, steps = self._review(subjects, resolve_target(self._sources.catalog, review))
            results.append(_build_status(steps, include_filtered=True))
            if count % per_step == 0:
                await asyncio.sleep(0)
        return {**request.body, "status": {"reviews": results}}

    async def _self_subjects(self, request: ActionRequest) -> tuple[User, ...]:
        """The identities that all have to be allowed; none if the access key of the review is not valid.

        A scope in the review restricts the requester. If its key already has a scope, both have to allow a request.
        """
        spec, user = request.body["spec"], request.user
        if spec.get("accessKey"):
            self._sources.check_key_visible(user, spec["accessKey"])
            found = self._sources.user_for_key(spec["accessKey"])
            return () if found is None else (found,)
        scope = await compute(request.call.body_size, Scope.parse, spec.get("scope"))
        if scope is None:
            return (user,)
        restricted = replace(user, scope=scope, key="")
        return (restricted,) if user.scope is None else (user, restricted)

    async def explain_subject(self, request: ActionRequest) -> Object:
        """A user without groups in the review means the registered user of that name, with its groups."""
        spec = request.body["spec"]
        if spec.get("accessKey"):
            return await self._explain(request, self._sources.user_for_key(spec["accessKey"]))
        known = None if spec.get("groups") else self._sources.find_user(spec.get("user", ""))
        if known is None:
            self._warn_about_missing_user(request)
        return await self._explain(request, known or _parse_subject(spec))

    def _warn_about_missing_user(self, request: ActionRequest) -> None:
        """Says that there is no user of that name, to those who may know. Groups in the review stand for themselves,
        and a name with a colon is that of a service account or component."""
        spec = request.body["spec"]
        name = spec.get("user") or ""
        if not name or ":" in name or spec.get("groups") or self._sources.has_user(name):
            return
        target = RequestInfo("get", group=request.kind.group, version="v1", resource="users", name=name)
        if _is_allowed(self._decision_steps(request.user, target)):
            request.call.warnings.append(f'spec.user: there is no user "{name}"; the answer is for one without groups')

    async def _explain(self, request: ActionRequest, user: User | None) -> Object:
        subjects = () if user is None else (user,)
        return _with_status(request, await self._explain_steps(subjects, request.body["spec"]), include_path=True)

    async def _explain_steps(self, subjects: Sequence[User], spec: Object) -> list[ExplainStep]:
        """The steps, with the entry of the scope that allows the request. To find it takes longer than the decision."""
        target = resolve_target(self._sources.catalog, spec)
        user, steps = self._review(subjects, target)
        if user is None or steps[0].verdict != NO_OPINION:  # a public path, or denied by the scope
            return steps
        entry = await compute(_scope_size(user), self._sources.matching_entry, user, target, inline_size=_LARGE_SCOPE)
        if entry:
            steps[0] = replace(steps[0], reason=f"allowed by the scope: {entry}")
        return steps

    def _review(self, subjects: Sequence[User], target: RequestInfo) -> tuple[User | None, list[ExplainStep]]:
        """The subject with the least permission, which decides, and its steps; the first one of equals."""
        if not subjects:
            return None, [ExplainStep("access keys", DENY, _INVALID_KEY_REASON)]
        decisions = [(user, self._decision_steps(user, target)) for user in subjects]
        return min(decisions, key=lambda each: (_is_allowed(each[1]), _is_filtered(each[1])))

    def _target(self, request: ActionRequest) -> RequestInfo:
        return resolve_target(self._sources.catalog, request.body["spec"])

    async def review_rules(self, request: ActionRequest) -> Object:
        namespace = request.body["spec"].get("namespace")
        if not namespace:
            raise BadRequest("no namespace on request")
        found, is_complete = self._sources.list_rules(request.user, namespace)
        status: Object = {
            "resourceRules": [rule for rule in found if "nonResourceURLs" not in rule],
            "nonResourceRules": [rule for rule in found if "nonResourceURLs" in rule],
            "incomplete": False,
        }
        if reason := self._incomplete_reason(request.user, namespace) or ("" if is_complete else _MORE_RULES_ERROR):
            status |= {"incomplete": True, "evaluationError": reason}
        return {**request.body, "spec": {}, "status": status}

    def _incomplete_reason(self, user: User, namespace: str) -> str:
        """Why the rules of roles are not all of the user's permissions; empty if they are."""
        if user.scope is not None:
            return _SCOPED_KEY_ERROR
        return _MEMBER_ERROR if self._sources.is_project_member(user, namespace) else ""

    def _decision_steps(self, user: User, target: RequestInfo) -> list[ExplainStep]:
        """The steps of the decision about a request: public paths, authorizers, filtered lists."""
        permissions = self._sources.authorizer
        if not target.is_resource and target.verb == "get" and target.path in PUBLIC_PATHS:
            return [ExplainStep("public paths", ALLOW, _PUBLIC_REASON)]
        steps = explain(permissions.authorizers, user, target)
        if not _is_allowed(steps) and permissions.filter_for(user, target) is not None:
            steps.append(ExplainStep(_LISTS_STEP, DENY, _FILTERED_REASON))
        return steps


def resolve_target(catalog: Catalog, spec: Object) -> RequestInfo:
    """The target as a request would have it: cluster-scoped resources without a namespace.

    kubectl adds the namespace of its context to every review.
    """
    target = _parse_attributes(spec)
    kind = catalog.resource(target.group, target.resource)
    if kind is None or kind.namespaced:
        return target
    namespace = target.name if (kind.group, kind.plural) == NAMESPACE_RESOURCE else ""
    return replace(target, namespace=namespace)


def _parse_attributes(spec: Object) -> RequestInfo:
    """The target as given in the review."""
    path = spec.get("nonResourceAttributes")
    if path is not None:
        return RequestInfo(path.get("verb", ""), path.get("path", ""), MANAGEMENT)
    wanted = spec["resourceAttributes"]
    words = (wanted.get(name, "") for name in ("group", "version", "resource", "subresource", "namespace", "name"))
    return RequestInfo(wanted.get("verb", ""), "", MANAGEMENT, *words)


def _parse_subject(spec: Object) -> User:
    """The subject exactly as given in the review, without groups from the registry."""
    extra = tuple((name, tuple(values)) for name, values in (spec.get("extra") or {}).items())
    return User(spec.get("user", ""), tuple(spec.get("groups") or ()), spec.get("uid", ""), extra=extra)


def _has_large_scope(user: User) -> bool:
    return _scope_size(user) > _LARGE_SCOPE


def _scope_size(user: User) -> int:
    return 0 if user.scope is None else user.scope.size


def _is_allowed(steps: Sequence[ExplainStep]) -> bool:
    return any(step.verdict == ALLOW for step in steps)


def _is_filtered(steps: Sequence[ExplainStep]) -> bool:
    return steps[-1].step == _LISTS_STEP


def _with_status(request: ActionRequest, steps: Sequence[ExplainStep], *, include_path: bool = False) -> Object:
    """The review with its status. The reviews of Kubernetes have no path, and do not say that a list is filtered."""
    status = _build_status(steps, include_filtered=include_path)
    if include_path:
        status["path"] = [{name: word for name, word in asdict(step).items() if word} for step in steps]
    return {**request.body, "status": status}


def _build_status(steps: Sequence[ExplainStep], *, include_filtered: bool) -> Object:
    """As in Kubernetes, a default denial has no reason."""
    status: Object = {"allowed": _is_allowed(steps)}
    last = [step for step in steps if step.verdict in (ALLOW, DENY)][-1]
    if last.reason and last.step != DEFAULT_STEP:
        status["reason"] = last.reason
    if include_filtered and _is_filtered(steps):
        status["filtered"] = True
    return status


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
