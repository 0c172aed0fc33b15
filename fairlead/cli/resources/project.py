"""`fairlead project`: creates, lists, shows and deletes projects, and lists their members."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

import typer

from fairlead.cli.ui import prompts
from fairlead.cli.ui.completion import names_of
from fairlead.cli.ui.describe import body_of, condition_of, owner_of, print_made, print_object, text
from fairlead.cli.ui.durations import since
from fairlead.cli.ui.flags import (
    ContextFlag,
    DescriptionFlag,
    DisplayNameFlag,
    NamedOutputFlag,
    NoWaitFlag,
    YesFlag,
    takes,
)
from fairlead.cli.ui.list import Listing, Shown, show_all
from fairlead.cli.ui.output import NamedOutput, Output, note, print_data, print_name, print_table
from fairlead.cli.ui.session import WrongUsage, connected, namespace_of
from fairlead.cli.ui.wait import awaited, until_gone
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
    """Ready, Deleting, or the reason of the Ready condition."""
    ready = condition_of(project, "Ready")
    if dig(project, "metadata.deletionTimestamp"):
        return "Deleting"
    return "Ready" if ready.get("status") == "True" else str(ready.get("reason") or "-")


def waits_for(project: Object) -> str:
    """What the deletion of a project is waiting for, from its Ready condition."""
    ready = condition_of(project, "Ready")
    return str(ready.get("message") or "") if ready.get("status") == "False" else ""


def described(project: Object, namespace: str) -> list[tuple[str, str]]:
    members = [f"{kind} {name} ({role})" for kind, name, role in named_members(project)]
    return [
        ("name", name_of(project)),
        ("display name", str(dig(project, "spec.displayName") or "")),
        ("description", str(dig(project, "spec.description") or "")),
        ("namespace", namespace),
        ("owner", owner_of(project)),
        ("state", state(project)),
        ("", waits_for(project)),
        *(("members" if each is members[0] else "", each) for each in members),
        *((label, _allowed(project, field)) for label, field in ALLOWED),
        *_quotas(project),
    ]


def named_members(project: Object) -> Iterator[tuple[str, str, str]]:
    """Kind, name and role of each entry in spec.members. The default role is viewer."""
    for each in dig(project, "spec.members") or ():
        yield str(each.get("kind")).lower(), str(each.get("name")), str(each.get("clusterRole") or "viewer")


def roles(project: Object) -> dict[tuple[str, str], str]:
    """The roles of the owner and the members, by kind and name."""
    found: dict[tuple[str, str], list[str]] = {}
    for kind in ("user", "team"):
        if name := dig(project, f"spec.owner.{kind}"):
            found[kind, name] = ["owner"]
    for kind, name, role in named_members(project):
        found.setdefault((kind, name), []).append(role)
    return {member: ", ".join(each) for member, each in found.items()}


def _allowed(project: Object, field: str) -> str:
    return ", ".join(str(dig(each, "name")) for each in dig(project, f"spec.{field}") or ())


def _quotas(project: Object) -> Iterator[tuple[str, str]]:
    limits, used = (dig(project, f"status.quotas.project.{part}") or {} for part in ("limit", "used"))
    for number, (resource, limit) in enumerate(limits.items()):
        yield "" if number else "quotas", f"{resource}: {used.get(resource, 0)} of {limit}"


PROJECTS = "projects"
LISTING = Listing(PROJECTS, "Project", COLUMNS, row, "no projects; create one with `fairlead project create`")
KINDS = ("User", "Team")

NameArgument = Annotated[str, typer.Argument(help="Name of the project.", autocompletion=names_of(PROJECTS))]

group = typer.Typer(help="Create, list, show and delete projects.", no_args_is_help=True)


@dataclass(frozen=True, slots=True)
class Asked:
    name: Annotated[str, typer.Argument(help="Name of the project.")]
    display_name: DisplayNameFlag = None
    description: DescriptionFlag = None
    member: Annotated[
        list[str] | None,
        typer.Option(
            "--member",
            help="Member, like User:ada:admin; the role is admin, user, viewer or a custom role. Repeatable.",
            metavar="KIND:NAME[:ROLE]",
            show_default=False,
        ),
    ] = None
    owner: Annotated[
        str | None,
        typer.Option("--owner", help="Owner, like ada or Team:ops.", metavar="[KIND:]NAME", show_default=False),
    ] = None
    context: ContextFlag = None
    output: NamedOutputFlag = NamedOutput.TABLE


@group.command("create")
@takes(Asked)
def create(asked: Asked) -> None:
    """Create a project."""
    with connected(asked.context) as session:
        created = session.client.create(PROJECTS, body(asked))
        namespace = namespace_of(session, asked.name)
        print_made(created, asked.output, f"created the project {asked.name} with the namespace {namespace}")


def body(asked: Asked) -> Object:
    spec = {
        "displayName": asked.display_name,
        "description": asked.description,
        "members": [_member(each) for each in asked.member or ()] or None,
        "owner": _owner(asked.owner) if asked.owner else None,
    }
    return body_of("Project", asked.name, spec)


def _member(text: str) -> Object:
    kind, _, rest = text.partition(":")
    # The role is the last part, because role names may contain colons.
    name, _, role = rest.partition(":")
    if kind.title() not in KINDS or not name:
        raise WrongUsage(f"{text!r} is not a member; use the format User:ada:admin or Team:ops:user")
    return {"kind": kind.title(), "name": name, **({"clusterRole": role} if role else {})}


def _owner(text: str) -> Object:
    kind, _, name = (text if ":" in text else f"User:{text}").partition(":")
    if kind.title() not in KINDS or not name:
        raise WrongUsage(f"{text!r} is not an owner; use the format ada, User:ada or Team:ops")
    return {kind.lower(): name}


@group.command("list")
@takes(Shown)
def list_projects(shown: Shown) -> None:
    """List the projects that you may read."""
    show_all(LISTING, shown)


@group.command("show")
def show(name: NameArgument, context: ContextFlag = None, output: NamedOutputFlag = NamedOutput.TABLE) -> None:
    """Show one project: its members, what it may use, and its quota usage."""
    with connected(context) as session:
        found = session.client.get(PROJECTS, name)
        print_object(found, output, described(found, namespace_of(session, name)))


@group.command("members")
def members(name: NameArgument, context: ContextFlag = None, output: NamedOutputFlag = NamedOutput.TABLE) -> None:
    """List the members of a project, direct ones and those of teams."""
    with connected(context) as session:
        found = session.client.get(PROJECTS, name, "members")
        if output is NamedOutput.NAME:
            for kind, info in _people(found):
                print_name(kind, str(info.get("name")))
        elif output is not NamedOutput.TABLE:
            print_data(found, Output(output))
        else:
            by_member = roles(session.client.get(PROJECTS, name))
            rows = [_person(kind, info, by_member) for kind, info in _people(found)]
            print_table(("KIND", "NAME", "ROLE", "DISPLAY NAME", "EMAIL"), rows, f"the project {name} has no members")


def _people(found: Object) -> Iterator[tuple[str, Object]]:
    for kind in ("user", "team"):
        for each in found.get(f"{kind}s") or ():
            yield kind, dig(each, "info") or {}


def _person(sort: str, info: Object, of: dict[tuple[str, str], str]) -> tuple[str, ...]:
    """A table row. The role of a member through a team, or through `*`, is that of the team or of `*`."""
    name = str(info.get("name"))
    role = of.get((sort, name)) or of.get((sort, "*")) or "through a team"
    return sort, name, role, str(info.get("displayName") or "-"), str(info.get("email") or "-")


@group.command("delete")
def delete(name: NameArgument, yes: YesFlag = False, no_wait: NoWaitFlag = False, context: ContextFlag = None) -> None:
    """Delete a project with everything in it, and show what the deletion is waiting for."""
    with connected(context) as session:
        found = session.client.get(PROJECTS, name)
        if not yes:
            prompts.sure(f"Delete the project {name} with everything in it?")
        session.client.delete(PROJECTS, name)
        if no_wait:
            note(f"the project {name} is being deleted; `fairlead project show {name}` shows what it is waiting for")
            return
        until_gone(session.client, awaited(PROJECTS, found), waits_for)
        note(f"the project {name} is deleted, with everything in it")
