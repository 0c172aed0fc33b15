"""`fairlead config`: shows and changes single settings of the Config."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from fairlead.cli.access.config_origin import explain_setting
from fairlead.cli.access.config_text import parse_config, read_config, read_text, update_settings
from fairlead.cli.ui.flags import ContextFlag, options_from
from fairlead.cli.ui.groups import AliasGroup
from fairlead.cli.ui.output import escape_control, print_note, print_pairs
from fairlead.cli.ui.session import UsageError, open_session
from fairlead.core import yaml
from fairlead.core.body_errors import Malformed
from fairlead.core.objects import Object

group = typer.Typer(cls=AliasGroup, help="Show and change settings while the server runs.", no_args_is_help=True)


@group.command("show")
def show(
    setting: Annotated[
        str | None,
        typer.Argument(
            help="A setting like auth.password.disabled: its value, where it comes from, and how to change it.",
            metavar="[SETTING]",
            show_default=False,
        ),
    ] = None,
    context: ContextFlag = None,
) -> None:
    """Print the settings of the Config as they were written, or explain one setting."""
    with open_session(context) as session:
        if setting is not None:
            config = read_config(session.client)
            print_pairs(list(explain_setting(config, parse_config(config), setting)))
            return
        text = read_text(session.client)
        if not text.strip():
            print_note("the Config has no settings; those of the server's start apply")
            return
        print("\n".join(escape_control(line) for line in text.rstrip("\n").split("\n")))


@dataclass(frozen=True, slots=True)
class SetOptions:
    settings: Annotated[
        list[str],
        typer.Argument(
            help="A setting like auth.password.disabled=true; the value is YAML.", metavar="SETTING=VALUE..."
        ),
    ]
    context: ContextFlag = None


@group.command("set")
@options_from(SetOptions)
def set_command(options: SetOptions) -> None:
    """Set single settings, and leave the others as they are."""
    with open_session(options.context) as session:
        changes = [_parse_change(each) for each in options.settings]

        def update(settings: Object) -> None:
            for path, value in changes:
                _set(settings, path, copy.deepcopy(value))

        update_settings(session.client, update)
        print_note(f"set {', '.join('.'.join(path) for path, _ in changes)}")


@dataclass(frozen=True, slots=True)
class UnsetOptions:
    settings: Annotated[list[str], typer.Argument(help="A setting like auth.password.disabled.", metavar="SETTING...")]
    context: ContextFlag = None


@group.command("unset")
@options_from(UnsetOptions)
def unset_command(options: UnsetOptions) -> None:
    """Remove single settings, so that those of the server's start apply again."""
    with open_session(options.context) as session:
        paths = [_parse_path(each) for each in options.settings]

        def update(settings: Object) -> None:
            for path in paths:
                _unset(settings, path, ".".join(path))

        update_settings(session.client, update)
        print_note(f"removed {', '.join(options.settings)}")


def _parse_change(text: str) -> tuple[Sequence[str], Any]:
    name, equals, value = text.partition("=")
    if not equals or not value:
        raise UsageError(f"{text!r} is not in the form SETTING=VALUE; `fairlead config unset` removes a setting")
    try:
        parsed, _ = yaml.decode(value.encode())
    except Malformed as error:
        raise UsageError(f"the value of {name} is not YAML: {error}") from None
    return _parse_path(name), parsed


def _parse_path(name: str) -> Sequence[str]:
    path = name.split(".")
    if not all(path):
        raise UsageError(f"{name!r} is not a setting; name it with dots, like auth.password.disabled")
    return path


def _set(settings: Object, path: Sequence[str], value: Any) -> None:
    inner = settings
    for name in path[:-1]:
        found = inner.get(name)
        if found is None:
            found = inner[name] = {}
        if not isinstance(found, dict):
            raise UsageError(f"{'.'.join(path)} is not a setting: {name} is not a group of settings")
        inner = found
    inner[path[-1]] = value


def _unset(settings: Object, path: Sequence[str], name: str) -> None:
    """Removes a setting, and groups that are empty then. `name` is the whole name, for the error."""
    inner = settings.get(path[0])
    if path[0] not in settings or (len(path) > 1 and not isinstance(inner, dict)):
        raise UsageError(f"{name} is not set; `fairlead config show` prints the settings")
    if isinstance(inner, dict) and len(path) > 1:
        _unset(inner, path[1:], name)
    if len(path) == 1 or not inner:
        del settings[path[0]]
