"""fairlead.cli.ui.jsonpath: templates as kubectl has them."""

from typing import Any

import pytest

from fairlead.cli.ui.jsonpath import InvalidTemplate, parse_path, parse_template

READY, SYNCED = {"type": "Ready", "status": "True"}, {"type": "Synced", "status": "False"}
VALUE: dict[str, Any] = {
    "items": [
        {"metadata": {"name": "a", "labels": {"x.y/z": "1"}}, "size": 1, "conditions": [READY, SYNCED]},
        {"metadata": {"name": "b"}, "size": 20, "on": True},
    ]
}


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{.items[*].metadata.name}", "a b"),
        (".items[1].metadata.name", "b"),
        ('{range .items[*]}{.metadata.name}{"\\t"}{.size}{"\\n"}{end}', "a\t1\nb\t20\n"),
        ("{range .items[*]}{$.items[0].size}{end}", "11"),
        ('{.items[0].conditions[?(@.type=="Ready")].status}', "True"),
        ("{.items[0].conditions[?(@.type!='Ready')].type}", "Synced"),
        ("{.items[?(@.size>5)].metadata.name}", "b"),
        ("{.items[?(@.on)].size}", "20"),
        ("{.items[?(@.on==true)].size}", "20"),
        ("{.items[?(@.none>1)].size}", ""),
        (r"{.items[0].metadata.labels.x\.y/z}", "1"),
        ("{.items[0].metadata.labels['x.y/z']}", "1"),
        ("{..name}", "a b"),
        ("{.items[0,1].size}", "1 20"),
        ("{.items[-1].size}{.items[9].size}", "20"),
        ("{.items[:1].size}", "1"),
        ("{.items[0].conditions[0]}", '{"type":"Ready","status":"True"}'),
        ("{.items[1].on} and {.none.at.all}.", "true and ."),
        ("{@.items[0].size}", "1"),
    ],
)
def test_a_template_selects_parts_of_an_object(template: str, expected: str) -> None:
    assert parse_template(template).render(VALUE) == expected


@pytest.mark.parametrize(
    ("template", "problem"),
    [
        ("{.items[0]", "unmatched brace"),
        ("{range .items[*]}x", "{range} without {end}"),
        ("{end}", "{end} without {range}"),
        ("{.items[x]}", "is not an index"),
        ("{.items[?(@.a==b)]}", "neither a quoted text nor a number"),
        ("{.a b}", "is not a path"),
    ],
)
def test_an_invalid_template_is_rejected_with_its_part(template: str, problem: str) -> None:
    with pytest.raises(InvalidTemplate) as caught:
        parse_template(template)
    assert problem in str(caught.value)


@pytest.mark.parametrize("text", [".metadata.name", "metadata.name", "{.metadata.name}"])
def test_a_field_to_sort_by_has_three_forms(text: str) -> None:
    assert parse_path(text).select(VALUE["items"][0]) == ["a"]
