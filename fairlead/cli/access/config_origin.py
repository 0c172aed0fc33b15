"""One setting of the Config, in words: its value, where that comes from, and how to change it."""

import difflib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fairlead.cli.ui.session import UsageError
from fairlead.client.client import PROGRAM
from fairlead.core.objects import Object, get_path
from fairlead.settings import SETTINGS, flag, variable

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
    (nearest,) = difflib.get_close_matches(name, DEFAULTS, n=1, cutoff=0.0)
    raise UsageError(f"there is no setting {name!r}; did you mean {nearest}?")


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
