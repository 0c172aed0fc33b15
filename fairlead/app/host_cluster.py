"""The host: the kube-apiserver whose aggregation layer forwards requests to this server, and what is asked of it.

- how it authenticates to this server: CA, names and headers, from a ConfigMap of the host that is watched
- who may do what, with SubjectAccessReviews, if the settings say so

Everything works with the service account of the pod, or with a kubeconfig. The server starts without the host: until it
answers, the port for front proxies is closed.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import structlog

from fairlead.authn.request_headers import (
    NAME,
    NAMESPACE,
    HostRequestHeaders,
    InvalidHostConfig,
    RequestHeaderConfig,
    parse_host_config,
)
from fairlead.authz.subject_access_reviews import (
    MAX_IN_FLIGHT,
    MAX_WAITING,
    PATH,
    REVIEW_SECONDS,
    SubjectAccessReviews,
)
from fairlead.core.clock import Clock
from fairlead.core.errors import Unavailable
from fairlead.core.files import FileProblem
from fairlead.core.objects import Object
from fairlead.core.waiting import end_tasks
from fairlead.server.http.tls_context import read_authorities, share_authority
from fairlead.settings import Settings
from fairlead.settings.values import HOST, ON, OWN
from fairlead.upstream.access import Limits
from fairlead.upstream.errors import UpstreamError
from fairlead.upstream.kube_client import KubeClient, RemoteApiError
from fairlead.upstream.local_cluster import ClusterEndpointSource, LocalCluster, in_cluster_source, kubeconfig_source
from fairlead.upstream.object_watch import ObjectWatch

LIMITS = Limits(
    max_requests=MAX_IN_FLIGHT + 4,
    max_websockets=1,
    max_queued=MAX_WAITING,
    connect_seconds=3,
    response_header_seconds=10,
)
MAX_REVIEW_BYTES = 256 * 1024
CONFIG_MAPS = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
READER_ADVICE = (
    f"bind the Role extension-apiserver-authentication-reader in the namespace {NAMESPACE} to this server's account"
)
REVIEW_ADVICE = "bind the ClusterRole system:auth-delegator to this server's account"

log = structlog.get_logger(__name__)


class HostAuthentication:
    """How the host authenticates, as it publishes it. Until that is known, and if it is not usable, nothing is trusted;
    later, what was known last stays in use."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._current: HostRequestHeaders | None = None
        self._ready = asyncio.Event()
        self._problem = ""

    def __str__(self) -> str:
        return f"{NAMESPACE}/{NAME}"

    def config(self) -> RequestHeaderConfig | None:
        return self._current.config if self._current is not None else None

    # --- as the source of a port's CAs -------------------------------------------------------------------------------

    @property
    def is_known(self) -> bool:
        return self._current is not None

    def read(self) -> bytes:
        if self._current is None:
            raise FileProblem(f"{NAMESPACE}/{NAME}: not read from the host yet")
        return self._current.authorities

    def sign(self) -> tuple[object, ...]:
        return (self._current.authorities if self._current is not None else b"",)

    async def wait(self) -> None:
        await self._ready.wait()

    # --- for the watch -----------------------------------------------------------------------------------------------

    def update(self, config_map: Object | None) -> None:
        """Uses a new state of the ConfigMap, if it is usable."""
        data = (config_map or {}).get("data")
        try:
            if config_map is None:
                raise InvalidHostConfig("there is no such ConfigMap; is this a kube-apiserver?")
            settings = self._settings
            links_users = self._settings.requestheader_link_users == ON
            names = settings.requestheader_allowed_names
            found = parse_host_config(data if isinstance(data, dict) else {}, names, links_users)
            self._check_authorities(found.authorities)
        except (InvalidHostConfig, FileProblem) as error:
            self._report(str(error))
            return
        self._problem = ""
        if found == self._current:
            return
        self._current = found
        names_text = ", ".join(sorted(found.config.allowed_names))
        log.info("requests of the host's aggregation layer are accepted", allowed_names=names_text)
        self._ready.set()

    def fail(self, error: UpstreamError | RemoteApiError) -> None:
        """Reports that the ConfigMap cannot be read."""
        advice = READER_ADVICE if isinstance(error, RemoteApiError) and error.status == 403 else "trying again"
        self._report(f"{error.message}; {advice}")

    def _report(self, problem: str) -> None:
        if problem != self._problem:
            self._problem = problem
            state = "the previous state stays in use" if self.is_known else "requests of its users are refused"
            log.error("cannot use the host's ConfigMap", config_map=f"{NAMESPACE}/{NAME}", problem=problem, state=state)

    def _check_authorities(self, authorities: bytes) -> None:
        file = self._settings.client_ca
        if file is not None and share_authority(read_authorities(file), authorities):
            raise InvalidHostConfig(
                f"its CA is also in {file}; use another CA for users: their certificates could act as a front proxy"
            )


@dataclass(frozen=True, slots=True)
class HostCluster:
    """What the settings need of the host. `reviews` is None if the host is not asked."""

    authentication: HostAuthentication | None = None
    reviews: SubjectAccessReviews | None = None


@asynccontextmanager
async def open_host_cluster(settings: Settings, clock: Clock) -> AsyncIterator[HostCluster]:
    """The host, if the settings need one. Raises FileProblem if there is no credential for it."""
    authenticates = settings.aggregated_api == HOST
    reviews_access = settings.aggregated_api_authorization != OWN
    if not authenticates and not reviews_access:
        yield HostCluster()
        return
    cluster = LocalCluster(_endpoint_source(settings), LIMITS)
    work = [asyncio.create_task(cluster.run(), name="host credential")]
    authentication = HostAuthentication(settings) if authenticates else None
    reviews = SubjectAccessReviews(_ReviewSender(cluster), clock) if reviews_access else None
    if authentication is not None:
        watch = ObjectWatch(cluster, CONFIG_MAPS, NAME, authentication.update, authentication.fail)
        work.append(asyncio.create_task(watch.run(), name="host authentication"))
    try:
        yield HostCluster(authentication, reviews)
    finally:
        await end_tasks(*work)
        if reviews is not None:
            await reviews.close()
        await cluster.close()


def _endpoint_source(settings: Settings) -> ClusterEndpointSource:
    if settings.host_kubeconfig is not None:
        return kubeconfig_source(settings.host_kubeconfig, "the setting host_kubeconfig must name a kubeconfig")
    return in_cluster_source("run the server in a pod with a service account, or set host_kubeconfig")


class _ReviewSender:
    """Sends SubjectAccessReviews to the host."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        self._problem = ""

    async def __call__(self, review: Object) -> Object:
        try:
            found = await KubeClient(self._cluster(), REVIEW_SECONDS, MAX_REVIEW_BYTES).create(PATH, review)
        except (RemoteApiError, UpstreamError) as error:
            advice = REVIEW_ADVICE if isinstance(error, RemoteApiError) and error.status == 403 else "try again later"
            self._report(f"{error.message}; {advice}")
            raise Unavailable("the cluster's API server cannot review the access of users; try again later") from None
        self._problem = ""
        return found

    def _report(self, problem: str) -> None:
        if problem != self._problem:
            self._problem = problem
            log.error("the host does not review access; requests of its users are refused", problem=problem)
