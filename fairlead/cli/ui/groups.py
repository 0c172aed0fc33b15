"""Command groups such as `fairlead space`, in which a command can also be called by another usual name."""

from contextvars import ContextVar
from typing import Any

import typer
from typer.core import TyperGroup

ALIASES = {
    "ls": ("list",),
    "delete": ("remove", "revoke", "forget"),
    "connect": ("kubeconfig",),
    "kubeconfig": ("connect",),
}
"""Names that are not listed in the help, with the commands that they stand for: the first one that the group has."""


RUNNING_COMMAND: ContextVar[Any] = ContextVar("RUNNING_COMMAND", default=None)
"""The command that is being run, for messages that depend on its flags. Typer has no public function for it."""


class CommandGroup(TyperGroup):
    """A group that parses its own options only if there are any.

    Typer imports pydantic to convert the value of an option, even if it is not set, which takes longer than all the
    rest of a `--help`.
    """

    _is_parsing_command = False

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        self._is_parsing_command = bool(args) and not args[0].startswith("-")
        try:
            return super().parse_args(ctx, args)
        finally:
            self._is_parsing_command = False

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        token = RUNNING_COMMAND.set(command)
        ctx.call_on_close(lambda: RUNNING_COMMAND.reset(token))
        return name, command, rest

    def get_params(self, ctx: Any) -> list[Any]:
        return [] if self._is_parsing_command else list(super().get_params(ctx))


class AliasGroup(CommandGroup):
    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        found = super().get_command(ctx, cmd_name)
        if found is not None:
            return found
        return next((self.commands[each] for each in ALIASES.get(cmd_name, ()) if each in self.commands), None)


def create_group(help: str) -> typer.Typer:
    return typer.Typer(cls=AliasGroup, help=help, no_args_is_help=True)
