import pytest

from fairlead.kinds.rendering import RENDERED_LIMIT, RenderingError, rendered


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
    assert rendered({"text": text}, {"a": "x", "image.tag": "3"}) == {"text": expected}


def test_every_text_is_rendered_and_nothing_else() -> None:
    template = {"list": [{"a": "{{ parameters.a }}"}, 1, True, None], "{{ parameters.a }}": "key"}
    assert rendered(template, {"a": "x"}) == {"list": [{"a": "x"}, 1, True, None], "{{ parameters.a }}": "key"}
    assert template["list"] == [{"a": "{{ parameters.a }}"}, 1, True, None]


def test_a_value_is_not_rendered_again() -> None:
    assert rendered({"text": "{{ parameters.a }}"}, {"a": "{{ parameters.b }}", "b": "x"}) == {
        "text": "{{ parameters.b }}"
    }


def test_a_quoted_value_stays_one_value() -> None:
    text = rendered({"text": "a: {{ parameters.a | quote }}"}, {"a": 'x"\nb: "c'})["text"]
    assert text == 'a: "x\\"\\nb: \\"c"'


def test_a_parameter_that_is_not_defined_is_an_error_with_its_name() -> None:
    with pytest.raises(RenderingError, match=r"parameters\.b\.c, which it does not define"):
        rendered({"text": "{{ parameters.b.c }}"}, {"b": "x"})


def test_a_template_that_grows_too_much_is_given_up() -> None:
    with pytest.raises(RenderingError, match="more than"):
        rendered({"text": "{{ parameters.a }}" * 10_000}, {"a": "x" * (RENDERED_LIMIT // 1_000)})
