"""Bounds in the life of an object: refused when it is made, tolerated where it was stored before, never in the way.

What is stored beyond a bound is made by the server itself here: it may break them, as an older server could.
"""

import json
from typing import Any

import pytest

from fairlead.core.errors import (
    MAX_MESSAGE_CHARS,
    MAX_PROBLEMS,
    MAX_QUOTED_CHARS,
    BadRequest,
    Invalid,
    Problem,
    quote_value,
)
from fairlead.core.objects import Object
from fairlead.kinds.core.config_data import CONFIGMAP
from fairlead.registry import limits, object_metadata
from fairlead.registry.kind import Kind, Sensitivity
from fairlead.registry.request_body import check_type_meta
from fairlead.registry.schema import array, integer, mapping, obj, string
from fairlead.registry.validate import Validator
from fairlead.registry.write_options import server_write_options
from tests.harness.registry import GADGET, RegistryFixture, as_ada

LONG = "x" * (limits.NAME + 1)


def reasons(caught: pytest.ExceptionInfo[Invalid]) -> list[tuple[str, str]]:
    return [(problem.field, problem.reason) for problem in caught.value.details.problems]


async def stored(api: RegistryFixture, kind: str = "Gadget", **fields: Any) -> Object:
    """An object from before there were bounds."""
    return await api.submit(kind, api.body(kind, "old", **fields), server_write_options())


async def test_a_text_that_is_too_long_is_refused(api: RegistryFixture) -> None:
    with pytest.raises(Invalid, match=r"Too long: may not be more than 1024 characters") as caught:
        await api.create("Gadget", "a", spec={"color": LONG})
    assert reasons(caught) == [("spec.color", "FieldValueTooLong")]
    assert len(caught.value.message) < MAX_QUOTED_CHARS


async def test_core_kinds_are_refused_with_422_for_their_size_and_with_400_for_their_types(
    api: RegistryFixture,
) -> None:
    data = {str(number): "" for number in range(limits.DATA_KEYS + 1)}
    with pytest.raises(Invalid) as caught:
        await api.create("ConfigMap", "a", data=data)
    assert reasons(caught) == [("data", "FieldValueTooMany")]
    with pytest.raises(BadRequest):
        await api.create("ConfigMap", "a", data=data, binaryData={"a": 1})


async def test_what_was_stored_beyond_a_bound_can_be_changed_elsewhere(api: RegistryFixture) -> None:
    await stored(api, spec={"color": LONG, "size": 1})
    await api.patch("Gadget", "old", lambda obj: obj["spec"].update(size=2))
    await api.patch("Gadget", "old", lambda obj: obj["metadata"].update(labels={"a": "b"}, finalizers=["a/b"]))
    found = api.see("Gadget", "old")
    assert found is not None
    assert (found["spec"]["size"], found["spec"]["color"], found["metadata"]["finalizers"]) == (2, LONG, ["a/b"])


async def test_its_status_can_be_written_and_it_can_be_deleted(api: RegistryFixture) -> None:
    await stored(api, spec={"color": LONG})
    await api.patch("Gadget", "old", lambda obj: obj.update(status={"phase": "Ready"}), as_ada(subresource="status"))
    found = api.see("Gadget", "old")
    assert found is not None and found["status"] == {"phase": "Ready"}
    await api.delete("Gadget", "old")
    assert api.see("Gadget", "old") is None


async def test_a_value_beyond_a_bound_cannot_become_another_one(api: RegistryFixture) -> None:
    await stored(api, spec={"free": {"a": "x" * limits.FREE_FORM_BYTES}})
    with pytest.raises(Invalid) as caught:
        await api.patch("Gadget", "old", lambda obj: obj["spec"]["free"].update(b=1))
    assert reasons(caught) == [("spec.free", "FieldValueTooLong")]
    await api.patch("Gadget", "old", lambda obj: obj["spec"].update(free={"b": 1}))


async def test_what_is_too_long_can_be_made_shorter_step_by_step(
    api: RegistryFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As controllers do when they take off their finalizers, one by one."""
    finalizers = [f"a/f{number}" for number in range(limits.FINALIZERS + 5)]
    lax = Validator(obj(finalizers=array(string(), max_items=0), name=string()))
    with monkeypatch.context() as before_there_were_bounds:
        before_there_were_bounds.setattr(object_metadata, "_validator", lax)
        await api.create("Gadget", "held", metadata={"finalizers": finalizers})
    await api.patch("Gadget", "held", lambda obj: obj["metadata"].update(labels={"a": "b"}))
    await api.patch("Gadget", "held", lambda obj: obj["metadata"]["finalizers"].remove("a/f0"))
    with pytest.raises(Invalid):
        await api.patch("Gadget", "held", lambda obj: obj["metadata"]["finalizers"].append("a/f0"))
    found = api.see("Gadget", "held")
    assert found is not None
    assert found["metadata"]["finalizers"] == finalizers[1:]


async def test_metadata_from_before_there_were_bounds_can_stay(api: RegistryFixture) -> None:
    labels = {f"l{number}": "" for number in range(limits.LABELS)}
    await api.create("Gadget", "full", metadata={"labels": labels})
    with pytest.raises(Invalid) as caught:
        await api.patch("Gadget", "full", lambda obj: obj["metadata"]["labels"].update(more=""))
    assert reasons(caught) == [("metadata.labels", "FieldValueTooMany")]


METADATA: list[tuple[str, Any, str]] = [
    ("labels", {f"l{number}": "" for number in range(limits.LABELS + 1)}, "FieldValueTooMany"),
    ("annotations", {f"l{number}": "" for number in range(limits.ANNOTATIONS + 1)}, "FieldValueTooMany"),
    ("finalizers", [f"a/f{number}" for number in range(limits.FINALIZERS + 1)], "FieldValueTooMany"),
    ("ownerReferences", [{}] * (limits.OWNER_REFERENCES + 1), "FieldValueTooMany"),
    ("managedFields", [{}] * (limits.MANAGED_FIELDS + 1), "FieldValueTooMany"),
    ("generateName", "x" * (limits.METADATA_TEXT + 1), "FieldValueTooLong"),
]


@pytest.mark.parametrize(("field", "value", "reason"), METADATA, ids=[field for field, _, _ in METADATA])
@pytest.mark.parametrize("kind", ["Gadget", "ConfigMap"])
async def test_metadata_has_bounds(api: RegistryFixture, kind: str, field: str, value: Any, reason: str) -> None:
    with pytest.raises(Invalid) as caught:
        await api.create(kind, "a", metadata={field: value})
    assert reasons(caught) == [(f"metadata.{field}", reason)]


async def test_as_many_labels_as_a_kubernetes_would_take_are_taken(api: RegistryFixture) -> None:
    labels = {f"example.com/l{number}": "x" * 63 for number in range(1_000)}
    made = await api.create("Gadget", "a", metadata={"labels": labels, "annotations": {"a": "x" * 262_143}})
    assert len(made["metadata"]["labels"]) == 1_000


async def test_kubernetes_own_rules_for_metadata_keep_their_words(api: RegistryFixture) -> None:
    with pytest.raises(Invalid, match=r"metadata.annotations: Too long: may not be more than 262144 bytes"):
        await api.create("Gadget", "a", metadata={"annotations": {"a": "x" * 300_000}})
    with pytest.raises(Invalid, match=r"must be no more than 253 characters"):
        await api.create("Gadget", "n" * 2_000)


async def test_the_server_itself_may_write_more(api: RegistryFixture) -> None:
    await stored(api)
    told = {"phase": LONG}
    await api.patch("Gadget", "old", lambda obj: obj.update(status=told), server_write_options("status"))
    with pytest.raises(Invalid):
        await api.patch(
            "Gadget", "old", lambda obj: obj.update(status={"phase": "y" * 2000}), as_ada(subresource="status")
        )


TWO = obj(
    spec=obj(wanted=array(integer())),
    status=obj(seen=array(integer(), max_items=5_000), more=mapping(integer())),
)["properties"]
CROWD = Kind("Crowd", "crowds", False, TWO, "For tests.", status_subresource=True, sensitivity=Sensitivity.NORMAL)


def test_what_is_wrong_with_one_field_does_not_hide_what_is_wrong_with_another() -> None:
    """The status is not taken with a spec, nor the spec with a status: each must be looked at to the end."""
    validator = Validator(CROWD.schema())
    body: Object = {"status": {"seen": ["x"] * 5_000}, "spec": {"wanted": ["x"]}}
    fields = [problem.field for problem in validator.validate(body).problems]
    assert fields.count("spec.wanted[0]") == 1
    assert len(fields) == MAX_PROBLEMS + 2
    body = {"spec": {"wanted": ["x"] * 1_000}, "status": {"more": {"a": "x"}}}
    assert "status.more.a" in [problem.field for problem in validator.validate(body).problems]


def test_unknown_fields_are_all_taken_out_and_not_all_named() -> None:
    body: Object = {"spec": {"wanted": [], **{f"u{number}": 1 for number in range(10_000)}}}
    findings = Validator(CROWD.schema()).validate(body)
    assert (body, len(findings.unknown_fields), findings.has_more_unknown_fields) == (
        {"spec": {"wanted": []}},
        MAX_PROBLEMS,
        True,
    )


async def test_a_misspelt_limit_is_not_hidden_by_other_unknown_fields(api: RegistryFixture) -> None:
    spec = {"user": "ada", **{f"u{number}": 1 for number in range(1_000)}, "scope": {"porjects": []}}
    with pytest.raises(Invalid, match="more than 100 unknown fields"):
        await api.create("OwnedAccessKey", "a", spec=spec)


def test_a_path_is_told_with_an_end() -> None:
    body: Object = {"spec": {"x" * 100_000: 1}, "status": {"more": {"y" * 900: ["x"]}}}
    findings = Validator(CROWD.schema()).validate(body)
    assert all(len(path) < MAX_QUOTED_CHARS for path in findings.unknown_fields)
    assert all(len(problem.field) < MAX_QUOTED_CHARS for problem in findings.problems)


def test_a_schema_with_a_word_that_nobody_checks_is_refused() -> None:
    with pytest.raises(ValueError, match="pattern"):
        Validator(obj(name={**string(), "pattern": "a+"}))


@pytest.mark.parametrize(
    "value",
    ["x" * 5_000_000, ["x" * 2_000_000] * 3, [[]] * 1_000_000, {"k" * 3_000_000: {"a": [1] * 100_000}}],
    ids=["a text", "texts", "a list", "a key"],
)
def test_of_a_large_value_only_the_beginning_is_written_out(value: Any) -> None:
    text = quote_value(value)
    assert len(text) == MAX_QUOTED_CHARS + 3
    assert text.endswith("...")


@pytest.mark.parametrize("value", ["x", "é\n", [1, None, True, 1.5], {"a": {"b": []}}, ("a",), [], {}, 0, "x" * 1_020])
def test_a_value_that_fits_is_quoted_whole(value: Any) -> None:
    assert quote_value(value) == json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def test_no_more_problems_are_asked_for_than_are_needed() -> None:
    asked = []

    def endless() -> Any:
        while True:
            asked.append(1)
            yield Problem.required(f"spec.f{len(asked)}")

    error = Invalid.of("Gadget", "", "a", endless())
    assert len(error.details.problems) == MAX_PROBLEMS
    assert len(asked) <= 10 * MAX_PROBLEMS
    assert "and more problems; fix these first" in error.message


def test_few_problems_are_told_as_ever() -> None:
    error = Invalid.of("Gadget", "", "a", [Problem.required("spec.b"), Problem.required("spec.c")])
    assert error.message == 'Gadget "a" is invalid: [spec.b: Required value, spec.c: Required value]'


@pytest.mark.parametrize(
    "body",
    [
        {"kind": "k" * 3_000_000, "apiVersion": "v1"},
        {"kind": "ConfigMap", "apiVersion": "v" * 3_000_000},
        {"kind": "App", "apiVersion": "v1", "metadata": {"name": "n" * 3_000_000}},
    ],
    ids=["kind", "version", "name"],
)
@pytest.mark.parametrize("kind", ["ConfigMap", "Gadget"])
def test_a_body_of_another_kind_is_not_sent_back_as_a_whole(body: Object, kind: str) -> None:
    declared = GADGET if kind == "Gadget" else CONFIGMAP
    version = declared.api_version if body["apiVersion"] == "v1" else body["apiVersion"]
    with pytest.raises((BadRequest, Invalid)) as caught:
        check_type_meta({**body, "apiVersion": version}, declared)
    assert len(caught.value.message) + len(caught.value.details.name) < 8 * MAX_QUOTED_CHARS


def test_no_message_is_as_large_as_a_request() -> None:
    assert len(BadRequest("x" * 3_000_000).message) == MAX_MESSAGE_CHARS + 3
    assert BadRequest("as it is").message == "as it is"


def template(versions: int, parameters: int) -> Object:
    defined = [{"variable": f"v{number}", "validation": "a+"} for number in range(parameters)]
    return {"versions": [{"version": f"1.0.{number}", "parameters": defined} for number in range(versions)]}


async def test_the_versions_of_a_template_share_a_number_of_parameters(api: RegistryFixture) -> None:
    """Each may have two regular expressions, which have to be compiled."""
    each = limits.TEMPLATE_PARAMETERS // 4
    await api.create("SpaceTemplate", "fine", spec=template(4, each))
    with pytest.raises(Invalid) as caught:
        await api.create("SpaceTemplate", "too-many", spec={**template(4, each), "parameters": [{"variable": "a"}]})
    assert reasons(caught) == [("spec.versions", "FieldValueTooMany")]


async def test_the_versions_of_a_template_share_a_number_of_regular_expressions(api: RegistryFixture) -> None:
    crowd = [{"variable": f"v{number}", "validation": f"a{{{number}}}"} for number in range(limits.PATTERNS)]
    again = {"version": "1.0.0", "parameters": crowd}
    await api.create("SpaceTemplate", "fine", spec={"parameters": crowd, "versions": [again]})
    one_more = {"version": "1.0.1", "parameters": [{"variable": "b", "invalidation": "b+"}]}
    with pytest.raises(Invalid, match="must have at most 16 different regular expressions") as caught:
        await api.create("SpaceTemplate", "more", spec={"parameters": crowd, "versions": [again, one_more]})
    assert reasons(caught) == [("spec.versions", "FieldValueTooMany")]


async def test_the_regular_expressions_of_a_template_share_a_number_of_characters(api: RegistryFixture) -> None:
    long = [{"variable": f"v{number}", "validation": f"{number}" + "a" * 900} for number in range(5)]
    with pytest.raises(Invalid, match="must have at most 4000 characters in the different regular") as caught:
        await api.create("SpaceTemplate", "long", spec={"parameters": long})
    assert reasons(caught) == [("spec.versions", "FieldValueTooMany")]
