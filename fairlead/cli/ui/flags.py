"""Flags that several client commands share, and dataclasses as command options (`options_from`).

`cli/server/setting_flags.py` has the flags of the commands that start a server.
"""

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Iterator
from typing import Annotated, Any, TypeVar, get_type_hints

import typer

from fairlead.cli.ui.completion import complete_logins, complete_names, complete_namespaces
from fairlead.cli.ui.durations import parse_duration, parse_timeout
from fairlead.cli.ui.output import ObjectOutput, Output, parse_output


def reject_empty(ctx: typer.Context, param: typer.CallbackParam, value: Any) -> Any:
    """Callback of flags with names: with an empty P, `--project "$P"` would mean all projects, also to `delete`."""
    given = value if isinstance(value, (list, tuple)) else (value,)
    source = ctx.get_parameter_source(param.name or "")
    if "" in given and source is not None and source.name != "DEFAULT":
        raise typer.BadParameter("the name is empty; leave the flag out if none is meant")
    return value


def flag(
    *names: str,
    help: str,
    metavar: str | None = None,
    default: str | bool = False,
    complete: str | Callable[..., list[str]] = "",
    **settings: Any,
) -> Any:
    """A flag with a value. `default` describes its default in the help, which has none otherwise.

    `complete` is the plural of the objects whose names the shell completes, or a function that returns the completions.
    The value of such a flag is a name, so it is not empty.
    """
    if complete:
        settings = {"callback": reject_empty, **settings}
    return typer.Option(
        *names,
        help=help,
        metavar=metavar,
        show_default=default,
        autocompletion=complete_names(complete) if isinstance(complete, str) and complete else complete or None,
        **settings,
    )


def overlap_flag(help: str) -> Any:
    """Of commands that replace a key. `help` says what stays valid for that time."""
    return flag("--overlap", help=help, parser=parse_duration, metavar="TIME", default="revoked at once")


ContextFlag = Annotated[
    str | None,
    flag(
        "--context", help="Login to use; `fairlead context list` shows them.", metavar="NAME", complete=complete_logins
    ),
]
OutputFlag = Annotated[Output, typer.Option("--output", "-o", help="Output format.")]
ObjectOutputFlag = Annotated[
    ObjectOutput,
    flag(
        "--output",
        "-o",
        help="Output format: table, wide, name, json, yaml, or jsonpath=TEMPLATE as in kubectl.",
        metavar="FORMAT",
        parser=parse_output,
        default="table",
    ),
]
WatchFlag = Annotated[bool, typer.Option("--watch", "-w", help="Watch for changes after the list, until Ctrl-C.")]
SelectorFlag = Annotated[str, flag("--selector", "-l", help="Label selector, like app=web.", metavar="LABELS")]
SortFlag = Annotated[
    str,
    flag(
        "--sort-by",
        help="Field to sort by, like .metadata.creationTimestamp.",
        metavar="FIELD",
        default="as the server lists them",
    ),
]
NoWaitFlag = Annotated[bool, typer.Option("--no-wait", help="Do not wait for the deletion to finish.")]
TimeoutFlag = Annotated[
    int,
    flag("--timeout", help="How long to wait, like 90s or 10m.", metavar="TIME", parser=parse_timeout, default="5m"),
]
NamespaceFlag = Annotated[
    str | None, flag("--namespace", "-n", help="Namespace of the request.", metavar="NS", complete=complete_namespaces)
]
ProjectNamespaceFlag = Annotated[
    str | None, flag("--project", help="Project whose namespace the request is in.", metavar="P", complete="projects")
]
RequiredProjectFlag = Annotated[str, flag("--project", help="Project of the object.", metavar="P", complete="projects")]
ProjectFilterFlag = Annotated[
    str | None,
    flag("--project", help="Project to list.", metavar="P", default="all visible projects", complete="projects"),
]
AllProjectsFlag = Annotated[bool, typer.Option("--all-projects", "-A", help="List all projects, as without --project.")]
DisplayNameFlag = Annotated[str | None, flag("--display-name", help="Human-readable name.")]
DescriptionFlag = Annotated[str | None, flag("--description", help="Description.")]
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
