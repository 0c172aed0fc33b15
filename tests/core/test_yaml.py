"""Tests of `core/yaml.py`: documents, anchors, merges, duplicate keys, errors and output."""

from __future__ import annotations

import textwrap
from typing import Any

import pytest
import yaml as pyyaml
from hypothesis import given
from hypothesis import strategies as st

from fairlead.core import yaml
from fairlead.core.body_errors import MAX_DEPTH, MAX_DUPLICATE_KEYS, MAX_PATH_CHARS

APP = """\
---
# as people write it
kind: App
metadata: {name: nginx, creationTimestamp: null}
spec:
  access:
  - users:
    - '*'
    verbs: [get]
  displayName: &shown Nginx  # trailing
  description: *shown
  parameters: |
    region: eu
    size: small
  recommendedApp:
    - cluster
  folded: >-
    two
    lines
  kept: |+
    kept

  quoted: ['it''s', "tab\\there", "\\u00e9"]
status: {}
"""

# Words that are not the text they look like, here or to other readers.
AMBIGUOUS = (
    *("y", "yes", "No", "on", "off", "true", "NULL", "~", "null", "<<", "="),
    *("1", "-1", "0x1F", "0b1", "017", "08", "1_000", "1.0", ".5", "1e3", ".inf", ".NaN"),
    *("12:30", "190:20:30.15", "2001-01-01"),
)

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
    | st.text("a:-#|>'\"&*!%@`?,[]{} \t\n\r\\~=<0\x85\u2028\ufeff\x00😀", max_size=8)
    | st.sampled_from([*AMBIGUOUS, "-", "---", "...", "|", "%", "!a", "&a"])
)
texts = scalars.filter(lambda value: isinstance(value, str))
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4), max_leaves=20
)


def decode_text(text: str) -> Any:
    value, duplicates = yaml.decode(textwrap.dedent(text).encode())
    assert duplicates == []
    return value


def distinguish_booleans(value: Any) -> Any:
    """Converts a value so that true is not equal to 1."""
    if isinstance(value, dict):
        return {key: distinguish_booleans(each) for key, each in value.items()}
    if isinstance(value, list):
        return [distinguish_booleans(each) for each in value]
    return ("bool", value) if isinstance(value, bool) else value


def get_error(text: str) -> str:
    with pytest.raises(yaml.Malformed) as caught:
        yaml.decode(textwrap.dedent(text).encode())
    return str(caught.value)


def test_a_typical_body_is_parsed() -> None:
    assert decode_text(APP) == {
        "kind": "App",
        "metadata": {"name": "nginx", "creationTimestamp": None},
        "spec": {
            "access": [{"users": ["*"], "verbs": ["get"]}],
            "displayName": "Nginx",
            "description": "Nginx",
            "parameters": "region: eu\nsize: small\n",
            "recommendedApp": ["cluster"],
            "folded": "two lines",
            "kept": "kept\n\n",
            "quoted": ["it's", "tab\there", "é"],
        },
        "status": {},
    }


def test_json_is_yaml() -> None:
    assert decode_text('{"a": [1, 2.5, true, null, "x:y"], "b": {"c": "\\u00e9\\n"}}') == {
        "a": [1, 2.5, True, None, "x:y"],
        "b": {"c": "é\n"},
    }


@pytest.mark.parametrize("text", ["", "\n", "# only a comment\n", "---\n", "---\n...\n", "\ufeff"])
def test_a_body_without_content_is_null(text: str) -> None:
    assert decode_text(text) is None


@pytest.mark.parametrize(("text", "value"), [("just text", "just text"), ("- a\n- b\n", ["a", "b"]), ("7", 7)])
def test_a_body_need_not_be_a_mapping(text: str, value: Any) -> None:
    assert decode_text(text) == value


@pytest.mark.parametrize("rest", ["---\nb: 2\n", "...\n}not yaml", "--- &a [*a]\n", "---\n" * 1000])
def test_only_the_first_document_is_read(rest: str) -> None:
    assert decode_text(f"a: 1\n{rest}") == {"a": 1}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("apiVersion: v1\n  kind: : App\n bad", "yaml: line 2: mapping values are not allowed in this context"),
        ("{unclosed: [1, 2", "yaml: line 1: did not find expected ',' or ']'"),
        ("{a: [\n\n", "yaml: line 1: did not find expected node content"),
        ("a: 1\nb: 2\n\tc: 3\n", "yaml: line 3: found a tab character that violates indentation"),
        ('a: "open\n\n\n', "yaml: line 1: found unexpected end of stream"),
        ('a: "\\ud800"', "yaml: line 1: found invalid Unicode character escape code"),
        ("a: *b", "yaml: line 1: unknown anchor 'b' referenced; define it before its use"),
        ("a: 1\nb: !x 2\n", "yaml: line 2: tag '!x' is not supported; remove it"),
        ("a: 1\nb: .nan\n", "yaml: line 2: nan cannot be represented in JSON; quote it to make it a string"),
    ],
)
def test_an_error_names_its_line(text: str, message: str) -> None:
    assert get_error(text) == message


@pytest.mark.parametrize("data", [b"a: caf\xe9", b"\xff\xfea\x00", b"\xfe\xff\x00a", b"a: \xed\xa0\x80"])
def test_bytes_that_are_not_utf8_are_rejected(data: bytes) -> None:
    with pytest.raises(yaml.Malformed, match="is not UTF-8; encode the body as UTF-8"):
        yaml.decode(data)


@pytest.mark.parametrize("data", [b"a: \x00", b"a: \x07", b"\x1b"])
def test_control_characters_are_rejected(data: bytes) -> None:
    with pytest.raises(yaml.Malformed, match="control characters are not allowed"):
        yaml.decode(data)


@pytest.mark.parametrize(
    "text", ["? [a]\n: b\n", "? {a: 1}\n: b\n", "{[a]: b}", "x: &x [a]\n*x : b\n", "x: &x {}\n? *x\n"]
)
def test_a_key_must_be_a_scalar(text: str) -> None:
    assert get_error(text).endswith("a key is a list or a mapping; use a plain value as key")


def test_an_alias_can_be_a_key() -> None:
    assert decode_text("a: &k 1.0\n*k : v\nb: &f 1.5\nc: *f\nd: *k\n") == {"a": 1, "1": "v", "b": 1.5, "c": 1.5, "d": 1}


def test_an_anchored_key_names_its_value() -> None:
    assert decode_text("&k on: *k\n") == {"true": True}


def test_an_alias_is_a_copy() -> None:
    value = decode_text("a: &x {l: [{m: 1}]}\nb: *x\n")
    value["b"]["l"][0]["m"] = 2
    assert value["a"] == {"l": [{"m": 1}]}


def test_the_latest_anchor_of_a_name_wins() -> None:
    assert decode_text("[&a 1, *a, &a 2, *a, &a [&a 3], *a]") == [1, 1, 2, 2, [3], 3]


@pytest.mark.parametrize("text", ["&a [*a]", "&a {b: *a}", "&a {b: [1, {c: *a}]}", "&a {<<: *a}"])
def test_a_value_cannot_contain_itself(text: str) -> None:
    assert "anchor 'a' value contains itself" in get_error(text)


@pytest.mark.parametrize(
    ("mapping", "value"),
    [
        ("{<<: *a, z: 3}", {"x": 1, "b": 2, "z": 3}),
        ("{<<: *a, x: 9}", {"x": 9, "b": 2}),
        ("{x: 9, <<: *a}", {"x": 1, "b": 2}),
        ("{<<: [*b, *a]}", {"x": 7, "b": 2}),
        ("{<<: [*a, *b]}", {"x": 1, "b": 2}),
        ("{<<: *a, <<: *b}", {"x": 7, "b": 2}),
        ("{<<: {x: 5}}", {"x": 5}),
        ("{<<: [{x: 5}, *b]}", {"x": 5}),
        ("{<<: []}", {}),
        ("{!!merge <<: *b}", {"x": 7}),
        ("{'<<': *b}", {"<<": {"x": 7}}),
        ("{!!str <<: *b}", {"<<": {"x": 7}}),
    ],
)
def test_a_merge_copies_the_keys_of_other_mappings(mapping: str, value: Any) -> None:
    assert decode_text(f"[&a {{x: 1, b: 2}}, &b {{x: 7}}, {mapping}]")[2] == value


@pytest.mark.parametrize("source", ["1", "text", "", "[1]", "[[{}]]", "[{}, x]"])
def test_only_mappings_can_be_merged(source: str) -> None:
    assert get_error(f"<<: {source}\n").endswith("map merge requires map or sequence of maps as the value")


def test_a_merged_value_is_a_copy() -> None:
    value = decode_text("a: &x {l: [1]}\nb: {<<: *x}\n")
    value["b"]["l"].append(2)
    assert value["a"] == {"l": [1]}


@pytest.mark.parametrize(
    ("text", "value", "paths"),
    [
        ("spec: {icon: a, icon: b}\n", {"spec": {"icon": "b"}}, ["spec.icon"]),
        ("a: 1\nb: 2\na: 3\na: 4\n", {"a": 4, "b": 2}, ["a"]),
        ("s:\n- {}\n- u: 1\n  u: 2\n", {"s": [{}, {"u": 2}]}, ["s[1].u"]),
        ("- - a: 1\n    a: 2\n", [[{"a": 2}]], ["[0][0].a"]),
        ("a: {b: 1, b: 2}\na: {b: 1, b: 2}\n", {"a": {"b": 2}}, ["a.b", "a"]),
        ("1: a\n'1': b\n0x1: c\n", {"1": "c"}, ["1"]),
        ("a: [{x: 1, x: 2}]\nb: {c: {d: 1, d: 2}}\n", {"a": [{"x": 2}], "b": {"c": {"d": 2}}}, ["a[0].x", "b.c.d"]),
        ("a: {}\nb: {<<: {x: 1}, x: 2, x: 3}\n", {"a": {}, "b": {"x": 3}}, ["b.x"]),
        ("a: 1\n<<: {x: 1, x: 2}\n", {"a": 1, "x": 2}, ["<<.x"]),
        ("x: 1\n<<: {x: 2}\nx: 3\n", {"x": 3}, ["x"]),
        ("<<: {x: 2}\n<<: {x: 3}\nx: 1\n", {"x": 1}, []),
        ("a: {x: 1}\nb: {x: 1}\n", {"a": {"x": 1}, "b": {"x": 1}}, []),
    ],
)
def test_duplicate_keys_are_reported_and_the_last_value_wins(text: str, value: Any, paths: list[str]) -> None:
    assert yaml.decode(text.encode()) == (value, paths)


def test_the_report_of_duplicate_keys_is_bounded() -> None:
    pairs = ", ".join(f"k{number}: 1, k{number}: 1" for number in range(1000))
    assert len(yaml.decode(f"{{{pairs}}}".encode())[1]) == MAX_DUPLICATE_KEYS
    (path,) = yaml.decode(f"{{? {'k' * 10_000} : {{{pairs}}}}}".encode())[1]
    assert len(path) <= MAX_PATH_CHARS + 3 and path.endswith("...")


@given(values)
def test_a_value_round_trips(value: Any) -> None:
    decoded, duplicates = yaml.decode(yaml.encode(value))
    assert distinguish_booleans(decoded) == distinguish_booleans(value)
    assert duplicates == []


@given(st.text("ab:-#|>'\"&*!%@?,[]{} \t\n~=<0.1", max_size=40))
def test_any_text_is_parsed_or_rejected_without_other_errors(text: str) -> None:
    try:
        value, _ = yaml.decode(text.encode())
    except yaml.Malformed as refusal:
        assert str(refusal).startswith("yaml: ")
    else:
        assert yaml.decode(yaml.encode(value)) == (value, [])


def test_the_output_has_the_format_of_kubernetes() -> None:
    value = {
        "spec": {
            "zeta": "l1\nl2\n",
            "alpha": ["a", {"b": 1, "a": []}],
            "long": "word " * 40 + "end",
            "text": "x: y",
            "unicode": "é",
            "word": "yes",
            "star": "*",
        },
        "metadata": {"creationTimestamp": "2024-01-01T00:00:00Z", "empty": {}, "none": None, "no": False, "f": 1.0},
        "items": [],
    }
    assert yaml.encode(value).decode() == textwrap.dedent(
        f"""\
        items: []
        metadata:
          creationTimestamp: "2024-01-01T00:00:00Z"
          empty: {{}}
          f: 1
          "no": false
          none: null
        spec:
          alpha:
          - a
          - a: []
            b: 1
          long: {"word " * 40}end
          star: '*'
          text: 'x: y'
          unicode: é
          word: "yes"
          zeta: |
            l1
            l2
        """
    )


@pytest.mark.parametrize(
    "text",
    [*AMBIGUOUS, "", "9" * 30, "2001-12-14 21:59:43"],
)
def test_text_that_would_parse_as_another_type_is_quoted(text: str) -> None:
    assert yaml.encode([text]).decode() == f'- "{text}"\n'


@pytest.mark.parametrize(
    "text", ["a", "v1", "1.2.3", "10.0.0.1", "1:x", "https://example.com", "no way", "a=b", "1e400"]
)
def test_other_text_is_not_quoted(text: str) -> None:
    assert yaml.encode([text]).decode() == f"- {text}\n"


def test_shared_values_are_written_without_aliases() -> None:
    part = {"a": [1]}
    assert yaml.encode([part, part]) == b"- a:\n  - 1\n- a:\n  - 1\n"


def test_a_number_without_a_json_form_is_not_written() -> None:
    with pytest.raises(yaml.Malformed, match="cannot be represented in JSON"):
        yaml.encode({"a": float("inf")})


def test_a_value_of_maximal_depth_round_trips() -> None:
    value: Any = 1
    for _ in range(MAX_DEPTH):
        value = [value]
    assert yaml.decode(yaml.encode(value)) == (value, [])


@pytest.mark.parametrize(
    "text", [APP, "a: {b: 1, b: 2}", "a: *b", "a: 1\n b: [", "- &a [1]\n- {<<: {k: *a}}\n", "", "\x07"]
)
def test_without_libyaml_a_body_is_parsed_the_same(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def parse_body() -> Any:
        try:
            return yaml.decode(text.encode())
        except yaml.Malformed:
            return "rejected"

    fast = parse_body()
    monkeypatch.setattr(yaml, "_Parser", pyyaml.SafeLoader)
    assert parse_body() == fast
    monkeypatch.setattr(yaml, "_Emitter", pyyaml.SafeDumper)
    assert fast == "rejected" or yaml.decode(yaml.encode(fast[0]))[0] == fast[0]


# --- large texts are read in parts

LARGE = 1_000_000


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b"a: " + b"x" * LARGE, {"a": "x" * LARGE}),
        (b'a: "' + b"\\x41" * LARGE + b'"', {"a": "A" * LARGE}),
        (b"a: |\n" + b" x\n" * LARGE, {"a": "x\n" * LARGE}),
        (b"a: [1] #" + b"x" * LARGE, {"a": [1]}),
        (b"a: " + "\U0001f600".encode() * LARGE, {"a": "\U0001f600" * LARGE}),
        (b"a: " + b"9" * LARGE, {"a": "9" * LARGE}),
    ],
    ids=["plain", "quoted", "literal", "comment", "wide characters", "digits"],
)
def test_other_threads_can_run_within_a_long_scalar(text: bytes, value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """libyaml calls Python code for each part that it reads. Without it, one call would parse all of the scalar."""
    sizes: list[int] = []

    def read(source: Any, size: int) -> bytes:
        part = read_part(source, size)
        sizes.append(len(part))
        return part

    read_part = yaml._Source.read
    monkeypatch.setattr(yaml._Source, "read", read)
    assert yaml.decode(text) == (value, [])
    assert sum(sizes) == len(text) and max(sizes) <= 16 * 1024


@pytest.mark.parametrize("before", [0, 1, 32 * 1024 - 1, 32 * 1024, 100_000])
@pytest.mark.parametrize("wrong", [b"\xff", b"\xc3(", b"\xf0\x9f\x98"])
def test_a_byte_that_is_not_utf8_is_found_in_every_part(before: int, wrong: bytes) -> None:
    with pytest.raises(yaml.Malformed, match=f"byte {before} is not UTF-8; encode the body as UTF-8"):
        yaml.decode(b"x" * before + wrong)


@pytest.mark.parametrize("line_break", [b"\n", b"\r", b"\r\n", b"\xc2\x85", b"\xe2\x80\xa8", b"\xe2\x80\xa9"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_many_tag_lines_are_rejected_after_every_line_break(line_break: bytes, mark: bytes) -> None:
    with pytest.raises(yaml.Malformed, match="too many %TAG lines; remove them"):
        yaml.decode(mark + line_break.join(b"%%TAG !%d! x" % number for number in range(17)))


def test_the_word_of_a_tag_line_may_occur_within_lines() -> None:
    assert yaml.decode(b"a: [" + b"x%TAG, " * 1_000 + b"x]")[0]["a"] == ["x%TAG"] * 1_000 + ["x"]
