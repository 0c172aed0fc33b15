"""The trust rules in the Config: reads and changes them without touching the other settings.

The Config is YAML text, so comments in it are lost when a rule is added; the commands say so.
"""

import re
from collections.abc import Callable
from typing import Any

from fairlead.cli.ui.output import print_note
from fairlead.client import ApiStatusError, Client, ClientError
from fairlead.core import yaml
from fairlead.core.body_errors import Malformed
from fairlead.core.objects import Object, get_path

CONFIGS, CONFIG_NAME = "configs", "service-manager-config"
MAX_ATTEMPTS = 5
_COMMENT = re.compile(r"(?:^|\s)#", re.MULTILINE)


def read_trust(client: Client) -> Object:
    """The settings of workload identity; empty if there are none."""
    return _trust_of(_parse(_raw(client.get(CONFIGS, CONFIG_NAME))))


def update_trust(client: Client, update: Callable[[Object], None]) -> None:
    """Changes the settings of workload identity in place, with optimistic locking."""
    for _ in range(MAX_ATTEMPTS):
        config = client.get(CONFIGS, CONFIG_NAME)
        raw = _raw(config)
        settings = _parse(raw)
        auth = settings.get("auth") if isinstance(settings.get("auth"), dict) else {}
        trust = _trust_of(settings)
        update(trust)
        text = yaml.encode({**settings, "auth": {**(auth or {}), "workloadIdentity": trust}}).decode()
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


def add_rule(client: Client, rule: Object) -> str:
    """Adds a rule at the end, and returns the audience that tokens must have."""
    audience = ""
    default = _default_audience(client)

    def update(trust: Object) -> None:
        nonlocal audience
        rules: list[Any] = list(trust.get("rules") or ())
        if any(each.get("name") == rule["name"] for each in rules):
            advice = "choose another name, or remove it first with `fairlead trust remove`"
            raise ClientError(f"there is already a rule named {rule['name']}; {advice}")
        audience = trust.setdefault("audience", default)
        trust["rules"] = [*rules, rule]

    update_trust(client, update)
    return audience


def remove_rule(client: Client, name: str) -> None:
    def update(trust: Object) -> None:
        rules = list(trust.get("rules") or ())
        trust["rules"] = [each for each in rules if each.get("name") != name]
        if len(trust["rules"]) == len(rules):
            raise ClientError(f"there is no rule named {name}; `fairlead trust list` shows them")

    update_trust(client, update)


def _default_audience(client: Client) -> str:
    """An audience that no other installation has."""
    instance = client.whoami().get("instanceID")
    if not isinstance(instance, str) or not instance:
        raise ClientError("the server did not return the id of the installation; set the audience in the Config")
    return f"fairlead:{instance}"


def _raw(config: Object) -> str:
    raw = get_path(config, "spec.raw")
    return raw if isinstance(raw, str) else ""


def _parse(raw: str) -> Object:
    try:
        value, _ = yaml.decode(raw.encode())
    except Malformed as error:
        raise ClientError(f"the Config cannot be parsed: {error}") from None
    return value if isinstance(value, dict) else {}


def _trust_of(settings: Object) -> Object:
    found = get_path(settings, "auth.workloadIdentity")
    return dict(found) if isinstance(found, dict) else {}
