"""Only administrators change the settings in the Config that let users and workloads in.

A connector decides who signs in and as whom, rules give groups, trust rules issue keys, and the server sends the Secret
that a connector names to the provider. So permission to update the Config is not enough for these settings.
"""

from fairlead.admission import Rule, applies_to, is_resource
from fairlead.core.errors import Forbidden
from fairlead.core.objects import Object, get_path, name_of
from fairlead.core.user import CONTROLLER_USER
from fairlead.kinds.clusters.config import CONFIG, parse_settings
from fairlead.kinds.clusters.config_sign_on import SIGN_ON_FIELDS
from fairlead.registry.kind import Change
from fairlead.registry.registry import Registry

PROTECTED_SETTINGS = (*SIGN_ON_FIELDS, "workloadIdentity")


def protect_sign_in_settings(api_group: str) -> Rule:
    @applies_to(lambda kind, verb: is_resource(kind, api_group, CONFIG.plural))
    async def rule(change: Change, registry: Registry) -> None:
        if change.subresource or change.user == CONTROLLER_USER or change.user.is_unscoped_admin:
            return
        before = _settings(change.old)
        after = _settings(change.new)
        for name in PROTECTED_SETTINGS:
            if (get_path(before, f"auth.{name}") or None) != (get_path(after, f"auth.{name}") or None):
                why = f"only administrators, with a key without a scope, may change auth.{name}; leave it as it is"
                raise Forbidden.of(CONFIG.plural, api_group, name_of(change.obj), why)

    return rule


def _settings(config: Object | None) -> Object:
    raw = get_path(config or {}, "spec.raw")
    return parse_settings(raw if isinstance(raw, str) else "")[0]
