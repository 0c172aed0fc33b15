"""Objects of every kind with a hostile string in each field that accepts one, built from the schemas of the kinds.

Which strings a field accepts is up to the server: all strings are replaced, and those that it rejects are taken back,
one response after the other. So a new kind or field is covered without a line here.
"""

import re
from collections.abc import Iterator
from copy import deepcopy
from typing import Any
from urllib.parse import quote

import httpx

from fairlead.core.objects import Object
from fairlead.registry.kind import Kind
from tests.harness.kind_examples import BY_NAME, build_example
from tests.harness.server_process import MANAGEMENT

MARKUP = "\"'></textarea></script><img src=x onerror=window.hacked=1><script>window.hacked=1</script>${window.hacked=1}"
_BENT = "\x1b[31m\x1b]0;title\x07\u202eevil\u200b e\u0301\u0301\u0301 \ufdfd 👩\u200d👩\u200d👧"
ODD = f"javascript:window.hacked=1//{_BENT} url(//192.0.2.1/x) {'W' * 300}"
VARIANTS = {"markup": MARKUP, "odd": ODD}
"""Markup that would run; and what breaks texts: a link that runs code, escape codes, other directions, long words."""

KINDS = [kind for kind in BY_NAME.values() if kind.persisted and "create" in kind.verbs]
NAMESPACE = "service-p-storefront"
FIXED_REFERENCES: dict[str, Object] = {
    "AppInstance": {
        "appRef": {"name": "ingress"},
        "target": {"cluster": {"name": "frankfurt", "namespace": "hostile"}},
    },
    "SpaceInstance": {"templateRef": {"name": "team-space"}, "clusterRef": {"cluster": "frankfurt"}},
    "VirtualClusterInstance": {"clusterRef": {"cluster": "frankfurt"}, "template": None, "templateRef": None},
    "DevPodWorkspaceInstance": {"templateRef": {"name": "python"}},
}
"""Fields that must name objects of the demo."""
MAX_ATTEMPTS, MAX_DEPTH = 60, 7
_MISSING: Any = object()
_FIELD = re.compile(r"(?:spec|status|metadata)(?:\.\w+|\[\d+\])*")
_PART = re.compile(r"[^.\[\]]+|\[[^\]]*\]")
Path = tuple[str | int, ...]


def build_hostile(kind: Kind, variant: str) -> tuple[Object, Object]:
    """The object with the strings of the variant, and an ordinary one, whose values replace rejected ones."""
    text = VARIANTS[variant]
    usual = build_example(kind.name)
    usual["metadata"] = {"name": f"hostile-{variant}"} | ({"namespace": NAMESPACE} if kind.namespaced else {})
    if kind.name == "Event":  # events are of an object in their namespace
        usual["involvedObject"] = {"kind": "ConfigMap", **usual["metadata"]}
    hostile = {
        **deepcopy(usual),
        **{name: _fill(schema, usual.get(name), text) for name, schema in kind.fields.items()},
    }
    for obj in (hostile, usual):
        for name, value in FIXED_REFERENCES.get(kind.name, {}).items():
            obj["spec"].pop(name, None)
            obj["spec"] |= {} if value is None else {name: deepcopy(value)}
    owner = {"apiVersion": "example.com/v1", "kind": text[:60], "name": text[:200], "uid": text[:100]}
    name = text[:120].replace("/", "|") if kind.group.startswith("rbac.") else usual["metadata"]["name"]
    more = {
        "name": name,
        "annotations": {"example.com/note": text},
        "labels": {"case": variant},
        "ownerReferences": [owner],
    }
    hostile["metadata"] = {**usual["metadata"], **more}
    return hostile, usual


def _fill(schema: Object, value: Any, text: str, depth: int = 0) -> Any:
    """The value with the text instead of all strings, and in all fields that it does not have."""
    if depth > MAX_DEPTH:
        return value
    if properties := schema.get("properties"):
        known = value if isinstance(value, dict) else {}
        filled = {name: _fill(each, known.get(name), text, depth + 1) for name, each in properties.items()}
        return {name: each for name, each in {**known, **filled}.items() if each is not None}
    match schema.get("type"):
        case "string":
            is_free = not {"enum", "pattern", "format"} & schema.keys()
            return text[: schema.get("maxLength", len(text))] if is_free else value
        case "array":
            entries = value if isinstance(value, list) and value else [None]
            filled_entries = [_fill(schema["items"], each, text, depth + 1) for each in entries]
            return [each for each in filled_entries if each is not None] or None
        case "object" if isinstance(values := schema.get("additionalProperties"), dict):
            entry = _fill(values, None, text, depth + 1)
            return {**(value or {}), **({} if entry is None else {"hostile": entry})} or None
        case "object":
            return {**(value or {}), "hostile": text}
    return value if value is not None or schema.get("type") else {"hostile": text}


def create_hostile(client: httpx.Client, kind: Kind, variant: str) -> Object:
    """Creates the object, with as many hostile strings as the server accepts, and its status."""
    hostile, usual = build_hostile(kind, variant)
    root = f"{MANAGEMENT}/apis/{kind.group}/{kind.version}" if kind.group else f"{MANAGEMENT}/api/{kind.version}"
    path = f"{root}/namespaces/{NAMESPACE}/{kind.plural}" if kind.namespaced else f"{root}/{kind.plural}"
    created = _send(client, "POST", path, hostile, usual)
    assert created, f"{kind.name} is rejected without a hint what to leave out"
    if kind.status_subresource:
        status, usual_status = {"status": hostile.get("status", {})}, {"status": usual.get("status", {})}
        _send(client, "PATCH", f"{path}/{quote(created['metadata']['name'])}/status", status, usual_status)
    return created


def _send(client: httpx.Client, method: str, path: str, hostile: Object, usual: Object) -> Object | None:
    """Sends the object until the server accepts it, each time without the values that it rejected.

    Returns None if nothing is left that could be taken back: the status of some kinds is written by the server only.
    """
    parameters = {"fieldManager": VARIANTS["markup"][:120]}
    media_type = "application/merge-patch+json" if method == "PATCH" else "application/json"
    headers = {"User-Agent": VARIANTS["markup"], "Content-Type": media_type}
    for _ in range(MAX_ATTEMPTS):
        response = client.request(method, path, params=parameters, json=hostile, headers=headers)
        if response.is_success:
            accepted: Object = response.json()
            return accepted
        rejected = _find_rejected(response.json(), hostile)
        if not rejected:
            return None
        one_of_each = {each[:2]: each for each in reversed(rejected)}  # those of one field depend on each other
        for each in one_of_each.values():
            _take_back(hostile, usual, each)
    raise AssertionError(f"{path} is rejected {MAX_ATTEMPTS} times: {response.text}")


def _find_rejected(problem: Object, hostile: Object) -> list[Path]:
    """The fields that a Status names: as causes, or in its message."""
    causes = [_split(cause["field"]) for cause in problem.get("details", {}).get("causes") or []]
    named = [_split(field) for field in _FIELD.findall(problem["message"])]
    if problem["code"] != 400:  # the message may mention other objects, too
        named = [each for each in named if _get(hostile, each) is not _MISSING]
    return causes or named


def _split(field: str) -> Path:
    parts: list[str | int] = []
    for part in _PART.findall(field):
        inner = part[1:-1] if part.startswith("[") else part
        parts.append(int(inner) if inner.isdigit() else inner.strip('"'))
    return tuple(parts)


def _take_back(hostile: Object, usual: Object, path: Path) -> None:
    """Replaces what is at the path, or what it is part of, by the usual value; removes it if that is not better."""
    while len(path) > 1 or path == ("status",):
        current, original, parent = _get(hostile, path), _get(usual, path), _get(hostile, path[:-1])
        if parent is not _MISSING and original is not _MISSING and original != current:
            parent[path[-1]] = deepcopy(original)
            return
        if current is not _MISSING:
            del parent[path[-1]]
            if original is not _MISSING:  # rejected as well
                del _get(usual, path[:-1])[path[-1]]
            return
        path = path[:-1]


def _get(value: Any, path: Path) -> Any:
    for part in path:
        try:
            value = value[part]
        except (KeyError, IndexError, TypeError):
            return _MISSING
    return value


def find_hostile(value: Any, path: str = "") -> Iterator[str]:
    """The paths of all fields that have a hostile string."""
    if isinstance(value, str) and any(value and text.startswith(value[:40]) for text in VARIANTS.values()):
        yield path
    elif isinstance(value, dict):
        for name, each in value.items():
            yield from find_hostile(each, f"{path}.{name}".lstrip("."))
    elif isinstance(value, list):
        for each in value:
            yield from find_hostile(each, f"{path}[]")
