"""Command-line flags generated from the settings, so that each setting is described only once."""

import inspect
from typing import Annotated, Any

import typer

from fairlead.settings import CONFIG, SETTINGS, flag, variable


def setting_option(name: str, panel: str | None = None) -> Any:
    """The Typer option of one setting. The text is passed on unparsed; `settings.load` parses all sources alike."""
    setting = SETTINGS[name]
    return typer.Option(
        flag(name),
        help=f"{setting.info.help}. Default: {setting.default_text}",
        metavar="|".join(setting.info.choices) or _metavar(setting.type),
        rich_help_panel=panel,
        show_default=False,
    )


def config_option() -> Any:
    return typer.Option(
        flag(CONFIG),
        help=f"YAML file with settings, named with underscores: body_limit. Also {variable(CONFIG)}",
        metavar="FILE",
        show_default=False,
    )


def settings_signature() -> inspect.Signature:
    """The signature of a command with a flag for each setting, and one for the settings file."""
    options = {
        CONFIG: config_option(),
        **{name: setting_option(name, each.info.group) for name, each in SETTINGS.items()},
    }
    return inspect.Signature(
        [
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[str | None, info]
            )
            for name, info in options.items()
        ]
    )


def _metavar(kind: Any) -> str:
    return {int: "N", str: "TEXT", tuple[str, ...]: "NAME,..."}.get(kind, "PATH")
