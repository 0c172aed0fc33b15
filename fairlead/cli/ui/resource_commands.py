"""The commands `list`, `show`, `create` and `delete`, the same for every resource that a `Resource` describes.

A command group calls `add_list_command`, `add_show_command` and `add_delete_command`, and decorates a function with
`create_command`, in the order of its help. Commands that do more, such as `cluster remove`, are written out.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Protocol, TypeVar

import typer

from fairlead.cli.ui import prompts
from fairlead.cli.ui.completion import complete_names
from fairlead.cli.ui.describe import cell, print_created, print_object
from fairlead.cli.ui.durations import DEFAULT_TIMEOUT_SECONDS
from fairlead.cli.ui.field_flags import name_flags, name_project, require_project
from fairlead.cli.ui.flags import (
    AllProjectsFlag,
    ContextFlag,
    NoWaitFlag,
    ObjectOutputFlag,
    ProjectFilterFlag,
    RequiredProjectFlag,
    TimeoutFlag,
    YesFlag,
    options_from,
    parameter,
    parameters_of,
    with_parameters,
)
from fairlead.cli.ui.list import Listing, ListOptions, print_objects
from fairlead.cli.ui.output import TABLE, ObjectOutput, print_note
from fairlead.cli.ui.session import (
    Session,
    UsageError,
    exit_with_error,
    open_session,
    project_namespace,
    project_namespace_prefix,
)
from fairlead.cli.ui.wait import VerboseFlag, describe_condition, object_ref, wait_deleted
from fairlead.client import ApiStatusError, Client
from fairlead.core.objects import Object, get_path

ABANDON_ANNOTATION = "service.sh/abandon"
"""Annotation that makes the server delete an object without cleaning up in its cluster."""

AbandonFlag = Annotated[
    bool,
    typer.Option(
        "--abandon", help="Leave its objects in the cluster behind, for example if the cluster no longer exists."
    ),
]

MAX_LISTED = 20
"""How many objects a question or an error of a deletion lists."""

Pairs = Sequence[tuple[str, str]]
"""Labels and values."""

COMMON_DETAILS = (("display name", "spec.displayName"), ("description", "spec.description"))


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource as the commands present it.

    `noun` is its name in messages, and `row` returns a cell for each of the columns, the name first. The objects of a
    project have a flag `--project`, and a column PROJECT after the name. `details` are the labels and fields that
    `show` prints after the columns.
    """

    plural: str
    kind: str
    noun: str
    columns: tuple[str, ...]
    row: Callable[[Object, datetime], Sequence[str]]
    empty_message: str
    in_project: bool = False
    details: tuple[tuple[str, str], ...] = COMMON_DETAILS


def add_list_command(group: typer.Typer, resource: Resource, help: str = "", name: str = "list") -> None:
    def list_objects(project: str | None = None, all_projects: bool = False, **flags: Any) -> None:
        options = ListOptions(**flags)
        with open_session(options.context) as session:
            if project and all_projects:
                raise UsageError("--project and --all-projects are mutually exclusive; choose one")
            if project:
                require_project(session.client, project)
            print_objects(session.client, _build_listing(session, resource, project or ""), options)

    projects = (parameter("project", ProjectFilterFlag, None), parameter("all_projects", AllProjectsFlag, False))
    command = with_parameters(list_objects, (*(projects if resource.in_project else ()), *parameters_of(ListOptions)))
    group.command(name, help=help or f"List {resource.noun}s.")(command)


def _build_listing(session: Session, resource: Resource, project: str) -> Listing:
    """The listing of a resource, in one project or in all of them."""
    if not resource.in_project:
        return Listing(
            resource.plural,
            resource.kind,
            resource.columns,
            resource.row,
            resource.empty_message,
            details=resource.details,
        )
    prefix = project_namespace_prefix(session.client)

    def row(obj: Object, now: datetime) -> Sequence[str]:
        name, *others = resource.row(obj, now)
        return name, cell(obj, "metadata.namespace").removeprefix(prefix), *others

    return Listing(
        resource.plural,
        resource.kind,
        (resource.columns[0], "PROJECT", *resource.columns[1:]),
        row,
        re.sub("(?=;|$)", f" in {project}", resource.empty_message, count=1) if project else resource.empty_message,
        namespace=prefix + project if project else "",
        details=resource.details,
    )


def add_show_command(
    group: typer.Typer,
    resource: Resource,
    help: str = "",
    describe: Callable[[Session, Object], Pairs] | None = None,
    name: str = "show",
) -> None:
    """Adds `show`. `describe` returns the rows of the table format; by default the columns and the details."""
    command_name = name

    def show(name: str, context: str | None, output: ObjectOutput, project: str = "") -> None:
        with open_session(context) as session:
            listing = _build_listing(session, resource, project)
            with name_project(session.client, project):
                found = session.client.get(resource.plural, name, namespace=listing.namespace)
            pairs = describe(session, found) if describe else _describe(resource, listing, found)
            print_object(found, output, pairs)

    flags = (parameter("context", ContextFlag, None), parameter("output", ObjectOutputFlag, TABLE))
    command = with_parameters(show, (*_target_parameters(resource), *flags))
    group.command(command_name, help=help or f"Show one {resource.noun}.")(command)


def _describe(resource: Resource, listing: Listing, obj: Object) -> Pairs:
    cells = zip(listing.columns, listing.row(obj, datetime.now(UTC)), strict=True)
    pairs = [(header.lower(), "" if value == "-" else value) for header, value in cells]
    shown = {label for label, _ in pairs}
    conditions = [describe_condition(each) for each in get_path(obj, "status.conditions") or ()]
    return [
        *pairs,
        *((label, _format_field(obj, path)) for label, path in resource.details if label not in shown),
        *(("" if number else "conditions", each) for number, each in enumerate(conditions)),
    ]


def _format_field(obj: Object, path: str) -> str:
    value = get_path(obj, path)
    if isinstance(value, dict):
        return ", ".join(f"{name}={each}" for name, each in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else str("" if value is None else value).strip()


def _target_parameters(resource: Resource) -> Sequence[Any]:
    """The argument NAME, and the flag --project if the objects belong to projects."""
    project = "project" if resource.in_project else ""
    completer = complete_names(resource.plural, project=project)
    argument = typer.Argument(help=f"Name of the {resource.noun}.", autocompletion=completer)
    name = parameter("name", Annotated[str, argument])
    return (name, parameter("project", RequiredProjectFlag)) if project else (name,)


@dataclass(frozen=True, slots=True)
class NewObject:
    """An object to create, in a project if it belongs to one, and the message after its creation."""

    body: Object
    message: str
    project: str = ""


class CreateOptions(Protocol):
    """The flags that every command has that creates an object."""

    @property
    def context(self) -> str | None: ...

    @property
    def output(self) -> ObjectOutput: ...


T = TypeVar("T", bound=CreateOptions)


def create_command(
    group: typer.Typer, resource: Resource, options_type: type[T], name: str = "create"
) -> Callable[[Callable[[Session, T], NewObject]], None]:
    """Decorator that adds `create`. The function builds the object from the options; its docstring is the help."""

    def add(build: Callable[[Session, T], NewObject]) -> None:
        def create(options: T) -> None:
            with open_session(options.context) as session:
                new = build(session, options)
                namespace = project_namespace(session, new.project) if new.project else ""
                with name_project(session.client, new.project), name_flags(session.client):
                    created = session.client.create(resource.plural, new.body, namespace=namespace)
                print_created(created, options.output, new.message)

        create.__doc__ = build.__doc__
        group.command(name)(options_from(options_type)(create))

    return add


def describe_nothing(obj: Object) -> str:
    return ""


def abandon(client: Client, plural: str, name: str, namespace: str = "") -> None:
    """Makes the server delete the object without cleaning up elsewhere."""
    change = {"metadata": {"annotations": {ABANDON_ANNOTATION: "true"}}}
    client.patch(plural, name, change, namespace=namespace)


def list_dependents(client: Client, plural: str, fields: str) -> list[Object]:
    """The objects that a field selector finds; none if the user may not list them."""
    try:
        return list(client.list(plural, fields=fields))
    except ApiStatusError as problem:
        if problem.code != 403:
            raise
        return []


def refuse_deletion(where: str, noun: str, dependents: Sequence[object], *advice: str) -> typer.Exit:
    """Prints what has to be deleted first, and returns the exception to raise."""
    count = f"is 1 {noun}" if len(dependents) == 1 else f"are {len(dependents)} {noun}s"
    error = exit_with_error(f"there {count} {where}:")
    print_dependents(dependents)
    for line in advice:
        print_note(line)
    return error


def print_dependents(dependents: Sequence[object]) -> None:
    for each in dependents[:MAX_LISTED]:
        print_note(f"  {each}")
    if len(dependents) > MAX_LISTED:
        print_note(f"  and {len(dependents) - MAX_LISTED} more")


def join_names(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    more = f" and {len(names) - MAX_LISTED} more" if len(names) > MAX_LISTED else ""
    return ", ".join(names[:MAX_LISTED]) + more


@dataclass(frozen=True, slots=True)
class Deletion:
    """How objects are deleted. The messages contain `{name}`.

    `describe_wait` returns what a deletion is waiting for. `describe_leftovers`, for objects that can be deleted with
    `--abandon`, returns what that leaves behind.
    """

    help: str
    question: str
    pending: str = ""
    done: str = ""
    describe_wait: Callable[[Object], str] = describe_nothing
    describe_leftovers: Callable[[Object], str] | None = None


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    name: str
    project: str = ""
    yes: bool = False
    no_wait: bool = False
    timeout: int = DEFAULT_TIMEOUT_SECONDS
    verbose: bool = False
    abandon: bool = False
    context: str | None = None


def add_delete_command(group: typer.Typer, resource: Resource, deletion: Deletion, name: str = "delete") -> None:
    def delete(**values: Any) -> None:
        delete_object(resource, deletion, DeleteOptions(**values))

    parameters = [*_target_parameters(resource)]
    parameters.append(parameter("yes", YesFlag, False))
    parameters.append(parameter("no_wait", NoWaitFlag, False))
    parameters.append(parameter("timeout", TimeoutFlag, DEFAULT_TIMEOUT_SECONDS))
    parameters.append(parameter("verbose", VerboseFlag, False))
    if deletion.describe_leftovers:
        parameters.append(parameter("abandon", AbandonFlag, False))
    parameters.append(parameter("context", ContextFlag, None))
    group.command(name, help=deletion.help)(with_parameters(delete, parameters))


def delete_object(resource: Resource, deletion: Deletion, options: DeleteOptions) -> None:
    """Deletes an object after a confirmation, and waits until it is gone."""
    plural, name, label = resource.plural, options.name, f"the {resource.noun} {options.name}"
    with open_session(options.context) as session:
        client = session.client
        namespace = project_namespace(session, options.project) if resource.in_project else ""
        with name_project(client, options.project):
            found = client.get(plural, name, namespace=namespace)
        if not options.yes:
            abandoning = f"Delete {label}, and leave its objects in the cluster behind?"
            prompts.confirm(abandoning if options.abandon else deletion.question.format(name=name))
        if options.abandon:
            abandon(client, plural, name, namespace)
        client.delete(plural, name, namespace=namespace)
        if options.no_wait:
            print_note(deletion.pending.format(name=name) or f"{label} is being deleted")
            return
        wait_deleted(client, object_ref(client, plural, found), deletion.describe_wait, options.timeout)
        leftovers = deletion.describe_leftovers(found) if deletion.describe_leftovers and options.abandon else ""
        print_note((deletion.done.format(name=name) or f"{label} is deleted") + leftovers)
