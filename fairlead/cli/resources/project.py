"""`fairlead project`: creates, lists, shows and deletes projects, with their members and what they use."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

import typer

from fairlead.cli.ui.completion import complete_names
from fairlead.cli.ui.describe import (
    age_cell,
    build_object,
    cell,
    find_condition,
    label_first,
    owner_cell,
    text_of,
    update_list,
)
from fairlead.cli.ui.field_flags import name_flags
from fairlead.cli.ui.flags import ContextFlag, DescriptionFlag, DisplayNameFlag, ObjectOutputFlag, flag
from fairlead.cli.ui.groups import create_group
from fairlead.cli.ui.output import TABLE, Format, print_name, print_note, print_table, print_value
from fairlead.cli.ui.resource_commands import (
    Deletion,
    NewObject,
    Resource,
    add_delete_command,
    add_list_command,
    add_show_command,
    create_command,
)
from fairlead.cli.ui.session import Session, UsageError, open_session, project_namespace
from fairlead.client import ClientError
from fairlead.core.objects import Object, get_path, name_of

COLUMNS = ("NAME", "STATE", "MEMBERS", "OWNER", "DISPLAY NAME", "AGE")
ALLOWED_FIELDS = (("clusters", "allowedClusters"), ("runners", "allowedRunners"), ("templates", "allowedTemplates"))


def table_row(project: Object, now: datetime) -> Sequence[str]:
    return (
        name_of(project),
        project_state(project),
        str(len(get_path(project, "spec.members") or ())),
        owner_cell(project),
        cell(project, "spec.displayName"),
        age_cell(project, now),
    )


def project_state(project: Object) -> str:
    """Ready, Deleting, or the reason of the Ready condition."""
    ready = find_condition(project, "Ready")
    if get_path(project, "metadata.deletionTimestamp"):
        return "Deleting"
    return "Ready" if ready.get("status") == "True" else str(ready.get("reason") or "-")


def describe_wait(project: Object) -> str:
    """What the deletion of a project is waiting for, from its Ready condition."""
    ready = find_condition(project, "Ready")
    return str(ready.get("message") or "") if ready.get("status") == "False" else ""


def describe_rows(session: Session, project: Object) -> list[tuple[str, str]]:
    members = [f"{kind} {name} ({role})" for kind, name, role in list_members(project)]
    return [
        ("name", name_of(project)),
        ("display name", text_of(project, "spec.displayName")),
        ("description", text_of(project, "spec.description")),
        ("namespace", project_namespace(session, name_of(project))),
        ("owner", owner_cell(project)),
        ("state", project_state(project)),
        ("", describe_wait(project)),
        *label_first("members", members),
        *((label, _allowed_names(project, field)) for label, field in ALLOWED_FIELDS),
        *_quota_rows(project),
    ]


def list_members(project: Object) -> Iterator[tuple[str, str, str]]:
    """Kind, name and role of each entry in spec.members. The default role is viewer."""
    for each in get_path(project, "spec.members") or ():
        yield str(each.get("kind")).lower(), str(each.get("name")), str(each.get("clusterRole") or DEFAULT_ROLE)


def roles_by_member(project: Object) -> dict[tuple[str, str], str]:
    """The roles of the owner and the members, by kind and name."""
    found: dict[tuple[str, str], list[str]] = {}
    for kind in ("user", "team"):
        if name := get_path(project, f"spec.owner.{kind}"):
            found[kind, name] = ["owner"]
    for kind, name, role in list_members(project):
        found.setdefault((kind, name), []).append(role)
    return {member: ", ".join(each) for member, each in found.items()}


def _allowed_names(project: Object, field: str) -> str:
    return ", ".join(str(get_path(each, "name")) for each in get_path(project, f"spec.{field}") or ())


def _quota_rows(project: Object) -> Iterator[tuple[str, str]]:
    limits, used = (get_path(project, f"status.quotas.project.{part}") or {} for part in ("limit", "used"))
    return label_first("quotas", (f"{name}: {used.get(name, 0)} of {limit}" for name, limit in limits.items()))


PROJECTS = Resource(
    plural="projects",
    kind="Project",
    noun="project",
    columns=COLUMNS,
    row=table_row,
    empty_message="no projects; create one with `fairlead project create`",
)
MEMBER_KINDS = ("User", "Team")
DEFAULT_ROLE = "viewer"

NameArgument = Annotated[
    str, typer.Argument(help="Name of the project.", autocompletion=complete_names(PROJECTS.plural))
]

group = create_group("Create, list, show and delete projects.")


@dataclass(frozen=True, slots=True)
class ProjectCreateOptions:
    name: Annotated[str, typer.Argument(help="Name of the project.")]
    display_name: DisplayNameFlag = None
    description: DescriptionFlag = None
    member: Annotated[
        list[str] | None,
        flag(
            "--member",
            help="Member, like User:ada:admin; the role is admin, user, viewer or a custom role. Repeatable.",
            metavar="KIND:NAME[:ROLE]",
        ),
    ] = None
    owner: Annotated[str | None, flag("--owner", help="Owner, like ada or Team:ops.", metavar="[KIND:]NAME")] = None
    allow_cluster: Annotated[
        list[str] | None,
        flag(
            "--allow-cluster",
            help="Connected cluster that the project may use; * for all. Repeatable.",
            metavar="C",
            default="those that its users may use",
            complete="clusters",
        ),
    ] = None
    context: ContextFlag = None
    output: ObjectOutputFlag = TABLE


@create_command(group, PROJECTS, ProjectCreateOptions)
def build_project(session: Session, options: ProjectCreateOptions) -> NewObject:
    """Create a project."""
    spec = {
        "displayName": options.display_name,
        "description": options.description,
        "members": [_parse_member(each) for each in options.member or ()] or None,
        "owner": _parse_owner(options.owner) if options.owner else None,
        "allowedClusters": [{"name": each} for each in options.allow_cluster or ()] or None,
    }
    namespace = project_namespace(session, options.name)
    message = f"created the project {options.name} with the namespace {namespace}"
    return NewObject(build_object(PROJECTS.kind, options.name, spec), message)


def _parse_member(value: str) -> Object:
    kind, _, rest = value.partition(":")
    # The role is the last part, because role names may contain colons.
    name, _, role = rest.partition(":")
    if kind.title() not in MEMBER_KINDS or not name:
        raise UsageError(f"{value!r} is not a member; use the format User:NAME[:ROLE] or Team:NAME[:ROLE]")
    return {"kind": kind.title(), "name": name, **({"clusterRole": role} if role else {})}


def _parse_owner(value: str) -> Object:
    kind, _, name = (value if ":" in value else f"User:{value}").partition(":")
    if kind.title() not in MEMBER_KINDS or not name:
        raise UsageError(f"{value!r} is not an owner; use the format ada, User:ada or Team:ops")
    return {kind.lower(): name}


add_list_command(group, PROJECTS, "List the projects that you may read.")
add_show_command(group, PROJECTS, "Show one project: its members, what it may use, and its quota usage.", describe_rows)


@group.command("members")
def members(name: NameArgument, context: ContextFlag = None, output: ObjectOutputFlag = TABLE) -> None:
    """List the members of a project, direct ones and those of teams."""
    with open_session(context) as session:
        found = session.client.get(PROJECTS.plural, name, "members")
        if output.format is Format.NAME:
            for kind, info in _iter_members(found):
                print_name(kind, str(info.get("name")))
        elif not output.is_table:
            print_value(found, output)
        else:
            by_member = roles_by_member(session.client.get(PROJECTS.plural, name))
            rows = [_member_row(kind, info, by_member) for kind, info in _iter_members(found)]
            print_table(
                ("KIND", "NAME", "ROLE", "DISPLAY NAME", "EMAIL"),
                rows,
                f"the project {name} has no members; add one with `fairlead project add-member`",
            )


def _iter_members(response: Object) -> Iterator[tuple[str, Object]]:
    for kind in ("user", "team"):
        for each in response.get(f"{kind}s") or ():
            yield kind, get_path(each, "info") or {}


def _member_row(kind: str, info: Object, member_roles: dict[tuple[str, str], str]) -> tuple[str, ...]:
    """A table row. The role of a member through a team, or through `*`, is that of the team or of `*`."""
    name = str(info.get("name"))
    role = member_roles.get((kind, name)) or member_roles.get((kind, "*")) or "through a team"
    return kind, name, role, str(info.get("displayName") or "-"), str(info.get("email") or "-")


MemberArgument = Annotated[
    str, typer.Argument(help="Member, like User:ada:user or Team:ops.", metavar="KIND:NAME[:ROLE]")
]


@group.command("add-member")
def add_member(name: NameArgument, member: MemberArgument, context: ContextFlag = None) -> None:
    """Add a member to a project, or give it another role, with effect from the next request."""
    with open_session(context) as session, name_flags(session.client):
        added = _parse_member(member)

        def replace_member(members: list[Object]) -> list[Object]:
            return [*(each for each in members if not _is_same_member(each, added)), added]

        changed = update_list(session.client, PROJECTS.plural, name, "members", replace_member)
        role, state = added.get("clusterRole") or DEFAULT_ROLE, "now" if changed else "already"
        print_note(f"{added['name']} is {state} a member of the project {name}, with the role {role}")


@group.command("remove-member")
def remove_member(name: NameArgument, member: MemberArgument, context: ContextFlag = None) -> None:
    """Remove a member from a project, with effect from the next request. Its objects are kept."""
    with open_session(context) as session:
        removed = _parse_member(member)

        def drop_member(members: list[Object]) -> list[Object]:
            return [each for each in members if not _is_same_member(each, removed)]

        if not update_list(session.client, PROJECTS.plural, name, "members", drop_member):
            advice = f"`fairlead project members {name}` shows the members"
            raise ClientError(f"{member} is not in spec.members of the project {name}; {advice}")
        print_note(f"{removed['name']} is no longer a member of the project {name}")


@group.command("allow-cluster")
def allow_cluster(
    name: NameArgument,
    cluster: Annotated[
        str,
        typer.Argument(
            help="Connected cluster, or * for all.", metavar="CLUSTER", autocompletion=complete_names("clusters")
        ),
    ],
    context: ContextFlag = None,
) -> None:
    """Let all members of a project use a connected cluster, for spaces, virtual clusters and apps."""
    with open_session(context) as session, name_flags(session.client):

        def add_cluster(allowed: list[Object]) -> list[Object]:
            is_allowed = any(each.get("name") in (cluster, "*") for each in allowed)
            return allowed if is_allowed else [*allowed, {"name": cluster}]

        changed = update_list(session.client, PROJECTS.plural, name, "allowedClusters", add_cluster)
        clusters = "all clusters" if cluster == "*" else f"the cluster {cluster}"
        print_note(f"the members of the project {name} {'can now' if changed else 'already can'} use {clusters}")


def _is_same_member(one: Object, other: Object) -> bool:
    return (one.get("kind"), one.get("name")) == (other["kind"], other["name"])


USAGE_COLUMNS = ("WHOSE", "WHAT", "USED", "LIMIT")
STORED = (("objects", "stored objects"), ("bytes", "stored bytes"))

UsageRow = tuple[str, str, str, str]


@group.command("usage")
def usage(name: NameArgument, context: ContextFlag = None, output: ObjectOutputFlag = TABLE) -> None:
    """Show what a project uses: its quotas, what is stored in it by whom, and what you store in all projects."""
    with open_session(context) as session:
        found = session.client.get(PROJECTS.plural, name, "usage")
        if not output.is_table:
            print_value(found, output)
        else:
            rows = [*_quota_usage_rows(found), *_storage_usage_rows(found)]
            print_table(USAGE_COLUMNS, rows, f"the server does not report what the project {name} uses")


def _quota_usage_rows(usage: Object) -> Iterator[UsageRow]:
    project, user = (get_path(usage, f"quotas.{part}") or {} for part in ("project", "user"))
    for key, limit in (project.get("limit") or {}).items():
        yield "project", key, str((project.get("used") or {}).get(key, 0)), str(limit)
    limits = user.get("limit") or {}
    for kind in ("user", "team"):
        for name, used in sorted((get_path(user, f"used.{kind}s") or {}).items()):
            yield from ((f"{kind} {name}", key, str(used.get(key, 0)), str(limit)) for key, limit in limits.items())


def _storage_usage_rows(usage: Object) -> Iterator[UsageRow]:
    storage = usage.get("storage") or {}
    requester = usage.get("requester") or {}
    for field, what in STORED if storage else ():
        yield "project", what, _number(storage, "used", field), _number(storage, "limit", field)
    for each in storage.get("users") or ():
        for field, what in STORED:
            yield f"user {each.get('user')}", f"{what} in the project", str(each.get(field, 0)), "-"
    for field, what in STORED if requester else ():
        yield "you", f"{what} in all", _number(requester, "used", field), _number(requester, "limit", field)


def _number(part: Object, side: str, field: str) -> str:
    return str(get_path(part, f"{side}.{field}") or 0)


add_delete_command(
    group,
    PROJECTS,
    Deletion(
        "Delete a project with everything in it, and show what the deletion is waiting for.",
        question="Delete the project {name} with everything in it?",
        pending="the project {name} is being deleted; `fairlead project show {name}` shows what it is waiting for",
        done="the project {name} is deleted, with everything in it",
        describe_wait=describe_wait,
    ),
)
