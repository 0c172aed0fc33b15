"""The trust rules in the Config: reads and changes them without touching the other settings."""

from collections.abc import Callable
from typing import Any

from fairlead.cli.access.config_text import read_settings, update_settings
from fairlead.client import Client, ClientError
from fairlead.core.objects import Object, get_path


def read_trust(client: Client) -> Object:
    """The settings of workload identity; empty if there are none."""
    return _trust_of(read_settings(client))


def update_trust(client: Client, update: Callable[[Object], None]) -> None:
    """Changes the settings of workload identity in place."""

    def update_all(settings: Object) -> None:
        trust = _trust_of(settings)
        update(trust)
        auth = settings.get("auth")
        settings["auth"] = {**(auth if isinstance(auth, dict) else {}), "workloadIdentity": trust}

    update_settings(client, update_all)


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


def _trust_of(settings: Object) -> Object:
    found = get_path(settings, "auth.workloadIdentity")
    return dict(found) if isinstance(found, dict) else {}
