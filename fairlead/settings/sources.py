"""Reads settings from flags, the environment and the configuration file, for `load`.

Secrets can also be files that the service manager hands over: systemd's LoadCredential= and LoadCredentialEncrypted=. A
file `fairlead.NAME` in $CREDENTIALS_DIRECTORY has the value of a setting or of one of the other variables. Only this
process can read it, and it is in no environment that other programs could look into.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairlead.core.files import read_file
from fairlead.core.suggestions import suggest_name

# Kubernetes sets environment variables for the services of a namespace. Ignore those of a service named `fairlead`.
SERVICE_LINK = re.compile(r"FAIRLEAD_(\w+_)?(SERVICE_(HOST|PORT)|PORT_\d+_(TCP|UDP|SCTP))(_\w+)?")
SERVICE_ADDRESS = re.compile(r"(tcp|udp|sctp)://\S+")

CREDENTIALS_VARIABLE = "CREDENTIALS_DIRECTORY"
CREDENTIALS_PREFIX = "fairlead."
MAX_CREDENTIAL_BYTES = 1 << 20
"""The limit of systemd."""

RawValues = dict[str, tuple[str, Any]]
"""By setting name: the origin for error messages (flag, variable, or file and key), and the raw value."""


class StartError(Exception):
    """The server cannot start because of a configuration error. The message has one line for each problem."""


def flag(name: str) -> str:
    """The flag of a setting."""
    return "--" + name.replace("_", "-")


@dataclass(frozen=True, slots=True)
class SettingSources:
    """`names` are all settings, `config_name` names the file itself, `other_variables` are variables with our prefix
    that are not settings."""

    names: Sequence[str]
    prefix: str
    config_name: str
    other_variables: Collection[str]

    def read_flags(self, flags: Mapping[str, str | None]) -> RawValues:
        return {name: (flag(name), text) for name, text in flags.items() if name in self.names and text is not None}

    def read_environment(self, environment: Mapping[str, str], problems: list[str]) -> RawValues:
        known = {self._variable(name): name for name in self.names}
        given: RawValues = {}
        for key, value in environment.items():
            if not key.startswith(self.prefix) or _is_service_link(key, value):
                continue
            if key in known:
                if value:  # `FAIRLEAD_PORT=` means "not set" in compose files and shells
                    given[known[key]] = (key, value)
            elif key not in self.other_variables:
                suggestions = [self._variable(name) for name in (*self.names, self.config_name)]
                problems.append(_unknown_setting(key, suggestions, "unset it"))
        return given

    def read_config(self, path: Path, problems: list[str]) -> RawValues:
        import yaml

        content = read_file(path)
        if content is None:
            advice = f"create it, or leave out --{self.config_name} and {self._variable(self.config_name)}"
            raise StartError(f"{path}: no such file; {advice}")
        try:
            values = yaml.safe_load(content) or {}
        except yaml.MarkedYAMLError as error:
            raise StartError(f"{path}: {_describe_yaml_error(error)}") from error
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise StartError(f"{path}: not valid UTF-8; save the file as UTF-8") from error
        if not isinstance(values, dict):
            raise StartError(f"{path}: must contain settings, one `name: value` per line")
        unknown = [key for key in values if key not in self.names]
        problems.extend(f"{path}: {_unknown_setting(str(key), self.names, 'remove it')}" for key in unknown)
        return {
            key: (f"{path}: {key}", value) for key, value in values.items() if key in self.names and value is not None
        }

    def _variable(self, name: str) -> str:
        return self.prefix + name.upper()


def _describe_yaml_error(error: Any) -> str:
    """The line of a YAML error, and its likely cause. The error's own message quotes the file: maybe a password."""
    line = error.problem_mark.line + 1 if error.problem_mark else "?"
    opened = error.context_mark.line + 1 if error.context_mark else line
    if "parsing a flow" in (error.context or ""):
        return f"invalid YAML in line {line}; a bracket or brace that is opened in line {opened} is not closed"
    if "quoted scalar" in (error.context or ""):
        return f"invalid YAML in line {opened}; a quote that is opened there is not closed"
    if "tab" in str(error.problem) or "cannot start any token" in str(error.problem):
        return f"invalid YAML in line {line}; indent with spaces, and quote strings with special characters"
    if "mapping values" in str(error.problem):
        return f"invalid YAML in line {line}; strings that end in a colon need quotes"
    return f"invalid YAML in line {line}; check the indentation"


def _is_service_link(key: str, value: str) -> bool:
    return bool(SERVICE_LINK.fullmatch(key) or (key.endswith("_PORT") and SERVICE_ADDRESS.fullmatch(value)))


def _unknown_setting(key: str, known: Sequence[str], advice: str) -> str:
    return f"unknown setting {key}; {suggest_name(key, known, advice)}"


def read_credentials(environment: Mapping[str, str], names: Collection[str], prefix: str) -> dict[str, str]:
    """The values by the names of their variables, `prefix` and the name in capitals. Raises StartError, FileProblem."""
    folder = environment.get(CREDENTIALS_VARIABLE, "")
    if not folder or not Path(folder).is_dir():
        return {}
    found = {}
    for file in sorted(Path(folder).glob(f"{CREDENTIALS_PREFIX}*")):
        name = file.name.removeprefix(CREDENTIALS_PREFIX)
        if name not in names:
            raise StartError(f"unknown credential {file.name}; the name after the dot must be that of a setting")
        variable = prefix + name.upper()
        if environment.get(variable):
            raise StartError(f"{variable} is set, and there is a credential {file.name}; use one of them")
        if file.stat().st_size > MAX_CREDENTIAL_BYTES:
            raise StartError(f"the credential {file.name} is larger than 1 MiB")
        try:
            found[variable] = (read_file(file) or b"").decode().strip()
        except UnicodeDecodeError:
            raise StartError(f"the credential {file.name} is not text") from None
    return found
