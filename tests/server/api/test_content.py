"""Representations in and out: which one is chosen, how it looks, and what is refused before anything is done."""

from typing import Any

import orjson
import pytest
import yaml

from fairlead.core.errors import BadRequest, NotAcceptable, UnsupportedMediaType
from fairlead.server.api.content import (
    JSON,
    YAML,
    Representation,
    error_media_type,
    media_type_of,
    negotiate,
    parse_json,
    parse_yaml,
    read_object,
    render,
    wants_pretty,
)
from tests.harness.calls import call
from tests.harness.virtual_time import on_virtual_time
from tests.server.api.test_verbs import GADGETS, MERGE, WRITES, gadget, loaded, new_api

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
PARTIAL = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
KUBECTL = f"{TABLE},application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json"


@pytest.mark.parametrize(
    ("header", "form"),
    [
        ("", Representation()),
        ("*/*", Representation()),
        (JSON, Representation(JSON)),
        (YAML, Representation(YAML)),
        ("application/*", Representation(JSON)),
        (TABLE, Representation(JSON, "Table")),
        (KUBECTL, Representation(JSON, "Table")),
        ("application/yaml;as=Table;v=v1;g=meta.k8s.io", Representation(YAML, "Table")),
        ("*/*;as=Table;v=v1;g=meta.k8s.io", Representation(JSON, "Table")),
        ("application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io", Representation(JSON, "PartialObjectMetadata")),
        (
            "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
            Representation(JSON, "PartialObjectMetadataList"),
        ),
        # A view of an older version is not known here, so the next wish counts.
        (f"application/json;as=Table;v=v1beta1;g=meta.k8s.io,{YAML}", Representation(YAML)),
        (f"{YAML};q=0.9,{JSON};q=0.8", Representation(YAML)),
        (f"{YAML};q=0.8,{JSON};q=0.9", Representation(JSON)),
        (f"{TABLE};q=0.1,{YAML};q=0.2", Representation(YAML)),
        (f"application/vnd.kubernetes.protobuf,{JSON}", Representation(JSON)),
        (f"text/html,application/xhtml+xml,{YAML};q=0.9,*/*;q=0.8", Representation(YAML)),
    ],
)
def test_the_best_wish_that_can_be_granted_is_granted(header: str, form: Representation) -> None:
    assert negotiate(header) == form


@pytest.mark.parametrize(
    "header",
    [
        "text/html",
        "application/vnd.kubernetes.protobuf",
        f"{JSON};q=0",
        "application/json;as=Table;v=v1;g=other.k8s.io",
        "application/json;as=Table",
        "application/json;as=Picture;v=v1;g=meta.k8s.io",
        "nonsense",
        "\x00",
    ],
)
def test_what_cannot_be_granted_is_refused_with_what_could_be(header: str) -> None:
    with pytest.raises(NotAcceptable, match="application/json, application/yaml"):
        negotiate(header)


@pytest.mark.parametrize(
    ("header", "media_type"), [("", JSON), (YAML, YAML), ("text/html", JSON), (TABLE, JSON), (f"{JSON};q=0", JSON)]
)
def test_an_error_is_always_told_in_some_form(header: str, media_type: str) -> None:
    assert error_media_type(header) == media_type


def test_json_is_handed_out_as_it_is() -> None:
    body = b'{"b":1,"a":[]}'
    assert render(body, JSON, pretty=False) is body


def test_pretty_json_is_the_same_value_over_several_lines() -> None:
    body = render(b'{"b":1,"a":[{"c":null}]}', JSON, pretty=True)
    assert orjson.loads(body) == {"b": 1, "a": [{"c": None}]}
    assert body.startswith(b'{\n  "b": 1,') and body.endswith(b"}\n")


@pytest.mark.parametrize("pretty", [True, False])
def test_yaml_is_the_same_value(pretty: bool) -> None:
    value = {"kind": "App", "on": "yes", "number": "012", "spec": {"empty": {}, "list": ["a", None, 1.5, "no"]}}
    body = render(orjson.dumps(value), YAML, pretty)
    assert yaml.safe_load(body) == value
    assert b"kind: App\n" in body


@pytest.mark.parametrize(
    ("query", "agent", "pretty"),
    [
        ("", "kubectl/v1.33", False),
        ("", "", False),
        ("", "curl/8.0", True),
        ("", "Wget/1.21", True),
        ("", "Mozilla/5.0 (X11)", True),
        ("", "my-curl/8.0", False),
        ("pretty=true", "kubectl/v1.33", True),
        ("pretty=1", "", True),
        ("pretty", "", True),
        ("pretty=false", "curl/8.0", False),
        ("pretty=False", "curl/8.0", False),
        ("pretty=0", "Mozilla/5.0", False),
    ],
)
def test_people_and_those_who_ask_get_it_pretty(query: str, agent: str, pretty: bool) -> None:
    assert wants_pretty(call(query=query, headers={"user-agent": agent})) is pretty


@pytest.mark.parametrize(
    ("header", "media_type"),
    [
        ("", ""),
        (JSON, JSON),
        ("application/json; charset=utf-8", JSON),
        ("Application/YAML", YAML),
        (" text/x ;a=b", "text/x"),
    ],
)
def test_the_media_type_of_a_body_is_known_without_its_parameters(header: str, media_type: str) -> None:
    assert media_type_of(call(headers={"content-type": header})) == media_type


@pytest.mark.parametrize("content_type", ["", JSON, "application/json;charset=utf-8"])
async def test_json_comes_in(content_type: str) -> None:
    sent = call(headers={"content-type": content_type}, body=b'{"a":{"b":[1,"x",null]}}')
    assert await read_object(sent, "App") == ({"a": {"b": [1, "x", None]}}, [])


async def test_yaml_comes_in() -> None:
    sent = call(headers={"content-type": YAML}, body=b"a:\n  b: [1, x, null]\n")
    assert await read_object(sent, "App") == ({"a": {"b": [1, "x", None]}}, [])


@pytest.mark.parametrize(("content_type", "body"), [(JSON, b'{"a":1,"a":2}'), (YAML, b"a: 1\na: 2\n")])
async def test_keys_that_come_twice_are_reported_and_the_last_one_counts(content_type: str, body: bytes) -> None:
    value, twice = await read_object(call(headers={"content-type": content_type}, body=body), "App")
    assert (value, list(twice)) == ({"a": 2}, ["a"])


@pytest.mark.parametrize(
    "content_type", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "json"]
)
async def test_another_format_is_refused_with_those_that_are_known(content_type: str) -> None:
    with pytest.raises(UnsupportedMediaType, match="application/json, application/yaml"):
        await read_object(call(headers={"content-type": content_type}, body=b"{}"), "App")


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        (JSON, b""),
        (JSON, b"{"),
        (JSON, b"a: 1"),
        (JSON, b'{"a": NaN}'),
        (JSON, b"\xff\xfe"),
        (JSON, b'{"a":' * 10_000),
        (JSON, b'{"a": 99999999999999999999}'),
        (YAML, b"a: [1"),
        (YAML, b"a: \xff"),
        (YAML, b"!!python/object:os.system {}"),
        (YAML, b"[" * 10_000),
    ],
)
async def test_a_body_that_is_not_what_it_says_is_refused_with_the_kind_that_was_expected(
    content_type: str, body: bytes
) -> None:
    with pytest.raises(BadRequest, match=r"unrecognized \(must be of type App\): the body is not valid"):
        await read_object(call(headers={"content-type": content_type}, body=body), "App")


async def test_a_body_that_may_be_missing_may_be_missing_in_any_format() -> None:
    assert await read_object(call(headers={"content-type": "text/plain"}), "DeleteOptions", optional=True) == (None, ())


async def test_a_body_that_may_be_missing_must_make_sense_when_it_is_there() -> None:
    with pytest.raises(UnsupportedMediaType):
        await read_object(call(headers={"content-type": "text/plain"}, body=b"x"), "DeleteOptions", optional=True)
    with pytest.raises(BadRequest):
        await read_object(call(body=b"x"), "DeleteOptions", optional=True)


def test_a_scalar_is_a_body_too_and_judged_later() -> None:
    assert parse_json(b"null") == (None, [])
    assert parse_json(b"[]") == ([], [])
    assert parse_yaml(b"just text") == ("just text", [])


# --- asked of the verbs


@pytest.mark.parametrize(("method", "path", "body", "content_type"), WRITES)
@pytest.mark.parametrize("accept", ["text/html", "application/vnd.kubernetes.protobuf", "application/json;q=0"])
@on_virtual_time
async def test_a_form_that_cannot_be_answered_is_406_before_anything_is_done(
    method: str, path: str, body: Any, content_type: str, accept: str
) -> None:
    async with new_api() as api:
        await api("POST", GADGETS, gadget("a"))
        before = api.fixture.view.revision
        reply = await api(method, path, body, accept=accept, content_type=content_type)
        assert reply.status == 406
        assert api.fixture.view.revision == before


@on_virtual_time
async def test_includeobject_with_a_value_that_is_none_is_refused_before_anything_is_done() -> None:
    async with new_api() as api:
        before = api.fixture.view.revision
        reply = await api("POST", GADGETS, gadget("a"), "includeObject=All", accept=TABLE)
        assert reply.status == 400
        assert api.fixture.view.revision == before


@on_virtual_time
async def test_objects_come_in_and_go_out_as_yaml() -> None:
    async with new_api() as api:
        sent = yaml.safe_dump(gadget("a")).encode()
        reply = await api("POST", GADGETS, sent, accept=YAML, content_type=YAML)
        assert (reply.status, reply.content_type) == (201, YAML)
        assert yaml.safe_load(reply.body)["spec"] == {"size": 1, "mode": "plain"}
        for path in (f"{GADGETS}/a", GADGETS):
            reply = await api("GET", path, accept=YAML)
            assert reply.content_type == YAML
            assert yaml.safe_load(reply.body) == loaded(await api("GET", path))


@on_virtual_time
async def test_people_get_it_indented() -> None:
    async with new_api() as api:
        await api("POST", GADGETS, gadget("a"))
        plain = await api("GET", f"{GADGETS}/a")
        pretty = await api("GET", f"{GADGETS}/a", query="pretty=true")
        assert b"\n" not in plain.body
        assert pretty.body.startswith(b'{\n  "')
        assert loaded(pretty) == loaded(plain)


@pytest.mark.parametrize(
    ("include", "kind"),
    [
        ("", "PartialObjectMetadata"),
        ("includeObject=Metadata", "PartialObjectMetadata"),
        ("includeObject=Object", "Gadget"),
        ("includeObject=None", None),
    ],
)
@pytest.mark.parametrize("path", [GADGETS, f"{GADGETS}/a"])
@on_virtual_time
async def test_a_table_has_rows_with_as_much_of_the_object_as_was_asked_for(
    path: str, include: str, kind: str | None
) -> None:
    async with new_api() as api:
        await api("POST", GADGETS, gadget("a"))
        answer = loaded(await api("GET", path, query=include, accept=TABLE))
        assert (answer["kind"], answer["apiVersion"]) == ("Table", "meta.k8s.io/v1")
        (row,) = answer["rows"]
        assert row["cells"][0] == "a"
        assert row.get("object", {}).get("kind") == kind


@on_virtual_time
async def test_a_table_carries_the_version_and_the_way_on() -> None:
    async with new_api() as api:
        for name in ("a", "b", "c"):
            await api("POST", GADGETS, gadget(name))
        plain = loaded(await api("GET", GADGETS, query="limit=2"))["metadata"]
        assert loaded(await api("GET", GADGETS, query="limit=2", accept=TABLE))["metadata"] == plain
        assert plain["remainingItemCount"] == 1


@on_virtual_time
async def test_metadata_alone_is_for_one_object_or_for_a_list() -> None:
    async with new_api() as api:
        made = loaded(await api("POST", GADGETS, gadget("a")), 201)
        one = loaded(await api("GET", f"{GADGETS}/a", accept=PARTIAL))
        assert one == {
            "kind": "PartialObjectMetadata",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": made["metadata"],
        }
        listed = loaded(await api("GET", GADGETS, accept=PARTIAL.replace("Metadata;", "MetadataList;")))
        assert (listed["kind"], listed["items"]) == ("PartialObjectMetadataList", [one])


@pytest.mark.parametrize(
    ("method", "body", "content_type"), [("POST", gadget("b"), JSON), ("PATCH", {"spec": {"size": 2}}, MERGE)]
)
@on_virtual_time
async def test_writes_are_answered_in_the_form_that_was_asked_for(method: str, body: Any, content_type: str) -> None:
    async with new_api() as api:
        await api("POST", GADGETS, gadget("a"))
        path = GADGETS if method == "POST" else f"{GADGETS}/a"
        reply = await api(method, path, body, accept=TABLE, content_type=content_type)
        assert orjson.loads(reply.body)["kind"] == "Table"


@on_virtual_time
async def test_metadata_alone_of_a_list_of_nothing_is_an_answer() -> None:
    """A client that asks for the form of one object at the path of a list must not bring the server to a fault."""
    async with new_api() as api:
        assert (await api("GET", GADGETS, accept=PARTIAL)).status < 500


@on_virtual_time
async def test_a_watch_is_not_answered_in_a_form_that_the_client_cannot_read() -> None:
    """Events come as JSON only, so who takes nothing but YAML gets the same 406 as elsewhere."""
    async with new_api() as api:
        assert (await api("GET", GADGETS, query="watch=1&timeoutSeconds=1", accept=YAML)).status == 406
