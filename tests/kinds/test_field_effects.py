"""Each field that clients may set has an effect, or the server says in a warning that it has none."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import yaml

from fairlead.registry.kind import Change, Kind
from fairlead.registry.no_effect import add_warnings, find_ineffective_fields
from fairlead.registry.schema import NO_EFFECT, Schema
from tests.harness.calls import ADMIN
from tests.harness.kind_examples import build_example
from tests.kinds.field_inventory import EFFECTIVE, PATTERNS, SETTABLE, STORED, find_readers, find_unread, without_status

ROOT = Path(__file__).resolve().parents[2]


@cache
def words_of(file: str) -> frozenset[str]:
    """The words that a file can read fields with: those in its strings, and the fields
    that it decodes. Of a declaration of kinds, only those in its
    functions and columns: the schemas have all names."""
    text = (ROOT / file).read_text(encoding="utf-8")
    if not file.endswith(".py"):
        return frozenset(re.findall(r"\w+", text))
    tree: ast.AST = ast.parse(text)
    roots: list[ast.AST] = [tree]
    if file.startswith("fairlead/kinds/"):
        roots = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) or _is_column(node)]
    nodes = [node for root in roots for node in ast.walk(root)]
    decoded = (node.target for node in nodes if isinstance(node, ast.AnnAssign))  # the fields of a Struct
    constants = (node.value for node in nodes if isinstance(node, ast.Constant))
    texts = (each for each in constants if isinstance(each, str) and " " not in each)
    words = {word for each in texts for word in re.findall(r"\w+", each)}
    return frozenset(words | {each.id for each in decoded if isinstance(each, ast.Name)})


def _is_column(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Column"


def test_each_field_is_read_somewhere_or_declared_as_without_effect() -> None:
    assert find_unread(EFFECTIVE) == [], "name the reader in field_effects.py, or declare the field `without_effect`"


def test_each_reader_contains_the_names_of_its_fields() -> None:
    pairs = [(reader, path) for path in EFFECTIVE for reader in find_readers(path) if reader]
    missing = {f"{reader}: {path}" for reader, path in pairs if path.rpartition(".")[2] not in words_of(reader)}
    assert sorted(missing) == []


def test_each_pattern_matches_a_field() -> None:
    unused = {
        each
        for patterns in PATTERNS.values()
        for each, pattern in patterns.items()
        if not any(map(pattern.fullmatch, EFFECTIVE))
    }
    assert sorted(unused) == []


def test_a_field_that_nothing_reads_is_noticed() -> None:
    assert find_unread([*EFFECTIVE, "Cluster.spec.moonPhase"]) == ["Cluster.spec.moonPhase"]


def test_owner_and_access_have_an_effect_only_where_the_kind_says_so() -> None:
    for kind in STORED:
        fields = kind.fields.get("spec", {}).get("properties", {})
        for name in fields.keys() & {"owner", "access"}:
            assert kind.has_access_entries is (NO_EFFECT not in fields[name]), f"{kind.name}.spec.{name}"


# --- what a request that sets such a field is told ---


def iter_marked(path: str, properties: dict[str, Schema]) -> Iterator[tuple[str, Schema]]:
    """The fields declared as without effect, with `[0]` for the entries of lists."""
    for name, schema in properties.items():
        here = f"{path}.{name}" if path else name
        if NO_EFFECT in schema:
            yield here, schema
        elif "items" in schema:
            yield from iter_marked(f"{here}[0]", schema["items"].get("properties", {}))
        else:
            yield from iter_marked(here, schema.get("properties", {}))


MARKED = [(kind, path, schema) for kind in SETTABLE for path, schema in iter_marked("", without_status(kind))]
each_marked_field = pytest.mark.parametrize(
    ("kind", "path", "schema"), MARKED, ids=[f"{kind.name}.{path}" for kind, path, _ in MARKED]
)


def sample(schema: Schema) -> object:
    """A value that requests something."""
    if "enum" in schema:
        return next(each for each in schema["enum"] if each)
    match schema["type"]:
        case "boolean":
            return True
        case "integer":
            return 1
        case "array":
            return [sample(schema["items"])]
        case "object" if schema.get("properties"):
            name, inner = next(iter(schema["properties"].items()))
            return {name: sample(inner)}
        case "object" if "additionalProperties" in schema:
            return {"name": sample(schema["additionalProperties"])}
        case "object":
            return {"enabled": True}
    return "2026-01-02T03:04:05Z"


def nest(path: str, value: object) -> object:
    """The object in which the value is at a path."""
    for step in reversed(path.replace("[0]", ".[0]").split(".")):
        value = [value] if step == "[0]" else {step: value}
    return value


def find_warnings(kind: Kind, obj: object) -> list[str]:
    assert isinstance(obj, dict)
    change = Change("create", kind, ADMIN, None, obj, warnings=[])
    add_warnings(change, kind.derive(find_ineffective_fields))
    return change.warnings


@each_marked_field
def test_a_field_without_effect_causes_a_warning(kind: Kind, path: str, schema: Schema) -> None:
    assert find_warnings(kind, nest(path, sample(schema))) == [f"{path} {schema[NO_EFFECT]}"]


@each_marked_field
def test_the_description_of_a_field_without_effect_says_so(kind: Kind, path: str, schema: Schema) -> None:
    reason = schema[NO_EFFECT]
    assert "has no effect" in reason or "is not supported" in reason
    assert schema["description"].lower().endswith(f" {reason}.".lower())


@pytest.mark.parametrize("kind", STORED, ids=lambda kind: kind.name)
def test_an_example_without_such_fields_causes_no_warning(kind: Kind) -> None:
    unset = {path.partition("[")[0] for each, path, _ in MARKED if each is kind}
    example = build_example(kind.name)
    for path in unset:
        *steps, last = path.split(".")
        value: object = example
        for step in steps:
            value = value.get(step) if isinstance(value, dict) else None
        if isinstance(value, dict):
            value.pop(last, None)
    assert find_warnings(kind, example) == []


EXAMPLES = sorted((ROOT / "examples").rglob("*.yaml"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_example_sets_a_field_without_effect(path: Path) -> None:
    kinds = {(kind.api_version, kind.name): kind for kind in SETTABLE}
    for obj in yaml.safe_load_all(path.read_text(encoding="utf-8")):
        kind = kinds.get((obj.get("apiVersion"), obj.get("kind")))
        assert kind is None or find_warnings(kind, obj) == []
