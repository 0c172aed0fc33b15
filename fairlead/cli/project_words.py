"""A project as people want to see it: in a list, by itself, and who is in it."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from fairlead.cli.durations import since
from fairlead.cli.objects import condition_of, owner_of, text
from fairlead.core.objects import Object, dig, name_of

COLUMNS = ("NAME", "STATE", "MEMBERS", "OWNER", "DISPLAY NAME", "AGE")
ALLOWED = (("clusters", "allowedClusters"), ("runners", "allowedRunners"), ("templates", "allowedTemplates"))


def row(project: Object, now: datetime) -> Sequence[str]:
    return (
        name_of(project),
        state(project),
        str(len(dig(project, "spec.members") or ())),
        owner_of(project),
        text(project, "spec.displayName"),
        since(dig(project, "metadata.creationTimestamp"), now),
    )


def state(project: Object) -> str:
    """Ready, or the one word for why it is not."""
    ready = condition_of(project, "Ready")
    if dig(project, "metadata.deletionTimestamp"):
        return "Deleting"
    return "Ready" if ready.get("status") == "True" else str(ready.get("reason") or "-")


def waits_for(project: Object) -> str:
    """What keeps a project from being gone. Its condition tells, once the server has looked after it."""
    ready = condition_of(project, "Ready")
    return str(ready.get("message") or "") if ready.get("status") == "False" else ""


def described(project: Object, namespace: str) -> list[tuple[str, str]]:
    members = [f"{sort} {name} ({role})" for sort, name, role in named_members(project)]
    return [
        ("name", name_of(project)),
        ("display name", str(dig(project, "spec.displayName") or "")),
        ("description", str(dig(project, "spec.description") or "")),
        ("namespace", namespace),
        ("owner", owner_of(project)),
        ("state", state(project)),
        ("", waits_for(project)),
        *(("members" if each is members[0] else "", each) for each in members),
        *((words, _allowed(project, field)) for words, field in ALLOWED),
        *_quotas(project),
    ]


def named_members(project: Object) -> Iterator[tuple[str, str, str]]:
    """What sort of member, its name and its role. Who has no role is a viewer."""
    for each in dig(project, "spec.members") or ():
        yield str(each.get("kind")).lower(), str(each.get("name")), str(each.get("clusterRole") or "viewer")


def roles(project: Object) -> dict[tuple[str, str], str]:
    """By sort and name. The owner counts as an administrator."""
    found: dict[tuple[str, str], list[str]] = {}
    for sort in ("user", "team"):
        if name := dig(project, f"spec.owner.{sort}"):
            found[sort, name] = ["owner"]
    for sort, name, role in named_members(project):
        found.setdefault((sort, name), []).append(role)
    return {who: ", ".join(each) for who, each in found.items()}


def _allowed(project: Object, field: str) -> str:
    return ", ".join(str(dig(each, "name")) for each in dig(project, f"spec.{field}") or ())


def _quotas(project: Object) -> Iterator[tuple[str, str]]:
    limits, used = (dig(project, f"status.quotas.project.{part}") or {} for part in ("limit", "used"))
    for number, (what, limit) in enumerate(limits.items()):
        yield "" if number else "quotas", f"{what}: {used.get(what, 0)} of {limit}"
