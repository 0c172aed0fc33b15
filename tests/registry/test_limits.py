"""registry/limits.py: size limits reject new values and tolerate values stored before the limits existed.

The tests store oversized values as the server itself, which is exempt from the limits.

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
from tests.harness.registry import GADGET, RegistryFixture, write_options

TOO_LONG = "x" * (limits.NAME + 1)


def problem_reasons(caught: pytest.ExceptionInfo[Invalid]) -> list[tuple[str, str]]:
    return [(problem.field, problem.reason) for problem in caught.value.details.problems]


async def create_oversized(api: RegistryFixture, kind: str = "Gadget", **fields: Any) -> Object:
    """Creates an object as it was stored before the limits existed."""
    return await api.submit(kind, api.build_object(kind, "old", **fields), server_write_options())


async def test_a_string_that_is_too_long_is_rejected(api: RegistryFixture) -> None:
    with pytest.raises(Invalid, match=r"Too long: may not be more than 1024 characters") as caught:
        await api.create("Gadget", "a", spec={"color": TOO_LONG})
    assert problem_reasons(caught) == [("spec.color", "FieldValueTooLong")]
    assert len(caught.value.message) < MAX_QUOTED_CHARS


async def test_core_kinds_get_422_for_sizes_and_400_for_types(
    api: RegistryFixture,
) -> None:
    data = {str(number): "" for number in range(limits.DATA_KEYS + 1)}
    with pytest.raises(Invalid) as caught:
        await api.create("ConfigMap", "a", data=data)
    assert problem_reasons(caught) == [("data", "FieldValueTooMany")]
    with pytest.raises(BadRequest):
        await api.create("ConfigMap", "a", data=data, binaryData={"a": 1})


async def test_an_oversized_object_can_be_changed_in_other_fields(api: RegistryFixture) -> None:
    await create_oversized(api, spec={"color": TOO_LONG, "size": 1})
    await api.patch("Gadget", "old", lambda obj: obj["spec"].update(size=2))
    await api.patch("Gadget", "old", lambda obj: obj["metadata"].update(labels={"a": "b"}, finalizers=["a/b"]))
    stored = api.get("Gadget", "old")
    assert stored is not None
    assert (stored["spec"]["size"], stored["spec"]["color"], stored["metadata"]["finalizers"]) == (2, TOO_LONG, ["a/b"])


async def test_an_oversized_object_can_get_a_status_and_be_deleted(api: RegistryFixture) -> None:
    await create_oversized(api, spec={"color": TOO_LONG})
    await api.patch(
        "Gadget", "old", lambda obj: obj.update(status={"phase": "Ready"}), write_options(subresource="status")
    )
    stored = api.get("Gadget", "old")
    assert stored is not None and stored["status"] == {"phase": "Ready"}
    await api.delete("Gadget", "old")
    assert api.get("Gadget", "old") is None


async def test_an_oversized_value_cannot_be_replaced_by_another_oversized_value(api: RegistryFixture) -> None:
    await create_oversized(api, spec={"free": {"a": "x" * limits.FREE_FORM_BYTES}})
    with pytest.raises(Invalid) as caught:
        await api.patch("Gadget", "old", lambda obj: obj["spec"]["free"].update(b=1))
    assert problem_reasons(caught) == [("spec.free", "FieldValueTooLong")]
    await api.patch("Gadget", "old", lambda obj: obj["spec"].update(free={"b": 1}))


async def test_an_oversized_list_can_be_shortened_step_by_step(
    api: RegistryFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As controllers do when they remove their finalizers one by one."""
    finalizers = [f"a/f{number}" for number in range(limits.FINALIZERS + 5)]
    lax = Validator(obj(finalizers=array(string(), max_items=0), name=string()))
    with monkeypatch.context() as patch:
        patch.setattr(object_metadata, "_validator", lax)
        await api.create("Gadget", "held", metadata={"finalizers": finalizers})
    await api.patch("Gadget", "held", lambda obj: obj["metadata"].update(labels={"a": "b"}))
    await api.patch("Gadget", "held", lambda obj: obj["metadata"]["finalizers"].remove("a/f0"))
    with pytest.raises(Invalid):
        await api.patch("Gadget", "held", lambda obj: obj["metadata"]["finalizers"].append("a/f0"))
    stored = api.get("Gadget", "held")
    assert stored is not None
    assert stored["metadata"]["finalizers"] == finalizers[1:]


async def test_oversized_metadata_can_stay(api: RegistryFixture) -> None:
    labels = {f"l{number}": "" for number in range(limits.LABELS)}
    await api.create("Gadget", "full", metadata={"labels": labels})
    with pytest.raises(Invalid) as caught:
        await api.patch("Gadget", "full", lambda obj: obj["metadata"]["labels"].update(more=""))
    assert problem_reasons(caught) == [("metadata.labels", "FieldValueTooMany")]


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
async def test_oversized_metadata_is_rejected(
    api: RegistryFixture, kind: str, field: str, value: Any, reason: str
) -> None:
    with pytest.raises(Invalid) as caught:
        await api.create(kind, "a", metadata={field: value})
    assert problem_reasons(caught) == [(f"metadata.{field}", reason)]


async def test_as_many_labels_as_kubernetes_accepts_are_accepted(api: RegistryFixture) -> None:
    labels = {f"example.com/l{number}": "x" * 63 for number in range(1_000)}
    created = await api.create("Gadget", "a", metadata={"labels": labels, "annotations": {"a": "x" * 262_143}})
    assert len(created["metadata"]["labels"]) == 1_000


async def test_metadata_rules_of_kubernetes_keep_their_messages(api: RegistryFixture) -> None:
    with pytest.raises(Invalid, match=r"metadata.annotations: Too long: may not be more than 262144 bytes"):
        await api.create("Gadget", "a", metadata={"annotations": {"a": "x" * 300_000}})
    with pytest.raises(Invalid, match=r"must be no more than 253 characters"):
        await api.create("Gadget", "n" * 2_000)


async def test_the_server_itself_is_exempt_from_limits(api: RegistryFixture) -> None:
    await create_oversized(api)
    new_status = {"phase": TOO_LONG}
    await api.patch("Gadget", "old", lambda obj: obj.update(status=new_status), server_write_options("status"))
    with pytest.raises(Invalid):
        await api.patch(
            "Gadget", "old", lambda obj: obj.update(status={"phase": "y" * 2000}), write_options(subresource="status")
        )


CROWD_FIELDS = obj(
    spec=obj(wanted=array(integer())),
    status=obj(seen=array(integer(), max_items=5_000), more=mapping(integer())),
)["properties"]
CROWD = Kind(
    "Crowd", "crowds", False, CROWD_FIELDS, "For tests.", status_subresource=True, sensitivity=Sensitivity.NORMAL
)


def test_many_errors_in_one_field_do_not_hide_errors_in_another() -> None:
    """A write of the spec drops the status, and a write of the status the spec: both are checked in full."""
    validator = Validator(CROWD.schema())
    body: Object = {"status": {"seen": ["x"] * 5_000}, "spec": {"wanted": ["x"]}}
    fields = [problem.field for problem in validator.validate(body).problems]
    assert fields.count("spec.wanted[0]") == 1
    assert len(fields) == MAX_PROBLEMS + 2
    body = {"spec": {"wanted": ["x"] * 1_000}, "status": {"more": {"a": "x"}}}
    assert "status.more.a" in [problem.field for problem in validator.validate(body).problems]


def test_all_unknown_fields_are_removed_and_only_the_first_are_named() -> None:
    body: Object = {"spec": {"wanted": [], **{f"u{number}": 1 for number in range(10_000)}}}
    findings = Validator(CROWD.schema()).validate(body)
    assert (body, len(findings.unknown_fields), findings.has_more_unknown_fields) == (
        {"spec": {"wanted": []}},
        MAX_PROBLEMS,
        True,
    )


async def test_a_misspelt_scope_field_is_not_hidden_by_other_unknown_fields(api: RegistryFixture) -> None:
    spec = {"user": "ada", **{f"u{number}": 1 for number in range(1_000)}, "scope": {"porjects": []}}
    with pytest.raises(Invalid, match="more than 100 unknown fields"):
        await api.create("OwnedAccessKey", "a", spec=spec)


def test_field_paths_in_errors_are_truncated() -> None:
    body: Object = {"spec": {"x" * 100_000: 1}, "status": {"more": {"y" * 900: ["x"]}}}
    findings = Validator(CROWD.schema()).validate(body)
    assert all(len(path) < MAX_QUOTED_CHARS for path in findings.unknown_fields)
    assert all(len(problem.field) < MAX_QUOTED_CHARS for problem in findings.problems)


def test_a_schema_with_an_unsupported_keyword_is_rejected() -> None:
    with pytest.raises(ValueError, match="minLength"):
        Validator(obj(name={**string(), "minLength": 1}))


@pytest.mark.parametrize(
    "value",
    ["x" * 5_000_000, ["x" * 2_000_000] * 3, [[]] * 1_000_000, {"k" * 3_000_000: {"a": [1] * 100_000}}],
    ids=["a text", "texts", "a list", "a key"],
)
def test_quoted_values_are_truncated(value: Any) -> None:
    text = quote_value(value)
    assert len(text) == MAX_QUOTED_CHARS + 3
    assert text.endswith("...")


@pytest.mark.parametrize("value", ["x", "é\n", [1, None, True, 1.5], {"a": {"b": []}}, ("a",), [], {}, 0, "x" * 1_020])
def test_a_short_value_is_quoted_in_full(value: Any) -> None:
    assert quote_value(value) == json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def test_no_more_problems_are_collected_than_reported() -> None:
    yielded = []

    def iter_problems() -> Any:
        while True:
            yielded.append(1)
            yield Problem.required(f"spec.f{len(yielded)}")

    error = Invalid.of("Gadget", "", "a", iter_problems())
    assert len(error.details.problems) == MAX_PROBLEMS
    assert len(yielded) <= 10 * MAX_PROBLEMS
    assert "and more problems; fix these first" in error.message


def test_a_few_problems_are_reported_in_full() -> None:
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
def test_an_error_about_another_kind_does_not_repeat_the_body(body: Object, kind: str) -> None:
    declared = GADGET if kind == "Gadget" else CONFIGMAP
    version = declared.api_version if body["apiVersion"] == "v1" else body["apiVersion"]
    with pytest.raises((BadRequest, Invalid)) as caught:
        check_type_meta({**body, "apiVersion": version}, declared)
    assert len(caught.value.message) + len(caught.value.details.name) < 8 * MAX_QUOTED_CHARS


def test_error_messages_are_truncated() -> None:
    assert len(BadRequest("x" * 3_000_000).message) == MAX_MESSAGE_CHARS + 3
    assert BadRequest("as it is").message == "as it is"


def build_template_spec(versions: int, parameters: int) -> Object:
    defined = [{"variable": f"v{number}", "validation": "a+"} for number in range(parameters)]
    return {"versions": [{"version": f"1.0.{number}", "parameters": defined} for number in range(versions)]}


async def test_all_versions_of_a_template_together_have_a_limit_of_parameters(api: RegistryFixture) -> None:
    """Each parameter may have two regular expressions to compile."""
    each = limits.TEMPLATE_PARAMETERS // 4
    await api.create("SpaceTemplate", "fine", spec=build_template_spec(4, each))
    with pytest.raises(Invalid) as caught:
        await api.create(
            "SpaceTemplate", "too-many", spec={**build_template_spec(4, each), "parameters": [{"variable": "a"}]}
        )
    assert problem_reasons(caught) == [("spec.versions", "FieldValueTooMany")]


async def test_all_versions_of_a_template_together_have_a_limit_of_regular_expressions(api: RegistryFixture) -> None:
    patterns = [{"variable": f"v{number}", "validation": f"a{{{number}}}"} for number in range(limits.PATTERNS)]
    same_patterns = {"version": "1.0.0", "parameters": patterns}
    await api.create("SpaceTemplate", "fine", spec={"parameters": patterns, "versions": [same_patterns]})
    one_more = {"version": "1.0.1", "parameters": [{"variable": "b", "invalidation": "b+"}]}
    with pytest.raises(Invalid, match="must have at most 16 different regular expressions") as caught:
        await api.create("SpaceTemplate", "more", spec={"parameters": patterns, "versions": [same_patterns, one_more]})
    assert problem_reasons(caught) == [("spec.versions", "FieldValueTooMany")]


async def test_all_regular_expressions_of_a_template_together_have_a_limit_of_characters(api: RegistryFixture) -> None:
    long = [{"variable": f"v{number}", "validation": f"{number}" + "a" * 900} for number in range(5)]
    with pytest.raises(Invalid, match="must have at most 4000 characters in the different regular") as caught:
        await api.create("SpaceTemplate", "long", spec={"parameters": long})
    assert problem_reasons(caught) == [("spec.versions", "FieldValueTooMany")]
