"""server.api.query_options: the options of a delete, from its body and its query."""

from typing import Any

import pytest

from fairlead.core.call import DRY_RUN_ANNOTATION, RequestInfo
from fairlead.core.errors import BadRequest, Invalid
from fairlead.core.objects import Object
from fairlead.registry.write_options import DeleteOptions
from fairlead.server.api import query_options
from tests.harness.calls import ADMIN, call
from tests.server.api.test_query_options import expect_error, list_causes


def parse_delete(query: str = "", body: Any = None) -> tuple[DeleteOptions, bool]:
    delete_options, write_options = query_options.delete_options(
        call(query=query, target=RequestInfo("delete", "/")), body, ADMIN
    )
    return delete_options, write_options.dry_run


@pytest.mark.parametrize(
    ("query", "body", "expected"),
    [
        ("", None, DeleteOptions()),
        ("", {}, DeleteOptions()),
        ("", {"kind": "DeleteOptions", "apiVersion": "v1"}, DeleteOptions()),
        ("propagationPolicy=Foreground", None, DeleteOptions(propagation="Foreground")),
        ("", {"propagationPolicy": "Background"}, DeleteOptions(propagation="Background")),
        ("propagationPolicy=Orphan", {"propagationPolicy": "Foreground"}, DeleteOptions(propagation="Foreground")),
        ("propagationPolicy=Orphan", {}, DeleteOptions()),
        ("orphanDependents=true", None, DeleteOptions(propagation="Orphan")),
        ("orphanDependents=false", None, DeleteOptions(propagation="Background", is_cascading=True)),
        ("", {"orphanDependents": True}, DeleteOptions(propagation="Orphan")),
        ("gracePeriodSeconds=0", None, DeleteOptions(grace_period_seconds=0)),
        ("gracePeriodSeconds=30", {"gracePeriodSeconds": 5}, DeleteOptions(grace_period_seconds=5)),
        ("", {"gracePeriodSeconds": 5}, DeleteOptions(grace_period_seconds=5)),
        ("", {"preconditions": {"uid": "u", "resourceVersion": "7"}}, DeleteOptions("u", "7")),
        ("", {"preconditions": {"uid": None}}, DeleteOptions()),
        ("", {"preconditions": None, "propagationPolicy": None, "dryRun": None}, DeleteOptions()),
    ],
)
def test_delete_options_are_parsed_from_the_body_and_the_query(query: str, body: Any, expected: DeleteOptions) -> None:
    assert parse_delete(query, body) == (expected, False)


@pytest.mark.parametrize(("query", "body"), [("dryRun=All", None), ("", {"dryRun": ["All"]})])
def test_a_delete_can_be_a_dry_run(query: str, body: Any) -> None:
    assert parse_delete(query, body)[1]


@pytest.mark.parametrize(
    ("query", "body", "noted"),
    [
        ("dryRun=All", None, {DRY_RUN_ANNOTATION: "All"}),
        ("", {"dryRun": ["All"]}, {DRY_RUN_ANNOTATION: "All"}),
        ("dryRun=All", {}, {}),  # the body wins, so the object is deleted
        ("", None, {}),
    ],
)
def test_the_audit_event_of_a_delete_says_whether_it_is_a_dry_run(query: str, body: Any, noted: Object) -> None:
    request = call(query=query, target=RequestInfo("delete", "/"))
    query_options.delete_options(request, body, ADMIN)
    assert request.annotations == noted


@pytest.mark.parametrize(
    ("query", "body", "field"),
    [
        ("dryRun=all", None, "dryRun"),
        ("", {"dryRun": ["Some"]}, "dryRun"),
        ("propagationPolicy=background", None, "propagationPolicy"),
        ("", {"propagationPolicy": "nil"}, "propagationPolicy"),
    ],
)
def test_a_delete_with_an_invalid_option_is_rejected(query: str, body: Any, field: str) -> None:
    error = expect_error(parse_delete, query, body)
    assert isinstance(error, Invalid) and list_causes(error) == [(field, "FieldValueNotSupported")]
    assert error.details.kind == "DeleteOptions"


@pytest.mark.parametrize(
    "body",
    [
        [],
        "x",
        1,
        False,
        {"kind": "Widget"},
        {"kind": 7},
        {"gracePeriodSeconds": "1"},
        {"gracePeriodSeconds": 1.5},
        {"gracePeriodSeconds": True},
        {"propagationPolicy": ["Orphan"]},
        {"orphanDependents": "yes"},
        {"preconditions": []},
        {"preconditions": {"uid": 1}},
        {"preconditions": {"resourceVersion": 7}},
        {"dryRun": "All"},
        {"dryRun": [["All"]]},
        {"dryRun": [None]},
    ],
)
def test_a_body_that_is_not_delete_options_is_rejected(body: Any) -> None:
    assert expect_error(parse_delete, "", body).code in (400, 422)


@pytest.mark.parametrize("text", ["x", "1.5"])
def test_an_invalid_grace_period_is_rejected(text: str) -> None:
    assert "gracePeriodSeconds" in expect_error(parse_delete, f"gracePeriodSeconds={text}").message


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"dryRun": ["All"] * 1_001}, "dryRun has too many entries; 1000 is the limit"),
        ({"preconditions": {"uid": "x" * 1_025}}, "preconditions.uid is too long; 1024 characters is the limit"),
        ({"preconditions": {"x" * 100_000: 1}}, r"preconditions.x{1024}\.\.\. must be a string"),
        ({"kind": "x" * 100_000}, r'must be of kind DeleteOptions, not "x{1023}\.\.\.'),
    ],
)
def test_oversized_delete_options_are_rejected_with_a_short_message(body: Any, message: str) -> None:
    with pytest.raises(BadRequest, match=message) as error:
        parse_delete("", body)
    assert len(error.value.message) < 3_000
