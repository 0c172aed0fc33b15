"""`GET /settings`: every setting with its value, its default, where it comes from, and what it does. For the console.

Administrators read it, and those whom a role allows the path. Settings of the Config change at run time, by a change of
that object; those of the server's start, with a restart.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from fairlead.authn.token_issuer import Lifetimes
from fairlead.core.call import Call, Reply
from fairlead.features.contract import Feature, Services
from fairlead.features.dynamic_config import DynamicConfig
from fairlead.kinds.clusters.config import SETTINGS_FIELDS
from fairlead.registry.schema import Schema
from fairlead.settings import SETTINGS, Settings
from fairlead.settings.description import describe_settings
from fairlead.settings.values import ON
from fairlead.signin.oauth import json_reply

SETTINGS_ENDPOINT = ("get", "/settings")
START_SETTINGS: Mapping[str, str] = {
    "auth.accessKeyMaxTTLSeconds": "access_key_max_ttl",
    "auth.loginAccessKeyTTLSeconds": "login_key_ttl",
    "auth.password.disabled": "password_login",
}
"""Settings of the Config, and the setting of the server's start that applies without them."""
_SCALARS = ("boolean", "integer", "string")


def build_settings_list_feature(services: Services) -> Feature:
    settings = services.settings
    config = services.auth.dynamic_config

    async def list_settings(call: Call) -> Reply:
        run_time = list(describe_config(settings, config))
        return json_reply({"runTime": run_time, "start": list(describe_settings(settings))})

    return Feature(name="list of settings", endpoints={SETTINGS_ENDPOINT: list_settings})


def describe_config(settings: Settings, config: DynamicConfig) -> Iterator[dict[str, Any]]:
    """The settings that change at run time. `type` is empty for those that are no single value."""
    for name, schema in _iterate_fields(SETTINGS_FIELDS, ""):
        found = config.find(name)
        start = START_SETTINGS.get(name, "")
        default = _default_of(name, settings)
        yield {
            "name": name,
            "description": schema.get("description", ""),
            "type": schema["type"] if schema.get("type") in _SCALARS else "",
            **{limit: schema[limit] for limit in ("minimum", "maximum", "enum") if limit in schema},
            "value": default if found is None else found,
            "default": default,
            "source": "" if found is None else "Config",
            "startSetting": start,
            "startSource": settings.origins.get(start, "") if start in SETTINGS else "",
        }


def _iterate_fields(fields: Mapping[str, Schema], prefix: str) -> Iterator[tuple[str, Schema]]:
    """The settings with their dotted names. A group with fields of its own is none, except workload identity, whose
    parts belong together."""
    for name, schema in fields.items():
        path = f"{prefix}{name}"
        inner = schema.get("properties")
        if inner and path != "auth.workloadIdentity":
            yield from _iterate_fields(inner, f"{path}.")
        else:
            yield path, schema


def _default_of(name: str, settings: Settings) -> Any:
    """What applies while the Config does not have the setting; None for nothing."""
    lifetimes = Lifetimes()
    defaults = {
        "auth.accessKeyMaxTTLSeconds": settings.access_key_max_ttl,
        "auth.loginAccessKeyTTLSeconds": settings.login_key_ttl,
        "auth.password.disabled": settings.password_login != ON,
        "auth.directTokenTTLSeconds": lifetimes.default,
        "auth.directTokenMaxTTLSeconds": lifetimes.maximum,
    }
    return defaults.get(name)
