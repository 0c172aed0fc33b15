"""Settings that can change at run time: from the Config object, with the startup settings as defaults.

Each is a method that reads the current value, so a change of the object takes effect with the next request.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fairlead.authn.token_issuer import Lifetimes
from fairlead.core.errors import AlreadyExists
from fairlead.core.objects import Object, get_path
from fairlead.kinds.clusters.config import CONFIG, CONFIG_NAME, parse_settings
from fairlead.registry.codec import decode
from fairlead.registry.informer import Derived, Informer
from fairlead.registry.registry import Registry
from fairlead.registry.write_options import SERVER_MANAGER, server_write_options
from fairlead.server.audit.policy import LEVELS, NONE
from fairlead.settings import Settings
from fairlead.settings.values import ON
from fairlead.storage.view.view import View

NO_WORKLOAD_IDENTITY: Object = {}


@dataclass(frozen=True, slots=True)
class _ConfigValues:
    """The content of the Config. What every request needs is computed when it changes."""

    values: Object
    audit_level: int
    custom_headers: Mapping[str, str]


class DynamicConfig:
    def __init__(self, settings: Settings, view: View) -> None:
        self._settings = settings
        self._configs = Informer(view, settings.api_group, CONFIG.plural)
        self._current = Derived(view, (self._configs.refresh,), self._read_config)

    def access_key_max_ttl(self) -> int:
        """The maximum TTL in seconds that users may set on an access key; 0 for no limit."""
        return int(self._value("auth.accessKeyMaxTTLSeconds", self._settings.access_key_max_ttl))

    def login_key_ttl(self) -> int:
        """The TTL of a login session in seconds; 0 for no expiry."""
        return int(self._value("auth.loginAccessKeyTTLSeconds", self._settings.login_key_ttl))

    def is_password_login_enabled(self) -> bool:
        """Whether users can log in with a password."""
        return not self._value("auth.password.disabled", self._settings.password_login != ON)

    def token_lifetimes(self) -> Lifetimes:
        """Default and maximum TTL of direct tokens. The default is capped by the maximum."""
        defaults = Lifetimes()
        maximum = int(self._value("auth.directTokenMaxTTLSeconds", defaults.maximum))
        return Lifetimes(min(int(self._value("auth.directTokenTTLSeconds", defaults.default)), maximum), maximum)

    def workload_identity(self) -> Object:
        """Which tokens of other systems are exchanged for access keys. The same object until the Config changes."""
        found: Object = self._value("auth.workloadIdentity", NO_WORKLOAD_IDENTITY)
        return found

    def audit_level(self) -> int:
        """The minimum audit level of all requests that the audit policy records."""
        return self._current.get().audit_level

    def custom_headers(self) -> Mapping[str, str]:
        """Headers for every response."""
        return self._current.get().custom_headers

    def find(self, path: str) -> Any:
        """The value of a setting in the Config; None if it is not there."""
        return get_path(self._current.get().values, path)

    def _value(self, path: str, default: Any) -> Any:
        value = self.find(path)
        return default if value is None else value

    def _read_config(self) -> _ConfigValues:
        config = self._configs.objects.get(("", CONFIG_NAME))
        parsed, problems = parse_settings(get_path(config, "spec.raw") or "")
        values = {} if problems else parsed
        level = get_path(values, "audit.level")
        audit_level = LEVELS.index(level) if level in LEVELS else NONE
        return _ConfigValues(values, audit_level, get_path(values, "auth.customHttpHeaders") or {})


async def ensure_config(registry: Registry, api_group: str) -> None:
    """Creates the Config if it does not exist. It has no settings, so that the first server-side apply of some is no
    conflict with the server."""
    configs = registry.resource(api_group, CONFIG.plural)
    existing = configs.get_cached("", CONFIG_NAME)
    if existing is not None:
        if _owns_empty_settings(decode(existing)):
            await configs.modify("", CONFIG_NAME, _remove_empty_settings, server_write_options())
        return
    try:
        await configs.create(configs.kind.build({"name": CONFIG_NAME}, spec={}), "", server_write_options())
    except AlreadyExists:
        return  # another replica was faster


def _owns_empty_settings(config: Object) -> bool:
    """Whether the Config is as earlier versions created it: with settings that are empty, and owned by the server."""
    managers = get_path(config, "metadata.managedFields") or ()
    owners = {each.get("manager") for each in managers if "f:raw" in (get_path(each, "fieldsV1.f:spec") or ())}
    return get_path(config, "spec.raw") == "" and owners == {SERVER_MANAGER}


def _remove_empty_settings(config: Object) -> Object:
    if not _owns_empty_settings(config):
        return config  # changed meanwhile
    return {**config, "spec": {name: value for name, value in config["spec"].items() if name != "raw"}}
