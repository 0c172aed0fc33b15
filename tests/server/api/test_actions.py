"""server.api.actions: requests that are handled instead of stored: paths, request bodies and responses."""

from collections.abc import Iterable
from typing import Any

import orjson
import pytest
import yaml

from fairlead.core.call import Call, Reply, RequestInfo
from fairlead.core.errors import NotFound
from fairlead.core.objects import Object
from fairlead.core.user import User
from fairlead.registry.kind import Action, Catalog, Change, Kind, Problem, Sensitivity
from fairlead.registry.schema import integer, obj, string
from fairlead.server.api.actions import ActionRequest, Actions, is_action
from fairlead.server.api.routing import RouteConfig, Router, routing_stage
from fairlead.server.pipeline import Pipeline
from tests.harness.calls import ADMIN, call

GROUP = "management.service.sh"
ROOT = f"/apis/{GROUP}/v1"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


def _check(change: Change) -> Iterable[Problem]:
    if change.spec.get("weight", 0) > 10:
        yield Problem.invalid("spec.weight", change.spec["weight"], "too heavy")


def build_review_kind(name: str, **options: Any) -> Kind:
    spec = obj("The desired state.", weight=integer("The weight."), note=string("A note."))
    status = obj("The result.", heavy=string("Whether it is heavy."))
    fields = {"spec": spec, "status": status}
    return Kind(
        name,
        f"{name.lower()}s",
        fields=fields,
        description="A review.",
        verbs=("create",),
        persisted=False,
        **options,
        sensitivity=Sensitivity.NORMAL,
    )


WEIGHING = build_review_kind("Weighing", namespaced=False, builtin=True, check=_check)
LOCAL = build_review_kind("LocalWeighing", namespaced=True, builtin=True)
STRICT = build_review_kind("Strict", namespaced=False, check=_check)
BOX = Kind(
    "Box",
    "boxes",
    namespaced=False,
    fields={"spec": obj("A box.")},
    description="A box.",
    actions=(Action("contents", ("get",)), Action("weigh", ("create", "get"), WEIGHING)),
    sensitivity=Sensitivity.NORMAL,
)
CATALOG = Catalog((WEIGHING, LOCAL, STRICT, BOX))
HANDLED_RESOURCES = [
    (GROUP, "weighings", ""),
    (GROUP, "localweighings", ""),
    (GROUP, "stricts", ""),
    (GROUP, "boxes", "contents"),
    (GROUP, "boxes", "weigh"),
]


class ActionsFixture:
    """Sends requests to the actions. Records what reaches the handler, and returns it or `result`."""

    def __init__(self, user: User | None = ADMIN, result: Object | bytes | None = None) -> None:
        self.requests: list[ActionRequest] = []

        async def handler(request: ActionRequest) -> Object | bytes:
            self.requests.append(request)
            if request.name == "nothing":
                raise NotFound.of("boxes", GROUP, request.name)
            return {**request.body, "status": {"heavy": "no"}} if result is None else result

        def as_user(call: Call) -> None:
            call.user = user

        async def serve(call: Call) -> Reply:
            kind = CATALOG.find(call.target.group, call.target.version, call.target.resource)
            assert kind is not None and is_action(kind, call.target)
            return await actions(call, kind)

        actions = Actions(CATALOG, dict.fromkeys(HANDLED_RESOURCES, handler))
        self._run = Pipeline((routing_stage(Router(RouteConfig(""))), as_user), serve)

    async def __call__(self, method: str, path: str, body: Any = None, query: str = "", **headers: str) -> Reply:
        content = body if isinstance(body, bytes) else b"" if body is None else orjson.dumps(body)
        header_values = {name.replace("_", "-"): value for name, value in headers.items()}
        self.call = call(f"{ROOT}/{path}", query, method=method, headers=header_values, body=content)
        return await self._run(self.call)


def load_body(reply: Reply, status: int = 201) -> Any:
    assert reply.status == status, reply.body
    return orjson.loads(reply.body)


# --- paths and methods


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("GET", "weighings", 405),
        ("DELETE", "weighings", 405),
        ("PUT", "weighings", 405),
        ("PATCH", "weighings", 405),
        ("GET", "weighings?watch=1", 405),
        # Kinds that are not persisted have no named objects.
        ("GET", "weighings/a", 404),
        ("POST", "weighings/a", 404),
        ("POST", "weighings/a/weigh", 404),
        # The path has a namespace for namespaced kinds only.
        ("POST", "localweighings", 404),
        ("POST", "namespaces/demo/weighings", 404),
        ("POST", "namespaces/demo/boxes/a/weigh", 404),
        # Each action has its verbs.
        ("POST", "boxes/a/contents", 405),
        ("PUT", "boxes/a/weigh", 405),
        ("PATCH", "boxes/a/weigh", 405),
        ("DELETE", "boxes/a/weigh", 405),
    ],
)
async def test_an_invalid_path_or_method_is_rejected(method: str, path: str, code: int) -> None:
    api = ActionsFixture()
    path, _, query = path.partition("?")
    assert (await api(method, path, {}, query)).status == code
    assert not api.requests


@pytest.mark.parametrize(
    ("kind", "subresource", "expected"),
    [
        (WEIGHING, "", True),
        (BOX, "weigh", True),
        (BOX, "contents", True),
        (BOX, "", False),
        (BOX, "status", False),
        (BOX, "weigh/more", False),
    ],
)
def test_only_declared_subresources_are_actions(kind: Kind, subresource: str, expected: bool) -> None:
    assert is_action(kind, RequestInfo("create", "", subresource=subresource)) == expected


async def test_the_handler_reports_an_object_that_does_not_exist() -> None:
    status = load_body(await ActionsFixture()("POST", "boxes/nothing/weigh", {}), 404)
    assert status["details"] == {"name": "nothing", "group": GROUP, "kind": "boxes"}


async def test_unauthenticated_requests_do_not_reach_the_handler() -> None:
    api = ActionsFixture(user=None)
    assert (await api("POST", "weighings", {})).status == 401
    assert (await api("GET", "boxes/a/contents")).status == 401
    assert not api.requests


def test_every_declared_action_needs_a_handler_and_vice_versa() -> None:
    async def handler(request: ActionRequest) -> bytes:
        return b""

    with pytest.raises(ValueError, match=r"management\.service\.sh/boxes/weigh"):
        Actions(CATALOG, dict.fromkeys(HANDLED_RESOURCES[:-1], handler))
    with pytest.raises(ValueError, match="boxes/paint"):
        Actions(CATALOG, dict.fromkeys([*HANDLED_RESOURCES, (GROUP, "boxes", "paint")], handler))


# --- what reaches the handler


async def test_the_handler_gets_the_object_of_the_request() -> None:
    api = ActionsFixture()
    await api("POST", "namespaces/demo/localweighings", {"spec": {"weight": 3}})
    (request,) = api.requests
    assert (request.user, request.verb, request.namespace, request.name) == (ADMIN, "create", "demo", "")
    assert request.kind.name == "LocalWeighing"
    assert request.call is api.call
    assert request.body == {
        "apiVersion": f"{GROUP}/v1",
        "kind": "LocalWeighing",
        "metadata": {"namespace": "demo"},
        "spec": {"weight": 3},
    }


async def test_the_handler_of_a_subresource_gets_the_name_of_the_object() -> None:
    api = ActionsFixture()
    await api("POST", "boxes/a/weigh", {"kind": "Weighing", "spec": {"weight": 3}})
    await api("GET", "boxes/a/contents")
    request, get_request = api.requests
    assert (request.name, request.kind.name, request.body["spec"]) == ("a", "Weighing", {"weight": 3})
    assert (get_request.verb, get_request.name, get_request.kind.name, get_request.body) == ("get", "a", "Box", {})


async def test_a_status_in_the_request_is_ignored() -> None:
    api = ActionsFixture()
    review = load_body(await api("POST", "weighings", {"status": {"heavy": "very"}}))
    assert "status" not in api.requests[0].body
    assert review["status"] == {"heavy": "no"}


@pytest.mark.parametrize("query", ["", "dryRun=All"])
async def test_dry_run_is_passed_to_the_handler(query: str) -> None:
    api = ActionsFixture()
    await api("POST", "weighings", {}, query)
    assert api.requests[0].dry_run == bool(query)


async def test_an_action_can_have_no_body() -> None:
    api = ActionsFixture()
    assert (await api("POST", "boxes/a/weigh")).status == 201
    assert api.requests[0].body["kind"] == "Weighing"


async def test_a_kind_that_is_not_persisted_requires_a_body() -> None:
    assert (await ActionsFixture()("POST", "weighings")).status == 400


async def test_bodies_can_be_yaml() -> None:
    api = ActionsFixture()
    await api("POST", "weighings", b"spec:\n  weight: 3\n", content_type="application/yaml")
    assert api.requests[0].body["spec"] == {"weight": 3}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"kind": "Box"}, 'of kind "Box"'),
        ({"apiVersion": "v9"}, "does not match the expected API version"),
        ({"spec": []}, "cannot be handled as a Weighing"),
        ({"spec": {"weight": "3"}}, "spec.weight"),
        ({"status": 5}, "status"),
        ({"metadata": {"labels": 1}}, "labels"),
        ([], "a list where an object is expected"),
        (b"{", "not valid JSON"),
    ],
)
async def test_an_invalid_body_is_a_bad_request(body: Any, message: str) -> None:
    api = ActionsFixture()
    status = load_body(await api("POST", "weighings", body), 400)
    assert message in status["message"]
    assert not api.requests


async def test_another_namespace_in_the_body_is_a_bad_request() -> None:
    body = {"metadata": {"namespace": "other"}}
    status = load_body(await ActionsFixture()("POST", "namespaces/demo/localweighings", body), 400)
    assert "does not match the namespace sent on the request" in status["message"]


async def test_unknown_fields_are_dropped_with_a_warning_or_rejected() -> None:
    api = ActionsFixture()
    body = {"spec": {"weight": 3, "colour": "red"}}
    await api("POST", "weighings", body)
    assert api.requests[0].body["spec"] == {"weight": 3}
    assert api.call.warnings == ['unknown field "spec.colour"']
    status = load_body(await api("POST", "weighings", body, "fieldValidation=Strict"), 400)
    assert 'unknown field "spec.colour"' in status["message"]


async def test_invalid_options_are_rejected() -> None:
    api = ActionsFixture()
    assert (await api("POST", "weighings", {}, "dryRun=some")).status == 422
    assert not api.requests


async def test_the_check_of_a_builtin_kind_runs_and_the_error_omits_the_kind_as_in_kubernetes() -> None:
    status = load_body(await ActionsFixture()("POST", "weighings", {"spec": {"weight": 11}}), 422)
    assert status["message"] == f'.{GROUP} "" is invalid: spec.weight: Invalid value: 11: too heavy'
    assert status["details"].keys() == {"group", "causes"}


async def test_a_kind_that_is_not_builtin_requires_its_type_and_names_it_in_errors() -> None:
    api = ActionsFixture()
    types = {"apiVersion": f"{GROUP}/v1", "kind": "Strict"}
    assert (await api("POST", "stricts", {})).status == 400
    assert (await api("POST", "stricts", types)).status == 201
    status = load_body(await api("POST", "stricts", {**types, "spec": {"weight": "x"}}), 422)
    assert status["details"]["kind"] == "Strict"


# --- responses


async def test_a_create_returns_201_and_a_get_returns_200() -> None:
    api = ActionsFixture()
    assert (await api("POST", "boxes/a/weigh", {})).status == 201
    assert (await api("GET", "boxes/a/weigh")).status == 200


async def test_responses_can_be_yaml() -> None:
    reply = await ActionsFixture()("POST", "weighings", {}, accept="application/yaml")
    assert reply.content_type == "application/yaml"
    assert yaml.safe_load(reply.body)["status"] == {"heavy": "no"}


async def test_bytes_from_the_handler_are_returned_unchanged() -> None:
    reply = await ActionsFixture(result=b'{"kind":"Pile"}')("GET", "boxes/a/contents")
    assert (reply.body, reply.content_type) == (b'{"kind":"Pile"}', "application/json")


async def test_responses_are_never_tables() -> None:
    reply = await ActionsFixture()("POST", "weighings", {}, accept=TABLE)
    assert reply.content_type == "application/json"
    assert orjson.loads(reply.body)["kind"] == "Weighing"


async def test_pretty_indents_the_response() -> None:
    reply = await ActionsFixture()("POST", "weighings", {}, "pretty=true")
    assert reply.body.startswith(b'{\n  "')


async def test_a_changed_api_group_applies_to_the_kinds_of_actions() -> None:
    catalog = Catalog((BOX, WEIGHING), api_group="api.example.com")
    boxes = catalog.find("api.example.com", "v1", "boxes")
    assert boxes is not None
    assert [action.kind.group for action in boxes.actions if action.kind] == ["api.example.com"]
