"""server.api.query_options: query parameters and their validation."""

from typing import Any

import pytest

from fairlead.core.call import DRY_RUN_ANNOTATION, Call, RequestInfo
from fairlead.core.errors import ApiError, BadRequest, Invalid
from fairlead.registry.kind import Kind, Sensitivity
from fairlead.registry.list import ListQuery
from fairlead.registry.selectors import EVERYTHING, Selector
from fairlead.server.api import query_options
from tests.harness.calls import ADMIN, call

WIDGET = Kind("Widget", "widgets", True, {}, "A widget.", selectable=("spec.color",), sensitivity=Sensitivity.NORMAL)
GADGET = Kind("Gadget", "gadgets", False, {}, "A gadget.", sensitivity=Sensitivity.NORMAL)


def build_write_request(query: str = "", verb: str = "create", agent: str = "", subresource: str = "") -> Call:
    target = RequestInfo(verb, "/", resource="widgets", subresource=subresource)
    return call(query=query, headers={"user-agent": agent} if agent else {}, target=target)


def expect_error(parse: Any, *arguments: Any) -> ApiError:
    with pytest.raises(ApiError) as error:
        parse(*arguments)
    return error.value


def list_causes(error: ApiError) -> list[tuple[str, str]]:
    return [(problem.field, problem.reason) for problem in error.details.problems]


# --- lists


def test_a_list_without_parameters_has_the_default_options() -> None:
    assert query_options.list_query(call(), WIDGET) == ListQuery(EVERYTHING, 0, "", None, False)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("limit=5", ListQuery(limit=5)),
        ("limit=%2B5", ListQuery(limit=5)),
        ("limit=0", ListQuery()),
        ("limit=-1", ListQuery()),
        ("continue=abc", ListQuery(continue_token="abc")),
        ("resourceVersion=", ListQuery()),
        ("resourceVersion=0", ListQuery(version=0)),
        ("resourceVersion=7", ListQuery(version=7)),
        ("resourceVersion=7&resourceVersionMatch=NotOlderThan", ListQuery(version=7)),
        ("resourceVersion=0&resourceVersionMatch=NotOlderThan", ListQuery(version=0)),
        ("resourceVersion=7&resourceVersionMatch=Exact", ListQuery(version=7, exact=True)),
        # As in Kubernetes, a version with a limit means exactly this version.
        ("resourceVersion=7&limit=1", ListQuery(limit=1, version=7, exact=True)),
        ("resourceVersion=0&limit=1", ListQuery(limit=1, version=0)),
        ("resourceVersion=7&limit=1&resourceVersionMatch=NotOlderThan", ListQuery(limit=1, version=7)),
        ("pretty=1&unheard=of", ListQuery()),
        ("limit=5&limit=6", ListQuery(limit=5)),
    ],
)
def test_list_parameters_are_parsed(query: str, expected: ListQuery) -> None:
    assert query_options.list_query(call(query=query), WIDGET) == expected


@pytest.mark.parametrize("text", ["x", "1.5", "0x10", "1e3", " 1", "٣", "1" * 19, "--1"])
def test_an_invalid_limit_is_rejected(text: str) -> None:
    assert (
        "limit must be a whole number"
        in expect_error(query_options.list_query, call(query=f"limit={text}"), WIDGET).message
    )


@pytest.mark.parametrize("text", ["x", "-1", "+1", "1.0", "٣", "1" * 20, "0x1", "null"])
@pytest.mark.parametrize("parse", [query_options.list_query, query_options.watch_query])
def test_an_invalid_resource_version_is_rejected(parse: Any, text: str) -> None:
    query = f"resourceVersion={text.replace('+', '%2B')}"
    error = expect_error(parse, call(query=query), WIDGET)
    assert isinstance(error, BadRequest) and "invalid resource version" in error.message


MATCH_FORBIDDEN = "resourceVersionMatch", "FieldValueForbidden"
MATCH_UNSUPPORTED = "resourceVersionMatch", "FieldValueNotSupported"


@pytest.mark.parametrize(
    ("query", "cause"),
    [
        ("resourceVersionMatch=Exact", [MATCH_FORBIDDEN]),
        ("resourceVersionMatch=NotOlderThan", [MATCH_FORBIDDEN]),
        ("resourceVersion=7&resourceVersionMatch=exact", [MATCH_UNSUPPORTED]),
        ("resourceVersionMatch=exact", [MATCH_FORBIDDEN, MATCH_UNSUPPORTED]),
        ("resourceVersion=0&resourceVersionMatch=Exact", [MATCH_FORBIDDEN]),
        ("resourceVersion=7&resourceVersionMatch=Exact&continue=x", [MATCH_FORBIDDEN]),
        ("resourceVersionMatch=Exact&continue=x", [MATCH_FORBIDDEN, MATCH_FORBIDDEN]),
        ("sendInitialEvents=true", [("sendInitialEvents", "FieldValueForbidden")]),
        ("sendInitialEvents=false", [("sendInitialEvents", "FieldValueForbidden")]),
        (
            "sendInitialEvents&resourceVersionMatch=Exact",
            [MATCH_FORBIDDEN, ("sendInitialEvents", "FieldValueForbidden")],
        ),
    ],
)
def test_contradicting_list_parameters_are_rejected(query: str, cause: list[tuple[str, str]]) -> None:
    error = expect_error(query_options.list_query, call(query=query), WIDGET)
    assert isinstance(error, Invalid) and list_causes(error) == cause
    assert error.message.startswith('ListOptions.meta.k8s.io "" is invalid: ')


# --- selectors


def parse_selector(query: str, kind: Kind = WIDGET) -> Selector:
    return query_options.list_query(call(query=query), kind).selector


def test_selectors_match_labels_and_fields() -> None:
    selector = parse_selector("labelSelector=a%3Db,!c&fieldSelector=spec.color%3Dred")
    assert selector.matches_values({"a": "b"}, {"spec.color": "red"})
    assert not selector.matches_values({"a": "b"}, {"spec.color": "blue"})
    assert not selector.matches_values({"a": "b", "c": ""}, {"spec.color": "red"})


@pytest.mark.parametrize("field", ["metadata.name", "metadata.namespace", "spec.color"])
def test_names_and_selectable_fields_of_the_kind_can_be_selected(field: str) -> None:
    assert parse_selector(f"fieldSelector={field}%3Dx")


@pytest.mark.parametrize(
    ("kind", "field"), [(GADGET, "metadata.namespace"), (GADGET, "spec.color"), (WIDGET, "spec.size"), (WIDGET, "spec")]
)
def test_other_fields_cannot_be_selected(kind: Kind, field: str) -> None:
    with pytest.raises(BadRequest, match=field):
        parse_selector(f"fieldSelector={field}%3Dx", kind)


@pytest.mark.parametrize("text", ["a in", "=", "a=b=c", "(", "a b", ",", "a,,b"])
def test_an_invalid_label_selector_is_rejected(text: str) -> None:
    with pytest.raises(BadRequest):
        parse_selector(f"labelSelector={text}")


# --- watches


def parse_watch(query: str) -> query_options.WatchQuery:
    return query_options.watch_query(call(query=query), WIDGET)


@pytest.mark.parametrize(
    ("query", "version", "send_initial_events"),
    [
        ("", None, True),
        ("&resourceVersion=0", None, True),
        ("&resourceVersion=", None, True),
        ("&resourceVersion=1234", 1234, False),
        ("&sendInitialEvents=true&resourceVersionMatch=NotOlderThan", None, True),
        ("&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=7", 7, True),
        ("&sendInitialEvents=false&resourceVersionMatch=NotOlderThan&resourceVersion=7", 7, False),
        ("&sendInitialEvents=false&resourceVersionMatch=NotOlderThan", None, False),
    ],
)
def test_the_start_of_a_watch_is_parsed(query: str, version: int | None, send_initial_events: bool) -> None:
    options = parse_watch(f"watch=1{query}")
    assert (options.version, options.send_initial_events) == (version, send_initial_events)
    assert options.selector == EVERYTHING


@pytest.mark.parametrize(
    ("query", "bookmarks", "timeout"),
    [
        ("", False, 0),
        ("&timeoutSeconds=9", False, 9),
        ("&allowWatchBookmarks=true", True, 0),
        ("&allowWatchBookmarks", True, 0),
        ("&allowWatchBookmarks=false", False, 0),
        ("&allowWatchBookmarks=0", False, 0),
    ],
)
def test_bookmarks_and_the_timeout_of_a_watch_are_parsed(query: str, bookmarks: bool, timeout: int) -> None:
    options = parse_watch(f"watch=1&resourceVersion=1234{query}")
    assert (options.allow_bookmarks, options.timeout_seconds) == (bookmarks, timeout)


def test_a_watch_can_have_selectors() -> None:
    selector = parse_watch("watch=1&labelSelector=a%3Db&fieldSelector=metadata.name%3Done").selector
    assert selector.matches_values({"a": "b"}, {"metadata.name": "one"})
    assert not selector.matches_values({"a": "b"}, {"metadata.name": "two"})


@pytest.mark.parametrize(
    ("query", "reasons"),
    [
        ("resourceVersionMatch=NotOlderThan&resourceVersion=7", ["FieldValueForbidden"]),
        ("resourceVersionMatch=Exact&resourceVersion=7", ["FieldValueForbidden", "FieldValueNotSupported"]),
        ("sendInitialEvents=true", ["FieldValueForbidden"]),
        ("sendInitialEvents=true&resourceVersionMatch=Exact", ["FieldValueForbidden", "FieldValueNotSupported"]),
    ],
)
def test_contradicting_watch_parameters_are_rejected(query: str, reasons: list[str]) -> None:
    error = expect_error(query_options.watch_query, call(query=query), WIDGET)
    assert isinstance(error, Invalid)
    assert list_causes(error) == [("resourceVersionMatch", reason) for reason in reasons]


@pytest.mark.parametrize("text", ["x", "1.5", "1s", "٣"])
def test_an_invalid_timeout_is_rejected(text: str) -> None:
    assert (
        "timeoutSeconds"
        in expect_error(query_options.watch_query, call(query=f"timeoutSeconds={text}"), WIDGET).message
    )


# --- writes


@pytest.mark.parametrize("verb", ["create", "update", "patch"])
def test_a_write_without_parameters_has_the_default_options(verb: str) -> None:
    options = query_options.write_options(build_write_request(verb=verb, subresource="status"), ADMIN)
    assert (options.user, options.field_manager, options.dry_run) == (ADMIN, "unknown", False)
    assert (options.field_validation, options.subresource, options.is_patch) == ("Warn", "status", verb == "patch")


def test_warnings_of_a_write_are_added_to_the_call() -> None:
    request = build_write_request()
    query_options.write_options(request, ADMIN).warnings.append("careful")
    assert request.warnings == ["careful"]


@pytest.mark.parametrize(
    ("query", "agent", "manager"),
    [
        ("fieldManager=me", "kubectl/v1.33", "me"),
        ("", "kubectl/v1.33 (linux)", "kubectl"),
        ("fieldManager=", "kubectl/v1.33", "kubectl"),
        ("", "plain", "plain"),
        ("", "/odd", "unknown"),
        ("", "x" * 500, "x" * 128),
        (f"fieldManager={'m' * 128}", "", "m" * 128),
    ],
)
def test_the_field_manager_defaults_to_the_user_agent(query: str, agent: str, manager: str) -> None:
    assert query_options.write_options(build_write_request(query, agent=agent), ADMIN).field_manager == manager


@pytest.mark.parametrize("value", ["Ignore", "Warn", "Strict"])
def test_field_validation_is_parsed(value: str) -> None:
    assert query_options.write_options(build_write_request(f"fieldValidation={value}"), ADMIN).field_validation == value


@pytest.mark.parametrize("query", ["dryRun=All", "dryRun=All&dryRun=All"])
def test_dry_run_is_parsed(query: str) -> None:
    request = build_write_request(query)
    assert query_options.write_options(request, ADMIN).dry_run
    assert request.annotations == {DRY_RUN_ANNOTATION: "All"}


@pytest.mark.parametrize(
    ("query", "cause"),
    [
        ("dryRun=all", ("dryRun", "FieldValueNotSupported")),
        ("dryRun=true", ("dryRun", "FieldValueNotSupported")),
        ("dryRun=", ("dryRun", "FieldValueNotSupported")),
        ("dryRun=All&dryRun=None", ("dryRun", "FieldValueNotSupported")),
        ("fieldValidation=strict", ("fieldValidation", "FieldValueNotSupported")),
        (f"fieldManager={'m' * 129}", ("fieldManager", "FieldValueTooLong")),
        ("fieldManager=a%00b", ("fieldManager", "FieldValueInvalid")),
        ("fieldManager=a%0Ab", ("fieldManager", "FieldValueInvalid")),
    ],
)
@pytest.mark.parametrize(
    ("verb", "kind"), [("create", "CreateOptions"), ("update", "UpdateOptions"), ("patch", "PatchOptions")]
)
def test_a_write_with_an_invalid_option_is_rejected(query: str, cause: tuple[str, str], verb: str, kind: str) -> None:
    error = expect_error(query_options.write_options, build_write_request(query, verb), ADMIN)
    assert isinstance(error, Invalid) and list_causes(error) == [cause]
    assert error.details.kind == kind


def test_all_problems_of_a_write_are_reported_at_once() -> None:
    error = expect_error(
        query_options.write_options, build_write_request("dryRun=x&fieldValidation=y&fieldManager=%0A"), ADMIN
    )
    assert {field for field, _ in list_causes(error)} == {"dryRun", "fieldManager", "fieldValidation"}


def test_apply_requires_a_field_manager() -> None:
    request = build_write_request(verb="patch", agent="kubectl/v1.33")
    with pytest.raises(Invalid, match="fieldManager: Required value"):
        query_options.write_options(request, ADMIN, is_apply=True)
    options = query_options.write_options(build_write_request("fieldManager=me", verb="patch"), ADMIN, is_apply=True)
    assert (options.is_apply, options.field_manager, options.force) == (True, "me", False)


@pytest.mark.parametrize(("flag", "force"), [("force", True), ("force=true", True), ("force=false", False)])
def test_apply_can_force_conflicts(flag: str, force: bool) -> None:
    request = build_write_request(f"fieldManager=me&{flag}", verb="patch")
    assert query_options.write_options(request, ADMIN, is_apply=True).force is force


def test_other_patches_reject_force() -> None:
    error = expect_error(query_options.write_options, build_write_request("force=true", verb="patch"), ADMIN)
    assert list_causes(error) == [("force", "FieldValueForbidden")]
