"""Pages of the kinds. The schemas are those that the server validates with and serves as OpenAPI."""

from collections.abc import Iterator
from pathlib import Path

import yaml

from fairlead.kinds import KINDS
from fairlead.registry.kind import ALL_VERBS, MANAGEMENT_GROUP, Kind
from fairlead.registry.no_effect import IneffectiveFields, find_ineffective_fields
from fairlead.registry.schema import Schema
from scripts.reference.text import escape, table

FIELDS = ("field", "type", "meaning")
REQUESTS = "requests.md"
KUBERNETES = "kubernetes.md"
WITHOUT_EFFECT = "without-effect.md"


def build_kind_pages(root: Path) -> dict[str, str]:
    """The pages by file name."""
    own = [kind for kind in KINDS if kind.group == MANAGEMENT_GROUP]
    stored = {f"{kind.name.lower()}.md": build_page(kind, root) for kind in own if kind.persisted}
    return {
        "index.md": build_index(),
        **stored,
        REQUESTS: build_requests_page([kind for kind in own if not kind.persisted], root),
        KUBERNETES: build_kubernetes_page([kind for kind in KINDS if kind.group != MANAGEMENT_GROUP]),
        WITHOUT_EFFECT: build_without_effect_page([kind for kind in own if "create" in kind.verbs]),
    }


def build_index() -> str:
    rows = []
    for kind in sorted((each for each in KINDS if each.group == MANAGEMENT_GROUP), key=lambda each: each.name):
        page = f"{kind.name.lower()}.md" if kind.persisted else f"{REQUESTS}#{kind.name.lower()}"
        rows.append((f"[{kind.name}]({page})", f"`{kind.plural}`", describe_scope(kind), escape(kind.description)))
    return (
        f"# Kinds\n\nThe kinds of `{MANAGEMENT_GROUP}/v1`, with all of their fields. `kubectl explain KIND` prints the "
        f"same from a running server, and [`examples`](../../../examples) has a manifest for each kind. The kinds of "
        f"Kubernetes that the server also serves are on [a page of their own]({KUBERNETES}).\n\n"
        + table(("kind", "resource", "scope", "purpose"), rows)
    )


def build_page(kind: Kind, root: Path) -> str:
    parts = [f"# {kind.name}\n", f"{escape(kind.description)}\n", describe(kind)]
    parts += [f"## Fields of {name}\n\n{build_fields(name, schema)}" for name, schema in split_fields(kind)]
    for action in kind.actions:
        if action.kind is not None and action.kind is not kind:
            rows = [row for name, schema in split_fields(action.kind) for row in iterate_rows(name, schema)]
            body = table(FIELDS, rows) if rows else "The body has no fields.\n"
            title = f"## Subresource {action.name}\n\n{escape(action.kind.description)}\n"
            parts.append(f"{title}\nVerbs: {code_list(action.verbs)}. The body is a `{action.kind.name}`.\n\n{body}")
    if example := find_example(kind, root):
        parts.append(f"## Example\n\n{show_example(example, 'examples')}")
    return "\n".join(parts)


def build_requests_page(kinds: list[Kind], root: Path) -> str:
    parts = [
        "# Requests that store nothing\n",
        "Objects of these kinds are not stored. A POST is answered with the same object and its result in `status`; "
        "the kinds without `create` are only read.\n",
    ]
    for kind in kinds:
        rows = [row for name, schema in split_fields(kind) for row in iterate_rows(name, schema)]
        parts += [f"## {kind.name}\n", f"{escape(kind.description)}\n", describe(kind), table(FIELDS, rows)]
        if example := find_example(kind, root):
            parts.append(show_example(example, "examples/requests"))
    return "\n".join(parts)


def build_kubernetes_page(kinds: list[Kind]) -> str:
    rows = [
        (
            f"`{kind.group + '/' if kind.group else ''}{kind.version}`",
            kind.name,
            f"`{kind.plural}`",
            describe_scope(kind),
            "all" if kind.verbs == ALL_VERBS else code_list(kind.verbs),
        )
        for kind in kinds
    ]
    return (
        "# Kinds of Kubernetes\n\nThe server also serves these kinds of Kubernetes, with the fields that Kubernetes "
        "documents. [The API](../../api.md) describes what differs.\n\n"
        + table(("version", "kind", "resource", "scope", "verbs"), rows)
    )


def build_without_effect_page(kinds: list[Kind]) -> str:
    parts = [
        "# Fields without effect\n",
        "The server accepts and returns these fields, and does nothing else with them. Each write of an object that "
        "sets one is answered with a `Warning` header, which kubectl prints: create, update, patch and apply, also "
        "with a dry run. Empty values, such as `false` and `{}`, cause no warning. A field of a template is one of "
        "the template in an instance, and of each version of a template.\n",
    ]
    for kind in kinds:
        if ineffective := kind.derive(find_ineffective_fields):
            rows = [(f"`{path}`", escape(reason)) for path, reason in iterate_ineffective("", ineffective)]
            parts.append(f"## {kind.name}\n\n{table(('field', 'what a warning says of it'), rows)}")
    return "\n".join(parts)


def iterate_ineffective(path: str, part: IneffectiveFields) -> Iterator[tuple[str, str]]:
    if part.reason:
        yield path, part.reason
    for name, inner in part.fields.items():
        yield from iterate_ineffective(f"{path}.{name}".lstrip("."), inner)


def describe(kind: Kind) -> str:
    actions = [action.name for action in kind.actions]
    subresources = [*(["status"] if kind.status_subresource else []), *kind.extra_subresources, *actions]
    rows = [
        ("resource", f"`{kind.plural}`"),
        ("short names", code_list(kind.short_names)),
        ("scope", describe_scope(kind)),
        ("verbs", "all" if kind.verbs == ALL_VERBS else code_list(kind.verbs)),
        ("subresources", code_list(subresources)),
        ("field selectors", code_list(kind.selectable)),
        ("cannot be changed", code_list(kind.immutable)),
        ("credentials", code_list(kind.sensitive)),
        ("write-only", code_list(kind.write_only)),
    ]
    return table(("", ""), (row for row in rows if row[1]))


def describe_scope(kind: Kind) -> str:
    return "namespace" if kind.namespaced else "cluster"


def code_list(names: "Iterator[str] | tuple[str, ...] | list[str]") -> str:
    return ", ".join(f"`{name}`" for name in names)


def split_fields(kind: Kind) -> Iterator[tuple[str, Schema]]:
    yield from kind.fields.items()


def build_fields(name: str, schema: Schema) -> str:
    about = f"{escape(schema['description'])}\n\n" if schema.get("description") else ""
    rows = [row for row in iterate_rows(name, schema) if row[0] != f"`{name}`"]
    return about + (table(FIELDS, rows) if rows else f"Type: {describe_type(schema)}.\n")


def iterate_rows(path: str, schema: Schema) -> Iterator[tuple[str, str, str]]:
    """A row for the field and each field below it. Brackets mark the entries of a list, braces those of a map."""
    yield f"`{path}`", describe_type(schema), escape(schema.get("description", ""))
    inner, suffix = schema, ""
    while True:
        if inner.get("type") == "array" and isinstance(inner.get("items"), dict):
            inner, suffix = inner["items"], suffix + "[]"
        elif isinstance(inner.get("additionalProperties"), dict):
            inner, suffix = inner["additionalProperties"], suffix + ".{key}"
        else:
            break
    for name, each in inner.get("properties", {}).items():
        yield from iterate_rows(f"{path}{suffix}.{name}", each)


def describe_type(schema: Schema) -> str:
    if "enum" in schema:
        return "one of " + code_list([each or '""' for each in map(str, schema["enum"])])
    kind = schema.get("type", "any")
    if kind == "array":
        return f"list of {describe_type(schema.get('items', {}))}"
    if isinstance(schema.get("additionalProperties"), dict):
        return f"map to {describe_type(schema['additionalProperties'])}"
    bounds = [f"{word} {schema[key]}" for key, word in (("minimum", "from"), ("maximum", "to")) if key in schema]
    return " ".join([kind if isinstance(kind, str) else " or ".join(kind), *bounds])


def show_example(path: Path, folder: str) -> str:
    return f"[`{path.name}`](../../../{folder}/{path.name}):\n\n```yaml\n{path.read_text()}```\n"


def find_example(kind: Kind, root: Path) -> Path | None:
    """The shortest example whose first object is of the kind."""
    found = []
    for path in (root / "examples" / ("" if kind.persisted else "requests")).glob("*.yaml"):
        first = next(yaml.safe_load_all(path.read_text()))
        if first["kind"] == kind.name and first["apiVersion"].startswith(f"{MANAGEMENT_GROUP}/"):
            found.append(path)
    return min(found, key=lambda path: (path.stat().st_size, path.name), default=None)
