"""The handlers of access reviews: SubjectAccessReview and its variants, and SelfSubjectRulesReview.

They use the same authorizer as requests, so a review predicts the decision of a request. The reviews in the platform's
own API group also accept an access key as the subject, and return each step of the decision in `status.path`.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace

from fairlead.authz.authorizer import ALLOW, DEFAULT, DENY, Permissions, Step, explain
from fairlead.core.call import MANAGEMENT, NAMESPACES, Target
from fairlead.core.errors import BadRequest
from fairlead.core.objects import Object
from fairlead.core.user import User
from fairlead.registry.catalog import Catalog
from fairlead.server.api.actions import Asked, Handler, Place
from fairlead.server.auth.stages import PUBLIC_PATHS

AUTHORIZATION = "authorization.k8s.io"

_PUBLIC = "this path is public"
_CUT = "not all objects; a list or watch is filtered to the objects that the user may get"
_OUTSIDE = "this resource is cluster-scoped, but a LocalSubjectAccessReview only covers one namespace"
_NO_KEY = "the access key does not exist, is disabled or has expired: requests with it get 401"
_SCOPED = "the access key has a scope, which may restrict these rules; check single requests with an access review"
_MEMBER = (
    "permissions of project members, owners and access entries are not listed; "
    "check single requests with an access review"
)


@dataclass(frozen=True, slots=True)
class Sources:
    """What reviews depend on.

    `rules_for` returns the rules of all roles that a user has in a namespace, `find_user` a user with all groups, and
    `user_for_key` the user that an access key authenticates; the last two return None if there is none.
    `check_key_visible` raises if the user may not see the key. `matching_entry` returns the entry of the user's scope
    that allows a request; the scope is checked first. `is_project_member` is for the project of a namespace.
    """

    catalog: Catalog
    permissions: Permissions
    rules_for: Callable[[User, str], Sequence[Object]]
    user_named: Callable[[str], User | None]
    identity: Callable[[str], User | None]
    inspect: Callable[[User, str], object]
    allowing_entry: Callable[[User, Target], str]
    is_member: Callable[[User, str], bool]


def review_handlers(api_group: str, sources: Sources) -> dict[Place, Handler]:
    """The handlers by group, resource and subresource."""
    reviews = Reviews(sources)
    return {
        (AUTHORIZATION, "selfsubjectaccessreviews", ""): reviews.of_oneself,
        (AUTHORIZATION, "subjectaccessreviews", ""): reviews.of_somebody,
        (AUTHORIZATION, "localsubjectaccessreviews", ""): reviews.in_a_namespace,
        (AUTHORIZATION, "selfsubjectrulesreviews", ""): reviews.rules,
        (api_group, "selfsubjectaccessreviews", ""): reviews.explained_of_oneself,
        (api_group, "subjectaccessreviews", ""): reviews.explained_of_somebody,
    }


class Reviews:
    """The handlers of all access reviews."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources

    async def of_oneself(self, asked: Asked) -> Object:
        """For the requester, with the scope of its key and any impersonation."""
        return _answered(asked, self._path(asked.user, self._target(asked.body["spec"])))

    async def of_somebody(self, asked: Asked) -> Object:
        spec = asked.body["spec"]
        return _answered(asked, self._path(_subject(spec), self._target(spec)))

    async def in_a_namespace(self, asked: Asked) -> Object:
        """Denies cluster-scoped resources: permissions in a namespace do not cover them, whatever the review says."""
        spec = asked.body["spec"]
        target = self._target(spec)
        if target.namespace != asked.namespace:
            return _answered(asked, [Step("namespaces", DENY, _OUTSIDE)])
        return _answered(asked, self._path(_subject(spec), target))

    async def explained_of_oneself(self, asked: Asked) -> Object:
        spec, user = asked.body["spec"], asked.user
        if spec.get("accessKey"):
            self._sources.inspect(user, spec["accessKey"])
            return self._explained(asked, self._sources.identity(spec["accessKey"]))
        return self._explained(asked, user)

    async def explained_of_somebody(self, asked: Asked) -> Object:
        """A user without groups in the review means the registered user of that name, with its groups."""
        spec = asked.body["spec"]
        if spec.get("accessKey"):
            return self._explained(asked, self._sources.identity(spec["accessKey"]))
        known = None if spec.get("groups") else self._sources.user_named(spec.get("user", ""))
        return self._explained(asked, known or _subject(spec))

    def _explained(self, asked: Asked, user: User | None) -> Object:
        if user is None:
            return _answered(asked, [Step("access keys", DENY, _NO_KEY)], told=True)
        return _answered(asked, self._path(user, self._target(asked.body["spec"])), told=True)

    async def rules(self, asked: Asked) -> Object:
        namespace = asked.body["spec"].get("namespace")
        if not namespace:
            raise BadRequest("no namespace on request")
        found = self._sources.rules_for(asked.user, namespace)
        status: Object = {
            "resourceRules": [rule for rule in found if "nonResourceURLs" not in rule],
            "nonResourceRules": [rule for rule in found if "nonResourceURLs" in rule],
            "incomplete": False,
        }
        if reason := self._beyond_roles(asked.user, namespace):
            status |= {"incomplete": True, "evaluationError": reason}
        return {**asked.body, "spec": {}, "status": status}

    def _beyond_roles(self, user: User, namespace: str) -> str:
        """Why the rules of roles are not all of the user's permissions; empty if they are."""
        if user.scope is not None:
            return _SCOPED
        return _MEMBER if self._sources.is_member(user, namespace) else ""

    def _path(self, user: User, target: Target) -> list[Step]:
        """The steps of the decision about a request: public paths, authorizers, filtered lists."""
        permissions = self._sources.permissions
        if not target.is_resource and target.verb == "get" and target.path in PUBLIC_PATHS:
            return [Step("public paths", ALLOW, _PUBLIC)]
        steps = explain(permissions.authorizers, user, target)
        if entry := self._sources.allowing_entry(user, target):
            steps[0] = replace(steps[0], reason=f"allowed by the scope: {entry}")
        if not _allowed(steps) and permissions.cut(user, target) is not None:
            steps.append(Step("lists", DENY, _CUT))
        return steps

    def _target(self, spec: Object) -> Target:
        """The target as a request would have it: cluster-scoped resources without a namespace.

        kubectl adds the namespace of its context to every review.
        """
        target = _asked_about(spec)
        kind = self._sources.catalog.resource(target.group, target.resource)
        if kind is None or kind.namespaced:
            return target
        namespace = target.name if (kind.group, kind.plural) == NAMESPACES else ""
        return replace(target, namespace=namespace)


def _asked_about(spec: Object) -> Target:
    """The target as given in the review."""
    path = spec.get("nonResourceAttributes")
    if path is not None:
        return Target(path.get("verb", ""), path.get("path", ""), MANAGEMENT)
    wanted = spec["resourceAttributes"]
    words = (wanted.get(name, "") for name in ("group", "version", "resource", "subresource", "namespace", "name"))
    return Target(wanted.get("verb", ""), "", MANAGEMENT, *words)


def _subject(spec: Object) -> User:
    """The subject exactly as given in the review, without groups from the registry."""
    extra = tuple((name, tuple(values)) for name, values in (spec.get("extra") or {}).items())
    return User(spec.get("user", ""), tuple(spec.get("groups") or ()), spec.get("uid", ""), extra=extra)


def _allowed(steps: Sequence[Step]) -> bool:
    return any(step.verdict == ALLOW for step in steps)


def _answered(asked: Asked, steps: Sequence[Step], *, told: bool = False) -> Object:
    """The review with its status. As in Kubernetes, a default denial has no reason."""
    status: Object = {"allowed": _allowed(steps)}
    last = [step for step in steps if step.verdict in (ALLOW, DENY)][-1]
    if last.reason and last.step != DEFAULT:
        status["reason"] = last.reason
    if told:
        status["path"] = [{name: word for name, word in asdict(step).items() if word} for step in steps]
    return {**asked.body, "status": status}
