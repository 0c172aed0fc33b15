"""`fairlead project`: what groups people and what they run. How projects are told in words: `project.py`."""

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

# DOC-MERGED cli/project_words
# A project as people want to see it: in a list, by itself, and who is in it.


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


PROJECTS = "projects"
LISTING = Listing(PROJECTS, "Project", COLUMNS, row, "no projects; make one with `fairlead project create`")
KINDS = ("User", "Team")

NameArgument = Annotated[str, typer.Argument(help="Name of the project.", autocompletion=names_of(PROJECTS))]

group = typer.Typer(help="Make, list, show and delete projects.", no_args_is_help=True)


@dataclass(frozen=True, slots=True)
class Asked:
    name: Annotated[str, typer.Argument(help="Name of the project.")]
    display_name: DisplayNameFlag = None
    description: DescriptionFlag = None
    member: Annotated[
        list[str] | None,
        typer.Option(
            "--member",
            help="Somebody in it, like User:ada:admin; the role is admin, user, viewer or one of your own. Repeatable.",
            metavar="KIND:NAME[:ROLE]",
            show_default=False,
        ),
    ] = None
    owner: Annotated[
        str | None,
        typer.Option("--owner", help="Whose it is, like ada or Team:ops.", metavar="[KIND:]NAME", show_default=False),
    ] = None
    context: ContextFlag = None
    output: NamedOutputFlag = NamedOutput.TABLE


@group.command("create")
@takes(Asked)
def create(asked: Asked) -> None:
    """Make a project."""
    with connected(asked.context) as session:
        made = session.client.create(PROJECTS, body(asked))
        place = namespace_of(session, asked.name)
        print_made(made, asked.output, f"made the project {asked.name}, whose namespace is {place}")


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
    # Names of roles may have colons themselves.
    name, _, role = rest.partition(":")
    if kind.title() not in KINDS or not name:
        raise WrongUsage(f"{text!r} is no member; write it like User:ada:admin or Team:ops:user")
    return {"kind": kind.title(), "name": name, **({"clusterRole": role} if role else {})}


def _owner(text: str) -> Object:
    kind, _, name = (text if ":" in text else f"User:{text}").partition(":")
    if kind.title() not in KINDS or not name:
        raise WrongUsage(f"{text!r} is no owner; write it like ada, User:ada or Team:ops")
    return {kind.lower(): name}


@group.command("list")
@takes(Shown)
def list_projects(shown: Shown) -> None:
    """List projects: those that you are in, or may see for another reason."""
    show_all(LISTING, shown)


@group.command("show")
def show(name: NameArgument, context: ContextFlag = None, output: NamedOutputFlag = NamedOutput.TABLE) -> None:
    """Show one project: who is in it, what it may use, and how much of that it uses."""
    with connected(context) as session:
        found = session.client.get(PROJECTS, name)
        print_object(found, output, described(found, namespace_of(session, name)))


@group.command("members")
def members(name: NameArgument, context: ContextFlag = None, output: NamedOutputFlag = NamedOutput.TABLE) -> None:
    """List who is in a project, by themselves or by a team."""
    with connected(context) as session:
        found = session.client.get(PROJECTS, name, "members")
        if output is NamedOutput.NAME:
            for sort, info in _people(found):
                print_name(sort, str(info.get("name")))
        elif output is not NamedOutput.TABLE:
            print_data(found, Output(output))
        else:
            of = roles(session.client.get(PROJECTS, name))
            rows = [_person(sort, info, of) for sort, info in _people(found)]
            print_table(("WHO", "NAME", "ROLE", "DISPLAY NAME", "EMAIL"), rows, f"nobody is in the project {name}")


def _people(found: Object) -> Iterator[tuple[str, Object]]:
    for sort in ("user", "team"):
        for each in found.get(f"{sort}s") or ():
            yield sort, dig(each, "info") or {}


def _person(sort: str, info: Object, of: dict[tuple[str, str], str]) -> tuple[str, ...]:
    """Whoever is in it by a team, or as one of everybody, has the role of that one."""
    name = str(info.get("name"))
    role = of.get((sort, name)) or of.get((sort, "*")) or "by a team"
    return sort, name, role, str(info.get("displayName") or "-"), str(info.get("email") or "-")


@group.command("delete")
def delete(name: NameArgument, yes: YesFlag = False, no_wait: NoWaitFlag = False, context: ContextFlag = None) -> None:
    """Delete a project with everything in it, in order, and tell what that waits for."""
    with connected(context) as session:
        found = session.client.get(PROJECTS, name)
        if not yes:
            prompts.sure(f"Delete the project {name} with everything in it?")
        session.client.delete(PROJECTS, name)
        if no_wait:
            note(f"the project {name} is being deleted; `fairlead project show {name}` tells what it waits for")
            return
        until_gone(session.client, awaited(PROJECTS, found), waits_for)
        note(f"the project {name} is gone, and everything that was in it")
