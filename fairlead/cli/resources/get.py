"""`fairlead get`: prints objects of any kind, in the columns of the server. For machines without kubectl."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import typer

from fairlead.cli.resources.any_kind import NamespaceOptions, Target, TargetsArgument, parse_targets, served_resources
from fairlead.cli.ui.field_flags import name_selector, require_project
from fairlead.cli.ui.flags import (
    AllProjectsFlag,
    ContextFlag,
    ObjectOutputFlag,
    SelectorFlag,
    SortFlag,
    WatchFlag,
    options_from,
)
from fairlead.cli.ui.output import (
    TABLE,
    Format,
    ObjectOutput,
    build_list,
    format_cell,
    print_name,
    print_table,
    print_value,
)
from fairlead.cli.ui.resource_commands import check_watch_flags, sort_key, watch_objects, watch_table
from fairlead.cli.ui.session import Session, UsageError, exit_with_error, open_session
from fairlead.client import ApiStatusError, Client
from fairlead.client.client import JSON, PAGE_SIZE
from fairlead.core.objects import Object, get_path, name_of

TABLE_TYPE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


@dataclass(frozen=True, slots=True)
class GetOptions:
    targets: TargetsArgument = None
    scope: NamespaceOptions = field(default_factory=NamespaceOptions)
    all_projects: AllProjectsFlag = False
    selector: SelectorFlag = ""
    sort_by: SortFlag = ""
    watch: WatchFlag = False
    context: ContextFlag = None
    output: ObjectOutputFlag = TABLE


@dataclass(frozen=True, slots=True)
class FoundTarget:
    """A target with the responses of the server: the pages of a list, or one object."""

    target: Target
    pages: Sequence[Object]


@options_from(GetOptions)
def command(options: GetOptions) -> None:
    """Print objects of any kind. Without arguments, list the kinds.

    Objects in namespaces are listed in all projects, unless --project or --namespace is set. If an object cannot be
    read, the others are printed nevertheless, and the exit code is 1.
    """
    with open_session(options.context) as session:
        namespace = options.scope.resolve(session)
        if namespace and options.all_projects:
            raise UsageError("--all-projects lists all namespaces; leave out --project and --namespace")
        if not options.targets:
            _print_kinds(session)
            return
        targets = parse_targets(session, options.targets, namespace)
        if options.scope.project:
            require_project(session.client, options.scope.project)
        with name_selector(options.selector):
            if options.watch:
                _watch(session.client, targets, options)
                return
            found, problems = _read_targets(session.client, targets, options)
        if options.output.is_table:
            _print_tables(found, options)
        elif found or not problems:
            _print_objects(found, options, is_single=len(targets) == 1 and bool(targets[0].name))
        for each in problems:
            exit_with_error(str(each))
        if problems:
            raise typer.Exit(1)


def _print_kinds(session: Session) -> None:
    rows = [
        (each.plural, each.kind, each.api_version, "true" if each.namespaced else "false")
        for each in served_resources(session)
        if "list" in each.verbs
    ]
    print_table(("NAME", "KIND", "APIVERSION", "NAMESPACED"), rows, "the server has no resources")


def _read_targets(
    client: Client, targets: Sequence[Target], options: GetOptions
) -> tuple[list[FoundTarget], list[ApiStatusError]]:
    """Reads the targets, and collects the errors of those that do not exist or may not be read."""
    found: list[FoundTarget] = []
    problems: list[ApiStatusError] = []
    for each in targets:
        try:
            found.append(FoundTarget(each, list(_read_pages(client, each, options))))
        except ApiStatusError as problem:
            if problem.code not in (403, 404):
                raise
            problems.append(problem)
    return found, problems


def _read_pages(client: Client, target: Target, options: GetOptions) -> Iterator[Object]:
    """The pages of a list, or the only one for a single object."""
    accept = TABLE_TYPE if options.output.is_table else JSON
    query = {"labelSelector": options.selector} if options.selector else {}
    if accept == TABLE_TYPE and options.sort_by:
        query["includeObject"] = "Object"
    if not target.name:
        query["limit"] = str(PAGE_SIZE)
    while True:
        page = client.send("GET", target.path, query=query, accept=accept)
        yield page
        token = get_path(page, "metadata.continue")
        if target.name or not token:
            return
        query["continue"] = str(token)


def _print_objects(found: Sequence[FoundTarget], options: GetOptions, is_single: bool) -> None:
    objects = [
        (target, each)
        for target, pages in ((each.target, each.pages) for each in found)
        for page in pages
        for each in ([page] if target.name else _complete_items(target, page))
    ]
    if options.sort_by:
        key = sort_key(options.sort_by)
        objects.sort(key=lambda pair: key(pair[1]))
    if options.output.format is Format.NAME:
        for target, each in objects:
            print_name(target.resource.kind, name_of(each))
    elif is_single:
        print_value(objects[0][1], options.output)
    else:
        print_value(build_list([each for _, each in objects]), options.output)


def _complete_items(target: Target, page: Object) -> list[Object]:
    """The items of a list, with the apiVersion and kind that the server leaves out."""
    types = {"apiVersion": target.resource.api_version, "kind": target.resource.kind}
    return [types | each for each in page.get("items") or ()]


def _print_tables(found: Sequence[FoundTarget], options: GetOptions) -> None:
    """Prints a table for each kind, in the columns of the server."""
    by_resource: dict[str, list[FoundTarget]] = {}
    for each in found:
        by_resource.setdefault(str(each.target.resource), []).append(each)
    for number, group in enumerate(by_resource.values()):
        pages = [page for each in group for page in each.pages]
        if number:
            print()
        _print_table(group[0].target, pages, options.output, options.sort_by)


def _print_table(target: Target, pages: Sequence[Object], output: ObjectOutput, sort_by: str) -> None:
    columns = _table_columns(target, pages[0], output)
    rows = [row for page in pages for row in page.get("rows") or ()]
    if sort_by:
        key = sort_key(sort_by)
        rows.sort(key=lambda row: key(row.get("object") or {}))
    cells = [[each.format(row) for each in columns] for row in rows]
    print_table([each.header for each in columns], cells, _empty_message(target))


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column of a table of the server: its header, and the position of its cells."""

    header: str
    position: int

    def format(self, row: Object) -> str:
        return format_cell(row["cells"][self.position])


@dataclass(frozen=True, slots=True)
class NamespaceColumn:
    """The namespaces of objects in all namespaces, which the server does not print."""

    header: str = "NAMESPACE"

    def format(self, row: Object) -> str:
        return format_cell(get_path(row, "object.metadata.namespace"))


def _table_columns(target: Target, table: Object, output: ObjectOutput) -> list[TableColumn | NamespaceColumn]:
    is_in_all_namespaces = target.resource.namespaced and not target.namespace
    return [
        *([NamespaceColumn()] if is_in_all_namespaces else []),
        *(
            TableColumn(str(each.get("name")).upper(), number)
            for number, each in enumerate(table.get("columnDefinitions") or ())
            if output.format is Format.WIDE or not each.get("priority")
        ),
    ]


def _empty_message(target: Target) -> str:
    return f"no {target.resource.plural}" + (f" in {target.namespace}" if target.namespace else "")


def _watch(client: Client, targets: Sequence[Target], options: GetOptions) -> None:
    """Prints the objects, then a row for each change, until Ctrl-C, which ends the command with exit code 0."""
    check_watch_flags(options.sort_by, options.output)
    if len(targets) > 1:
        raise UsageError("--watch is for one kind, or one object of it; run the command once for each")
    [target] = targets
    query = {} if target.name else {"limit": "1"}
    first = client.send("GET", target.path, query=query, accept=TABLE_TYPE)
    events = client.watch_path(
        target.resource.path("", target.namespace),
        labels=options.selector,
        fields=f"metadata.name={target.name}" if target.name else "",
        accept=TABLE_TYPE if options.output.is_table else JSON,
    )
    with suppress(KeyboardInterrupt):
        if options.output.is_table:
            columns = _table_columns(target, first, options.output)
            watch_table(
                events,
                [each.header for each in columns],
                lambda table: [each.format(table["rows"][0]) for each in columns],
                _empty_message(target),
            )
        else:
            watch_objects(events, target.resource.kind, options.output)
