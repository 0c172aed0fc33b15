"""`fairlead project`: what groups people and what they run. How projects are told in words: `project_words.py`."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import typer

from fairlead.cli import prompts
from fairlead.cli.completion import names_of
from fairlead.cli.flags import (
    ContextFlag,
    DescriptionFlag,
    DisplayNameFlag,
    NamedOutputFlag,
    NoWaitFlag,
    YesFlag,
    takes,
)
from fairlead.cli.listing import Listing, Shown, show_all
from fairlead.cli.objects import body_of, print_made, print_object
from fairlead.cli.output import NamedOutput, Output, note, print_data, print_name, print_table
from fairlead.cli.project_words import COLUMNS, described, roles, row, waits_for
from fairlead.cli.session import WrongUsage, connected, namespace_of
from fairlead.cli.waiting import awaited, until_gone
from fairlead.core.objects import Object, dig

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
