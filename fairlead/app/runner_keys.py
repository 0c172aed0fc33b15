"""Builds the store of the runners' access keys, for the API and for the controller that deploys runners."""

from fairlead.app.admission import SYSTEM_NAMESPACE
from fairlead.app.auth import Auth
from fairlead.authn.component_keys import ComponentKeys
from fairlead.authn.key_rotation import KeyRotator
from fairlead.authz.scope import is_superset
from fairlead.kinds.clusters.runner import RUNNER_COMPONENT
from fairlead.registry.registry import Registry
from fairlead.settings import Settings


def build_runner_keys(settings: Settings, registry: Registry, auth: Auth) -> ComponentKeys:
    rotation = KeyRotator(registry, settings.api_group, auth.pepper, is_superset)
    return ComponentKeys(registry, settings.api_group, RUNNER_COMPONENT, SYSTEM_NAMESPACE, auth.pepper, rotation)
