"""What is asked instead of stored: where it can be asked, what comes through to the handler, and how it is answered."""

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
from fairlead.server.api.routing import RouteConfig, routing_stage
from fairlead.server.pipeline import Pipeline
from tests.harness.calls import ADMIN, call

GROUP = "management.service.sh"
ROOT = f"/apis/{GROUP}/v1"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


def _check(change: Change) -> Iterable[Problem]:
    if change.spec.get("weight", 0) > 10:
        yield Problem.invalid("spec.weight", change.spec["weight"], "too heavy")


def _question(name: str, **fields: Any) -> Kind:
    spec = obj("The question.", weight=integer("How much."), note=string("What else."))
    status = obj("The answer.", heavy=string("Whether."))
    shape = {"spec": spec, "status": status}
    return Kind(
        name,
        f"{name.lower()}s",
        fields=shape,
        description="A question.",
        verbs=("create",),
        persisted=False,
        **fields,
        sensitivity=Sensitivity.NORMAL,
    )


WEIGHING = _question("Weighing", namespaced=False, builtin=True, check=_check)
LOCAL = _question("LocalWeighing", namespaced=True, builtin=True)
STRICT = _question("Strict", namespaced=False, check=_check)
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
PLACES = [
    (GROUP, "weighings", ""),
    (GROUP, "localweighings", ""),
    (GROUP, "stricts", ""),
    (GROUP, "boxes", "contents"),
    (GROUP, "boxes", "weigh"),
]


class Api:
    """Requests to the actions. What reaches the handler is kept, and comes back as the answer."""

    def __init__(self, user: User | None = ADMIN, answer: Object | bytes | None = None) -> None:
        self.asked: list[ActionRequest] = []

        async def handler(asked: ActionRequest) -> Object | bytes:
            self.asked.append(asked)
            if asked.name == "nothing":
                raise NotFound.of("boxes", GROUP, asked.name)
            return {**asked.body, "status": {"heavy": "no"}} if answer is None else answer

        def as_user(call: Call) -> None:
            call.user = user

        async def serve(call: Call) -> Reply:
            kind = CATALOG.find(call.target.group, call.target.version, call.target.resource)
            assert kind is not None and is_action(kind, call.target)
            return await actions(call, kind)

        actions = Actions(CATALOG, dict.fromkeys(PLACES, handler))
        self._run = Pipeline((routing_stage(RouteConfig("")), as_user), serve)

    async def __call__(self, method: str, path: str, body: Any = None, query: str = "", **headers: str) -> Reply:
        sent = body if isinstance(body, bytes) else b"" if body is None else orjson.dumps(body)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.call = call(f"{ROOT}/{path}", query, method=method, headers=named, body=sent)
        return await self._run(self.call)


def loaded(reply: Reply, status: int = 201) -> Any:
    assert reply.status == status, reply.body
    return orjson.loads(reply.body)


# --- where something can be asked


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("GET", "weighings", 405),
        ("DELETE", "weighings", 405),
        ("PUT", "weighings", 405),
        ("PATCH", "weighings", 405),
        ("GET", "weighings?watch=1", 405),
        # What is not stored has no names, and nothing hangs below them.
        ("GET", "weighings/a", 404),
        ("POST", "weighings/a", 404),
        ("POST", "weighings/a/weigh", 404),
        # The namespace is in the path where it belongs, and nowhere else.
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
async def test_a_path_or_method_that_makes_no_sense_is_refused(method: str, path: str, code: int) -> None:
    api = Api()
    path, _, query = path.partition("?")
    assert (await api(method, path, {}, query)).status == code
    assert not api.asked


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
def test_only_what_a_kind_declares_is_an_action(kind: Kind, subresource: str, expected: bool) -> None:
    assert is_action(kind, RequestInfo("create", "", subresource=subresource)) == expected


async def test_an_object_that_does_not_exist_is_the_handlers_to_notice() -> None:
    status = loaded(await Api()("POST", "boxes/nothing/weigh", {}), 404)
    assert status["details"] == {"name": "nothing", "group": GROUP, "kind": "boxes"}


async def test_who_is_nobody_asks_nothing() -> None:
    api = Api(user=None)
    assert (await api("POST", "weighings", {})).status == 401
    assert (await api("GET", "boxes/a/contents")).status == 401
    assert not api.asked


def test_whatever_is_declared_is_answered_and_the_other_way_round() -> None:
    async def handler(asked: ActionRequest) -> bytes:
        return b""

    with pytest.raises(ValueError, match=r"management\.service\.sh/boxes/weigh"):
        Actions(CATALOG, dict.fromkeys(PLACES[:-1], handler))
    with pytest.raises(ValueError, match="boxes/paint"):
        Actions(CATALOG, dict.fromkeys([*PLACES, (GROUP, "boxes", "paint")], handler))


# --- what comes through


async def test_the_handler_gets_the_question_as_it_was_asked() -> None:
    api = Api()
    await api("POST", "namespaces/demo/localweighings", {"spec": {"weight": 3}})
    (asked,) = api.asked
    assert (asked.user, asked.verb, asked.namespace, asked.name) == (ADMIN, "create", "demo", "")
    assert asked.kind.name == "LocalWeighing"
    assert asked.call is api.call
    assert asked.body == {
        "apiVersion": f"{GROUP}/v1",
        "kind": "LocalWeighing",
        "metadata": {"namespace": "demo"},
        "spec": {"weight": 3},
    }


async def test_below_an_object_the_handler_learns_its_name() -> None:
    api = Api()
    await api("POST", "boxes/a/weigh", {"kind": "Weighing", "spec": {"weight": 3}})
    await api("GET", "boxes/a/contents")
    asked, read = api.asked
    assert (asked.name, asked.kind.name, asked.body["spec"]) == ("a", "Weighing", {"weight": 3})
    assert (read.verb, read.name, read.kind.name, read.body) == ("get", "a", "Box", {})


async def test_a_status_that_is_sent_along_is_not_taken() -> None:
    api = Api()
    answer = loaded(await api("POST", "weighings", {"status": {"heavy": "very"}}))
    assert "status" not in api.asked[0].body
    assert answer["status"] == {"heavy": "no"}


@pytest.mark.parametrize("query", ["", "dryRun=All"])
async def test_a_rehearsal_is_known_as_one(query: str) -> None:
    api = Api()
    await api("POST", "weighings", {}, query)
    assert api.asked[0].dry_run == bool(query)


async def test_an_action_can_go_without_a_body() -> None:
    api = Api()
    assert (await api("POST", "boxes/a/weigh")).status == 201
    assert api.asked[0].body["kind"] == "Weighing"


async def test_a_question_cannot_go_without_a_body() -> None:
    assert (await Api()("POST", "weighings")).status == 400


async def test_bodies_may_be_yaml() -> None:
    api = Api()
    await api("POST", "weighings", b"spec:\n  weight: 3\n", content_type="application/yaml")
    assert api.asked[0].body["spec"] == {"weight": 3}


@pytest.mark.parametrize(
    ("body", "says"),
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
async def test_what_cannot_be_such_a_question_is_a_bad_request(body: Any, says: str) -> None:
    api = Api()
    status = loaded(await api("POST", "weighings", body), 400)
    assert says in status["message"]
    assert not api.asked


async def test_another_namespace_in_the_body_is_a_bad_request() -> None:
    body = {"metadata": {"namespace": "other"}}
    status = loaded(await Api()("POST", "namespaces/demo/localweighings", body), 400)
    assert "does not match the namespace sent on the request" in status["message"]


async def test_unknown_fields_are_dropped_with_a_warning_or_refused() -> None:
    api = Api()
    body = {"spec": {"weight": 3, "colour": "red"}}
    await api("POST", "weighings", body)
    assert api.asked[0].body["spec"] == {"weight": 3}
    assert api.call.warnings == ['unknown field "spec.colour"']
    status = loaded(await api("POST", "weighings", body, "fieldValidation=Strict"), 400)
    assert 'unknown field "spec.colour"' in status["message"]


async def test_options_that_make_no_sense_are_refused() -> None:
    api = Api()
    assert (await api("POST", "weighings", {}, "dryRun=some")).status == 422
    assert not api.asked


async def test_a_kinds_own_rules_are_asked_and_the_kind_stays_unnamed_as_in_kubernetes() -> None:
    status = loaded(await Api()("POST", "weighings", {"spec": {"weight": 11}}), 422)
    assert status["message"] == f'.{GROUP} "" is invalid: spec.weight: Invalid value: 11: too heavy'
    assert status["details"].keys() == {"group", "causes"}


async def test_a_kind_of_ours_says_its_name_and_must_be_named() -> None:
    api = Api()
    types = {"apiVersion": f"{GROUP}/v1", "kind": "Strict"}
    assert (await api("POST", "stricts", {})).status == 400
    assert (await api("POST", "stricts", types)).status == 201
    status = loaded(await api("POST", "stricts", {**types, "spec": {"weight": "x"}}), 422)
    assert status["details"]["kind"] == "Strict"


# --- how it is answered


async def test_a_question_is_created_and_a_read_is_not() -> None:
    api = Api()
    assert (await api("POST", "boxes/a/weigh", {})).status == 201
    assert (await api("GET", "boxes/a/weigh")).status == 200


async def test_answers_come_as_yaml_for_those_who_like_it() -> None:
    reply = await Api()("POST", "weighings", {}, accept="application/yaml")
    assert reply.content_type == "application/yaml"
    assert yaml.safe_load(reply.body)["status"] == {"heavy": "no"}


async def test_finished_bytes_are_handed_out_as_they_are() -> None:
    reply = await Api(answer=b'{"kind":"Pile"}')("GET", "boxes/a/contents")
    assert (reply.body, reply.content_type) == (b'{"kind":"Pile"}', "application/json")


async def test_there_is_no_table_of_an_answer() -> None:
    reply = await Api()("POST", "weighings", {}, accept=TABLE)
    assert reply.content_type == "application/json"
    assert orjson.loads(reply.body)["kind"] == "Weighing"


async def test_people_get_it_indented() -> None:
    reply = await Api()("POST", "weighings", {}, "pretty=true")
    assert reply.body.startswith(b'{\n  "')


async def test_a_vendors_own_group_reaches_into_actions() -> None:
    catalog = Catalog((BOX, WEIGHING), api_group="api.example.com")
    boxes = catalog.find("api.example.com", "v1", "boxes")
    assert boxes is not None
    assert [action.kind.group for action in boxes.actions if action.kind] == ["api.example.com"]
