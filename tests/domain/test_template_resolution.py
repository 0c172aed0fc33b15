from typing import Any

import pytest

from fairlead.core.objects import Object
from fairlead.domain.template_resolution import (
    ResolutionError,
    TemplateDefinition,
    find_definition,
    fingerprint,
    is_auto_synced,
    is_same_reference,
    parameter_problems,
    render_definition,
)


def template(**spec: Any) -> Object:
    return {"metadata": {"name": "t"}, "spec": spec}


def instance(parameters: str = "", **ref: Any) -> Object:
    return {"spec": {"templateRef": {"name": "t", **ref}, "parameters": parameters}}


VERSIONED = template(
    template={"objects": "unversioned"},
    versions=[
        {"version": "1.0.0", "template": {"objects": "one"}},
        {"version": "1.10.0", "template": {"objects": "ten {{ parameters.a }}"}, "parameters": [{"variable": "a"}]},
        {"version": "2.0.0", "template": {"objects": "two"}},
    ],
)


@pytest.mark.parametrize(
    ("version", "objects", "chosen"),
    [
        ("", "unversioned", ""),
        ("1.x.x", "ten {{ parameters.a }}", "1.10.0"),
        ("x.x.x", "two", "2.0.0"),
        ("1.0.0", "one", "1.0.0"),
    ],
)
def test_the_version_says_which_definition_is_meant(version: str, objects: str, chosen: str) -> None:
    found = find_definition(instance(version=version), VERSIONED)
    assert (found.template["objects"], found.version) == (objects, chosen)


def test_an_unversioned_template_is_its_own_newest() -> None:
    assert find_definition(instance(version="x.x.x"), template(template={"objects": "a"})).template == {"objects": "a"}


@pytest.mark.parametrize(
    ("version", "found", "reason"),
    [
        ("", None, "TemplateNotFound"),
        ("1.x", VERSIONED, "VersionError"),
        ("X.X.X", VERSIONED, "VersionError"),
        ("3.x.x", VERSIONED, "VersionNotFound"),
        ("1.0.0", template(template={}), "VersionNotFound"),
        ("", template(versions=[{"version": "1.0.0"}]), "VersionNotFound"),
    ],
)
def test_what_cannot_be_resolved_says_why(version: str, found: Object | None, reason: str) -> None:
    with pytest.raises(ResolutionError) as caught:
        find_definition(instance(version=version), found)
    assert caught.value.reason == reason


def test_what_is_written_in_place_needs_no_template() -> None:
    obj = {"spec": {"template": {"objects": "{{ parameters.a }} {{ parameters.b.c }}"}, "parameters": "a: 1\nb.c: x"}}
    assert render_definition(obj, find_definition(obj, None)) == {"objects": "1 x"}


def test_values_are_checked_and_rendered() -> None:
    found = find_definition(instance("a: x", version="1.x.x"), VERSIONED)
    assert render_definition(instance("a: x"), found) == {"objects": "ten x\n"}


def test_values_that_do_not_fit_name_their_variable() -> None:
    definition = TemplateDefinition({}, [{"variable": "a", "required": True}])
    (problem,) = parameter_problems(instance(), definition)
    assert problem.field == "spec.parameters[a]"
    with pytest.raises(ResolutionError, match=r"spec\.parameters\[a\]") as caught:
        render_definition(instance(), definition)
    assert caught.value.reason == "ErrorSyncingParameters"


def test_a_template_that_uses_what_it_does_not_define_cannot_be_rendered() -> None:
    with pytest.raises(ResolutionError) as caught:
        render_definition(instance("a: x"), TemplateDefinition({"objects": "{{ parameters.a }}"}, []))
    assert caught.value.reason == "ErrorRenderingTemplate"


def test_a_fingerprint_tells_changes_of_the_template_from_another_wish() -> None:
    one = fingerprint(instance(), TemplateDefinition({"objects": "a"}, []))
    assert one == fingerprint(instance("other: value"), TemplateDefinition({"objects": "a"}, []))
    changed = fingerprint(instance(), TemplateDefinition({"objects": "b"}, []))
    assert changed != one
    assert is_same_reference(one, changed)
    assert not is_same_reference(one, fingerprint(instance(version="x.x.x"), TemplateDefinition({"objects": "a"}, [])))


def test_versions_and_what_is_written_in_place_follow_by_themselves() -> None:
    assert is_auto_synced({"spec": {"template": {"objects": "a"}}})
    assert is_auto_synced(instance(version="1.0.0"))
    assert not is_auto_synced(instance())


# --- passwords and parameters


CHART = {"name": "c", "repo": "https://charts.example.com", "username": "ci", "password": "canary"}


@pytest.mark.parametrize(
    "changed",
    [
        {"repo": "https://{{ parameters.host }}"},
        {"repo": "https://charts.example.com{{ parameters.host }}"},
        {"username": "{{ parameters.host }}"},
        {"name": "oci://{{ parameters.host }}/c"},
        {"name": "oci://{{ parameters.host }}/c", "repo": ""},
        {"repo": "{{ parameters.host }}", "password": "can{{ parameters.host }}ary"},
        {"repo": "{{ parameters.host }}", "password": "{{ parameters.host }}{{ parameters.host }}"},
    ],
)
def test_parameters_do_not_say_where_a_password_of_the_template_goes(changed: Object) -> None:
    template = {"helmRelease": {"chart": {**CHART, **changed}}}
    instance: Object = {"spec": {"templateRef": {"name": "t"}, "parameters": "host: evil.example.com"}}
    with pytest.raises(ResolutionError) as caught:
        render_definition(instance, TemplateDefinition(template, [{"variable": "host"}]))
    assert caught.value.reason == "ErrorRenderingTemplate"
    assert "helmRelease.chart." in caught.value.message and "canary" not in caught.value.message
    with pytest.raises(ResolutionError):
        render_definition(instance, TemplateDefinition({"spaceTemplate": {"charts": [{**CHART, **changed}]}}, None))


def test_a_password_that_is_a_parameter_itself_goes_where_parameters_say() -> None:
    chart = {**CHART, "repo": "https://{{ parameters.host }}", "password": "{{ parameters.pass }}"}
    instance: Object = {"spec": {"templateRef": {"name": "t"}, "parameters": "host: a.example.com\npass: mine"}}
    result = render_definition(
        instance, TemplateDefinition({"charts": [chart]}, [{"variable": "host"}, {"variable": "pass"}])
    )
    assert result["charts"][0]["repo"] == "https://a.example.com"


@pytest.mark.parametrize("field", ["version", "name"])
def test_what_has_nothing_to_do_with_the_address_may_be_a_parameter(field: str) -> None:
    chart = {**CHART, field: "{{ parameters.host }}"}
    instance: Object = {"spec": {"templateRef": {"name": "t"}, "parameters": "host: 1.2.3"}}
    assert (
        render_definition(instance, TemplateDefinition({"charts": [chart]}, [{"variable": "host"}]))["charts"][0][field]
        == "1.2.3"
    )


def test_parameters_do_not_say_where_the_password_of_a_project_secret_goes() -> None:
    reference = {"projectSecretRef": {"name": "creds", "key": "password"}}
    chart = {"name": "c", "repoURL": "https://{{ parameters.host }}", "passwordRef": reference}
    instance: Object = {"spec": {"templateRef": {"name": "t"}, "parameters": "host: evil.example.com"}}
    definition = TemplateDefinition({"charts": [chart]}, [{"variable": "host"}])
    with pytest.raises(ResolutionError, match=r"charts\[0\]\.repoURL comes from parameters"):
        render_definition(instance, definition)
    reference["projectSecretRef"]["name"] = "{{ parameters.host }}"
    assert render_definition(instance, definition)["charts"][0]["repoURL"] == "https://evil.example.com"


def test_a_name_that_becomes_an_address_says_where_a_password_goes() -> None:
    chart = {**CHART, "name": "{{ parameters.name }}"}
    instance: Object = {"spec": {"templateRef": {"name": "t"}, "parameters": "name: oci://evil.example.com/c"}}
    with pytest.raises(ResolutionError, match=r"charts\[0\]\.name comes from parameters"):
        render_definition(instance, TemplateDefinition({"charts": [chart]}, [{"variable": "name"}]))


@pytest.mark.parametrize("rule", [{"type": "number"}, {"options": ["a"]}, {"type": "boolean"}, {"validation": "^x$"}])
def test_a_hidden_value_is_not_quoted_when_its_parameter_is_no_password_any_more(rule: Object) -> None:
    spec = {"templateRef": {"name": "t"}, "parameters": "a: <hidden>", "parameterSecrets": {"a": "canary"}}
    (problem,) = parameter_problems({"spec": spec}, TemplateDefinition({}, [{"variable": "a", **rule}]))
    assert "canary" not in str(problem)
    assert "<hidden>" in str(problem)
