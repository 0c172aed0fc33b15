"""Sends access reviews as one user, to the handlers with a few simple authorizers."""

from collections.abc import Sequence
from typing import Any

import orjson

from fairlead.authz.authorizer import Authorizer, AuthorizerChain, administrators
from fairlead.core.call import Call, Decision, Reply, RequestInfo
from fairlead.core.errors import Forbidden
from fairlead.core.objects import Object
from fairlead.core.scope import Scope
from fairlead.core.user import User
from fairlead.kinds.clusters.app import APP
from fairlead.kinds.core.config_data import CONFIGMAP
from fairlead.kinds.core.namespace import NAMESPACE
from fairlead.kinds.rbac.access_reviews import (
    EXPLAINED_REVIEW,
    EXPLAINED_SELF_REVIEW,
    LOCAL_SUBJECT_ACCESS_REVIEW,
    SELF_REVIEW_BATCH,
    SELF_SUBJECT_ACCESS_REVIEW,
    SELF_SUBJECT_RULES_REVIEW,
    SUBJECT_ACCESS_REVIEW,
)
from fairlead.registry.kind import MANAGEMENT_GROUP, Catalog
from fairlead.server.api.actions import Actions
from fairlead.server.api.routing import RouteConfig, Router, routing_stage
from fairlead.server.pipeline import Pipeline
from fairlead.storage.view.view import Entry
from fairlead.subresources.access_reviews import ReviewSources, review_handlers
from tests.harness.calls import call

KUBERNETES = "/apis/authorization.k8s.io/v1"
MANAGEMENT = f"/apis/{MANAGEMENT_GROUP}/v1"
ADA = User("ada", ("service:user:ada", "system:authenticated"))
CATALOG = Catalog(
    (
        EXPLAINED_SELF_REVIEW,
        EXPLAINED_REVIEW,
        SELF_REVIEW_BATCH,
        SELF_SUBJECT_ACCESS_REVIEW,
        SUBJECT_ACCESS_REVIEW,
        LOCAL_SUBJECT_ACCESS_REVIEW,
        SELF_SUBJECT_RULES_REVIEW,
        APP,
        CONFIGMAP,
        NAMESPACE,
    )
)
RULES: list[Object] = [
    {"verbs": ["get"], "apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["x"]},
    {"verbs": ["get"], "nonResourceURLs": ["/version"]},
]


def scope_limit(user: User, target: RequestInfo) -> Decision | None:
    """Denies users with a scope everything but apps."""
    return Decision(False, "not in scope") if user.scope is not None and target.resource != "apps" else None


def readers(user: User, target: RequestInfo) -> Decision | None:
    """Allows some users some requests."""
    allowed = {
        ("ada", "get", "apps", "", ""),
        ("ada", "get", "configmaps", "demo", "x"),
        ("ada", "get", "namespaces", "demo", "demo"),
        ("bob", "get", "apps", "", "here"),
    }
    if (user.name, target.verb, target.resource, target.namespace, target.name) in allowed:
        return Decision(True, f"{user.name} reads")
    if "team" in user.groups or (target.path, target.verb) == ("/metrics", "get"):
        return Decision(True, "open")
    return None


class SharedObjects:
    """Gives ada access to some secrets, so that her lists of secrets are filtered."""

    def __call__(self, user: User, target: RequestInfo) -> Decision | None:
        return None

    def authorize_object(self, user: User, target: RequestInfo, entry: Entry) -> Decision | None:
        return None

    def may_see_some(self, user: User, target: RequestInfo) -> bool:
        return (user.name, target.resource) == ("ada", "secrets")


KEYS = {"scoped-key": User("ada", key="scoped-key", scope=Scope()), "team-key": User("service:team:t", ("team",))}


def check_key_visible(user: User, name: str) -> None:
    if name == "secret-key":
        raise Forbidden("not yours")


class ReviewApi:
    """Sends reviews as one user."""

    def __init__(
        self, user: User = ADA, authorizers: Sequence[Authorizer] = (scope_limit, administrators, readers)
    ) -> None:
        def set_user(call: Call) -> None:
            call.user = user

        async def serve(call: Call) -> Reply:
            kind = CATALOG.find(call.target.group, call.target.version, call.target.resource)
            assert kind is not None
            return await actions(call, kind)

        sources = ReviewSources(
            CATALOG,
            AuthorizerChain(authorizers, (SharedObjects(),)),
            list_rules=lambda user, namespace: (
                RULES if (user.name, namespace) == ("ada", "demo") else [],
                namespace != "large",
            ),
            find_user={"eve": User("eve", ("team",))}.get,
            has_user=("eve", "disabled").__contains__,
            user_for_key=KEYS.get,
            check_key_visible=check_key_visible,
            is_project_member=lambda user, namespace: namespace == "team-space",
            matching_entry=lambda user, target: "projects[0]" if user.scope and target.resource == "apps" else "",
        )
        actions = Actions(CATALOG, review_handlers(MANAGEMENT_GROUP, sources))
        self.warnings: list[str] = []
        self._run = Pipeline((routing_stage(Router(RouteConfig(""))), set_user), serve)

    async def __call__(self, path: str, spec: Object | None = None, code: int = 201, **fields: Any) -> Any:
        body = orjson.dumps({**({} if spec is None else {"spec": spec}), **fields})
        request = call(path, method="POST", body=body)
        reply = await self._run(request)
        assert reply.status == code, reply.body
        self.warnings = request.warnings
        return orjson.loads(reply.body)


def review_spec(verb: str, resource: str, namespace: str = "", name: str = "", group: str = "") -> Object:
    attributes = {"verb": verb, "resource": resource, "namespace": namespace, "name": name, "group": group}
    return {"resourceAttributes": {key: value for key, value in attributes.items() if value}}


APPS = review_spec("get", "apps", group=MANAGEMENT_GROUP)
