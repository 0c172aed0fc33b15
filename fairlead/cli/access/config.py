"""`fairlead config`: shows single settings of the Config, says where they come from, and changes them.

The Config is YAML text in one field, so a patch of it replaces all settings. Comments in it are lost when a command
changes it; the commands say so.
"""

import copy
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from fairlead.cli.ui.flags import ContextFlag, options_from
from fairlead.cli.ui.groups import AliasGroup
from fairlead.cli.ui.output import escape_control, print_note, print_pairs
from fairlead.cli.ui.session import UsageError, open_session
from fairlead.client import ApiStatusError, Client, ClientError
from fairlead.client.client import PROGRAM
from fairlead.core import yaml
from fairlead.core.body_errors import Malformed
from fairlead.core.objects import Object, get_path
from fairlead.core.suggestions import suggest_name
from fairlead.settings import SETTINGS, flag, variable

CONFIGS, CONFIG_NAME = "configs", "service-manager-config"
MAX_ATTEMPTS = 5
_COMMENT = re.compile(r"(?:^|\s)#", re.MULTILINE)


def read_config(client: Client) -> Object:
    """The Config itself."""
    return client.get(CONFIGS, CONFIG_NAME)


def read_text(client: Client) -> str:
    """The settings as they were written."""
    return _raw(read_config(client))


def parse_config(config: Object) -> Object:
    """The settings of a Config; empty if there are none."""
    return _parse(_raw(config))


def read_settings(client: Client) -> Object:
    """The settings of the Config; empty if there are none."""
    return parse_config(read_config(client))


def update_settings(client: Client, update: Callable[[Object], None]) -> None:
    """Changes the settings in place, with optimistic locking."""
    for _ in range(MAX_ATTEMPTS):
        config = client.get(CONFIGS, CONFIG_NAME)
        raw = _raw(config)
        settings = _parse(raw)
        update(settings)
        text = yaml.encode(settings).decode() if settings else None  # without settings, no manager owns the field
        version = get_path(config, "metadata.resourceVersion")
        try:
            client.patch(CONFIGS, CONFIG_NAME, {"metadata": {"resourceVersion": version}, "spec": {"raw": text}})
        except ApiStatusError as problem:
            if problem.reason != "Conflict":
                raise
            continue
        if _COMMENT.search(raw):
            print_note("warning: comments in the Config are not preserved")
        return
    raise ClientError(f"the Config was changed concurrently {MAX_ATTEMPTS} times; try again")


def _raw(config: Object) -> str:
    raw = get_path(config, "spec.raw")
    return raw if isinstance(raw, str) else ""


def _parse(raw: str) -> Object:
    try:
        value, _ = yaml.decode(raw.encode())
    except Malformed as error:
        raise ClientError(f"the Config cannot be parsed: {error}") from None
    return value if isinstance(value, dict) else {}


DEFAULTS: Mapping[str, str] = {
    "auth.accessKeyMaxTTLSeconds": "access_key_max_ttl",
    "auth.loginAccessKeyTTLSeconds": "login_key_ttl",
    "auth.password.disabled": "password_login",
    "auth.directTokenTTLSeconds": "",
    "auth.directTokenMaxTTLSeconds": "",
    "auth.workloadIdentity": "",
    "auth.connectors": "",
    "auth.groupMappings": "",
    "auth.customHttpHeaders": "",
    "audit.level": "",
}
"""The settings of the Config, and the setting of the server's start that applies without them, if there is one."""
BUILT_IN: Mapping[str, str] = {
    "auth.directTokenTTLSeconds": "86400",
    "auth.directTokenMaxTTLSeconds": "7776000",
    "audit.level": "the levels of the audit policy",
}
"""Values of settings that are set nowhere."""
WRITING_ONCE = (PROGRAM, "fairlead", "fairlead-console", "kubectl-edit", "kubectl-patch", "kubectl-replace")
"""Field managers of those who write once: commands, the server's first start, the console and kubectl. Any other may
write again what it wrote, also `fairlead-apply` from a file."""


def explain_setting(config: Object, settings: Object, name: str) -> Iterator[tuple[str, str]]:
    """Raises UsageError if there is no such setting."""
    check_name(name)
    yield "setting", name
    value = get_path(settings, name)
    if value is None:
        yield from _explain_default(name)
        return
    writers = find_writers(config)
    yield "value", describe_value(value)
    yield "from", f"the Config, written by {' and '.join(f'{who} at {when}' for who, when in writers) or 'a user'}"
    others = [who for who, _ in writers if who not in WRITING_ONCE]
    if others:
        yield (
            "change",
            f"where {' and '.join(others)} has it from; it may write this value again over that of a command",
        )
    else:
        yield "change", f"`fairlead config set {name}=VALUE`, or `fairlead config unset {name}`"


def check_name(name: str) -> None:
    """A setting of the Config, or a part of one, such as `auth.workloadIdentity.issuers`."""
    if name in SETTINGS:
        raise UsageError(
            f"{name} is a setting of the server's start; set {flag(name)}, {variable(name)} or {name} in its settings "
            f"file, and restart the server. The default is {SETTINGS[name].default_text}"
        )
    if any(name == each or name.startswith(f"{each}.") for each in DEFAULTS):
        return
    groups = {each.rpartition(".")[0] for each in DEFAULTS}
    if name in groups:
        raise UsageError(f"{name} is a group of settings; name one of them, or run `fairlead config show`")
    advice = suggest_name(name, DEFAULTS, f"there are {', '.join(DEFAULTS)}")
    raise UsageError(f"there is no setting {name!r}; {advice}")


def _explain_default(name: str) -> Iterator[tuple[str, str]]:
    start = DEFAULTS.get(name, "")
    if start:
        setting = SETTINGS[start]
        yield "value", f"that of `{start}` at the server's start; {setting.default_text} by default"
        yield "from", f"the server's start: {flag(start)}, {variable(start)}, or `{start}` in its settings file"
    else:
        yield "value", BUILT_IN.get(name, "none")
        yield "from", "the default: nothing sets it"
    yield "change", f"`fairlead config set {name}=VALUE`, without a restart"


def find_writers(config: Object) -> Sequence[tuple[str, str]]:
    """The field managers that own the text of the settings, and when they wrote it."""
    managers = get_path(config, "metadata.managedFields") or ()
    return [
        (str(each.get("manager") or "-"), str(each.get("time") or "an unknown time"))
        for each in managers
        if "f:raw" in (get_path(each, "fieldsV1.f:spec") or ())
    ]


def describe_value(value: Any) -> str:
    """As JSON, which is also YAML, on one line: as `fairlead config set` takes it."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


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
