"""Self, SelfSubjectReview and TokenReview: the identity of the requester, of an access key or of a token."""

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
from fairlead.server.api.routing import RouteConfig, Router, routing_stage
from fairlead.server.pipeline import Pipeline
from fairlead.storage.memory import MemoryStore
from fairlead.storage.view.view import View
from fairlead.subresources.whoami import InstallationInfo, TokenReviewer, WhoAmI, whoami_handlers
from tests.harness.calls import ADMIN, call
from tests.harness.virtual_time import LoopClock

SELVES = f"/apis/{MANAGEMENT_GROUP}/v1/selves"
AUTHENTICATION = "/apis/authentication.k8s.io/v1"
AUTHENTICATED = ("system:authenticated", "service:authenticated")
VALUE = "the-value-of-a-key"


def build_kind(name: str, plural: str, **options: Any) -> Kind:
    return Kind(
        name, plural, False, {"spec": open_object("Anything.")}, "A thing.", **options, sensitivity=Sensitivity.NORMAL
    )


KINDS = (
    build_kind("User", "users"),
    build_kind("Team", "teams"),
    build_kind("OwnedAccessKey", "ownedaccesskeys", sensitive=("spec.key",), write_only=("spec.key",)),
    SELF,
    SELF_SUBJECT_REVIEW,
    TOKEN_REVIEW,
)
SCOPE = {"projects": [{"project": "demo"}]}
STORED_OBJECTS: list[tuple[str, str, Object]] = [
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

ADA = User("ada", ("service:team:core", *AUTHENTICATED, "service:user:ada", "service:user:*"), "uid-1", "ada-key")
ADA_SCOPED = User("ada", ADA.groups, "uid-1", "ada-scoped", Scope())
CORE = User("service:team:core", ("service:team:core", *AUTHENTICATED), "", "core-key")
ROBOT = User("robot", ("machines", *AUTHENTICATED), "", "robot-key")
BOB = User("bob", (*AUTHENTICATED, "service:user:bob", "service:user:*"))
USERS_BY_KEY = {"ada-key": ADA, "ada-scoped": ADA_SCOPED, "core-key": CORE}
"""The robot's key is disabled."""


def authenticate_bearer(call: Call) -> User | None:
    token = call.headers.get("authorization").removeprefix("Bearer ")
    user = {"good": ADA, "scoped": ADA_SCOPED}.get(token)
    if user is None:
        raise Unauthorized("invalid bearer token")
    return user


def ignore_credentials(call: Call) -> User | None:
    return None


class WhoAmIApi:
    def __init__(self, registry: Registry, authenticators: tuple[Authenticator, ...]) -> None:
        whoami = WhoAmI(registry, MANAGEMENT_GROUP, USERS_BY_KEY.get, InstallationInfo(lambda: "here", "service-p-"))
        handlers = whoami_handlers(MANAGEMENT_GROUP, whoami, TokenReviewer(authenticators))
        self._actions = Actions(registry.catalog, handlers)
        self._catalog = registry.catalog

    async def send_request(self, user: User, path: str, body: Object) -> Reply:
        def set_user(call: Call) -> None:
            call.user = user

        async def serve(call: Call) -> Reply:
            kind = self._catalog.find(call.target.group, call.target.version, call.target.resource)
            assert kind is not None
            return await self._actions(call, kind)

        run = Pipeline((routing_stage(Router(RouteConfig(""))), set_user), serve)
        return await run(call(path, method="POST", body=orjson.dumps(body)))

    async def __call__(self, user: User, path: str, body: Object, code: int = 201) -> Any:
        reply = await self.send_request(user, path, body)
        assert reply.status == code, reply.body
        assert VALUE.encode() not in reply.body
        return orjson.loads(reply.body)

    async def status(self, user: User, key: str = "") -> Any:
        return (await self(user, SELVES, {"spec": {"accessKey": key}} if key else {}))["status"]


@asynccontextmanager
async def open_whoami_api(
    authenticators: tuple[Authenticator, ...] = (authenticate_bearer,),
) -> AsyncIterator[WhoAmIApi]:
    async def admit_all(change: Change) -> None:
        return None

    store, catalog = MemoryStore(), Catalog(KINDS)
    view = View(store, entry_builder(catalog))
    await view.start()
    registry = Registry(catalog, store, view, admit_all, LoopClock())
    for name, object_name, spec in STORED_OBJECTS:
        resource = next(registry.resource_for(each) for each in KINDS if each.name == name)
        body = {
            "apiVersion": f"{MANAGEMENT_GROUP}/v1",
            "kind": name,
            "metadata": {"name": object_name},
            "spec": dict(spec),
        }
        await resource.create(body, "", WriteOptions(ADMIN))
    try:
        yield WhoAmIApi(registry, authenticators)
    finally:
        await view.stop()
        await store.close()


# --- Self


async def test_an_empty_self_request_returns_the_user() -> None:
    async with open_whoami_api() as api:
        body = await api(ADA, SELVES, {})
    ada = {"displayName": "Ada L.", "icon": "i.png", "username": "ada", "email": "a@b.c", "subject": "sso-1"}
    core = {"name": "core", "username": "core", "subject": "service:team:core", "displayName": "Core"}
    assert body == {
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


async def test_the_scope_of_the_key_is_returned() -> None:
    async with open_whoami_api() as api:
        status = await api.status(ADA_SCOPED)
    assert (status["accessKeyScope"], status["accessKeyType"]) == (SCOPE, "Other")


async def test_a_team_key_returns_the_team() -> None:
    async with open_whoami_api() as api:
        status = await api.status(CORE)
    assert status["team"] == {"name": "core", "username": "core", "subject": "service:team:core", "displayName": "Core"}
    assert "user" not in status


async def test_a_machine_is_returned_as_a_user_because_clients_require_one() -> None:
    async with open_whoami_api() as api:
        status = await api.status(ROBOT)
    assert status["user"] == {"name": "robot", "username": "robot", "subject": "robot"}
    assert status["groups"] == list(ROBOT.groups)


async def test_a_machine_with_the_name_of_a_user_is_not_that_user() -> None:
    async with open_whoami_api() as api:
        status = await api.status(User("ada", AUTHENTICATED))
    assert status["user"] == {"name": "ada", "username": "ada", "subject": "ada"}
    assert "accessKey" not in status


async def test_an_impersonated_request_returns_the_user_the_impersonator_and_the_key_in_use() -> None:
    impersonated = User("ada", ADA.groups, impersonator=User("root", ("system:masters",), key="robot-key"))
    async with open_whoami_api() as api:
        status = await api.status(impersonated)
    assert (status["user"]["name"], status["accessKey"], status["impersonator"]) == ("ada", "robot-key", "root")


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
async def test_owners_and_administrators_may_review_a_key(user: User, key: str) -> None:
    async with open_whoami_api() as api:
        assert (await api.status(user, key))["accessKey"] == key


async def test_the_review_of_a_key_returns_its_owner() -> None:
    async with open_whoami_api() as api:
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
        (User("ada", AUTHENTICATED), "ada-key"),
        # A scoped key may only review itself.
        (ADA_SCOPED, "ada-key"),
        (User("root", ("system:masters",), "", "root-key", Scope()), "ada-key"),
        (User("root", ("system:masters",), "", "root-key", Scope()), "no-such-key"),
    ],
)
async def test_other_users_get_the_same_error_for_existing_and_missing_keys(user: User, key: str) -> None:
    async with open_whoami_api() as api:
        error = await api(user, SELVES, {"spec": {"accessKey": key}}, 403)
    reason = f'User "{user.name}" cannot inspect this access key; only its owner and administrators can'
    assert error["message"] == f'ownedaccesskeys.{MANAGEMENT_GROUP} "{key}" is forbidden: {reason}'


async def test_administrators_get_404_for_a_missing_key() -> None:
    async with open_whoami_api() as api:
        await api(ADMIN, SELVES, {"spec": {"accessKey": "no-such-key"}}, 404)


# --- SelfSubjectReview


async def test_a_self_subject_review_returns_the_requester() -> None:
    user = User("ada", ("g",), "uid-1", extra=(("k", ("v", "w")),))
    async with open_whoami_api() as api:
        body = await api(user, f"{AUTHENTICATION}/selfsubjectreviews", {})
    info = {"username": "ada", "uid": "uid-1", "groups": ["g"], "extra": {"k": ["v", "w"]}}
    assert body.pop("metadata").keys() == {"creationTimestamp"}
    assert body == {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "SelfSubjectReview",
        "status": {"userInfo": info},
    }


# --- TokenReview


async def send_token_review(api: WhoAmIApi, spec: Object, code: int = 201) -> Any:
    return await api(ADMIN, f"{AUTHENTICATION}/tokenreviews", {"spec": spec}, code)


async def test_a_valid_token_returns_its_user_and_not_the_token() -> None:
    async with open_whoami_api() as api:
        body = await send_token_review(api, {"token": "good", "audiences": ["https://somewhere"]})
    assert body["status"] == {
        "authenticated": True,
        "user": {"username": "ada", "uid": "uid-1", "groups": list(ADA.groups)},
    }
    assert body["spec"] == {"audiences": ["https://somewhere"]}


@pytest.mark.parametrize("token", ["bad", " ", "good\r\nx: y"])
async def test_an_invalid_token_is_not_authenticated(token: str) -> None:
    async with open_whoami_api() as api:
        status = (await send_token_review(api, {"token": token}))["status"]
    assert status == {"authenticated": False, "error": "invalid bearer token"}


async def test_a_token_that_no_authenticator_accepts_is_not_authenticated() -> None:
    async with open_whoami_api((ignore_credentials,)) as api:
        assert not (await send_token_review(api, {"token": "good"}))["status"]["authenticated"]


async def test_a_scoped_key_is_not_authenticated_because_the_review_has_no_scope() -> None:
    async with open_whoami_api() as api:
        status = (await send_token_review(api, {"token": "scoped"}))["status"]
    assert not status["authenticated"]
    assert "user" not in status
    assert "scope" in status["error"]


@pytest.mark.parametrize("spec", [{}, {"token": ""}, {"token": None}])
async def test_a_token_is_required(spec: Object) -> None:
    async with open_whoami_api() as api:
        error = await send_token_review(api, spec, 400)
    assert error["message"] == "token is required for TokenReview in authentication"


async def test_a_token_that_is_not_a_string_is_rejected_and_not_quoted() -> None:
    async with open_whoami_api() as api:
        error = await send_token_review(api, {"token": 5}, 400)
    assert "spec.token" in error["message"]
