"""All settings. The commands call `load`; `app` passes the values on.

Each field of `Settings` is a setting: its name is the key in the file, and determines the environment variable and the
flag. Its annotation has the help text, who would change it, and the bounds. To add a setting, add a field, and a row in
docs/settings.md: a test compares the two.

Precedence: flag, environment, file, default. Unknown settings are errors: a misspelt limit must not be ignored.

    declarations.py  declares the settings, with defaults that depend on the machine
    contradictions.py  finds settings that contradict each other
    description.py   describes the settings in effect, for the console and the support bundle
    sources.py       reads flags, the environment, the file, and secrets from the service manager
    values.py        parses values
"""

from collections.abc import Mapping
from dataclasses import Field, dataclass, fields
from typing import Any, get_args

from fairlead.settings.contradictions import find_contradictions
from fairlead.settings.declarations import Settings
from fairlead.settings.sources import RawValues, SettingSources, StartError, flag, read_credentials
from fairlead.settings.values import PARSERS, SettingInfo, absolute_path

__all__ = [
    "CONFIG",
    "SETTINGS",
    "Setting",
    "Settings",
    "StartError",
    "flag",
    "load",
    "load_credentials",
    "read_variable",
    "variable",
]

ENVIRONMENT_PREFIX = "FAIRLEAD_"
ORIGINS = "origins"
"""The field of Settings that is no setting."""
CONFIG = "config"
"""The name of the setting with the path of the file: a flag and a variable, but not a key in the file."""


@dataclass(frozen=True, slots=True)
class Setting:
    """The name, type, info and default of a field of Settings."""

    name: str
    type: Any
    info: SettingInfo
    default: Any

    @property
    def default_text(self) -> str:
        return self.info.computed_default or str(self.default)


def _parse_field(field_: Field[Any]) -> Setting:
    kind, about = get_args(field_.type)
    return Setting(field_.name, kind, about, field_.default)


SETTINGS = {each.name: _parse_field(each) for each in fields(Settings) if each.name != ORIGINS}


def variable(name: str) -> str:
    return ENVIRONMENT_PREFIX + name.upper()


def load(
    flags: Mapping[str, str | None], environment: Mapping[str, str], defaults: Mapping[str, Any] | None = None
) -> Settings:
    """Merges all sources. `flags` has the names of the fields; None if a flag is not given. Raises StartError."""
    problems: list[str] = []
    config = flags.get(CONFIG) or environment.get(variable(CONFIG))
    raw_values: RawValues = {
        **(SOURCES.read_config(absolute_path(config), problems) if config else {}),
        **SOURCES.read_environment(environment, problems),
        **SOURCES.read_flags(flags),
    }
    values = dict(defaults or {})
    for name, (origin, raw) in raw_values.items():
        try:
            values[name] = PARSERS[SETTINGS[name].type](raw, SETTINGS[name].info)
        except ValueError as error:
            problems.append(f"{origin}: {error}")
    origins = {name: origin for name, (origin, _) in raw_values.items()}
    settings = Settings(**values, origins=origins)
    problems.extend(find_contradictions(settings))
    if problems:
        raise StartError("\n".join(problems))
    return settings


def load_credentials(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that the service manager hands over as files. Raises StartError and FileProblem."""
    return read_credentials(environment, {*SETTINGS, *OTHER_VARIABLES} - {CONFIG}, ENVIRONMENT_PREFIX)


def read_variable(name: str, environment: Mapping[str, str]) -> tuple[str, str]:
    """The variable and value of one of OTHER_VARIABLES; an empty value if it is not set."""
    return variable(name), environment.get(variable(name), "").strip()


OTHER_VARIABLES = (CONFIG, "encryption_keys", "pepper", "etcd_password", "url", "key", "ca_file", "context")
"""Variables that are not settings: the path of the file, secrets that no file should contain, and the CLI's login."""

SOURCES = SettingSources(
    tuple(SETTINGS),
    ENVIRONMENT_PREFIX,
    CONFIG,
    frozenset(map(variable, OTHER_VARIABLES)),
)
