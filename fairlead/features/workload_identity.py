"""Workload identity: the exchange of tokens of connected clusters and other providers for access keys."""

from fairlead.admission import Phase
from fairlead.admission.sign_in_settings import protect_trusted_clusters
from fairlead.core.objects import Object, metadata
from fairlead.features.contract import Feature, Services
from fairlead.kinds.core.namespace import SYSTEM_NAMESPACE
from fairlead.registry.codec import decode
from fairlead.signin.oidc.discovery import ProviderClient
from fairlead.signin.token_exchange import TOKEN_EXCHANGE, TokenExchange, WorkloadKeys
from fairlead.signin.workload_identity import TOKEN_REVIEW_PATH, ReviewUnavailable, WorkloadIdentity
from fairlead.upstream.clusters import CLUSTERS
from fairlead.upstream.errors import UpstreamError
from fairlead.upstream.kube_client import KubeClient, RemoteApiError

REVIEW_SECONDS = 5.0
MAX_REVIEW_BYTES = 256 * 1024


def build_workload_identity_feature(services: Services) -> Feature:
    config = services.auth.dynamic_config.workload_identity
    return Feature(
        name="workload identity",
        grants={TOKEN_EXCHANGE: _build_token_exchange(services)},
        admission={Phase.AUTHORIZE: (protect_trusted_clusters(services.api_group, SYSTEM_NAMESPACE, config),)},
    )


def _build_token_exchange(services: Services) -> TokenExchange:
    auth = services.auth
    registry = services.registry
    group = services.api_group

    def cluster_uid(name: str) -> str:
        entry = registry.view.get((group, CLUSTERS, "", name))
        meta = metadata(decode(entry)) if entry is not None else {}
        return "" if "deletionTimestamp" in meta else str(meta.get("uid") or "")

    async def review_token(cluster: str, body: Object) -> Object:
        try:
            client = KubeClient(services.upstreams.system_upstream(cluster), REVIEW_SECONDS, MAX_REVIEW_BYTES)
            return await client.create(TOKEN_REVIEW_PATH, body)
        except RemoteApiError as error:
            if error.status == 403:
                advice = "allow its stored credential to create tokenreviews, for example with system:auth-delegator"
                raise ReviewUnavailable(f"the cluster does not let this server review tokens; {advice}") from None
            raise ReviewUnavailable(f"the cluster failed to review the token, with status {error.status}") from None
        except UpstreamError:
            raise ReviewUnavailable("the cluster cannot be reached to review the token; try again later") from None

    client = ProviderClient(clock=registry.clock)
    own_issuers = frozenset({services.base_url, services.settings.public_url})
    identity = WorkloadIdentity(auth.dynamic_config.workload_identity, client, review_token, cluster_uid, own_issuers)
    keys = WorkloadKeys(registry, group, SYSTEM_NAMESPACE, auth.principals)
    return TokenExchange(identity, keys, registry.clock)
