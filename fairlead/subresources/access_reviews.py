"""Answers to access reviews: may somebody do something, how is that decided, and what may I do at all?

`server/api/actions.py` calls these handlers with bodies that are in order. They ask the very permissions that requests pass, so a
review says what a request would meet. The platform's own reviews can also be asked about an access key, and tell the
path of the decision.
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

_PUBLIC = "everybody may read this path"
_CUT = "not all of them; a list or watch is answered, and cut down to what may be read"
_OUTSIDE = "such objects are in no namespace, and this review is about what is in one"
_NO_KEY = "there is no such access key, or it is disabled or has expired: whoever uses it is answered with 401"
_SCOPED = "the access key has a scope, which may take away from these rules; ask about each with a review of its own"
_MEMBER = "rights of project members, owners and those named in access entries are not listed; ask about each of them"


@dataclass(frozen=True, slots=True)
class Sources:
    """Whom reviews ask.

    `rules_for` gives the rules of all roles that a user has in a namespace, `user_named` a user with all of its groups,
    `identity` who uses the access key of that name; None where there is none. `inspect` raises where somebody may not
    know about a key. `allowing_entry` names the entry of a user's scope, which is asked first, that lets a request in.
    `is_member` says whether somebody has a role in the project of a namespace.
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
    """Who answers which review."""
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
    """The handlers."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources

    async def of_oneself(self, asked: Asked) -> Object:
        """With the caller's scope, and as whoever the caller acts as."""
        return _answered(asked, self._path(asked.user, self._target(asked.body["spec"])))

    async def of_somebody(self, asked: Asked) -> Object:
        spec = asked.body["spec"]
        return _answered(asked, self._path(_subject(spec), self._target(spec)))

    async def in_a_namespace(self, asked: Asked) -> Object:
        """Rights in a namespace say nothing about what lives outside of it, though the question puts it there."""
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
        """Who names a user and no groups means the user that is known here by that name."""
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
        if why := self._beyond_roles(asked.user, namespace):
            status |= {"incomplete": True, "evaluationError": why}
        return {**asked.body, "spec": {}, "status": status}

    def _beyond_roles(self, user: User, namespace: str) -> str:
        """Why rules alone do not tell what somebody may do; empty where they do."""
        if user.scope is not None:
            return _SCOPED
        return _MEMBER if self._sources.is_member(user, namespace) else ""

    def _path(self, user: User, target: Target) -> list[Step]:
        """How a request would be decided, and not only by the authorizers."""
        permissions = self._sources.permissions
        if not target.is_resource and target.verb == "get" and target.path in PUBLIC_PATHS:
            return [Step("public paths", ALLOW, _PUBLIC)]
        steps = explain(permissions.authorizers, user, target)
        if entry := self._sources.allowing_entry(user, target):
            steps[0] = replace(steps[0], reason=f"inside the scope, by {entry}")
        if not _allowed(steps) and permissions.cut(user, target) is not None:
            steps.append(Step("lists", DENY, _CUT))
        return steps

    def _target(self, spec: Object) -> Target:
        """What is asked about, as the path of a request would say it: what lives in no namespace is asked for in none.

        kubectl puts the namespace of its context into every question.
        """
        target = _asked_about(spec)
        kind = self._sources.catalog.resource(target.group, target.resource)
        if kind is None or kind.namespaced:
            return target
        namespace = target.name if (kind.group, kind.plural) == NAMESPACES else ""
        return replace(target, namespace=namespace)


def _asked_about(spec: Object) -> Target:
    """What is asked about, as it was asked."""
    path = spec.get("nonResourceAttributes")
    if path is not None:
        return Target(path.get("verb", ""), path.get("path", ""), MANAGEMENT)
    wanted = spec["resourceAttributes"]
    words = (wanted.get(name, "") for name in ("group", "version", "resource", "subresource", "namespace", "name"))
    return Target(wanted.get("verb", ""), "", MANAGEMENT, *words)


def _subject(spec: Object) -> User:
    """Somebody exactly as described: nothing is added that the question does not say."""
    extra = tuple((name, tuple(values)) for name, values in (spec.get("extra") or {}).items())
    return User(spec.get("user", ""), tuple(spec.get("groups") or ()), spec.get("uid", ""), extra=extra)


def _allowed(steps: Sequence[Step]) -> bool:
    return any(step.verdict == ALLOW for step in steps)


def _answered(asked: Asked, steps: Sequence[Step], *, told: bool = False) -> Object:
    """The review with its status. As in Kubernetes, there is no reason where simply nobody allows it."""
    status: Object = {"allowed": _allowed(steps)}
    last = [step for step in steps if step.verdict in (ALLOW, DENY)][-1]
    if last.reason and last.step != DEFAULT:
        status["reason"] = last.reason
    if told:
        status["path"] = [{name: word for name, word in asdict(step).items() if word} for step in steps]
    return {**asked.body, "status": status}
