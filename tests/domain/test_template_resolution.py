"""Tests of `fairlead.domain.template_resolution`: from an instance to its rendered template."""

from typing import Any

import pytest

from fairlead.core.objects import Object
from fairlead.domain.template_resolution import (
    ResolutionError,
    TemplateDefinition,
    find_definition,
    find_redirected_passwords,
    fingerprint,
    instance_values,
    is_auto_synced,
    is_same_reference,
    parameter_problems,
    render_definition,
)


def build_template(**spec: Any) -> Object:
    return {"metadata": {"name": "t"}, "spec": spec}


def build_instance(parameters: str = "", **ref: Any) -> Object:
    return {"spec": {"templateRef": {"name": "t", **ref}, "parameters": parameters}}


VERSIONED = build_template(
    template={"objects": "unversioned"},
    versions=[
        {"version": "1.0.0", "template": {"objects": "one"}},
        {"version": "1.10.0", "template": {"objects": "ten {{ parameters.a }}"}, "parameters": [{"variable": "a"}]},
        {"version": "2.0.0", "template": {"objects": "two"}},
    ],
)


@pytest.mark.parametrize(
    ("version", "objects", "expected_version"),
    [
        ("", "unversioned", ""),
        ("1.x.x", "ten {{ parameters.a }}", "1.10.0"),
        ("x.x.x", "two", "2.0.0"),
        ("1.0.0", "one", "1.0.0"),
    ],
)
def test_the_version_selects_the_definition(version: str, objects: str, expected_version: str) -> None:
    definition = find_definition(build_instance(version=version), VERSIONED)
    assert (definition.template["objects"], definition.version) == (objects, expected_version)


def test_any_version_of_an_unversioned_template_is_the_template() -> None:
    assert find_definition(build_instance(version="x.x.x"), build_template(template={"objects": "a"})).template == {
        "objects": "a"
    }


@pytest.mark.parametrize(
    ("version", "template_object", "reason"),
    [
        ("", None, "TemplateNotFound"),
        ("1.x", VERSIONED, "VersionError"),
        ("X.X.X", VERSIONED, "VersionError"),
        ("3.x.x", VERSIONED, "VersionNotFound"),
        ("1.0.0", build_template(template={}), "VersionNotFound"),
        ("", build_template(versions=[{"version": "1.0.0"}]), "VersionNotFound"),
    ],
)
def test_a_reference_that_cannot_be_resolved_is_an_error_with_a_reason(
    version: str, template_object: Object | None, reason: str
) -> None:
    with pytest.raises(ResolutionError) as caught:
        find_definition(build_instance(version=version), template_object)
    assert caught.value.reason == reason


def test_an_inline_template_needs_no_template_object() -> None:
    obj = {"spec": {"template": {"objects": "{{ parameters.a }} {{ parameters.b.c }}"}, "parameters": "a: 1\nb.c: x"}}
    assert render_definition(obj, find_definition(obj, None)) == {"objects": "1 x"}


def test_values_are_checked_and_rendered() -> None:
    definition = find_definition(build_instance("a: x", version="1.x.x"), VERSIONED)
    assert render_definition(build_instance("a: x"), definition) == {"objects": "ten x\n"}


def test_an_error_of_a_value_names_its_variable() -> None:
    definition = TemplateDefinition({}, [{"variable": "a", "required": True}])
    (problem,) = parameter_problems(build_instance(), definition)
    assert problem.field == "spec.parameters[a]"
    with pytest.raises(ResolutionError, match=r"spec\.parameters\[a\]") as caught:
        render_definition(build_instance(), definition)
    assert caught.value.reason == "ErrorSyncingParameters"


def test_a_template_with_undefined_parameters_cannot_be_rendered() -> None:
    with pytest.raises(ResolutionError) as caught:
        render_definition(build_instance("a: x"), TemplateDefinition({"objects": "{{ parameters.a }}"}, []))
    assert caught.value.reason == "ErrorRenderingTemplate"


def test_a_fingerprint_distinguishes_a_changed_template_from_a_changed_reference() -> None:
    original = fingerprint(build_instance(), TemplateDefinition({"objects": "a"}, []))
    assert original == fingerprint(build_instance("other: value"), TemplateDefinition({"objects": "a"}, []))
    changed = fingerprint(build_instance(), TemplateDefinition({"objects": "b"}, []))
    assert changed != original
    assert is_same_reference(original, changed)
    assert not is_same_reference(
        original, fingerprint(build_instance(version="x.x.x"), TemplateDefinition({"objects": "a"}, []))
    )


def test_versioned_and_inline_templates_are_auto_synced() -> None:
    assert is_auto_synced({"spec": {"template": {"objects": "a"}}})
    assert is_auto_synced(build_instance(version="1.0.0"))
    assert not is_auto_synced(build_instance())


# --- passwords and parameters


CHART = {"name": "c", "repo": "https://charts.example.com", "username": "ci", "password": "canary"}


@pytest.mark.parametrize(
    "changes",
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
def test_parameters_cannot_redirect_a_password_of_the_template(changes: Object) -> None:
    template = {"helmRelease": {"chart": {**CHART, **changes}}}
    instance: Object = {"spec": {"templateRef": {"name": "t"}, "parameters": "host: evil.example.com"}}
    with pytest.raises(ResolutionError) as caught:
        render_definition(instance, TemplateDefinition(template, [{"variable": "host"}]))
    assert caught.value.reason == "ErrorRenderingTemplate"
    assert "helmRelease.chart." in caught.value.message and "canary" not in caught.value.message
    with pytest.raises(ResolutionError):
        render_definition(instance, TemplateDefinition({"spaceTemplate": {"charts": [{**CHART, **changes}]}}, None))


@pytest.mark.parametrize("variable", ["name", "namespace", "project", "owner"])
def test_what_an_instance_has_cannot_redirect_a_password_of_the_template(variable: str) -> None:
    definition = TemplateDefinition({"charts": [{**CHART, "repo": f"https://{{{{ {variable} }}}}.example"}]}, ())
    instance: Object = {"metadata": {"name": "one"}, "spec": {"owner": {"team": "red"}}}
    own = instance_values(instance, project="demo", namespace="demo-one")
    assert own == {"name": "one", "namespace": "demo-one", "project": "demo", "owner": "red"}
    with pytest.raises(ResolutionError, match=r"charts\[0\]\.repo comes from placeholders"):
        render_definition(instance, definition, own)


def test_another_owner_cannot_redirect_a_hidden_password() -> None:
    chart = {**CHART, "repo": "https://{{ owner }}.example", "password": "{{ parameters.pass }}"}
    definition = TemplateDefinition({"charts": [chart]}, [{"variable": "pass", "type": "password"}])
    before: Object = {"metadata": {"name": "one"}, "spec": {"owner": {"user": "ada"}, "parameters": "pass: x"}}
    after = {**before, "spec": {**before["spec"], "owner": {"user": "eve"}}}
    assert find_redirected_passwords(before, after, definition, {"pass"}) == {"pass": "repo"}
    assert find_redirected_passwords(before, before, definition, {"pass"}) == {}
    assert find_redirected_passwords(before, after, None, {"pass"}) == {}


def test_a_password_from_a_parameter_can_be_sent_to_an_address_from_a_parameter() -> None:
    chart = {**CHART, "repo": "https://{{ parameters.host }}", "password": "{{ parameters.pass }}"}
    instance: Object = {"spec": {"templateRef": {"name": "t"}, "parameters": "host: a.example.com\npass: mine"}}
    result = render_definition(
        instance, TemplateDefinition({"charts": [chart]}, [{"variable": "host"}, {"variable": "pass"}])
    )
    assert result["charts"][0]["repo"] == "https://a.example.com"


@pytest.mark.parametrize("field", ["version", "name"])
def test_a_field_that_is_no_address_can_be_a_parameter(field: str) -> None:
    chart = {**CHART, field: "{{ parameters.host }}"}
    instance: Object = {"spec": {"templateRef": {"name": "t"}, "parameters": "host: 1.2.3"}}
    assert (
        render_definition(instance, TemplateDefinition({"charts": [chart]}, [{"variable": "host"}]))["charts"][0][field]
        == "1.2.3"
    )


def test_parameters_cannot_redirect_the_password_of_a_project_secret() -> None:
    reference = {"projectSecretRef": {"name": "creds", "key": "password"}}
    chart = {"name": "c", "repoURL": "https://{{ parameters.host }}", "passwordRef": reference}
    instance: Object = {"spec": {"templateRef": {"name": "t"}, "parameters": "host: evil.example.com"}}
    definition = TemplateDefinition({"charts": [chart]}, [{"variable": "host"}])
    with pytest.raises(ResolutionError, match=r"charts\[0\]\.repoURL comes from placeholders"):
        render_definition(instance, definition)
    reference["projectSecretRef"]["name"] = "{{ parameters.host }}"
    assert render_definition(instance, definition)["charts"][0]["repoURL"] == "https://evil.example.com"


def test_a_chart_name_that_becomes_an_address_cannot_redirect_a_password() -> None:
    chart = {**CHART, "name": "{{ parameters.name }}"}
    instance: Object = {"spec": {"templateRef": {"name": "t"}, "parameters": "name: oci://evil.example.com/c"}}
    with pytest.raises(ResolutionError, match=r"charts\[0\]\.name comes from placeholders"):
        render_definition(instance, TemplateDefinition({"charts": [chart]}, [{"variable": "name"}]))


@pytest.mark.parametrize("rule", [{"type": "number"}, {"options": ["a"]}, {"type": "boolean"}, {"validation": "^x$"}])
def test_errors_do_not_contain_a_hidden_value_whose_parameter_is_no_longer_a_password(rule: Object) -> None:
    spec = {"templateRef": {"name": "t"}, "parameters": "a: <hidden>", "parameterSecrets": {"a": "canary"}}
    (problem,) = parameter_problems({"spec": spec}, TemplateDefinition({}, [{"variable": "a", **rule}]))
    assert "canary" not in str(problem)
    assert "<hidden>" in str(problem)
