"""Flags that several commands share, and commands that take so many that they are one value.

`cli/server/setting_flags.py` makes flags out of settings, for the commands that start a server. Here are those of the commands that talk
to one.
"""

import dataclasses
import inspect
from collections.abc import Callable, Iterator
from typing import Annotated, Any, TypeVar, get_type_hints

import typer

from fairlead.cli.ui.completion import logins, names_of
from fairlead.cli.ui.output import NamedOutput, Output

ContextFlag = Annotated[
    str | None,
    typer.Option(
        "--context",
        help="Login to use, of those that `fairlead login` keeps.",
        metavar="NAME",
        show_default=False,
        autocompletion=logins,
    ),
]
OutputFlag = Annotated[Output, typer.Option("--output", "-o", help="How to print.")]
NamedOutputFlag = Annotated[NamedOutput, typer.Option("--output", "-o", help="How to print.")]
WatchFlag = Annotated[bool, typer.Option("--watch", "-w", help="Go on with what changes, until Ctrl-C.")]
NoWaitFlag = Annotated[bool, typer.Option("--no-wait", help="Do not wait until it is gone.")]
NamespaceFlag = Annotated[
    str | None, typer.Option("--namespace", "-n", help="Namespace to ask about.", metavar="NS", show_default=False)
]
ProjectFlag = Annotated[
    str | None,
    typer.Option(
        "--project",
        help="Project whose namespace to ask about.",
        metavar="P",
        show_default=False,
        autocompletion=names_of("projects"),
    ),
]
InProjectFlag = Annotated[
    str, typer.Option("--project", help="Project that it is in.", metavar="P", autocompletion=names_of("projects"))
]
OfProjectFlag = Annotated[
    str | None,
    typer.Option(
        "--project",
        help="Project to look into.",
        metavar="P",
        show_default="all that you see",
        autocompletion=names_of("projects"),
    ),
]
DisplayNameFlag = Annotated[str | None, typer.Option("--display-name", help="What people call it.", show_default=False)]
DescriptionFlag = Annotated[str | None, typer.Option("--description", help="What it is for.", show_default=False)]
YesFlag = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]

T = TypeVar("T")


def takes(options: type[T]) -> Callable[[Callable[[T], None]], Callable[..., None]]:
    """Makes a function of one value a command with a flag for each of the value's fields.

    `options` is a dataclass whose fields are annotated as Typer wants its parameters. A field that is such a class
    itself stands for all of its own fields.
    """

    def as_command(function: Callable[[T], None]) -> Callable[..., None]:
        def command(**given: Any) -> None:
            function(_made(options, given))

        command.__doc__ = function.__doc__
        command.__signature__ = inspect.Signature(list(_parameters(options)))  # type: ignore[attr-defined]
        return command

    return as_command


def _parameters(options: type[Any]) -> Iterator[inspect.Parameter]:
    hints = get_type_hints(options, include_extras=True)
    for field in dataclasses.fields(options):
        if dataclasses.is_dataclass(hints[field.name]):
            yield from _parameters(hints[field.name])
        else:
            default = inspect.Parameter.empty if field.default is dataclasses.MISSING else field.default
            yield inspect.Parameter(
                field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hints[field.name]
            )


def _made(options: type[T], given: dict[str, Any]) -> T:
    hints = get_type_hints(options)
    inner = (name for name, kind in hints.items() if dataclasses.is_dataclass(kind))
    parts = {name: _made(hints[name], given) for name in inner}
    own = {name: given[name] for name in hints if name not in parts}
    return options(**own, **parts)
