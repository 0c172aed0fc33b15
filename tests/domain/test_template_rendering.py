"""Tests of `render_template` in `fairlead.domain.template_resolution`: parameters in texts and in YAML."""

import json
from collections.abc import Callable

import pytest
import yaml as pyyaml

from fairlead.domain.template_resolution import MAX_RENDERED_LENGTH, RenderingError, render_template


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("tag: {{ parameters.image.tag }}", "tag: 3"),
        ("{{parameters.a}}{{ parameters.a }}", "xx"),
        ("{{ parameters.a | quote }}", '"x"'),
        ("{{ .Release.Name }} and {{ parameters.a }}", "{{ .Release.Name }} and x"),
        ("{{ Parameters.a }}", "{{ Parameters.a }}"),
        ("{{ parameters.a | upper }}", "{{ parameters.a | upper }}"),
        ("nothing", "nothing"),
        ("", ""),
    ],
)
def test_parameters_are_replaced_by_their_values(text: str, expected: str) -> None:
    assert render_template({"text": text}, {"a": "x", "image.tag": "3"}) == {"text": expected}


def test_only_strings_are_rendered() -> None:
    template = {"list": [{"a": "{{ parameters.a }}"}, 1, True, None], "{{ parameters.a }}": "key"}
    assert render_template(template, {"a": "x"}) == {"list": [{"a": "x"}, 1, True, None], "{{ parameters.a }}": "key"}
    assert template["list"] == [{"a": "{{ parameters.a }}"}, 1, True, None]


def test_a_value_is_not_rendered_again() -> None:
    assert render_template({"text": "{{ parameters.a }}"}, {"a": "{{ parameters.b }}", "b": "x"}) == {
        "text": "{{ parameters.b }}"
    }


def test_a_quoted_value_stays_one_value() -> None:
    text = render_template({"text": "a: {{ parameters.a | quote }}"}, {"a": 'x"\nb: "c'})["text"]
    assert text == 'a: "x\\"\\nb: \\"c"'


def test_a_parameter_that_is_not_defined_is_an_error_with_its_name() -> None:
    with pytest.raises(RenderingError, match=r"parameters\.b\.c, which it does not define"):
        render_template({"text": "{{ parameters.b.c }}"}, {"b": "x"})


def test_a_rendered_text_over_the_limit_is_an_error() -> None:
    with pytest.raises(RenderingError, match="more than"):
        render_template({"text": "{{ parameters.a }}" * 10_000}, {"a": "x" * (MAX_RENDERED_LENGTH // 1_000)})


OBJECT = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  x: {{ parameters.a }}\n"
HOSTILE = [
    "1\nkind: Secret",
    "1\n---\nkind: RoleBinding",
    "{b: c}",
    "[1, 2]",
    "1 # and the rest",
    '"1", y: 2}',
    "&anchor x",
    "*anchor",
    "!!binary eA==",
    "|\n  x",
    "x: y",
    "- x",
    "'",
    "%TAG ! !",
    "parameter0p",
    "{{ parameters.a }}",
]


@pytest.mark.parametrize("value", HOSTILE)
@pytest.mark.parametrize("placeholder", ["{{ parameters.a }}", '"{{ parameters.a }}"', "{{ parameters.a | quote }}"])
def test_a_value_cannot_add_fields_or_documents_to_the_yaml(value: str, placeholder: str) -> None:
    text = render_template({"objects": OBJECT.replace("{{ parameters.a }}", placeholder)}, {"a": value})["objects"]
    documents = list(pyyaml.safe_load_all(text))
    expected = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"x": value}}
    assert documents == [expected]


@pytest.mark.parametrize("value", HOSTILE)
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{a: {{ parameters.a }}, b: [{{ parameters.a }}]}", lambda value: {"a": value, "b": [value]}),
        ("a: x-{{ parameters.a }}-y", lambda value: {"a": f"x-{value}-y"}),
        ("a: |\n  echo {{ parameters.a }}\n  done\n", lambda value: {"a": f"echo {value}\ndone\n"}),
        ("a: 'it''s {{ parameters.a }}'", lambda value: {"a": f"it's {value}"}),
        ("{{ parameters.a }}: x", lambda value: {value: "x"}),
        ("a: b # {{ parameters.a }}", lambda value: {"a": "b"}),
        ("a: |\n  x={{ parameters.a | quote }}", lambda value: {"a": f"x={json.dumps(value)}"}),
    ],
)
def test_a_value_stays_one_scalar_in_every_yaml_context(
    value: str, text: str, expected: Callable[[str], object]
) -> None:
    for field in ("objects", "values", "parameters"):
        rendered = render_template({"list": [{field: text}]}, {"a": value})["list"][0][field]
        assert list(pyyaml.safe_load_all(rendered)) == [expected(value)]


@pytest.mark.parametrize(
    ("value", "parsed"), [("3", 3), ("true", True), ("1.5", 1.5), ("", None), ("x", "x"), ("0x1F", 31), ("<<", "<<")]
)
def test_an_unquoted_value_is_parsed_as_yaml(value: str, parsed: object) -> None:
    text = "a: {{ parameters.a }}\nb: '{{ parameters.a }}'\nc: {{ parameters.a | quote }}\nd: 1{{ parameters.a }}"
    rendered = pyyaml.safe_load(render_template({"values": text}, {"a": value})["values"])
    assert (rendered["a"], rendered["b"], rendered["c"]) == (parsed, value, value)


def test_yaml_documents_stay_separate() -> None:
    text = "a: {{ parameters.a }}\n---\nb: {{ parameters.a }}\n---\n# nothing\n"
    assert render_template({"objects": text}, {"a": "x"}) == {"objects": "a: x\n---\nb: x\n"}


def test_yaml_without_parameters_is_not_changed() -> None:
    text = "a:   b # {{ .Values.x }}\n"
    assert render_template({"objects": text}, {}) == {"objects": text}


def test_a_template_with_invalid_yaml_or_duplicate_keys_cannot_be_rendered() -> None:
    with pytest.raises(RenderingError, match=r"its objects is not valid YAML .* line 1"):
        render_template({"objects": "a: b{{ parameters.a }}: c"}, {"a": "x"})
    with pytest.raises(RenderingError, match=r"parameters\.b, which it does not define"):
        render_template({"objects": "a: {{ parameters.b }}"}, {"a": "x"})
    with pytest.raises(RenderingError, match="occur twice"):
        render_template({"objects": "{{ parameters.a }}: 1\nb: 2"}, {"a": "b"})


def test_rendered_yaml_over_the_limit_is_an_error() -> None:
    with pytest.raises(RenderingError, match="more than"):
        render_template({"objects": "- {{ parameters.a }}\n" * 2_000}, {"a": "x" * 1_000})
    with pytest.raises(RenderingError, match="more than"):
        render_template({"objects": "a: &a {{ parameters.a }}\nb: [" + "*a, " * 2_000 + "]"}, {"a": "x" * 1_000})


def test_raw_values_are_inserted_as_yaml() -> None:
    assert render_template({"objects": "a: {{ parameters.a }}"}, {"a": "[1, 2]"}, raw=True) == {"objects": "a: [1, 2]"}


OWN = {"name": "dev", "namespace": "demo-v-dev", "project": "demo", "owner": "ada"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{{ name }}.{{project}}.example", "dev.demo.example"),
        ("{{ namespace }} of {{ owner | quote }}", 'demo-v-dev of "ada"'),
        ("{{ .name }} {{ Name }} {{ names }} {{ name.x }} {{ name | upper }}",) * 2,
        ("{{ parameters.name }}", "of the parameter"),
    ],
)
def test_placeholders_for_what_the_instance_has_are_replaced(text: str, expected: str) -> None:
    assert render_template({"text": text}, {"name": "of the parameter"}, OWN) == {"text": expected}


def test_placeholders_for_an_instance_are_kept_where_it_has_none() -> None:
    assert render_template({"text": "{{ name }}", "values": "a: '{{ owner }}'"}, {}) == {
        "text": "{{ name }}",
        "values": "a: '{{ owner }}'",
    }


@pytest.mark.parametrize("value", ["x\nkind: Secret", "{b: c}", "'", "{{ name }}", "{{ parameters.a }}"])
def test_what_an_instance_has_stays_one_scalar_of_yaml(value: str) -> None:
    text = "kind: ConfigMap\nplain: {{ owner }}\nlonger: 'of {{ owner | quote }}'\n"
    rendered = pyyaml.safe_load(render_template({"objects": text}, {"a": "x"}, {"owner": value})["objects"])
    assert rendered.keys() == {"kind", "plain", "longer"} and rendered["kind"] == "ConfigMap"
    assert rendered["plain"] == value


@pytest.mark.parametrize(
    ("variable", "advice"),
    [("namespace", "namespacePattern"), ("project", "in a project"), ("owner", "spec.owner"), ("name", "name the")],
)
def test_what_an_instance_does_not_have_is_an_error_with_advice(variable: str, advice: str) -> None:
    with pytest.raises(RenderingError, match=rf"uses \{{\{{ {variable} \}}\}}, which the instance .*{advice}"):
        render_template({"values": f"a: {{{{ {variable} }}}}"}, {}, {})
