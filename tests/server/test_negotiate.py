"""Representations in and out: which one is chosen, how it looks, and what is refused before anything is done."""

import orjson
import pytest
import yaml

from fairlead.core.errors import BadRequest, NotAcceptable, UnsupportedMediaType
from fairlead.server.negotiate import (
    JSON,
    YAML,
    Form,
    chosen_form,
    error_media_type,
    media_type_of,
    parsed_json,
    parsed_yaml,
    read_object,
    rendered,
    wants_pretty,
)
from tests.authn.calls import call

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
KUBECTL = f"{TABLE},application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json"


@pytest.mark.parametrize(
    ("header", "form"),
    [
        ("", Form()),
        ("*/*", Form()),
        (JSON, Form(JSON)),
        (YAML, Form(YAML)),
        ("application/*", Form(JSON)),
        (TABLE, Form(JSON, "Table")),
        (KUBECTL, Form(JSON, "Table")),
        ("application/yaml;as=Table;v=v1;g=meta.k8s.io", Form(YAML, "Table")),
        ("*/*;as=Table;v=v1;g=meta.k8s.io", Form(JSON, "Table")),
        ("application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io", Form(JSON, "PartialObjectMetadata")),
        ("application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", Form(JSON, "PartialObjectMetadataList")),
        # A view of an older version is not known here, so the next wish counts.
        (f"application/json;as=Table;v=v1beta1;g=meta.k8s.io,{YAML}", Form(YAML)),
        (f"{YAML};q=0.9,{JSON};q=0.8", Form(YAML)),
        (f"{YAML};q=0.8,{JSON};q=0.9", Form(JSON)),
        (f"{TABLE};q=0.1,{YAML};q=0.2", Form(YAML)),
        (f"application/vnd.kubernetes.protobuf,{JSON}", Form(JSON)),
        (f"text/html,application/xhtml+xml,{YAML};q=0.9,*/*;q=0.8", Form(YAML)),
    ],
)
def test_the_best_wish_that_can_be_granted_is_granted(header: str, form: Form) -> None:
    assert chosen_form(header) == form


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
        chosen_form(header)


@pytest.mark.parametrize(
    ("header", "media_type"), [("", JSON), (YAML, YAML), ("text/html", JSON), (TABLE, JSON), (f"{JSON};q=0", JSON)]
)
def test_an_error_is_always_told_in_some_form(header: str, media_type: str) -> None:
    assert error_media_type(header) == media_type


def test_json_is_handed_out_as_it_is() -> None:
    body = b'{"b":1,"a":[]}'
    assert rendered(body, JSON, pretty=False) is body


def test_pretty_json_is_the_same_value_over_several_lines() -> None:
    body = rendered(b'{"b":1,"a":[{"c":null}]}', JSON, pretty=True)
    assert orjson.loads(body) == {"b": 1, "a": [{"c": None}]}
    assert body.startswith(b'{\n  "b": 1,') and body.endswith(b"}\n")


@pytest.mark.parametrize("pretty", [True, False])
def test_yaml_is_the_same_value(pretty: bool) -> None:
    value = {"kind": "App", "on": "yes", "number": "012", "spec": {"empty": {}, "list": ["a", None, 1.5, "no"]}}
    body = rendered(orjson.dumps(value), YAML, pretty)
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
    assert parsed_json(b"null") == (None, [])
    assert parsed_json(b"[]") == ([], [])
    assert parsed_yaml(b"just text") == ("just text", [])
