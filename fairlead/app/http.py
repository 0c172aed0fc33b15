"""Builds the stages of the pipeline and the dispatcher, with what the features add. `server/pipeline.py` has the order.

`build_app` is the entry point.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace

from fairlead import __version__
from fairlead.app.drain import Drain
from fairlead.authz.subject_access_reviews import SubjectAccessReviews
from fairlead.client.admin_kubeconfig import MANAGEMENT_PATH
from fairlead.core.call import MANAGEMENT, Call, Handler, Reply, RequestInfo
from fairlead.features.contract import Feature, HostPipeline, Services
from fairlead.registry.storage_errors import translate_storage_errors
from fairlead.server.api.actions import Actions, object_verbs
from fairlead.server.api.aggregation import mount_at_root, serve_aggregated
from fairlead.server.api.routing import Dispatcher, RouteConfig, Router, routing_stage
from fairlead.server.api.verbs import Verbs
from fairlead.server.api.watch import WatchLimits, WatchService
from fairlead.server.auth.aggregated_authorization import AggregatedAuthorization
from fairlead.server.auth.stages import AuthorizeStage, Endpoints, authenticate_when_current, build_authentication_stage
from fairlead.server.discovery.documents import aggregated_documents, build_documents, platform_documents
from fairlead.server.discovery.health import HealthCheck, HealthHandler
from fairlead.server.fast_reads import FastReads, FastReadServices
from fairlead.server.http.asgi import AsgiApp
from fairlead.server.http.origins import Origins
from fairlead.server.http.response import custom_headers_stage
from fairlead.server.http.unsent import ClientMemoryLimiter
from fairlead.server.metrics.endpoint import METRICS_PATH, MetricsEndpoint
from fairlead.server.pipeline import Before, Stages, build_pipeline
from fairlead.settings.values import OFF, ON
from fairlead.signin.oauth import TOKEN_ENDPOINT, TokenEndpoint


def build_app(
    services: Services,
    features: Feature,
    memory_limiter: ClientMemoryLimiter,
    host_reviews: SubjectAccessReviews | None,
    drain: Drain,
    origins: Origins,
) -> AsgiApp:
    """The application with the whole request pipeline. `host_reviews` is None if no host decides about requests."""
    settings = services.settings
    metrics = MetricsEndpoint(features.metrics, services.coordinator)
    if services.coordinator is not None:
        services.coordinator.provide_metrics(metrics.encode_page)
    router = Router(RouteConfig(MANAGEMENT_PATH, features.find_mounts))
    route = routing_stage(router)
    verbs = _build_verbs(services, features)
    public_endpoints: Mapping[tuple[str, str], Handler] = {
        **features.public_endpoints,
        TOKEN_ENDPOINT: TokenEndpoint(features.grants),
    }
    endpoints = {**features.endpoints, **public_endpoints, **metrics.endpoints()}
    dispatch: Handler = Dispatcher(
        verbs=verbs,
        health=HealthHandler(_build_readiness_checks(services, features, drain)),
        roots={
            MANAGEMENT: build_documents(services.registry.catalog, MANAGEMENT_PATH, version=__version__),
            "": platform_documents(__version__, MANAGEMENT_PATH),
        },
        endpoints={MANAGEMENT: metrics.endpoints(), "": endpoints},
        mounts=features.mounts,
    )
    if settings.aggregated_api != OFF:
        documents = aggregated_documents(services.registry.catalog, settings.api_group, __version__)
        route = mount_at_root(route, MANAGEMENT_PATH, settings.api_group)
        dispatch = serve_aggregated(dispatch, documents)
    public_metrics = {METRICS_PATH: metrics.serve_public} if settings.metrics_public == ON else {}
    stages = Stages(
        audit=services.audit.stage if services.audit is not None else None,
        route=route,
        authenticate=_build_authentication(services, public_endpoints.keys()),
        flow=services.flow.stage,
        serve_public={**public_metrics, **features.public_stages},
        memory=memory_limiter,
        authorize=_build_authorization(services, host_reviews, public_endpoints.keys()),
        add_headers=custom_headers_stage(services.auth.dynamic_config.custom_headers),
        metrics=services.requests,
    )
    main = build_pipeline(stages, dispatch, settings.request_timeout, services.watchdog.record_step)
    handler = _choose_by_host(
        main, [(each.covers, _build_host_pipeline(services, stages, each)) for each in features.host_pipelines]
    )
    fast = FastReadServices(
        tokens=services.auth.access_keys,
        on_authenticated=services.auth.last_used.record_use,
        authorize=services.auth.authorizer.authorize,
        route=router,
        is_other_host=lambda host: any(each.covers(host) for each in features.host_pipelines),
        verbs=verbs,
        flow=stages.flow,
        memory=memory_limiter,
        audit=stages.audit,
        custom_headers=services.auth.dynamic_config.custom_headers,
        metrics=stages.metrics,
        on_slow_step=services.watchdog.record_step,
    )
    # A server that asks a store of several replicas for the newest revision waits for that in each read.
    answer_fast = FastReads(fast, origins).answer if services.store.local_revision() is not None else None
    return AsgiApp(handler, settings.body_limit, memory_limiter, origins, answer_fast)


def _build_host_pipeline(services: Services, stages: Stages, hosts: HostPipeline) -> Handler:
    """Without the audit log: how a user came to send such requests was audited before, and paths are not the server's
    to record. Without the custom headers of the Config: other origins have headers of their own."""

    def reauthenticate(call: Call) -> None:
        call.user = None
        hosts.authenticate(call)

    chosen = replace(
        stages,
        audit=None,
        route=hosts.route,
        authenticate=hosts.authenticate,
        flow=stages.flow.with_authentication(reauthenticate),
        authorize=hosts.authorize,
        serve_public={},
        add_headers=_add_nothing,
    )
    return build_pipeline(chosen, hosts.serve, services.settings.request_timeout, services.watchdog.record_step)


def _add_nothing(call: Call, reply: Reply) -> None:
    return None


def _choose_by_host(main: Handler, others: Sequence[tuple[Callable[[str], bool], Handler]]) -> Handler:
    if not others:
        return main

    def handle(call: Call) -> Awaitable[Reply]:
        host = call.headers.get("host", "")
        for covers, pipeline in others:
            if covers(host):
                return pipeline(call)
        return main(call)

    return handle


def _build_verbs(services: Services, features: Feature) -> Verbs:
    settings = services.settings
    registry = services.registry
    flow = services.flow
    limits = WatchLimits(settings.watch_timeout_min, settings.watch_queue)
    watches = WatchService(limits, registry.clock, flow.streams, flow.pacer)
    actions = Actions(registry.catalog, features.handlers)
    return Verbs(registry, watches, actions, services.auth.authorizer.authorize)


def _build_readiness_checks(services: Services, features: Feature, drain: Drain) -> Mapping[str, HealthCheck]:
    """The checks of /readyz."""

    async def check_store() -> None:
        with translate_storage_errors():
            await services.store.check_writable()

    return {"store": check_store, **features.health_checks, "shutdown": drain.check}


def _build_authentication(services: Services, public: Endpoints) -> Before:
    """The authentication stage. A worker that knows the newest revision without asking the store waits for it first."""
    auth = services.auth
    view = services.registry.view
    stage: Callable[[Call], None] = build_authentication_stage(auth.identify, auth.last_used.record_use, public)

    async def wait_current() -> None:
        with translate_storage_errors():
            await view.wait_current()

    if services.coordinator is None or services.store.local_revision() is None:
        return stage
    return authenticate_when_current(stage, view.is_current, wait_current, public)


def _build_authorization(services: Services, reviews: SubjectAccessReviews | None, public: Endpoints) -> Before:
    settings = services.settings
    registry = services.registry
    auth = services.auth
    stage = AuthorizeStage(auth.authorizer, auth.identify, object_verbs(registry.catalog), public)
    if settings.aggregated_api == OFF:
        return stage

    def is_stored(target: RequestInfo) -> bool:
        kind = registry.catalog.find(target.group, target.version, target.resource)
        return kind is not None and kind.persisted and not target.subresource

    return AggregatedAuthorization(stage, settings.api_group, registry.clock, is_stored, reviews)
