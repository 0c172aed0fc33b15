"""The commands `list`, `show`, `create` and `delete`, the same for every resource that a `Resource` describes.

A command group calls `add_list_command`, `add_show_command` and `add_delete_command`, and decorates a function with
`create_command`, in the order of its help. Commands that do more, such as `cluster remove`, are written out.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Annotated, Any, Protocol, TypeVar

import typer

from fairlead.cli.ui import prompts
from fairlead.cli.ui.completion import complete_names
from fairlead.cli.ui.describe import cell, condition_rows, print_created, print_object
from fairlead.cli.ui.durations import DEFAULT_TIMEOUT_SECONDS
from fairlead.cli.ui.field_flags import name_flags, name_project, name_selector, require_project
from fairlead.cli.ui.flags import (
    AllProjectsFlag,
    ContextFlag,
    NoWaitFlag,
    ObjectOutputFlag,
    ProjectFilterFlag,
    RequiredProjectFlag,
    SelectorFlag,
    SortFlag,
    TimeoutFlag,
    WatchFlag,
    YesFlag,
    options_from,
    parameter,
    parameters_of,
    with_parameters,
)
from fairlead.cli.ui.jsonpath import InvalidTemplate, parse_path
from fairlead.cli.ui.output import (
    TABLE,
    Format,
    ObjectOutput,
    Output,
    build_list,
    column_widths,
    format_cell,
    print_event,
    print_name,
    print_note,
    print_row,
    print_table,
    print_value,
)
from fairlead.cli.ui.session import (
    Session,
    UsageError,
    exit_with_error,
    open_session,
    project_namespace,
    project_namespace_prefix,
)
from fairlead.cli.ui.wait import VerboseFlag, abandoned_messages, object_ref, wait_deleted
from fairlead.client import ApiStatusError, Client, Event
from fairlead.client.watch import MODIFIED, SYNCED
from fairlead.core.objects import Object, get_path, name_of


@dataclass(frozen=True, slots=True)
class ListOptions:
    """The flags of every `list` command."""

    selector: SelectorFlag = ""
    sort_by: SortFlag = ""
    watch: WatchFlag = False
    context: ContextFlag = None
    output: ObjectOutputFlag = TABLE


def match_all(obj: Object) -> bool:
    return True


COMMON_DETAILS = (("display name", "spec.displayName"), ("description", "spec.description"))


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource as the commands present it.

    `noun` is its name in messages, and `row` returns a cell for each of the columns, the name first. `empty_message` is
    printed instead of an empty list. The objects of a project have a flag `--project`, and a column PROJECT after the
    name. `details` are the labels and fields that `show` prints after the columns, and further columns of `-o wide`.
    """

    plural: str
    kind: str
    noun: str
    columns: tuple[str, ...]
    row: Callable[[Object, datetime], Sequence[str]]
    empty_message: str
    in_project: bool = False
    details: tuple[tuple[str, str], ...] = COMMON_DETAILS

    def widened(self) -> "Resource":
        """With the columns of `-o wide`."""
        details = [(label.upper(), path) for label, path in self.details if label.upper() not in self.columns]

        def row(obj: Object, now: datetime) -> Sequence[str]:
            return (*self.row(obj, now), *(format_cell(get_path(obj, path)).strip() for _, path in details))

        return replace(self, columns=(*self.columns, *(label for label, _ in details)), row=row)

    def in_projects(self, prefix: str, project: str) -> "Resource":
        """With the column PROJECT. `prefix` is that of project namespaces, and `project` is empty for all projects."""

        def row(obj: Object, now: datetime) -> Sequence[str]:
            name, *others = self.row(obj, now)
            return name, cell(obj, "metadata.namespace").removeprefix(prefix), *others

        empty = re.sub("(?=;|$)", f" in {project}", self.empty_message, count=1) if project else self.empty_message
        return replace(self, columns=(self.columns[0], "PROJECT", *self.columns[1:]), row=row, empty_message=empty)


def print_objects(
    client: Client,
    resource: Resource,
    options: ListOptions,
    namespace: str = "",
    matches: Callable[[Object], bool] = match_all,
) -> None:
    """Prints the objects of a namespace, or of all, that match; or watches them."""
    if options.output.format is Format.WIDE:
        resource = resource.widened()
    with name_selector(options.selector):
        if options.watch:
            _watch(client, resource, options, namespace, matches)
            return
        found = client.list(resource.plural, namespace=namespace, labels=options.selector)
        objects = [each for each in found if matches(each)]
    if options.sort_by:
        objects.sort(key=sort_key(options.sort_by))
    now = datetime.now(UTC)
    print_items(
        objects,
        resource.kind,
        options.output,
        resource.columns,
        lambda obj: resource.row(obj, now),
        resource.empty_message,
    )


def print_items(
    objects: Sequence[Object],
    kind: str,
    output: ObjectOutput,
    columns: Sequence[str],
    row: Callable[[Object], Sequence[str]],
    empty_message: str,
) -> None:
    """Prints a list in the requested format."""
    if output.format is Format.NAME:
        for each in objects:
            print_name(kind, name_of(each))
    elif output.is_table:
        print_table(columns, [row(each) for each in objects], empty_message)
    else:
        print_value(build_list(objects), output)


def sort_key(field: str) -> Callable[[Object], tuple[int, Any]]:
    """The key to sort objects by a field: those without it first, then numbers, then text."""
    try:
        path = parse_path(field)
    except InvalidTemplate as error:
        raise UsageError(f"--sort-by: {error}") from None

    def key(obj: Object) -> tuple[int, Any]:
        value = next(iter(path.select(obj)), None)
        if isinstance(value, bool | int | float):
            return 1, value
        return (0, "") if value is None else (2, str(value))

    return key


def _watch(
    client: Client, resource: Resource, options: ListOptions, namespace: str, matches: Callable[[Object], bool]
) -> None:
    """Prints watch events until Ctrl-C, which ends the command with exit code 0."""
    output = options.output
    check_watch_flags(options.sort_by, output)
    events = client.watch(resource.plural, namespace=namespace, labels=options.selector)
    matching = (each for each in events if each.type == SYNCED or matches(each.object))
    with suppress(KeyboardInterrupt):
        if output.is_table:
            watch_table(
                matching, resource.columns, lambda obj: resource.row(obj, datetime.now(UTC)), resource.empty_message
            )
        else:
            watch_objects(matching, resource.kind, output)


def check_watch_flags(sort_by: str, output: ObjectOutput) -> None:
    if sort_by or output.format is Format.JSONPATH:
        raise UsageError("--watch cannot be combined with --sort-by or -o jsonpath; leave one of them out")


def watch_objects(events: Iterable[Event], kind: str, output: ObjectOutput) -> None:
    for event in events:
        if event.type == SYNCED:
            continue
        if output.format is Format.NAME:
            print_name(kind, name_of(event.object))
        else:
            print_event(event.type, event.object, Output(output.format))


def watch_table(
    events: Iterable[Event], columns: Sequence[str], row: Callable[[Object], Sequence[str]], empty_message: str
) -> None:
    """Prints the initial list as a table, then a row for each event with the same column widths."""
    headers = ("EVENT", *columns)
    widths: list[int] | None = None
    rows: list[Sequence[str]] = []
    synced = False
    for event in events:
        if event.type == SYNCED:
            synced = True
        else:
            rows.append((event.type.ljust(len(MODIFIED)), *row(event.object)))
        if not synced:
            continue
        if not rows:
            print_note(empty_message)
        elif widths is None:
            widths = column_widths(headers, rows)
            print_table(headers, rows, empty_message)
        else:
            print_row(headers, rows[-1], widths)
        rows.clear()


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


def add_list_command(group: typer.Typer, resource: Resource, help: str = "", name: str = "list") -> None:
    def list_objects(project: str | None = None, all_projects: bool = False, **flags: Any) -> None:
        options = ListOptions(**flags)
        with open_session(options.context) as session:
            if project and all_projects:
                raise UsageError("--project and --all-projects are mutually exclusive; choose one")
            if project:
                require_project(session.client, project)
            listed, namespace = _select_project(session, resource, project or "")
            print_objects(session.client, listed, options, namespace)

    projects = (parameter("project", ProjectFilterFlag, None), parameter("all_projects", AllProjectsFlag, False))
    command = with_parameters(list_objects, (*(projects if resource.in_project else ()), *parameters_of(ListOptions)))
    group.command(name, help=help or f"List {resource.noun}s.")(command)


def _select_project(session: Session, resource: Resource, project: str) -> tuple[Resource, str]:
    """The resource as it is listed in one project, or in all of them, and the namespace of the project."""
    if not resource.in_project:
        return resource, ""
    prefix = project_namespace_prefix(session.client)
    return resource.in_projects(prefix, project), prefix + project if project else ""


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
            listed, namespace = _select_project(session, resource, project)
            with name_project(session.client, project):
                found = session.client.get(resource.plural, name, namespace=namespace)
            pairs = describe(session, found) if describe else _describe(listed, found)
            print_object(found, output, pairs)

    flags = (parameter("context", ContextFlag, None), parameter("output", ObjectOutputFlag, TABLE))
    command = with_parameters(show, (*_target_parameters(resource), *flags))
    group.command(command_name, help=help or f"Show one {resource.noun}.")(command)


def _describe(resource: Resource, obj: Object) -> Pairs:
    cells = zip(resource.columns, resource.row(obj, datetime.now(UTC)), strict=True)
    pairs = [(header.lower(), "" if value == "-" else value) for header, value in cells]
    shown = {label for label, _ in pairs}
    return [
        *pairs,
        *((label, _format_field(obj, path)) for label, path in resource.details if label not in shown),
        *condition_rows(obj),
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
    """An object to create, in a project if it belongs to one, the message after its creation, and what to do next."""

    body: Object
    message: str
    project: str = ""
    hint: str = ""


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
                print_new(create_object(session, resource, new), new, options.output)

        create.__doc__ = build.__doc__
        group.command(name)(options_from(options_type)(create))

    return add


def print_new(created: Object, new: NewObject, output: ObjectOutput) -> None:
    print_created(created, output, f"{new.message}; {new.hint}" if new.hint else new.message)


def create_object(session: Session, resource: Resource, new: NewObject) -> Object:
    """Creates an object. Errors name flags instead of fields, and the project if it does not exist."""
    namespace = project_namespace(session, new.project) if new.project else ""
    with name_project(session.client, new.project), name_flags(session.client):
        return session.client.create(resource.plural, new.body, namespace=namespace)


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
    `--abandon`, returns what that leaves behind. `command` is the command without `fairlead`, for the advice to do so.
    """

    help: str
    question: str
    pending: str = ""
    done: str = ""
    describe_wait: Callable[[Object], str] = describe_nothing
    describe_leftovers: Callable[[Object], str] | None = None
    command: str = ""

    def advise(self, name: str, project: str) -> str:
        """How to delete an object whose deletion waits for its cluster."""
        if not self.command:
            return ""
        place = f" --project {project}" if project else ""
        return f"`fairlead {self.command} {name}{place} --abandon` deletes it now and leaves that behind"


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
        ref = object_ref(client, plural, found)
        advice = "" if options.abandon else deletion.advise(name, options.project)
        last = wait_deleted(client, ref, deletion.describe_wait, options.timeout, advice)
        leftovers = deletion.describe_leftovers(found) if deletion.describe_leftovers and options.abandon else ""
        if not options.abandon and (left := abandoned_messages(last)):
            raise exit_with_error(f"{label} is deleted, but not what it has deployed: {'; '.join(left)}")
        if leftovers:
            print_note(f"{label} is deleted{leftovers}")
        else:
            print_note(deletion.done.format(name=name) or f"{label} is deleted")
