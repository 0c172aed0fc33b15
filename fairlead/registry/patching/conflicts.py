"""Fields that one manager applies and others own: what `kubectl` shows and `--force-conflicts` overrides."""

from fairlead.core.errors import MAX_PROBLEMS, Conflict, Details, Problem
from fairlead.core.objects import Object
from fairlead.registry.patching.fieldset import FieldSet, paths, shown_path

Contested = list[tuple[Object, FieldSet]]
"""Entries of managedFields, each with the part of its fields that somebody else wants to have."""


def conflict(contested: Contested) -> Conflict:
    """The refusal, with a cause for each field and each of its owners."""
    named = sorted((_shown_owner(entry), sorted(map(shown_path, paths(fields)))) for entry, fields in contested)
    causes = [
        Problem(path, "FieldManagerConflict", f"conflict with {owner}") for owner, fields in named for path in fields
    ]
    if len(causes) == 1:
        message = f"1 conflict: {causes[0].message}: {causes[0].field}"
    else:
        shown = ((owner, fields[:MAX_PROBLEMS]) for owner, fields in named[:MAX_PROBLEMS])
        listed = (f"conflicts with {owner}:" + "".join(f"\n- {path}" for path in fields) for owner, fields in shown)
        message = f"{len(causes)} conflicts: " + "\n".join(listed)
    return Conflict(f"Apply failed with {message}", Details(problems=causes[:MAX_PROBLEMS]))


def _shown_owner(entry: Object) -> str:
    owner = f'"{entry.get("manager", "")}"'
    if entry.get("subresource"):
        owner += f' with subresource "{entry["subresource"]}"'
    return f"{owner} using {entry['apiVersion']}" if entry["operation"] == "Update" else owner
