"""Server-side apply of gadgets, without a store."""

from typing import Any

from fairlead.core.objects import Object
from fairlead.registry import schema as words
from fairlead.registry.kind import Kind, Sensitivity
from fairlead.registry.patching.apply import ApplyEngine
from fairlead.registry.patching.field_set import iter_paths
from fairlead.registry.patching.managed_fields import APPLY, FieldManager, record_apply
from fairlead.registry.patching.merge_schema import build_merge_schemas

KIND = Kind(
    name="Gadget",
    plural="gadgets",
    namespaced=False,
    group="example.io",
    fields={
        "spec": words.obj(
            "",
            displayName=words.string(),
            icon=words.string(),
            chart=words.obj("", name=words.string(), values=words.mapping(words.string())),
            users=words.array(words.string()),
            ports=words.array_map(("port",), words.obj("", port=words.integer(), name=words.string())),
            extra=words.open_object(),
        ),
        "data": words.mapping(words.string()),
        "status": words.obj("", phase=words.string()),
    },
    description="",
    status_subresource=True,
    sensitivity=Sensitivity.NORMAL,
)

SCHEMAS = build_merge_schemas(KIND)

ENGINE = ApplyEngine.for_kind(KIND)


def timestamp(second: int) -> str:
    return f"2025-01-01T00:00:{second:02}Z"


def build_config(meta: Object | None = None, **parts: Any) -> Object:
    return {"apiVersion": "example.io/v1", "kind": "Gadget", "metadata": {"name": "a", **(meta or {})}, **parts}


def apply(
    live: Object | None, *, manager: str, at: int = 1, force: bool = False, subresource: str = "", **parts: Any
) -> Object:
    """Applies these parts and returns the new object."""
    wanted = ENGINE.check_config(build_config(**parts))
    writer = FieldManager(manager, "example.io/v1", timestamp(at), subresource, APPLY)
    new = ENGINE.build_new(wanted, writer) if live is None else ENGINE.apply_config(live, wanted, writer, force=force)
    record_apply(new)
    return new


def owned_paths(obj: Object) -> dict[tuple[str, str], list[str]]:
    """Returns the owned paths by manager and operation."""
    entries = obj["metadata"].get("managedFields", [])
    return {
        (entry["manager"], entry["operation"]): sorted("/".join(path) for path in iter_paths(entry["fieldsV1"]))
        for entry in entries
    }
