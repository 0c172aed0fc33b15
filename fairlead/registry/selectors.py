"""Label and field selectors: parsing and matching them, and reading the values that they compare.

Grammar and error messages are Kubernetes'. A selector is parsed once per request and evaluated once per object, so the
number of its terms, of their values, and its length are limited.

`SelectorFieldReader` reads the labels and selectable fields of a stored object without decoding the rest of it. It is
called for every record that enters the view, up to a million at startup. Each kind has a decoder that knows the labels
and the kind's selectable fields and skips everything else. Equal results are interned: objects share one mapping, which
must not be changed.
"""

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from operator import attrgetter
from typing import Any

import msgspec
import orjson

from fairlead.core.errors import MAX_QUOTED_CHARS, BadRequest, quote_value
from fairlead.core.objects import format_scalar, get_path
from fairlead.registry import limits
from fairlead.registry.kind import Kind
from fairlead.registry.names import label_value_errors, qualified_name_errors
from fairlead.storage.view.view import Entry, IndexQuery

# Does not match the blanks between tokens: with a leading `\s*` a run of blanks would take quadratic time.
_TOKEN = re.compile(r"==|!=|[=!(),<>]|[^\s=!(),<>]+")
_PUNCTUATION = frozenset({"=", "==", "!=", "!", "(", ")", ",", "<", ">"})
_OPERATORS = "in, notin, =, ==, !=, gt, lt"


@dataclass(frozen=True, slots=True)
class Requirement:
    """One requirement on one label or field."""

    key: str
    operator: str
    values: frozenset[str] = frozenset()

    def matches(self, found: Mapping[str, str]) -> bool:
        return _TESTS[self.operator](found.get(self.key), self.values)


_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")


def _integer_test(test: Callable[[int, int], bool]) -> Callable[[str | None, frozenset[str]], bool]:
    def accepts(value: str | None, values: frozenset[str]) -> bool:
        if value is None or not _INTEGER.fullmatch(value):
            return False
        return test(int(value), int(next(iter(values))))

    return accepts


_TESTS: dict[str, Callable[[str | None, frozenset[str]], bool]] = {
    "in": lambda value, values: value is not None and value in values,
    "notin": lambda value, values: value is None or value not in values,
    "exists": lambda value, values: value is not None,
    "missing": lambda value, values: value is None,
    ">": _integer_test(lambda left, right: left > right),
    "<": _integer_test(lambda left, right: left < right),
}


CHEAP_TERMS = 4
"""Evaluating this many terms takes no longer than the rest of the work on an object."""


@dataclass(frozen=True, slots=True)
class Selector:
    """All requirements of a list or watch. An empty one matches everything."""

    labels: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.labels or self.fields)

    def batch_size(self, rows: int) -> int:
        """How many objects to test before yielding to the event loop. `rows` is the number for a selector with few
        terms."""
        return max(1, rows // (1 + (len(self.labels) + len(self.fields)) // CHEAP_TERMS))

    def matches(self, entry: Entry) -> bool:
        return self.matches_values(entry.labels, entry.fields if self.fields else NO_FIELDS)

    def matches_values(self, labels: Mapping[str, str], fields: Mapping[str, str]) -> bool:
        # Plain loops: this runs once per object of a list, and `all(...)` would take three times as long.
        for each in self.labels:
            if not each.matches(labels):
                return False
        for each in self.fields:  # noqa: SIM110
            if not each.matches(fields):
                return False
        return True


EVERYTHING = Selector()
_KEY_FIELDS = frozenset({"metadata.name", "metadata.namespace"})


def index_conditions(selector: Selector) -> list[IndexQuery]:
    """The requirements that an index can answer. The entries it finds must still be tested."""
    found = [*(("labels", each) for each in selector.labels), *(("selectable", each) for each in selector.fields)]
    return [
        IndexQuery(sort, each.key, each.values if each.operator == "in" else None)
        for sort, each in found
        if each.operator in ("in", "exists", "<", ">") and each.key not in _KEY_FIELDS
    ]


def parse_labels(text: str) -> tuple[Requirement, ...]:
    """Parses `a=b,c!=d,e in (f,g),h notin (i),j,!k,l>1`."""
    _check_length("labelSelector", text)
    if not text.strip():
        return ()
    return _limit_terms("labelSelector", _LabelParser(_TOKEN.findall(text)).requirements())


def _check_length(name: str, text: str) -> None:
    if len(text) > limits.SELECTOR_LENGTH:
        raise BadRequest(f"{name} is too long: {len(text)} characters; {limits.SELECTOR_LENGTH} is the limit")


def _limit_terms(name: str, requirements: Iterable[Requirement]) -> tuple[Requirement, ...]:
    """The requirements without duplicates. Rejects too many of them."""
    found = dict[Requirement, None]()
    for each in requirements:
        found[each] = None
        if len(found) > limits.SELECTOR_TERMS:
            limit = f"{limits.SELECTOR_TERMS} is the limit"
            raise BadRequest(f"{name} has too many terms: {limit}; use `key in (a,b)`, or select less")
    return tuple(found)


class _LabelParser:
    def __init__(self, tokens: list[str]) -> None:
        self._tokens = tokens
        self._at = 0

    def requirements(self) -> Iterator[Requirement]:
        while True:
            if self._peek() not in ("", "!") and self._peek() in _PUNCTUATION:
                raise BadRequest(f"found '{self._peek()}', expected: !, identifier, or 'end of string'")
            yield self._requirement()
            end = self._next()
            if end == "":
                return
            if end != ",":
                raise BadRequest(f"found '{end}', expected: ',' or 'end of string'")
            if self._peek() != "!" and (self._peek() == "" or self._peek() in _PUNCTUATION):
                raise BadRequest(f"found '{self._peek()}', expected: identifier after ','")

    def _requirement(self) -> Requirement:
        if self._peek() == "!":
            self._next()
            return Requirement(self._key(), "missing")
        key = self._key()
        if self._peek() in ("", ","):
            return Requirement(key, "exists")
        operator = self._next()
        if operator in ("in", "notin"):
            return Requirement(key, operator, self._check_values(key, self._list()))
        if operator in ("=", "=="):
            return Requirement(key, "in", self._check_values(key, [self._value()]))
        if operator == "!=":
            return Requirement(key, "notin", self._check_values(key, [self._value()]))
        if operator in ("<", ">"):
            return Requirement(key, operator, self._check_integer(key, self._value()))
        raise BadRequest(f"unable to parse requirement: found '{operator}', expected: {_OPERATORS}")

    def _key(self) -> str:
        key = self._next()
        if key == "" or key in _PUNCTUATION:
            raise BadRequest(f"unable to parse requirement: found '{key}', expected: identifier")
        for fault in qualified_name_errors(key):
            raise BadRequest(f"unable to parse requirement: <nil>: Invalid value: {quote_value(key)}: {fault}")
        return key

    def _value(self) -> str:
        return self._next() if self._peek() not in ("", ",") and self._peek() not in _PUNCTUATION else ""

    def _list(self) -> list[str]:
        if self._next() != "(":
            found = self._tokens[self._at - 1] if self._at <= len(self._tokens) else ""
            raise BadRequest(f"unable to parse requirement: found '{found}', expected: '('")
        values: list[str] = []
        while True:
            values.append(self._value())
            if len(values) > limits.SELECTOR_VALUES:
                reason = f"too many values in one term; {limits.SELECTOR_VALUES} is the limit"
                raise BadRequest(f"unable to parse requirement: {reason}")
            end = self._next()
            if end == ")":
                return values
            if end != ",":
                raise BadRequest(f"unable to parse requirement: found '{end}', expected: ',' or ')'")

    def _check_values(self, key: str, values: Iterable[str]) -> frozenset[str]:
        checked = list(values)
        for index, value in enumerate(checked):
            for fault in label_value_errors(value):
                raise BadRequest(
                    f"unable to parse requirement: values[{index}][{key}]: Invalid value: {quote_value(value)}: {fault}"
                )
        return frozenset(checked)

    def _check_integer(self, key: str, value: str) -> frozenset[str]:
        """The value must be a valid label value as well, so it has no sign."""
        if not _INTEGER.fullmatch(value):
            raise BadRequest(
                f"unable to parse requirement: values[0]: Invalid value: {quote_value(value)}: "
                "for 'Gt', 'Lt' operators, the value must be an integer"
            )
        return self._check_values(key, [value])

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _next(self) -> str:
        token = self._peek()
        self._at += 1
        return token


def parse_fields(text: str, allowed: Iterable[str] | None) -> tuple[Requirement, ...]:
    """Parses `metadata.name=a,status.phase!=Ready`. `allowed` are the fields that the kind supports; None: any."""
    _check_length("fieldSelector", text)
    return _limit_terms("fieldSelector", _field_requirements(text, None if allowed is None else frozenset(allowed)))


def _field_requirements(text: str, supported: frozenset[str] | None) -> Iterator[Requirement]:
    for part in _split_unescaped(text):
        match = re.match(r"((?:\\.|[^\\=!])*)(==|!=|=)(.*)", part, re.DOTALL)
        if match is None:
            raise BadRequest(_syntax_error(text, part))
        key, operator, value = match.groups()
        if supported is not None and key not in supported:
            raise BadRequest(f"field label not supported: {key:.{MAX_QUOTED_CHARS}}")
        yield Requirement(key, "notin" if operator == "!=" else "in", frozenset({_unescape(value, text)}))


def _syntax_error(text: str, part: str) -> str:
    return f"invalid selector: '{text:.{MAX_QUOTED_CHARS}}'; can't understand '{part:.{MAX_QUOTED_CHARS}}'"


def selected_name(text: str) -> str:
    """The only name that a fieldSelector can match, or an empty string. Syntax errors are reported elsewhere."""
    for term in _split_unescaped(text):
        key, _, value = term.partition("=")
        if key == "metadata.name" and "\\" not in value:
            return value.removeprefix("=")
    return ""


def _split_unescaped(text: str) -> list[str]:
    return re.findall(r"(?:\\.|[^\\,]|\\$)+", text, re.DOTALL)


def _unescape(value: str, selector: str) -> str:
    if not re.fullmatch(r"(?:\\[\\,=]|[^\\,=])*", value, re.DOTALL):
        raise BadRequest(_syntax_error(selector, value))
    return re.sub(r"\\(.)", r"\1", value, flags=re.DOTALL)


SELECTOR_CACHE_SIZE = 8_192
"""How many distinct results are interned, for labels and for fields each."""
NO_FIELDS: Mapping[str, str] = {}
_LABELS = "metadata.labels"
_LABELS_MARKER = b'"labels":'
_NO_LABELS = msgspec.Raw(b"null")
_decode_labels = msgspec.json.Decoder(dict[str, str] | None).decode
FieldTree = dict[str, "FieldTree"]
"""Field names, each with the fields below it. A field without fields below it is one to read."""


def _attribute_name(name: str) -> str:
    """The attribute name of a field. The prefix avoids Python keywords."""
    return f"f_{name}"


def _attribute_path(path: str) -> str:
    return ".".join(map(_attribute_name, path.split(".")))


_raw_labels = attrgetter(_attribute_path(_LABELS))


class SelectorFieldReader:
    """Reads the labels and selectable fields of one kind's objects."""

    __slots__ = ("_decode", "_get_fields", "_intern_fields", "_kind", "_paths")

    def __init__(self, kind: Kind | None) -> None:
        self._kind = kind
        self._paths = kind.selectable if kind is not None else ()
        # A kind with its own function for reading fields needs decoded objects.
        simple = self._paths if kind is None or kind.read_selectable_field is None else ()
        self._decode = msgspec.json.Decoder(_build_struct(_build_tree((_LABELS, *simple)))).decode
        self._intern_fields = lru_cache(SELECTOR_CACHE_SIZE)(partial(_zip_fields, self._paths))
        self._get_fields: Callable[[Any], Any] | None = attrgetter(*map(_attribute_path, simple)) if simple else None

    def read(self, value: bytes) -> tuple[Mapping[str, str], Mapping[str, str]]:
        """The labels, and the selectable fields as the strings that selectors compare."""
        if not self._paths:
            return (self._read_labels(value) if _LABELS_MARKER in value else NO_FIELDS), NO_FIELDS
        if self._get_fields is None:
            return self._read_labels(value), self._read_fields_slow(value)
        try:
            decoded = self._decode(value)
        except msgspec.ValidationError:  # another type where an object is expected
            return _labels_from_json(value), self._read_fields_slow(value)
        found = self._get_fields(decoded)
        values = map(format_scalar, found) if len(self._paths) > 1 else (format_scalar(found),)
        return _intern_labels(bytes(_raw_labels(decoded))), self._intern_fields(*values)

    def _read_labels(self, value: bytes) -> Mapping[str, str]:
        return _intern_labels(bytes(_raw_labels(self._decode(value))))

    def _read_fields_slow(self, value: bytes) -> Mapping[str, str]:
        obj = orjson.loads(value)
        read = (self._kind.read_selectable_field if self._kind is not None else None) or get_path
        return self._intern_fields(*[format_scalar(read(obj, path)) for path in self._paths])


def _labels_from_json(value: bytes) -> Mapping[str, str]:
    return _intern_labels(orjson.dumps(get_path(orjson.loads(value), _LABELS)))


@lru_cache(SELECTOR_CACHE_SIZE)
def _intern_labels(raw: bytes) -> Mapping[str, str]:
    return {sys.intern(name): value for name, value in (_decode_labels(raw) or NO_FIELDS).items()} or NO_FIELDS


def _zip_fields(paths: Sequence[str], *values: str) -> Mapping[str, str]:
    return dict(zip(paths, values, strict=True))


def _build_tree(paths: Sequence[str]) -> FieldTree:
    tree: FieldTree = {}
    for path in paths:
        below = tree
        for step in path.split("."):
            below = below.setdefault(step, {})
    return tree


def _build_struct(tree: FieldTree, path: str = "") -> type[msgspec.Struct]:
    """A struct type with just these fields. Missing fields get empty defaults."""
    fields: list[tuple[str, Any, Any]] = []
    for name, below in tree.items():
        if below:
            inner = _build_struct(below, f"{path}{name}.")
            fields.append((_attribute_name(name), inner, inner()))
        elif path + name == _LABELS:
            fields.append((_attribute_name(name), msgspec.Raw, _NO_LABELS))
        else:
            fields.append((_attribute_name(name), Any, None))
    names = {_attribute_name(name): name for name in tree}
    return msgspec.defstruct("SelectorFields", fields, rename=names, frozen=True, gc=False)
