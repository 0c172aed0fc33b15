"""Access reviews: the decision about a request, in the format of a kube-apiserver, with an explanation."""

import pytest

from fairlead.core.objects import Object
from fairlead.core.user import User
from fairlead.registry.kind import MANAGEMENT_GROUP
from tests.harness.calls import ADMIN
from tests.subresources.review_api import ADA, APPS, KEYS, KUBERNETES, MANAGEMENT, RULES, ReviewApi, review_spec

# --- SelfSubjectAccessReview


async def test_a_review_returns_its_spec_and_the_decision() -> None:
    assert await ReviewApi()(f"{KUBERNETES}/selfsubjectaccessreviews", APPS) == {
        "kind": "SelfSubjectAccessReview",
        "apiVersion": "authorization.k8s.io/v1",
        "metadata": {},
        "spec": APPS,
        "status": {"allowed": True, "reason": "ada reads"},
    }


@pytest.mark.parametrize(
    ("spec", "status"),
    [
        (review_spec("delete", "apps", group=MANAGEMENT_GROUP), {"allowed": False}),
        (review_spec("get", "configmaps", "demo", "x"), {"allowed": True, "reason": "ada reads"}),
        (review_spec("get", "configmaps", "demo"), {"allowed": False}),
        (review_spec("get", "configmaps", "other", "x"), {"allowed": False}),
        ({"nonResourceAttributes": {"path": "/metrics", "verb": "get"}}, {"allowed": True, "reason": "open"}),
        ({"nonResourceAttributes": {"path": "/metrics", "verb": "post"}}, {"allowed": False}),
        ({"nonResourceAttributes": {"path": "/secret", "verb": "get"}}, {"allowed": False}),
        ({"resourceAttributes": {}}, {"allowed": False}),
    ],
)
async def test_a_request_that_no_authorizer_allows_is_denied_without_a_reason(spec: Object, status: Object) -> None:
    assert (await ReviewApi()(f"{KUBERNETES}/selfsubjectaccessreviews", spec))["status"] == status


@pytest.mark.parametrize("path", ["/version", "/healthz", "/livez", "/readyz"])
async def test_public_paths_are_allowed_to_every_user(path: str) -> None:
    for user in (ADA, User("nobody"), KEYS["scoped-key"]):
        spec = {"nonResourceAttributes": {"path": path, "verb": "get"}}
        assert (await ReviewApi(user)(f"{KUBERNETES}/selfsubjectaccessreviews", spec))["status"]["allowed"]


async def test_the_scope_of_the_key_of_the_requester_applies() -> None:
    api = ReviewApi(KEYS["scoped-key"])
    review = await api(f"{KUBERNETES}/selfsubjectaccessreviews", review_spec("get", "configmaps", "demo", "x"))
    assert review["status"] == {"allowed": False, "reason": "not in scope"}
    assert (await api(f"{KUBERNETES}/selfsubjectaccessreviews", APPS))["status"]["allowed"]


async def test_the_namespace_is_ignored_for_cluster_scoped_resources() -> None:
    """kubectl sends the namespace of its context for every resource."""
    api = ReviewApi()
    apps = review_spec("get", "apps", "demo", group=MANAGEMENT_GROUP)
    review = await api(f"{KUBERNETES}/selfsubjectaccessreviews", apps)
    assert review["status"]["allowed"]
    assert review["spec"] == apps
    namespaces = review_spec("get", "namespaces", "default", "demo")
    assert (await api(f"{KUBERNETES}/selfsubjectaccessreviews", namespaces))["status"]["allowed"]


async def test_the_reason_says_that_a_list_would_be_filtered() -> None:
    review = await ReviewApi()(f"{KUBERNETES}/selfsubjectaccessreviews", review_spec("list", "secrets"))
    assert not review["status"]["allowed"]
    assert "filtered to the objects that the user may get" in review["status"]["reason"]
    assert "filtered" not in review["status"], "a field that Kubernetes does not have"


async def test_selectors_are_accepted_and_ignored() -> None:
    attributes = {
        **APPS["resourceAttributes"],
        "fieldSelector": {"requirements": [{"key": "metadata.name", "operator": "In", "values": ["x"]}]},
        "labelSelector": {"rawSelector": "a=b"},
    }
    review = await ReviewApi()(f"{KUBERNETES}/selfsubjectaccessreviews", {"resourceAttributes": attributes})
    assert review["status"]["allowed"]
    assert review["spec"] == {"resourceAttributes": attributes}


async def test_a_status_in_the_request_is_ignored() -> None:
    spec = review_spec("delete", "apps", group=MANAGEMENT_GROUP)
    review = await ReviewApi()(f"{KUBERNETES}/selfsubjectaccessreviews", spec, status={"allowed": True})
    assert review["status"] == {"allowed": False}


async def test_a_review_without_attributes_gets_the_error_of_kubernetes() -> None:
    error = await ReviewApi()(f"{KUBERNETES}/selfsubjectaccessreviews", {}, code=422)
    message = "Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be specified"
    assert error["message"] == f'.authorization.k8s.io "" is invalid: spec: {message}'
    cause = {"reason": "FieldValueInvalid", "message": message, "field": "spec"}
    assert error["details"] == {"group": "authorization.k8s.io", "causes": [cause]}


# --- SubjectAccessReview


async def test_the_subject_of_a_review_is_taken_as_described() -> None:
    api = ReviewApi(ADMIN)
    subject = {"user": "bob", "groups": ["g"], "uid": "1", "extra": {"k": ["v"]}}
    spec = review_spec("get", "apps", name="here", group=MANAGEMENT_GROUP)
    review = await api(f"{KUBERNETES}/subjectaccessreviews", {**subject, **spec})
    assert review["spec"] == {**subject, **spec}
    assert review["status"] == {"allowed": True, "reason": "bob reads"}
    assert (await api(f"{KUBERNETES}/subjectaccessreviews", {"user": "bob", **APPS}))["status"] == {"allowed": False}
    for subject_fields in ({"groups": ["team"]}, {"user": "x", "groups": ["team"]}):
        assert (await api(f"{KUBERNETES}/subjectaccessreviews", {**subject_fields, **APPS}))["status"]["allowed"]


async def test_groups_that_are_not_in_the_review_do_not_count() -> None:
    """A user without groups in the review has none, as in Kubernetes, even if the user exists."""
    assert not (await ReviewApi(ADMIN)(f"{KUBERNETES}/subjectaccessreviews", {"user": "eve", **APPS}))["status"][
        "allowed"
    ]


async def test_the_admin_groups_may_do_everything() -> None:
    review = await ReviewApi(ADMIN)(f"{KUBERNETES}/subjectaccessreviews", {"groups": ["system:masters"], **APPS})
    assert review["status"]["allowed"]


# --- LocalSubjectAccessReview


async def test_a_local_review_decides_about_its_namespace() -> None:
    path = f"{KUBERNETES}/namespaces/demo/localsubjectaccessreviews"
    review = await ReviewApi(ADMIN)(path, {"user": "ada", **review_spec("get", "configmaps", "demo", "x")})
    assert review["metadata"] == {"namespace": "demo"}
    assert review["status"]["allowed"]
    own_namespace = await ReviewApi(ADMIN)(path, {"user": "ada", **review_spec("get", "namespaces", "demo", "demo")})
    assert own_namespace["status"]["allowed"]


@pytest.mark.parametrize(
    "spec",
    [
        review_spec("get", "apps", "demo", group=MANAGEMENT_GROUP),
        review_spec("get", "namespaces", "demo", "other"),
        review_spec("get", "namespaces", "demo"),
    ],
)
async def test_a_local_review_denies_cluster_scoped_resources(spec: Object) -> None:
    path = f"{KUBERNETES}/namespaces/demo/localsubjectaccessreviews"
    status = (await ReviewApi(ADMIN)(path, {"groups": ["system:masters"], **spec}))["status"]
    assert not status["allowed"]
    assert "this resource is cluster-scoped" in status["reason"]


# --- SelfSubjectRulesReview


async def test_a_rules_review_separates_resource_and_path_rules() -> None:
    review = await ReviewApi()(f"{KUBERNETES}/selfsubjectrulesreviews", {"namespace": "demo"})
    assert review["spec"] == {}
    assert review["status"] == {"resourceRules": RULES[:1], "nonResourceRules": RULES[1:], "incomplete": False}


async def test_a_rules_review_says_that_there_are_more_rules() -> None:
    review = await ReviewApi()(f"{KUBERNETES}/selfsubjectrulesreviews", {"namespace": "large"})
    assert review["status"]["incomplete"]
    assert review["status"]["evaluationError"] == (
        "there are more rules than are listed here; check single requests with an access review"
    )


async def test_a_user_without_rules_gets_empty_lists() -> None:
    review = await ReviewApi()(f"{KUBERNETES}/selfsubjectrulesreviews", {"namespace": "other"})
    assert review["status"] == {"resourceRules": [], "nonResourceRules": [], "incomplete": False}


async def test_the_rules_of_a_scoped_key_are_incomplete() -> None:
    status = (await ReviewApi(KEYS["scoped-key"])(f"{KUBERNETES}/selfsubjectrulesreviews", {"namespace": "demo"}))[
        "status"
    ]
    assert status["incomplete"]
    assert "scope" in status["evaluationError"]


@pytest.mark.parametrize("spec", [None, {}, {"namespace": ""}])
async def test_a_rules_review_requires_a_namespace(spec: Object | None) -> None:
    error = await ReviewApi()(f"{KUBERNETES}/selfsubjectrulesreviews", spec, code=400)
    assert error["message"] == "no namespace on request"


# --- reviews of the management API, with an explanation


async def test_a_management_review_explains_the_decision() -> None:
    status = (await ReviewApi()(f"{MANAGEMENT}/selfsubjectaccessreviews", APPS))["status"]
    assert status == {
        "allowed": True,
        "reason": "ada reads",
        "path": [
            {"step": "scope limit", "verdict": "no opinion"},
            {"step": "administrators", "verdict": "no opinion"},
            {"step": "readers", "verdict": "allow", "reason": "ada reads"},
            {"step": "shared objects", "verdict": "not evaluated"},
        ],
    }


async def test_a_denial_by_default_is_the_last_step() -> None:
    status = (await ReviewApi()(f"{MANAGEMENT}/selfsubjectaccessreviews", review_spec("delete", "configmaps")))[
        "status"
    ]
    assert not status["allowed"]
    assert (status["path"][-1]["step"], status["path"][-1]["verdict"]) == ("default", "deny")


async def test_a_review_of_a_key_applies_its_scope() -> None:
    spec = {"accessKey": "scoped-key", **review_spec("get", "configmaps", "demo", "x")}
    for api, plural in ((ReviewApi(), "selfsubjectaccessreviews"), (ReviewApi(ADMIN), "subjectaccessreviews")):
        status = (await api(f"{MANAGEMENT}/{plural}", spec))["status"]
        assert (status["allowed"], status["reason"]) == (False, "not in scope")
        assert [step["verdict"] for step in status["path"]] == [
            "deny",
            "not evaluated",
            "not evaluated",
            "not evaluated",
        ]


async def test_a_review_of_an_invalid_key_is_denied() -> None:
    status = (await ReviewApi(ADMIN)(f"{MANAGEMENT}/subjectaccessreviews", {"accessKey": "gone", **APPS}))["status"]
    assert not status["allowed"]
    assert "401" in status["reason"]
    assert [step["step"] for step in status["path"]] == ["access keys"]


async def test_a_review_of_the_key_of_another_user_is_forbidden() -> None:
    await ReviewApi()(f"{MANAGEMENT}/selfsubjectaccessreviews", {"accessKey": "secret-key", **APPS}, code=403)


async def test_an_existing_user_is_reviewed_with_all_groups() -> None:
    api = ReviewApi(ADMIN)
    assert (await api(f"{MANAGEMENT}/subjectaccessreviews", {"user": "eve", **APPS}))["status"]["allowed"]
    assert not (await api(f"{MANAGEMENT}/subjectaccessreviews", {"user": "eve", "groups": ["x"], **APPS}))["status"][
        "allowed"
    ]
    assert not (await api(f"{MANAGEMENT}/subjectaccessreviews", {"user": "nobody", **APPS}))["status"]["allowed"]


async def test_the_explanation_names_the_matching_entry_of_the_scope() -> None:
    status = (await ReviewApi(ADMIN)(f"{MANAGEMENT}/subjectaccessreviews", {"accessKey": "scoped-key", **APPS}))[
        "status"
    ]
    assert status["path"][0] == {
        "step": "scope limit",
        "verdict": "no opinion",
        "reason": "allowed by the scope: projects[0]",
    }


async def test_the_rules_of_a_project_member_are_incomplete() -> None:
    status = (await ReviewApi()(f"{KUBERNETES}/selfsubjectrulesreviews", {"namespace": "team-space"}))["status"]
    assert status["incomplete"] and "project members" in status["evaluationError"]
    assert not (await ReviewApi()(f"{KUBERNETES}/selfsubjectrulesreviews", {"namespace": "demo"}))["status"][
        "incomplete"
    ]


@pytest.mark.parametrize(
    ("subject", "is_missing"),
    [
        ({"user": "mry"}, True),
        ({"user": "eve"}, False),
        ({"user": "disabled"}, False),
        ({"user": "system:serviceaccount:a:b"}, False),
        ({"user": "mry", "groups": ["team"]}, False),
        ({"groups": ["team"]}, False),
    ],
)
async def test_a_review_of_a_user_that_does_not_exist_says_so(subject: Object, is_missing: bool) -> None:
    api = ReviewApi(ADMIN)
    await api(f"{MANAGEMENT}/subjectaccessreviews", {**APPS, **subject})
    expected = ['spec.user: there is no user "mry"; the answer is for one without groups']
    assert api.warnings == (expected if is_missing else [])
    other = ReviewApi(ADA)
    await other(f"{MANAGEMENT}/subjectaccessreviews", {**APPS, **subject})
    assert other.warnings == []
