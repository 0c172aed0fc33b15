"""kinds/clusters/config.py: parsing and validation of the settings that can be changed at run time."""

import pytest

from fairlead.kinds.clusters.config import CONFIG_NAME, MAX_EVENTS, MAX_HEADERS, MAX_SUGGESTIONS, parse_settings
from tests.harness.kind_examples import apply_defaults, build_example, find_problems, problem_reasons


def setting_errors(raw: str) -> list[str]:
    return [each.message.removeprefix("Invalid value: ") for each in parse_settings(raw)[1]]


def test_an_empty_text_has_no_settings() -> None:
    assert parse_settings("") == ({}, [])
    assert parse_settings("# nothing\n") == ({}, [])
    assert parse_settings("{}") == ({}, [])


def test_every_setting_is_parsed() -> None:
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
    ("raw", "message"),
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
def test_an_invalid_setting_is_reported_with_its_path(raw: str, message: str) -> None:
    assert any(message in each for each in setting_errors(raw)), setting_errors(raw)


def test_all_errors_are_reported_together() -> None:
    assert len(setting_errors("auth: {a: 1, accessKeyMaxTTLSeconds: x, password: {disabled: 7}}")) == 3


def test_the_number_of_headers_is_limited() -> None:
    headers = ", ".join(f"X-{each}: a" for each in range(MAX_HEADERS + 1))
    problem = setting_errors(f"auth: {{customHttpHeaders: {{{headers}}}}}")[0]
    assert f"has {MAX_HEADERS + 1} headers; at most {MAX_HEADERS} are allowed" in problem


def test_the_status_is_computed_from_the_text() -> None:
    sent = build_example(
        "Config", spec={"raw": "audit: {level: Request}"}, status={"auth": {"accessKeyMaxTTLSeconds": 1}}
    )
    assert apply_defaults(sent)["status"] == {"audit": {"level": "Request"}}
    assert apply_defaults(build_example("Config", spec={}, status=None))["status"] == {}


def test_only_one_config_object_is_allowed() -> None:
    other = build_example("Config", metadata={"name": "another"})
    assert problem_reasons(other) == [("metadata.name", "FieldValueInvalid")]
    assert CONFIG_NAME in find_problems(other)[0].message


def test_errors_refer_to_the_raw_text() -> None:
    assert problem_reasons(build_example("Config", spec={"raw": "x: 1"})) == [("spec.raw", "FieldValueInvalid")]


def test_only_a_few_unknown_settings_get_a_suggestion() -> None:
    """Looking up a similar name takes milliseconds, on the event loop."""
    _, problems = parse_settings("".join(f"audit{number}: b\n" for number in range(200)))
    assert sum("did you mean" in each.message for each in problems) == MAX_SUGGESTIONS
    _, (problem,) = parse_settings(f"{'k' * 1000}: b")
    assert problem.message.endswith("; remove it")


def test_settings_with_too_many_values_are_rejected() -> None:
    _, (problem,) = parse_settings("a:\n" + "- x\n" * MAX_EVENTS)
    assert "too many keys and values" in problem.message
