"""Who somebody is: for the platform's tools, for kubectl, and for services that were handed a token."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest

from fairlead.authn import Authenticator
from fairlead.core.call import Call, Reply
from fairlead.core.errors import Unauthorized
from fairlead.core.objects import Object
from fairlead.core.scope import Scope
from fairlead.core.user import User
from fairlead.kinds.access.whoami import SELF, SELF_SUBJECT_REVIEW, TOKEN_REVIEW
from fairlead.registry.codec import entry_builder
from fairlead.registry.kind import MANAGEMENT_GROUP, Catalog, Change, Kind, Sensitivity
from fairlead.registry.registry import Registry
from fairlead.registry.schema import open_object
from fairlead.registry.write_options import WriteOptions
from fairlead.server.api.actions import Actions
from fairlead.server.api.routing import RouteConfig, routing_stage
from fairlead.server.pipeline import Pipeline
from fairlead.storage.memory import MemoryStore
from fairlead.storage.view.view import View
from fairlead.subresources.whoami import InstallationInfo, TokenReviewer, WhoAmI, whoami_handlers
from tests.harness.calls import ADMIN, call
from tests.harness.virtual_time import LoopClock

SELVES = f"/apis/{MANAGEMENT_GROUP}/v1/selves"
AUTHENTICATION = "/apis/authentication.k8s.io/v1"
EVERYBODY = ("system:authenticated", "service:authenticated")
VALUE = "the-value-of-a-key"


def kind(name: str, plural: str, **options: Any) -> Kind:
    return Kind(
        name, plural, False, {"spec": open_object("Anything.")}, "A thing.", **options, sensitivity=Sensitivity.NORMAL
    )


KINDS = (
    kind("User", "users"),
    kind("Team", "teams"),
    kind("OwnedAccessKey", "ownedaccesskeys", sensitive=("spec.key",), write_only=("spec.key",)),
    SELF,
    SELF_SUBJECT_REVIEW,
    TOKEN_REVIEW,
)
SCOPE = {"projects": [{"project": "demo"}]}
OBJECTS: list[tuple[str, str, Object]] = [
    (
        "User",
        "ada",
        {"displayName": "Ada L.", "icon": "i.png", "username": "ada", "email": "a@b.c", "subject": "sso-1"},
    ),
    ("Team", "core", {"displayName": "Core"}),
    ("OwnedAccessKey", "ada-key", {"user": "ada", "type": "User", "key": VALUE}),
    ("OwnedAccessKey", "ada-scoped", {"user": "ada", "type": "Other", "scope": SCOPE, "key": VALUE}),
    ("OwnedAccessKey", "core-key", {"team": "core", "type": "User", "key": VALUE}),
    ("OwnedAccessKey", "robot-key", {"subject": "robot", "type": "Other", "key": VALUE}),
]

ADA = User("ada", ("service:team:core", *EVERYBODY, "service:user:ada", "service:user:*"), "uid-1", "ada-key")
ADA_SCOPED = User("ada", ADA.groups, "uid-1", "ada-scoped", Scope())
CORE = User("service:team:core", ("service:team:core", *EVERYBODY), "", "core-key")
ROBOT = User("robot", ("machines", *EVERYBODY), "", "robot-key")
BOB = User("bob", (*EVERYBODY, "service:user:bob", "service:user:*"))
BY_KEY = {"ada-key": ADA, "ada-scoped": ADA_SCOPED, "core-key": CORE}
"""The robot's key is disabled."""


def bearer(call: Call) -> User | None:
    token = call.headers.get("authorization").removeprefix("Bearer ")
    found = {"good": ADA, "scoped": ADA_SCOPED}.get(token)
    if found is None:
        raise Unauthorized("invalid bearer token")
    return found


def nobody(call: Call) -> User | None:
    return None


class Api:
    def __init__(self, registry: Registry, authenticators: tuple[Authenticator, ...]) -> None:
        selves = WhoAmI(registry, MANAGEMENT_GROUP, BY_KEY.get, InstallationInfo("here", "service-p-"))
        handlers = whoami_handlers(MANAGEMENT_GROUP, selves, TokenReviewer(authenticators))
        self._actions = Actions(registry.catalog, handlers)
        self._catalog = registry.catalog

    async def reply(self, user: User, path: str, body: Object) -> Reply:
        def as_user(call: Call) -> None:
            call.user = user

        async def serve(call: Call) -> Reply:
            found = self._catalog.find(call.target.group, call.target.version, call.target.resource)
            assert found is not None
            return await self._actions(call, found)

        run = Pipeline((routing_stage(RouteConfig("")), as_user), serve)
        return await run(call(path, method="POST", body=orjson.dumps(body)))

    async def __call__(self, user: User, path: str, body: Object, code: int = 201) -> Any:
        reply = await self.reply(user, path, body)
        assert reply.status == code, reply.body
        assert VALUE.encode() not in reply.body
        return orjson.loads(reply.body)

    async def status(self, user: User, key: str = "") -> Any:
        return (await self(user, SELVES, {"spec": {"accessKey": key}} if key else {}))["status"]


@asynccontextmanager
async def new_api(authenticators: tuple[Authenticator, ...] = (bearer,)) -> AsyncIterator[Api]:
    async def admit(change: Change) -> None:
        return None

    store, catalog = MemoryStore(), Catalog(KINDS)
    view = View(store, entry_builder(catalog))
    await view.start()
    registry = Registry(catalog, store, view, admit, LoopClock())
    for name, own, spec in OBJECTS:
        resource = next(registry.resource_for(each) for each in KINDS if each.name == name)
        body = {"apiVersion": f"{MANAGEMENT_GROUP}/v1", "kind": name, "metadata": {"name": own}, "spec": dict(spec)}
        await resource.create(body, "", WriteOptions(ADMIN))
    try:
        yield Api(registry, authenticators)
    finally:
        await view.stop()
        await store.close()


# --- Self


async def test_a_user_learns_all_about_itself_from_an_empty_question() -> None:
    async with new_api() as api:
        answer = await api(ADA, SELVES, {})
    ada = {"displayName": "Ada L.", "icon": "i.png", "username": "ada", "email": "a@b.c", "subject": "sso-1"}
    core = {"name": "core", "username": "core", "subject": "service:team:core", "displayName": "Core"}
    assert answer == {
        "apiVersion": f"{MANAGEMENT_GROUP}/v1",
        "kind": "Self",
        "metadata": {},
        "status": {
            "user": {"name": "ada", **ada, "teams": [core]},
            "accessKey": "ada-key",
            "accessKeyType": "User",
            "subject": "ada",
            "uid": "uid-1",
            "groups": list(ADA.groups),
            "instanceID": "here",
            "projectNamespacePrefix": "service-p-",
        },
    }


async def test_the_scope_of_the_key_is_told() -> None:
    async with new_api() as api:
        status = await api.status(ADA_SCOPED)
    assert (status["accessKeyScope"], status["accessKeyType"]) == (SCOPE, "Other")


async def test_a_team_is_told_as_a_team() -> None:
    async with new_api() as api:
        status = await api.status(CORE)
    assert status["team"] == {"name": "core", "username": "core", "subject": "service:team:core", "displayName": "Core"}
    assert "user" not in status


async def test_a_machine_is_told_as_a_user_of_its_name_because_clients_rely_on_one() -> None:
    async with new_api() as api:
        status = await api.status(ROBOT)
    assert status["user"] == {"name": "robot", "username": "robot", "subject": "robot"}
    assert status["groups"] == list(ROBOT.groups)


async def test_a_machine_that_is_called_like_a_user_is_not_taken_for_the_user() -> None:
    async with new_api() as api:
        status = await api.status(User("ada", EVERYBODY))
    assert status["user"] == {"name": "ada", "username": "ada", "subject": "ada"}
    assert "accessKey" not in status


async def test_who_acts_as_somebody_else_is_told_whom_and_with_which_key() -> None:
    acting = User("ada", ADA.groups, impersonator=User("root", ("system:masters",), key="robot-key"))
    async with new_api() as api:
        status = await api.status(acting)
    assert (status["user"]["name"], status["accessKey"]) == ("ada", "robot-key")


# --- another key


@pytest.mark.parametrize(
    ("user", "key"),
    [
        (ADA, "ada-key"),
        (ADA, "ada-scoped"),
        (ADA, "core-key"),
        (ADA_SCOPED, "ada-scoped"),
        (CORE, "core-key"),
        (ROBOT, "robot-key"),
        (ADMIN, "ada-scoped"),
        (ADMIN, "robot-key"),
    ],
)
async def test_owners_and_administrators_may_ask_about_a_key(user: User, key: str) -> None:
    async with new_api() as api:
        assert (await api.status(user, key))["accessKey"] == key


async def test_a_key_that_is_asked_about_is_told_with_its_owner() -> None:
    async with new_api() as api:
        scoped, team, robot = [await api.status(ADMIN, name) for name in ("ada-scoped", "core-key", "robot-key")]
    assert (scoped["user"]["name"], scoped["accessKeyScope"], scoped["groups"]) == ("ada", SCOPE, list(ADA.groups))
    assert team["team"]["name"] == "core"
    assert robot["user"]["name"] == "robot"
    assert "groups" not in robot


@pytest.mark.parametrize(
    ("user", "key"),
    [
        (BOB, "ada-key"),
        (BOB, "core-key"),
        (BOB, "no-such-key"),
        (User("ada", EVERYBODY), "ada-key"),
        # A scope leaves nothing but the question who one is.
        (ADA_SCOPED, "ada-key"),
        (User("root", ("system:masters",), "", "root-key", Scope()), "ada-key"),
        (User("root", ("system:masters",), "", "root-key", Scope()), "no-such-key"),
    ],
)
async def test_all_others_are_refused_whether_there_is_such_a_key_or_not(user: User, key: str) -> None:
    async with new_api() as api:
        told = await api(user, SELVES, {"spec": {"accessKey": key}}, 403)
    why = f'User "{user.name}" cannot inspect this access key; only its owner and administrators can'
    assert told["message"] == f'ownedaccesskeys.{MANAGEMENT_GROUP} "{key}" is forbidden: {why}'


async def test_administrators_hear_that_there_is_no_such_key() -> None:
    async with new_api() as api:
        await api(ADMIN, SELVES, {"spec": {"accessKey": "no-such-key"}}, 404)


# --- SelfSubjectReview


async def test_kubectl_is_told_who_the_caller_is() -> None:
    user = User("ada", ("g",), "uid-1", extra=(("k", ("v", "w")),))
    async with new_api() as api:
        answer = await api(user, f"{AUTHENTICATION}/selfsubjectreviews", {})
    info = {"username": "ada", "uid": "uid-1", "groups": ["g"], "extra": {"k": ["v", "w"]}}
    assert answer.pop("metadata").keys() == {"creationTimestamp"}
    assert answer == {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "SelfSubjectReview",
        "status": {"userInfo": info},
    }


# --- TokenReview


async def review(api: Api, spec: Object, code: int = 201) -> Any:
    return await api(ADMIN, f"{AUTHENTICATION}/tokenreviews", {"spec": spec}, code)


async def test_a_good_token_is_told_with_its_user_and_not_repeated() -> None:
    async with new_api() as api:
        answer = await review(api, {"token": "good", "audiences": ["https://somewhere"]})
    assert answer["status"] == {
        "authenticated": True,
        "user": {"username": "ada", "uid": "uid-1", "groups": list(ADA.groups)},
    }
    assert answer["spec"] == {"audiences": ["https://somewhere"]}


@pytest.mark.parametrize("token", ["bad", " ", "good\r\nx: y"])
async def test_a_bad_token_is_not_authenticated(token: str) -> None:
    async with new_api() as api:
        status = (await review(api, {"token": token}))["status"]
    assert status == {"authenticated": False, "error": "invalid bearer token"}


async def test_that_nobody_objects_to_a_token_is_not_enough() -> None:
    async with new_api((nobody,)) as api:
        assert not (await review(api, {"token": "good"}))["status"]["authenticated"]


async def test_a_scoped_key_is_not_vouched_for_as_the_answer_could_not_carry_the_scope() -> None:
    async with new_api() as api:
        status = (await review(api, {"token": "scoped"}))["status"]
    assert not status["authenticated"]
    assert "user" not in status
    assert "scope" in status["error"]


@pytest.mark.parametrize("spec", [{}, {"token": ""}, {"token": None}])
async def test_a_token_is_needed(spec: Object) -> None:
    async with new_api() as api:
        told = await review(api, spec, 400)
    assert told["message"] == "token is required for TokenReview in authentication"


async def test_a_token_that_is_no_text_is_refused_without_repeating_it() -> None:
    async with new_api() as api:
        told = await review(api, {"token": 5}, 400)
    assert "spec.token" in told["message"]
