"""Reviews say what a request would meet, in the shape that a kube-apiserver gives its answers."""

from typing import Any

import orjson
import pytest

from fairlead.authz.authorizer import AuthorizerChain, administrators
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
    SELF_SUBJECT_ACCESS_REVIEW,
    SELF_SUBJECT_RULES_REVIEW,
    SUBJECT_ACCESS_REVIEW,
)
from fairlead.registry.kind import MANAGEMENT_GROUP, Catalog
from fairlead.server.api.actions import Actions
from fairlead.server.api.routing import RouteConfig, routing_stage
from fairlead.server.pipeline import Pipeline
from fairlead.storage.view.view import Entry
from fairlead.subresources.access_reviews import ReviewSources, review_handlers
from tests.harness.calls import ADMIN, call

K8S = "/apis/authorization.k8s.io/v1"
OURS = f"/apis/{MANAGEMENT_GROUP}/v1"
ADA = User("ada", ("service:user:ada", "system:authenticated"))
CATALOG = Catalog(
    (
        EXPLAINED_SELF_REVIEW,
        EXPLAINED_REVIEW,
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


def fenced(user: User, target: RequestInfo) -> Decision | None:
    """Denies everything but apps to those with a scope."""
    return Decision(False, "not in scope") if user.scope is not None and target.resource != "apps" else None


def readers(user: User, target: RequestInfo) -> Decision | None:
    """Lets a few do a few things."""
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


class Shared:
    """Ada has a few secrets of her own, so that her lists of them are cut."""

    def __call__(self, user: User, target: RequestInfo) -> Decision | None:
        return None

    def authorize_object(self, user: User, target: RequestInfo, entry: Entry) -> Decision | None:
        return None

    def may_see_some(self, user: User, target: RequestInfo) -> bool:
        return (user.name, target.resource) == ("ada", "secrets")


KEYS = {"fenced-key": User("ada", key="fenced-key", scope=Scope()), "team-key": User("service:team:t", ("team",))}


def inspect(user: User, name: str) -> None:
    if name == "secret-key":
        raise Forbidden("not yours")


class Api:
    """Reviews that one user asks for."""

    def __init__(self, user: User = ADA) -> None:
        def as_user(call: Call) -> None:
            call.user = user

        async def serve(call: Call) -> Reply:
            kind = CATALOG.find(call.target.group, call.target.version, call.target.resource)
            assert kind is not None
            return await actions(call, kind)

        sources = ReviewSources(
            CATALOG,
            AuthorizerChain((fenced, administrators, readers), (Shared(),)),
            rules_for=lambda user, namespace: RULES if (user.name, namespace) == ("ada", "demo") else [],
            find_user={"eve": User("eve", ("team",))}.get,
            user_for_key=KEYS.get,
            check_key_visible=inspect,
            is_project_member=lambda user, namespace: namespace == "team-space",
            matching_entry=lambda user, target: "projects[0]" if user.scope and target.resource == "apps" else "",
        )
        actions = Actions(CATALOG, review_handlers(MANAGEMENT_GROUP, sources))
        self._run = Pipeline((routing_stage(RouteConfig("")), as_user), serve)

    async def __call__(self, path: str, spec: Object | None = None, code: int = 201, **fields: Any) -> Any:
        body = orjson.dumps({**({} if spec is None else {"spec": spec}), **fields})
        reply = await self._run(call(path, method="POST", body=body))
        assert reply.status == code, reply.body
        return orjson.loads(reply.body)


def wanted(verb: str, resource: str, namespace: str = "", name: str = "", group: str = "") -> Object:
    words = {"verb": verb, "resource": resource, "namespace": namespace, "name": name, "group": group}
    return {"resourceAttributes": {key: value for key, value in words.items() if value}}


APPS = wanted("get", "apps", group=MANAGEMENT_GROUP)


# --- of oneself


async def test_the_question_comes_back_with_its_answer() -> None:
    assert await Api()(f"{K8S}/selfsubjectaccessreviews", APPS) == {
        "kind": "SelfSubjectAccessReview",
        "apiVersion": "authorization.k8s.io/v1",
        "metadata": {},
        "spec": APPS,
        "status": {"allowed": True, "reason": "ada reads"},
    }


@pytest.mark.parametrize(
    ("spec", "status"),
    [
        (wanted("delete", "apps", group=MANAGEMENT_GROUP), {"allowed": False}),
        (wanted("get", "configmaps", "demo", "x"), {"allowed": True, "reason": "ada reads"}),
        (wanted("get", "configmaps", "demo"), {"allowed": False}),
        (wanted("get", "configmaps", "other", "x"), {"allowed": False}),
        ({"nonResourceAttributes": {"path": "/metrics", "verb": "get"}}, {"allowed": True, "reason": "open"}),
        ({"nonResourceAttributes": {"path": "/metrics", "verb": "post"}}, {"allowed": False}),
        ({"nonResourceAttributes": {"path": "/secret", "verb": "get"}}, {"allowed": False}),
        ({"resourceAttributes": {}}, {"allowed": False}),
    ],
)
async def test_what_nobody_allows_is_not_allowed_and_needs_no_reason(spec: Object, status: Object) -> None:
    assert (await Api()(f"{K8S}/selfsubjectaccessreviews", spec))["status"] == status


@pytest.mark.parametrize("path", ["/version", "/healthz", "/livez", "/readyz"])
async def test_what_is_public_is_allowed_to_everybody(path: str) -> None:
    for user in (ADA, User("nobody"), KEYS["fenced-key"]):
        spec = {"nonResourceAttributes": {"path": path, "verb": "get"}}
        assert (await Api(user)(f"{K8S}/selfsubjectaccessreviews", spec))["status"]["allowed"]


async def test_the_scope_of_the_callers_key_counts() -> None:
    api = Api(KEYS["fenced-key"])
    answer = await api(f"{K8S}/selfsubjectaccessreviews", wanted("get", "configmaps", "demo", "x"))
    assert answer["status"] == {"allowed": False, "reason": "not in scope"}
    assert (await api(f"{K8S}/selfsubjectaccessreviews", APPS))["status"]["allowed"]


async def test_what_lives_in_no_namespace_is_not_asked_for_in_one() -> None:
    """kubectl sends the namespace of its context along, whatever it asks about."""
    api = Api()
    apps = wanted("get", "apps", "demo", group=MANAGEMENT_GROUP)
    answer = await api(f"{K8S}/selfsubjectaccessreviews", apps)
    assert answer["status"]["allowed"]
    assert answer["spec"] == apps
    namespaces = wanted("get", "namespaces", "default", "demo")
    assert (await api(f"{K8S}/selfsubjectaccessreviews", namespaces))["status"]["allowed"]


async def test_a_list_that_would_be_cut_down_is_told_so() -> None:
    answer = await Api()(f"{K8S}/selfsubjectaccessreviews", wanted("list", "secrets"))
    assert not answer["status"]["allowed"]
    assert "filtered to the objects that the user may get" in answer["status"]["reason"]


async def test_selectors_are_taken_and_change_nothing() -> None:
    attributes = {
        **APPS["resourceAttributes"],
        "fieldSelector": {"requirements": [{"key": "metadata.name", "operator": "In", "values": ["x"]}]},
        "labelSelector": {"rawSelector": "a=b"},
    }
    answer = await Api()(f"{K8S}/selfsubjectaccessreviews", {"resourceAttributes": attributes})
    assert answer["status"]["allowed"]
    assert answer["spec"] == {"resourceAttributes": attributes}


async def test_a_status_sent_along_decides_nothing() -> None:
    spec = wanted("delete", "apps", group=MANAGEMENT_GROUP)
    answer = await Api()(f"{K8S}/selfsubjectaccessreviews", spec, status={"allowed": True})
    assert answer["status"] == {"allowed": False}


async def test_a_review_without_attributes_is_invalid_in_kubernetes_words() -> None:
    told = await Api()(f"{K8S}/selfsubjectaccessreviews", {}, code=422)
    why = "Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be specified"
    assert told["message"] == f'.authorization.k8s.io "" is invalid: spec: {why}'
    cause = {"reason": "FieldValueInvalid", "message": why, "field": "spec"}
    assert told["details"] == {"group": "authorization.k8s.io", "causes": [cause]}


# --- of somebody


async def test_somebody_is_taken_as_described() -> None:
    api = Api(ADMIN)
    subject = {"user": "bob", "groups": ["g"], "uid": "1", "extra": {"k": ["v"]}}
    here = wanted("get", "apps", name="here", group=MANAGEMENT_GROUP)
    answer = await api(f"{K8S}/subjectaccessreviews", {**subject, **here})
    assert answer["spec"] == {**subject, **here}
    assert answer["status"] == {"allowed": True, "reason": "bob reads"}
    assert (await api(f"{K8S}/subjectaccessreviews", {"user": "bob", **APPS}))["status"] == {"allowed": False}
    for who in ({"groups": ["team"]}, {"user": "x", "groups": ["team"]}):
        assert (await api(f"{K8S}/subjectaccessreviews", {**who, **APPS}))["status"]["allowed"]


async def test_groups_that_are_not_named_do_not_count() -> None:
    """A user named without groups is in none, as Kubernetes has it, even if the user is known here."""
    assert not (await Api(ADMIN)(f"{K8S}/subjectaccessreviews", {"user": "eve", **APPS}))["status"]["allowed"]


async def test_the_built_in_admin_groups_may_do_everything() -> None:
    answer = await Api(ADMIN)(f"{K8S}/subjectaccessreviews", {"groups": ["system:masters"], **APPS})
    assert answer["status"]["allowed"]


# --- in a namespace


async def test_a_local_review_is_about_a_namespace() -> None:
    path = f"{K8S}/namespaces/demo/localsubjectaccessreviews"
    answer = await Api(ADMIN)(path, {"user": "ada", **wanted("get", "configmaps", "demo", "x")})
    assert answer["metadata"] == {"namespace": "demo"}
    assert answer["status"]["allowed"]
    own = await Api(ADMIN)(path, {"user": "ada", **wanted("get", "namespaces", "demo", "demo")})
    assert own["status"]["allowed"]


@pytest.mark.parametrize(
    "spec",
    [
        wanted("get", "apps", "demo", group=MANAGEMENT_GROUP),
        wanted("get", "namespaces", "demo", "other"),
        wanted("get", "namespaces", "demo"),
    ],
)
async def test_a_local_review_tells_nothing_about_what_is_outside(spec: Object) -> None:
    path = f"{K8S}/namespaces/demo/localsubjectaccessreviews"
    status = (await Api(ADMIN)(path, {"groups": ["system:masters"], **spec}))["status"]
    assert not status["allowed"]
    assert "this resource is cluster-scoped" in status["reason"]


# --- rules


async def test_the_rules_of_a_namespace_are_told_apart() -> None:
    answer = await Api()(f"{K8S}/selfsubjectrulesreviews", {"namespace": "demo"})
    assert answer["spec"] == {}
    assert answer["status"] == {"resourceRules": RULES[:1], "nonResourceRules": RULES[1:], "incomplete": False}


async def test_who_has_no_rules_gets_empty_lists() -> None:
    answer = await Api()(f"{K8S}/selfsubjectrulesreviews", {"namespace": "other"})
    assert answer["status"] == {"resourceRules": [], "nonResourceRules": [], "incomplete": False}


async def test_with_a_scope_the_rules_are_not_the_whole_truth() -> None:
    status = (await Api(KEYS["fenced-key"])(f"{K8S}/selfsubjectrulesreviews", {"namespace": "demo"}))["status"]
    assert status["incomplete"]
    assert "scope" in status["evaluationError"]


@pytest.mark.parametrize("spec", [None, {}, {"namespace": ""}])
async def test_rules_are_asked_for_in_a_namespace(spec: Object | None) -> None:
    told = await Api()(f"{K8S}/selfsubjectrulesreviews", spec, code=400)
    assert told["message"] == "no namespace on request"


# --- explained


async def test_the_platforms_own_reviews_tell_how_it_is_decided() -> None:
    status = (await Api()(f"{OURS}/selfsubjectaccessreviews", APPS))["status"]
    assert status == {
        "allowed": True,
        "reason": "ada reads",
        "path": [
            {"step": "fenced", "verdict": "no opinion"},
            {"step": "administrators", "verdict": "no opinion"},
            {"step": "readers", "verdict": "allow", "reason": "ada reads"},
            {"step": "shared", "verdict": "not evaluated"},
        ],
    }


async def test_a_denial_by_default_ends_the_path() -> None:
    status = (await Api()(f"{OURS}/selfsubjectaccessreviews", wanted("delete", "configmaps")))["status"]
    assert not status["allowed"]
    assert (status["path"][-1]["step"], status["path"][-1]["verdict"]) == ("default", "deny")


async def test_a_key_is_judged_with_its_scope() -> None:
    question = {"accessKey": "fenced-key", **wanted("get", "configmaps", "demo", "x")}
    for api, plural in ((Api(), "selfsubjectaccessreviews"), (Api(ADMIN), "subjectaccessreviews")):
        status = (await api(f"{OURS}/{plural}", question))["status"]
        assert (status["allowed"], status["reason"]) == (False, "not in scope")
        assert [step["verdict"] for step in status["path"]] == [
            "deny",
            "not evaluated",
            "not evaluated",
            "not evaluated",
        ]


async def test_a_key_that_does_not_work_is_allowed_nothing() -> None:
    status = (await Api(ADMIN)(f"{OURS}/subjectaccessreviews", {"accessKey": "gone", **APPS}))["status"]
    assert not status["allowed"]
    assert "401" in status["reason"]
    assert [step["step"] for step in status["path"]] == ["access keys"]


async def test_a_key_of_somebody_else_is_not_explained() -> None:
    await Api()(f"{OURS}/selfsubjectaccessreviews", {"accessKey": "secret-key", **APPS}, code=403)


async def test_a_user_who_is_known_here_comes_with_all_groups() -> None:
    api = Api(ADMIN)
    assert (await api(f"{OURS}/subjectaccessreviews", {"user": "eve", **APPS}))["status"]["allowed"]
    assert not (await api(f"{OURS}/subjectaccessreviews", {"user": "eve", "groups": ["x"], **APPS}))["status"][
        "allowed"
    ]
    assert not (await api(f"{OURS}/subjectaccessreviews", {"user": "nobody", **APPS}))["status"]["allowed"]


async def test_the_path_names_the_entry_of_the_scope_that_lets_it_in() -> None:
    status = (await Api(ADMIN)(f"{OURS}/subjectaccessreviews", {"accessKey": "fenced-key", **APPS}))["status"]
    assert status["path"][0] == {
        "step": "fenced",
        "verdict": "no opinion",
        "reason": "allowed by the scope: projects[0]",
    }


async def test_a_members_rules_are_told_to_be_incomplete() -> None:
    status = (await Api()(f"{K8S}/selfsubjectrulesreviews", {"namespace": "team-space"}))["status"]
    assert status["incomplete"] and "project members" in status["evaluationError"]
    assert not (await Api()(f"{K8S}/selfsubjectrulesreviews", {"namespace": "demo"}))["status"]["incomplete"]
