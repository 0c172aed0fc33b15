"""What the server does for the agents of clusters: their keys, their configuration and their reports.

The agent itself is put together in `agent.py`.
"""

from collections.abc import Mapping

from fairlead.app.identity import Identity
from fairlead.app.rules import SYSTEM_NAMESPACE
from fairlead.authn.component_keys import ComponentKeys
from fairlead.authn.rotation import Rotation
from fairlead.authn.signing_keys import SigningKeyStore
from fairlead.authz.scope import covers
from fairlead.core.files import read_file
from fairlead.kinds.agent import AGENT
from fairlead.registry.registry import Registry
from fairlead.server.actions import Handler, Place
from fairlead.server.agents import AgentConfigs, Installation, agent_handlers
from fairlead.server.audit.cluster_reports import ClusterReports
from fairlead.settings import Settings


def for_agents(
    settings: Settings, registry: Registry, identity: Identity, reports: ClusterReports, url: str, instance: str
) -> Mapping[Place, Handler]:
    """`url` is the base URL of this server, `instance` names the installation."""
    group, pepper = settings.api_group, identity.pepper
    rotation = Rotation(registry, group, pepper, covers)
    keys = ComponentKeys(registry, group, AGENT, SYSTEM_NAMESPACE, pepper, rotation)
    prefixes = settings.namespace_prefix, settings.identity_prefix
    installation = Installation(url, instance, group, *prefixes, lambda: _authority(settings))
    signing = SigningKeyStore(registry, SYSTEM_NAMESPACE)
    configs = AgentConfigs(registry, identity.people, signing.published, installation, identity.permissions)
    return agent_handlers(installation, keys, configs, reports)


def _authority(settings: Settings) -> str:
    """The authority's certificate: the one that was named, or our own if we have made one."""
    file = settings.tls_ca if settings.tls_cert else settings.data / "tls" / "ca.crt"
    content = read_file(file) if file is not None else None
    return content.decode(errors="replace") if content else ""
