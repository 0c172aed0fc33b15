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
def test_values_take_the_place_of_their_names(text: str, expected: str) -> None:
    assert render_template({"text": text}, {"a": "x", "image.tag": "3"}) == {"text": expected}


def test_every_text_is_rendered_and_nothing_else() -> None:
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


def test_a_template_that_grows_too_much_is_given_up() -> None:
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
@pytest.mark.parametrize("where", ["{{ parameters.a }}", '"{{ parameters.a }}"', "{{ parameters.a | quote }}"])
def test_a_value_adds_nothing_to_the_yaml_it_is_put_into(value: str, where: str) -> None:
    text = render_template({"objects": OBJECT.replace("{{ parameters.a }}", where)}, {"a": value})["objects"]
    read = list(pyyaml.safe_load_all(text))
    expected = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"x": value}}
    assert read == [expected]


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
def test_a_value_stays_where_it_was_put(value: str, text: str, expected: Callable[[str], object]) -> None:
    for field in ("objects", "values", "parameters"):
        made = render_template({"list": [{field: text}]}, {"a": value})["list"][0][field]
        assert list(pyyaml.safe_load_all(made)) == [expected(value)]


@pytest.mark.parametrize(
    ("value", "plain"), [("3", 3), ("true", True), ("1.5", 1.5), ("", None), ("x", "x"), ("0x1F", 31), ("<<", "<<")]
)
def test_a_plain_value_is_the_number_or_word_that_it_looks_like(value: str, plain: object) -> None:
    text = "a: {{ parameters.a }}\nb: '{{ parameters.a }}'\nc: {{ parameters.a | quote }}\nd: 1{{ parameters.a }}"
    made = pyyaml.safe_load(render_template({"values": text}, {"a": value})["values"])
    assert (made["a"], made["b"], made["c"]) == (plain, value, value)


def test_documents_stay_apart() -> None:
    text = "a: {{ parameters.a }}\n---\nb: {{ parameters.a }}\n---\n# nothing\n"
    assert render_template({"objects": text}, {"a": "x"}) == {"objects": "a: x\n---\nb: x\n"}


def test_yaml_without_parameters_stays_as_it_was_written() -> None:
    text = "a:   b # {{ .Values.x }}\n"
    assert render_template({"objects": text}, {}) == {"objects": text}


def test_a_template_that_needs_more_than_a_value_cannot_be_rendered() -> None:
    with pytest.raises(RenderingError, match=r"its objects is not valid YAML .* line 1"):
        render_template({"objects": "a: b{{ parameters.a }}: c"}, {"a": "x"})
    with pytest.raises(RenderingError, match=r"parameters\.b, which it does not define"):
        render_template({"objects": "a: {{ parameters.b }}"}, {"a": "x"})
    with pytest.raises(RenderingError, match="occur twice"):
        render_template({"objects": "{{ parameters.a }}: 1\nb: 2"}, {"a": "b"})


def test_values_do_not_make_yaml_grow_without_bound() -> None:
    with pytest.raises(RenderingError, match="more than"):
        render_template({"objects": "- {{ parameters.a }}\n" * 2_000}, {"a": "x" * 1_000})
    with pytest.raises(RenderingError, match="more than"):
        render_template({"objects": "a: &a {{ parameters.a }}\nb: [" + "*a, " * 2_000 + "]"}, {"a": "x" * 1_000})


def test_who_writes_both_may_put_in_what_he_likes() -> None:
    assert render_template({"objects": "a: {{ parameters.a }}"}, {"a": "[1, 2]"}, raw=True) == {"objects": "a: [1, 2]"}
