"""The settings that can be changed at run time: what is understood, and what is refused with which words."""

import pytest

from fairlead.kinds.clusters.config import CONFIG_NAME, MAX_HEADERS, parse_settings
from tests.harness.kind_examples import complaints, example, prepared, problems


def refused(raw: str) -> list[str]:
    return [each.message.removeprefix("Invalid value: ") for each in parse_settings(raw)[1]]


def test_an_empty_text_sets_nothing() -> None:
    assert parse_settings("") == ({}, [])
    assert parse_settings("# nothing\n") == ({}, [])
    assert parse_settings("{}") == ({}, [])


def test_every_setting_is_understood() -> None:
    raw = """
auth:
  accessKeyMaxTTLSeconds: 86400
  loginAccessKeyTTLSeconds: 0
  directTokenTTLSeconds: 60
  directTokenMaxTTLSeconds: 3600
  password:
    disabled: true
  customHttpHeaders:
    Strict-Transport-Security: max-age=31536000
audit:
  level: Request
"""
    value, found = parse_settings(raw)
    assert found == []
    assert value["auth"]["password"] == {"disabled": True}
    assert value["auth"]["customHttpHeaders"] == {"Strict-Transport-Security": "max-age=31536000"}
    assert value["audit"] == {"level": "Request"}


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        ("auth: {accessKeyMaxTtl: 1}", "did you mean auth.accessKeyMaxTTLSeconds? Otherwise remove it"),
        ("audits: {level: Request}", "did you mean audit.level?"),
        ("auth: {accessKeyMaxTTLSeconds: -1}", "auth.accessKeyMaxTTLSeconds: Invalid value: -1"),
        ("auth: {accessKeyMaxTTLSeconds: 4294967296}", "auth.accessKeyMaxTTLSeconds"),
        ("auth: {accessKeyMaxTTLSeconds: '60'}", "must be of type integer"),
        ("auth: {directTokenTTLSeconds: 0}", "auth.directTokenTTLSeconds"),
        ("auth: {directTokenTTLSeconds: 61, directTokenMaxTTLSeconds: 60}", "61 is more than"),
        ("auth: {password: {disabled: maybe}}", "must be of type boolean"),
        ("auth: on fire", "must be of type object"),
        ("audit: {level: None}", "supported values"),
        ("audit: {level: Everything}", "supported values"),
        ("auth: {accessKeyMaxTTLSeconds: 1, accessKeyMaxTTLSeconds: 2}", "is set twice"),
        ("- auth", "must be a mapping of settings"),
        ("auth: [", "line 1"),
        ("auth: {customHttpHeaders: {'X A': b}}", "is not a valid header name"),
        ("auth: {customHttpHeaders: {Set-Cookie: a=b}}", "the server sets this header itself"),
        ("auth: {customHttpHeaders: {content-LENGTH: '1'}}", "the server sets this header itself"),
        ('auth: {customHttpHeaders: {X-A: "b\\r\\nSet-Cookie: c"}}', "one line of printable ASCII"),
        ("auth: {customHttpHeaders: {X-A: ü}}", "one line of printable ASCII"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(raw: str, why: str) -> None:
    assert any(why in each for each in refused(raw)), refused(raw)


def test_every_fault_is_told_at_once() -> None:
    assert len(refused("auth: {a: 1, accessKeyMaxTTLSeconds: x, password: {disabled: 7}}")) == 3


def test_there_is_a_limit_to_the_number_of_headers() -> None:
    headers = ", ".join(f"X-{each}: a" for each in range(MAX_HEADERS + 1))
    problem = refused(f"auth: {{customHttpHeaders: {{{headers}}}}}")[0]
    assert f"has {MAX_HEADERS + 1} headers; at most {MAX_HEADERS} are allowed" in problem


def test_the_status_is_what_the_text_says_whatever_was_sent() -> None:
    sent = example("Config", spec={"raw": "audit: {level: Request}"}, status={"auth": {"accessKeyMaxTTLSeconds": 1}})
    assert prepared(sent)["status"] == {"audit": {"level": "Request"}}
    assert prepared(example("Config", spec={}, status=None))["status"] == {}


def test_there_is_one_config_only() -> None:
    other = example("Config", metadata={"name": "another"})
    assert complaints(other) == [("metadata.name", "FieldValueInvalid")]
    assert CONFIG_NAME in problems(other)[0].message


def test_problems_are_problems_of_the_text() -> None:
    assert complaints(example("Config", spec={"raw": "x: 1"})) == [("spec.raw", "FieldValueInvalid")]
