"""Flags that several client commands share, and dataclasses as command options (`options_from`).

`cli/server/setting_flags.py` has the flags of the commands that start a server.
"""

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Iterator
from typing import Annotated, Any, TypeVar, get_type_hints

import typer

from fairlead.cli.ui.completion import complete_logins, complete_names, complete_namespaces
from fairlead.cli.ui.durations import parse_timeout
from fairlead.cli.ui.output import ObjectOutput, Output, parse_output

ContextFlag = Annotated[
    str | None,
    typer.Option(
        "--context",
        help="Login to use; `fairlead context list` shows them.",
        metavar="NAME",
        show_default=False,
        autocompletion=complete_logins,
    ),
]
OutputFlag = Annotated[Output, typer.Option("--output", "-o", help="Output format.")]
ObjectOutputFlag = Annotated[
    ObjectOutput,
    typer.Option(
        "--output",
        "-o",
        help="Output format: table, wide, name, json, yaml, or jsonpath=TEMPLATE as in kubectl.",
        metavar="FORMAT",
        parser=parse_output,
        show_default="table",
    ),
]
WatchFlag = Annotated[bool, typer.Option("--watch", "-w", help="Watch for changes after the list, until Ctrl-C.")]
SelectorFlag = Annotated[
    str,
    typer.Option("--selector", "-l", help="Label selector, like app=web.", metavar="LABELS", show_default=False),
]
SortFlag = Annotated[
    str,
    typer.Option(
        "--sort-by",
        help="Field to sort by, like .metadata.creationTimestamp.",
        metavar="FIELD",
        show_default="as the server lists them",
    ),
]
NoWaitFlag = Annotated[bool, typer.Option("--no-wait", help="Do not wait for the deletion to finish.")]
TimeoutFlag = Annotated[
    int,
    typer.Option(
        "--timeout", help="How long to wait, like 90s or 10m.", metavar="TIME", parser=parse_timeout, show_default="5m"
    ),
]
NamespaceFlag = Annotated[
    str | None,
    typer.Option(
        "--namespace",
        "-n",
        help="Namespace of the request.",
        metavar="NS",
        show_default=False,
        autocompletion=complete_namespaces,
    ),
]
ProjectNamespaceFlag = Annotated[
    str | None,
    typer.Option(
        "--project",
        help="Project whose namespace the request is in.",
        metavar="P",
        show_default=False,
        autocompletion=complete_names("projects"),
    ),
]
RequiredProjectFlag = Annotated[
    str,
    typer.Option("--project", help="Project of the object.", metavar="P", autocompletion=complete_names("projects")),
]
ProjectFilterFlag = Annotated[
    str | None,
    typer.Option(
        "--project",
        help="Project to list.",
        metavar="P",
        show_default="all visible projects",
        autocompletion=complete_names("projects"),
    ),
]
AllProjectsFlag = Annotated[bool, typer.Option("--all-projects", "-A", help="List all projects, as without --project.")]
DisplayNameFlag = Annotated[str | None, typer.Option("--display-name", help="Human-readable name.", show_default=False)]
DescriptionFlag = Annotated[str | None, typer.Option("--description", help="Description.", show_default=False)]
DryRunFlag = Annotated[bool, typer.Option("--dry-run", help="Only check with the server; change nothing.")]
YesFlag = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]

T = TypeVar("T")


def options_from(options: type[T]) -> Callable[[Callable[[T], None]], Callable[..., None]]:
    """Decorator that turns a function of one options dataclass into a command with a flag for each field.

    The fields have Typer annotations. A field that is a dataclass itself contributes all of its fields.
    """

    def as_command(function: Callable[[T], None]) -> Callable[..., None]:
        def command(**values: Any) -> None:
            function(_build_options(options, values))

        command.__doc__ = function.__doc__
        return with_parameters(command, parameters_of(options))

    return as_command


def with_parameters(function: Callable[..., None], parameters: Iterable[inspect.Parameter]) -> Callable[..., None]:
    """Gives a command other parameters than its signature shows: for commands that are built from a description."""
    function.__signature__ = inspect.Signature(list(parameters))  # type: ignore[attr-defined]
    return function


def parameter(name: str, annotation: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    """A parameter for `with_parameters`. Without a default it is required."""
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def parameters_of(options: type[Any]) -> Iterator[inspect.Parameter]:
    """The parameters for the fields of an options dataclass."""
    hints = get_type_hints(options, include_extras=True)
    for field in dataclasses.fields(options):
        if dataclasses.is_dataclass(hints[field.name]):
            yield from parameters_of(hints[field.name])
        else:
            default = inspect.Parameter.empty if field.default is dataclasses.MISSING else field.default
            yield parameter(field.name, hints[field.name], default)


def _build_options(options: type[T], values: dict[str, Any]) -> T:
    hints = get_type_hints(options, include_extras=True)
    nested_names = (name for name, kind in hints.items() if dataclasses.is_dataclass(kind))
    nested = {name: _build_options(hints[name], values) for name in nested_names}
    direct = {name: values[name] for name in hints if name not in nested}
    return options(**direct, **nested)
