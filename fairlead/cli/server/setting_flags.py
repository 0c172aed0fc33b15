"""Flags made out of settings, so that a setting is described in one place only."""

import inspect
from typing import Annotated, Any

import typer

from fairlead.settings import CONFIG, SETTINGS, flag, variable


def option(name: str, panel: str | None = None) -> Any:
    """The flag of one setting. It hands its text on as it is: `settings.load` reads all sources alike."""
    setting = SETTINGS[name]
    return typer.Option(
        flag(name),
        help=f"{setting.about.help}. [dim]Default: {setting.shown_default}[/dim]",
        metavar="|".join(setting.about.choices) or _placeholder(setting.type),
        rich_help_panel=panel,
        show_default=False,
    )


def config_option() -> Any:
    return typer.Option(
        flag(CONFIG),
        help=f"YAML file with settings, named with underscores: body_limit. [dim]Also {variable(CONFIG)}[/dim]",
        metavar="FILE",
        show_default=False,
    )


def every_setting() -> inspect.Signature:
    """The signature of a command that takes each setting as a flag, and the file with the rest of them."""
    options = {CONFIG: config_option()} | {name: option(name, each.about.group) for name, each in SETTINGS.items()}
    return inspect.Signature(
        [
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[str | None, made]
            )
            for name, made in options.items()
        ]
    )


def _placeholder(kind: Any) -> str:
    return {int: "N", str: "TEXT", tuple[str, ...]: "NAME,..."}.get(kind, "PATH")
