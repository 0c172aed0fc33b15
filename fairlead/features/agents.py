"""The agents of clusters: their keys, their configuration, and the audit events that they report."""

from fairlead.authn.signing_keys import SigningKeyStore
from fairlead.features.access_keys import build_component_keys
from fairlead.features.contract import Feature, Services
from fairlead.kinds.clusters.cluster import AGENT
from fairlead.kinds.core.namespace import SYSTEM_NAMESPACE
from fairlead.server.audit.agent_reports import AgentReports
from fairlead.subresources.cluster_agents import AgentBootstrapInfo, AgentConfigBuilder, agent_handlers


def build_agents_feature(services: Services) -> Feature:
    settings = services.settings
    auth = services.auth
    registry = services.registry
    group = services.api_group
    keys = build_component_keys(services, registry, AGENT)
    installation = AgentBootstrapInfo(
        url=services.base_url,
        instance_id=services.installation_id,
        api_group=group,
        namespace_prefix=settings.namespace_prefix,
        identity_prefix=settings.identity_prefix,
        ca_certificate=services.read_authority,
    )
    signing = SigningKeyStore(registry, SYSTEM_NAMESPACE)
    configs = AgentConfigBuilder(registry, auth.principals, signing.jwks, installation, auth.authorizer)
    reports = services.audit.reports if services.audit is not None else AgentReports(None, registry.clock)
    if services.coordinator is not None:
        reports.use_quota(services.coordinator)
    return Feature(name="agents", handlers=agent_handlers(installation, keys, configs, reports))
