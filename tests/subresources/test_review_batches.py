"""Reviews of the requester with a scope, and batches of reviews."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from fairlead.core.call import Decision, RequestInfo
from fairlead.core.concurrency import COMPUTE_POOL
from fairlead.core.objects import Object
from fairlead.core.scope import Scope
from fairlead.core.user import User
from fairlead.registry.kind import MANAGEMENT_GROUP
from tests.harness.calls import ADMIN
from tests.subresources.review_api import APPS, KEYS, MANAGEMENT, ReviewApi, review_spec

# --- a scope in the review


async def test_a_scope_in_the_review_restricts_the_requester() -> None:
    """Before the key exists."""
    api, configmap = ReviewApi(), review_spec("get", "configmaps", "demo", "x")
    assert (await api(f"{MANAGEMENT}/selfsubjectaccessreviews", configmap))["status"]["allowed"]
    review = await api(f"{MANAGEMENT}/selfsubjectaccessreviews", {"scope": {}, **configmap})
    assert (review["status"]["allowed"], review["status"]["reason"]) == (False, "not in scope")
    review = await api(f"{MANAGEMENT}/selfsubjectaccessreviews", {"scope": {}, **APPS})
    assert review["status"]["allowed"]
    assert review["status"]["path"][0]["reason"] == "allowed by the scope: projects[0]"


async def test_a_scope_in_the_review_cannot_extend_the_scope_of_the_key() -> None:
    def scope_limit(user: User, target: RequestInfo) -> Decision | None:
        assert user.scope is not None
        projects = user.scope.projects
        return None if target.resource in projects else Decision(False, f"only {', '.join(projects)}")

    def allow(user: User, target: RequestInfo) -> Decision | None:
        return Decision(True)

    api = ReviewApi(User("ada", scope=Scope(projects=("apps", "configmaps"))), (scope_limit, allow))
    scope = {"projects": [{"project": "apps"}, {"project": "secrets"}]}
    answers = {}
    for plural in ("apps", "configmaps", "secrets"):
        spec = {"scope": scope, **review_spec("get", plural, "demo")}
        status = (await api(f"{MANAGEMENT}/selfsubjectaccessreviews", spec))["status"]
        answers[plural] = status["allowed"], status.get("reason")
    assert answers == {
        "apps": (True, None),
        "configmaps": (False, "only apps, secrets"),
        "secrets": (False, "only apps, configmaps"),
    }


@pytest.mark.parametrize("plural", ["selfsubjectaccessreviews", "selfsubjectaccessreviewbatches"])
async def test_an_invalid_scope_is_rejected_with_its_path(plural: str) -> None:
    attributes: Object = APPS if plural == "selfsubjectaccessreviews" else {"reviews": [APPS]}
    both = await ReviewApi()(f"{MANAGEMENT}/{plural}", {"accessKey": "k", "scope": {}, **attributes}, code=422)
    assert [cause["field"] for cause in both["details"]["causes"]] == ["spec.scope"]
    assert "leave out accessKey or scope" in both["message"]
    scope = {"projects": [{"project": "no/name"}]}
    error = await ReviewApi()(f"{MANAGEMENT}/{plural}", {"scope": scope, **attributes}, code=422)
    assert error["details"]["causes"][0]["field"] == "spec.scope.projects[0].project"
    error = await ReviewApi()(f"{MANAGEMENT}/{plural}", {"scope": {"project": []}, **attributes}, code=422)
    assert error["details"]["causes"][0]["field"] == "spec.scope.project"
    assert "unknown field" in error["message"]


# --- batches

SECRETS = review_spec("list", "secrets")
VERSION: Object = {"nonResourceAttributes": {"path": "/version", "verb": "get"}}


async def test_a_batch_has_the_answers_of_single_reviews_in_the_same_order() -> None:
    reviews = [
        APPS,
        review_spec("delete", "apps", group=MANAGEMENT_GROUP),
        SECRETS,
        review_spec("get", "configmaps", "demo", "x"),
        review_spec("get", "namespaces", "default", "demo"),
        VERSION,
        {"resourceAttributes": {}},
    ]
    for api in (ReviewApi(), ReviewApi(ADMIN), ReviewApi(KEYS["scoped-key"]), ReviewApi(User("nobody"))):
        batch = await api(f"{MANAGEMENT}/selfsubjectaccessreviewbatches", {"reviews": reviews})
        assert batch["spec"] == {"reviews": reviews}
        singles = [(await api(f"{MANAGEMENT}/selfsubjectaccessreviews", each))["status"] for each in reviews]
        assert batch["status"]["reviews"] == [
            {name: value for name, value in single.items() if name != "path"} for single in singles
        ]


async def test_a_filtered_list_is_marked() -> None:
    batch = await ReviewApi()(f"{MANAGEMENT}/selfsubjectaccessreviewbatches", {"reviews": [SECRETS, APPS]})
    secrets, apps = batch["status"]["reviews"]
    assert (secrets["allowed"], secrets["filtered"]) == (False, True)
    assert "filtered" not in apps
    single = (await ReviewApi()(f"{MANAGEMENT}/selfsubjectaccessreviews", SECRETS))["status"]
    assert (single["allowed"], single["filtered"]) == (False, True)


async def test_a_batch_can_be_about_a_key_or_a_scope() -> None:
    configmap = review_spec("get", "configmaps", "demo", "x")
    restrictions: tuple[Object, ...] = ({"accessKey": "scoped-key"}, {"scope": {}})
    for restriction in restrictions:
        spec = {**restriction, "reviews": [configmap, APPS]}
        batch = await ReviewApi()(f"{MANAGEMENT}/selfsubjectaccessreviewbatches", spec)
        assert [each["allowed"] for each in batch["status"]["reviews"]] == [False, True]
    gone = {"accessKey": "gone", "reviews": [APPS]}
    (answer,) = (await ReviewApi()(f"{MANAGEMENT}/selfsubjectaccessreviewbatches", gone))["status"]["reviews"]
    assert not answer["allowed"] and "401" in answer["reason"]
    other = {"accessKey": "secret-key", "reviews": [APPS]}
    await ReviewApi()(f"{MANAGEMENT}/selfsubjectaccessreviewbatches", other, code=403)


@pytest.mark.parametrize(
    ("spec", "fields", "message"),
    [
        ({}, ["spec.reviews"], "name 1 to 200 reviews"),
        ({"reviews": []}, ["spec.reviews"], "name 1 to 200 reviews"),
        ({"reviews": [APPS] * 201}, ["spec.reviews"], "must have at most 200 items"),
        ({"reviews": [APPS, {}, VERSION, {**APPS, **VERSION}]}, ["spec.reviews[1]", "spec.reviews[3]"], "exactly one"),
    ],
)
async def test_an_invalid_batch_gets_an_error_with_the_index(spec: Object, fields: list[str], message: str) -> None:
    error = await ReviewApi()(f"{MANAGEMENT}/selfsubjectaccessreviewbatches", spec, code=422)
    assert [cause["field"] for cause in error["details"]["causes"]] == fields
    assert message in error["message"]


async def test_a_batch_yields_to_the_event_loop() -> None:
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    counter = asyncio.create_task(count_turns())
    await ReviewApi()(f"{MANAGEMENT}/selfsubjectaccessreviewbatches", {"reviews": [APPS] * 200})
    counter.cancel()
    assert turns >= 10


# --- large scopes


def build_scope(rules: int, names: int) -> Object:
    """A scope of rules with different names."""
    resources = [{"group": MANAGEMENT_GROUP, "resources": ["apps"]}]
    return {
        "rules": [
            {"verbs": ["get"], "resources": resources, "resourceNames": [f"n-{rule}-{n}" for n in range(names)]}
            for rule in range(rules)
        ]
    }


@pytest.mark.parametrize("plural", ["selfsubjectaccessreviews", "selfsubjectaccessreviewbatches"])
async def test_a_scope_with_too_many_names_in_all_rules_is_rejected(plural: str) -> None:
    """It would take hundreds of milliseconds on the event loop to review 1,000 rules of 80 names."""
    attributes: Object = APPS if plural == "selfsubjectaccessreviews" else {"reviews": [APPS]}
    error = await ReviewApi()(f"{MANAGEMENT}/{plural}", {"scope": build_scope(1_000, 80), **attributes}, code=422)
    assert [cause["field"] for cause in error["details"]["causes"]] == ["spec.scope.rules"]
    assert "Too many: 83000: must have at most 20000 names in all rules together" in error["message"]


async def test_a_large_scope_is_parsed_and_explained_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs: list[str] = []

    async def run(size: int, work: Callable[..., Any], *arguments: Any) -> Any:
        jobs.append(work.__qualname__)
        return work(*arguments)

    monkeypatch.setattr(COMPUTE_POOL, "run", run)
    small, large = build_scope(2, 2), build_scope(10, 1_000)
    for scope, expected in ((small, 0), (large, 1)):
        jobs.clear()
        review = await ReviewApi()(f"{MANAGEMENT}/selfsubjectaccessreviews", {"scope": scope, **APPS})
        assert review["status"]["path"][0]["reason"] == "allowed by the scope: projects[0]"
        assert (jobs.count("Scope.parse"), sum("matching_entry" in job or "lambda" in job for job in jobs)) == (
            expected,
            expected,
        )


async def test_a_batch_with_a_large_scope_yields_after_each_review(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each may have to look at all names, if its verb or resource is another one."""
    turns = 0
    sleep = asyncio.sleep

    async def count_turns(seconds: float) -> None:
        nonlocal turns
        turns += 1
        await sleep(seconds)

    monkeypatch.setattr("fairlead.subresources.access_reviews.asyncio.sleep", count_turns)
    spec = {"scope": build_scope(10, 1_000), "reviews": [APPS] * 200}
    await ReviewApi()(f"{MANAGEMENT}/selfsubjectaccessreviewbatches", spec)
    assert turns == 200
