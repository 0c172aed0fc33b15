"""server.api.content: content negotiation, media types of bodies, and their rendering."""

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
from tests.server.api.api_fixture import GADGETS, MERGE, WRITES, build_gadget, load_body, open_api

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
PARTIAL = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
KUBECTL = f"{TABLE},application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json"


@pytest.mark.parametrize(
    ("header", "representation"),
    [
        ("", Representation()),
        ("*/*", Representation()),
        (JSON, Representation(JSON)),
        (YAML, Representation(YAML)),
        ("application/*", Representation(JSON, by_name=False)),
        (TABLE, Representation(JSON, "Table")),
        (KUBECTL, Representation(JSON, "Table")),
        ("application/yaml;as=Table;v=v1;g=meta.k8s.io", Representation(YAML, "Table")),
        ("*/*;as=Table;v=v1;g=meta.k8s.io", Representation(JSON, "Table")),
        ("application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io", Representation(JSON, "PartialObjectMetadata")),
        (
            "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
            Representation(JSON, "PartialObjectMetadataList"),
        ),
        # A view of an older version is not supported, so the next media range counts.
        (f"application/json;as=Table;v=v1beta1;g=meta.k8s.io,{YAML}", Representation(YAML)),
        (f"{YAML};q=0.9,{JSON};q=0.8", Representation(YAML)),
        (f"{YAML};q=0.8,{JSON};q=0.9", Representation(JSON)),
        (f"{TABLE};q=0.1,{YAML};q=0.2", Representation(YAML)),
        (f"application/vnd.kubernetes.protobuf,{JSON}", Representation(JSON)),
        (f"text/html,application/xhtml+xml,{YAML};q=0.9,*/*;q=0.8", Representation(YAML)),
    ],
)
def test_the_preferred_supported_representation_is_chosen(header: str, representation: Representation) -> None:
    assert negotiate(header) == representation


@pytest.mark.parametrize(
    "header",
    [
        "text/html",
        "application/vnd.kubernetes.protobuf",
        "application/json;v=v1;g=meta.k8s.io",
        "application/json;as=Table;v=v1;g=other.k8s.io",
        "application/json;as=Table",
        "application/json;as=Picture;v=v1;g=meta.k8s.io",
        "nonsense",
        "\x00",
    ],
)
def test_an_accept_header_without_a_supported_type_gets_406_with_the_supported_ones(header: str) -> None:
    with pytest.raises(NotAcceptable, match="application/json, application/yaml"):
        negotiate(header)


@pytest.mark.parametrize(
    ("header", "media_type"), [("", JSON), (YAML, YAML), ("text/html", JSON), (TABLE, JSON), (f"{JSON};q=0", JSON)]
)
def test_errors_always_have_a_media_type(header: str, media_type: str) -> None:
    assert error_media_type(header) == media_type


def test_json_is_returned_unchanged() -> None:
    body = b'{"b":1,"a":[]}'
    assert render(body, JSON, pretty=False) is body


def test_pretty_json_has_the_same_value_on_several_lines() -> None:
    body = render(b'{"b":1,"a":[{"c":null}]}', JSON, pretty=True)
    assert orjson.loads(body) == {"b": 1, "a": [{"c": None}]}
    assert body.startswith(b'{\n  "b": 1,') and body.endswith(b"}\n")


@pytest.mark.parametrize("is_pretty", [True, False])
def test_yaml_has_the_same_value(is_pretty: bool) -> None:
    value = {"kind": "App", "on": "yes", "number": "012", "spec": {"empty": {}, "list": ["a", None, 1.5, "no"]}}
    body = render(orjson.dumps(value), YAML, is_pretty)
    assert yaml.safe_load(body) == value
    assert b"kind: App\n" in body


@pytest.mark.parametrize(
    ("query", "agent", "is_pretty"),
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
def test_browsers_and_curl_get_indented_json_as_does_the_parameter_pretty(
    query: str, agent: str, is_pretty: bool
) -> None:
    assert wants_pretty(call(query=query, headers={"user-agent": agent})) is is_pretty


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
def test_the_media_type_of_a_body_has_no_parameters(header: str, media_type: str) -> None:
    assert media_type_of(call(headers={"content-type": header})) == media_type


@pytest.mark.parametrize("content_type", ["", JSON, "application/json;charset=utf-8"])
async def test_json_bodies_are_parsed(content_type: str) -> None:
    request = call(headers={"content-type": content_type}, body=b'{"a":{"b":[1,"x",null]}}')
    assert await read_object(request, "App") == ({"a": {"b": [1, "x", None]}}, [])


async def test_yaml_bodies_are_parsed() -> None:
    request = call(headers={"content-type": YAML}, body=b"a:\n  b: [1, x, null]\n")
    assert await read_object(request, "App") == ({"a": {"b": [1, "x", None]}}, [])


@pytest.mark.parametrize(("content_type", "body"), [(JSON, b'{"a":1,"a":2}'), (YAML, b"a: 1\na: 2\n")])
async def test_duplicate_keys_are_reported_and_the_last_one_counts(content_type: str, body: bytes) -> None:
    value, duplicates = await read_object(call(headers={"content-type": content_type}, body=body), "App")
    assert (value, list(duplicates)) == ({"a": 2}, ["a"])


@pytest.mark.parametrize(
    "content_type", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "json"]
)
async def test_an_unsupported_media_type_is_rejected_with_the_supported_ones(content_type: str) -> None:
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
        (JSON, b'{"a": 1e999}'),
        (YAML, b"a: [1"),
        (YAML, b"a: \xff"),
        (YAML, b"!!python/object:os.system {}"),
        (YAML, b"[" * 10_000),
    ],
)
async def test_an_invalid_body_is_rejected_with_the_expected_kind(content_type: str, body: bytes) -> None:
    with pytest.raises(BadRequest, match=r"unrecognized \(must be of type App\): the body is not valid"):
        await read_object(call(headers={"content-type": content_type}, body=body), "App")


@pytest.mark.parametrize("digits", [1_025, 3_000_000])
async def test_a_long_number_gets_400_that_says_what_to_do(digits: int) -> None:
    request = call(body=b'{"kind":"Gadget","spec":{"size":' + b"1" * digits + b"}}", headers={"content-type": JSON})
    with pytest.raises(BadRequest) as error:
        await read_object(request, "Gadget")
    assert error.value.message == (
        "the object provided is unrecognized (must be of type Gadget): the body is not valid JSON: a number has more "
        "than 1024 characters; write it shorter, or as a string"
    )


async def test_an_optional_body_can_be_missing_with_any_media_type() -> None:
    assert await read_object(call(headers={"content-type": "text/plain"}), "DeleteOptions", optional=True) == (None, ())


async def test_an_optional_body_must_be_valid_if_present() -> None:
    with pytest.raises(UnsupportedMediaType):
        await read_object(call(headers={"content-type": "text/plain"}, body=b"x"), "DeleteOptions", optional=True)
    with pytest.raises(BadRequest):
        await read_object(call(body=b"x"), "DeleteOptions", optional=True)


def test_scalars_and_lists_are_parsed_and_validated_later() -> None:
    assert parse_json(b"null") == (None, [])
    assert parse_json(b"[]") == ([], [])
    assert parse_yaml(b"just text") == ("just text", [])


@pytest.mark.parametrize(
    ("parameters", "accepted"),
    [
        ("", True),
        (";", True),
        ("; charset=utf-8", True),
        (';charset="utf-8";a=1', True),
        ('; a="x; y\\" z"', True),
        ("; a=1; A=1", True),
        ("; ;", False),
        ("; charset", False),
        ("; charset=", False),
        ("; =utf-8", False),
        ("; a=1; a=2", False),
        ('; a="x', False),
    ],
)
async def test_malformed_parameters_of_the_content_type_are_rejected(parameters: str, accepted: bool) -> None:
    sent = call(headers={"content-type": JSON + parameters}, body=b"{}")
    if accepted:
        assert await read_object(sent, "App") == ({}, [])
    else:
        with pytest.raises(UnsupportedMediaType, match="Content-Type"):
            await read_object(sent, "App")


# --- with the verbs


@pytest.mark.parametrize(("method", "path", "body", "content_type"), WRITES)
@pytest.mark.parametrize("accept", ["text/html", "application/vnd.kubernetes.protobuf", "application/json;v=v1"])
@on_virtual_time
async def test_an_unsupported_accept_header_gets_406_before_anything_is_written(
    method: str, path: str, body: Any, content_type: str, accept: str
) -> None:
    async with open_api() as api:
        await api("POST", GADGETS, build_gadget("a"))
        revision = api.fixture.view.revision
        reply = await api(method, path, body, accept=accept, content_type=content_type)
        assert reply.status == 406
        assert api.fixture.view.revision == revision


@on_virtual_time
async def test_built_in_kinds_want_a_media_type_by_name() -> None:
    async with open_api() as api:
        for accept, code in (("application/*", 406), ("text/html,application/*", 406), ("text/html,*/*;q=0.1", 200)):
            assert (await api("GET", "/api/v1/namespaces", accept=accept)).status == code
        assert (await api("GET", GADGETS, accept="application/*")).status == 200


@on_virtual_time
async def test_options_of_a_list_are_checked_before_its_form() -> None:
    async with open_api() as api:
        for query, code in (("resourceVersionMatch=x", 422), ("limit=x", 400), ("fieldSelector=spec.x=1", 406)):
            assert (await api("GET", GADGETS, query=query, accept="text/html")).status == code
        assert (await api("GET", "/api/v1/namespaces", query="limit=x", accept="text/html")).status == 406


@on_virtual_time
async def test_an_invalid_include_object_gets_400_before_anything_is_written() -> None:
    async with open_api() as api:
        revision = api.fixture.view.revision
        reply = await api("POST", GADGETS, build_gadget("a"), "includeObject=All", accept=TABLE)
        assert reply.status == 400
        assert api.fixture.view.revision == revision


@on_virtual_time
async def test_objects_can_be_written_and_read_as_yaml() -> None:
    async with open_api() as api:
        body = yaml.safe_dump(build_gadget("a")).encode()
        reply = await api("POST", GADGETS, body, accept=YAML, content_type=YAML)
        assert (reply.status, reply.content_type) == (201, YAML)
        assert yaml.safe_load(reply.body)["spec"] == {"size": 1, "mode": "plain"}
        for path in (f"{GADGETS}/a", GADGETS):
            reply = await api("GET", path, accept=YAML)
            assert reply.content_type == YAML
            assert yaml.safe_load(reply.body) == load_body(await api("GET", path))


@on_virtual_time
async def test_pretty_indents_the_response() -> None:
    async with open_api() as api:
        await api("POST", GADGETS, build_gadget("a"))
        default = await api("GET", f"{GADGETS}/a")
        indented = await api("GET", f"{GADGETS}/a", query="pretty=true")
        assert b"\n" not in default.body
        assert indented.body.startswith(b'{\n  "')
        assert load_body(indented) == load_body(default)


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
async def test_the_rows_of_a_table_have_the_object_or_its_metadata_as_requested(
    path: str, include: str, kind: str | None
) -> None:
    async with open_api() as api:
        await api("POST", GADGETS, build_gadget("a"))
        table = load_body(await api("GET", path, query=include, accept=TABLE))
        assert (table["kind"], table["apiVersion"]) == ("Table", "meta.k8s.io/v1")
        (row,) = table["rows"]
        assert row["cells"][0] == "a"
        assert (row["object"] or {}).get("kind") == kind


@on_virtual_time
async def test_a_table_has_the_resource_version_and_the_continue_token() -> None:
    async with open_api() as api:
        for name in ("a", "b", "c"):
            await api("POST", GADGETS, build_gadget(name))
        metadata = load_body(await api("GET", GADGETS, query="limit=2"))["metadata"]
        assert load_body(await api("GET", GADGETS, query="limit=2", accept=TABLE))["metadata"] == metadata
        assert metadata["remainingItemCount"] == 1


@on_virtual_time
async def test_partial_metadata_is_supported_for_objects_and_lists() -> None:
    async with open_api() as api:
        created = load_body(await api("POST", GADGETS, build_gadget("a")), 201)
        partial = load_body(await api("GET", f"{GADGETS}/a", accept=PARTIAL))
        assert partial == {
            "kind": "PartialObjectMetadata",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": created["metadata"],
        }
        partial_list = load_body(await api("GET", GADGETS, accept=PARTIAL.replace("Metadata;", "MetadataList;")))
        assert (partial_list["kind"], partial_list["items"]) == ("PartialObjectMetadataList", [partial])


@pytest.mark.parametrize(
    ("method", "body", "content_type"), [("POST", build_gadget("b"), JSON), ("PATCH", {"spec": {"size": 2}}, MERGE)]
)
@on_virtual_time
async def test_responses_to_writes_have_the_requested_representation(method: str, body: Any, content_type: str) -> None:
    async with open_api() as api:
        await api("POST", GADGETS, build_gadget("a"))
        path = GADGETS if method == "POST" else f"{GADGETS}/a"
        reply = await api(method, path, body, accept=TABLE, content_type=content_type)
        assert orjson.loads(reply.body)["kind"] == "Table"


@on_virtual_time
async def test_partial_metadata_of_an_empty_list_is_not_an_internal_error() -> None:
    """The client requests the view of one object at the path of a list."""
    async with open_api() as api:
        assert (await api("GET", GADGETS, accept=PARTIAL)).status < 500


@on_virtual_time
async def test_a_watch_that_accepts_only_yaml_gets_406() -> None:
    """Watch events are always JSON."""
    async with open_api() as api:
        assert (await api("GET", GADGETS, query="watch=1&timeoutSeconds=1", accept=YAML)).status == 406
