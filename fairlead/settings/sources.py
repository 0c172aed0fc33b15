"""Reads settings from the configuration file and the environment, for `load`."""

import difflib
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairlead.core.files import read_file

# Kubernetes sets environment variables for the services of a namespace. Ignore those of a service named `fairlead`.
SERVICE_LINK = re.compile(r"FAIRLEAD_(\w+_)?(SERVICE_(HOST|PORT)|PORT_\d+_(TCP|UDP|SCTP))(_\w+)?")
SERVICE_ADDRESS = re.compile(r"(tcp|udp|sctp)://\S+")

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

    def read_environment(self, environment: Mapping[str, str], problems: list[str]) -> RawValues:
        known = {self._variable(name): name for name in self.names}
        found: RawValues = {}
        for key, value in environment.items():
            if not key.startswith(self.prefix) or _is_service_link(key, value):
                continue
            if key in known:
                # `FAIRLEAD_PORT=` means "not set" in compose files and shells.
                found.update({known[key]: (key, value)} if value else {})
            elif key not in self.other_variables:
                problems.append(_unknown_setting(key, [*known, self._variable(self.config_name)], "unset it"))
        return found

    def read_config(self, path: Path, problems: list[str]) -> RawValues:
        import yaml

        content = read_file(path)
        if content is None:
            advice = f"create it, or leave out --{self.config_name} and {self._variable(self.config_name)}"
            raise StartError(f"{path}: no such file; {advice}")
        try:
            values = yaml.safe_load(content) or {}
        except yaml.MarkedYAMLError as error:
            # Not the error's own message: it quotes the file, which may contain a password.
            line = error.problem_mark.line + 1 if error.problem_mark else "?"
            raise StartError(f"{path}: invalid YAML in line {line}; strings that end in a colon need quotes") from error
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


def _is_service_link(key: str, value: str) -> bool:
    return bool(SERVICE_LINK.fullmatch(key) or (key.endswith("_PORT") and SERVICE_ADDRESS.fullmatch(value)))


def _unknown_setting(key: str, known: Sequence[str], advice: str) -> str:
    (nearest,) = difflib.get_close_matches(key, known, n=1, cutoff=0.0)
    return f"unknown setting {key}; did you mean {nearest}? Otherwise {advice}"
