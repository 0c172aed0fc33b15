"""The pipeline stages of the audit log, and the recorder that turns requests into audit events.

`begin` runs before every stage that can fail. `record` sees the response to each request and writes exactly one
ResponseComplete event for it. `require_auditable` runs after authentication and routing, before the request has any
effect: it rejects requests that could not be audited, and writes RequestReceived if the policy asks for it.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial

from fairlead.core.call import BodyCapture, Call, Reply, RequestInfo
from fairlead.core.clock import Clock
from fairlead.core.objects import Object
from fairlead.core.refusals import REFUSED_CODES, note_refused_response
from fairlead.core.user import User
from fairlead.registry.kind import Catalog, Kind
from fairlead.server.api.content import JSON, media_type_of
from fairlead.server.audit.body_capture import CapturedBody, DeferredEvent
from fairlead.server.audit.events import ABORTED_ANNOTATION, AuditedRequest, MetadataEvent, build_event, encode_line
from fairlead.server.audit.intake import ABORTED_CODE, READ_VERBS, AuditLogs, LogRouter
from fairlead.server.audit.log_writer import AuditLogWriter
from fairlead.server.audit.policy import (
    COMPLETE,
    METADATA,
    NONE,
    PANIC,
    RECEIVED,
    REQUEST,
    REQUEST_RESPONSE,
    STARTED,
    Policy,
    PolicyRule,
)
from fairlead.server.audit.redaction import CredentialRequests
from fairlead.server.discovery.health import HEALTH_PATHS

CREATED, INTERNAL_ERROR = 201, 500
MAX_INLINE_BODY_BYTES = 16 * 1024
"""Created objects up to this size are decoded on the event loop; larger ones in the writer thread."""


def _no_minimum_level() -> int:
    return NONE


class Recorder:
    """Writes the events that the policy asks for. `minimum_level` can raise the level of a rule, never lower it."""

    def __init__(self, policy: Policy, logs: AuditLogs, catalog: Catalog, clock: Clock) -> None:
        self._policy = policy
        self._authenticated_log = logs.authenticated
        self._catalog = catalog
        self._clock = clock
        self.credentials = CredentialRequests(catalog)
        self._audit_log_resources = frozenset((kind.group, kind.plural) for kind in catalog.kinds if kind.is_audit_log)
        self.log_router = LogRouter(logs, catalog, clock, self.credentials)
        self.minimum_level: Callable[[], int] = _no_minimum_level

    def audit_call(self, call: Call) -> AuditedRequest | None:
        """The request with its policy rule; None if it is not recorded. Needs the call's user and target."""
        received_at = call.received_at
        if received_at is None:
            return None
        rule = self._rule_for(call.user, call.target)
        return AuditedRequest(call, received_at, rule) if rule.level else None

    def record_received(self, request: AuditedRequest) -> None:
        if RECEIVED not in request.rule.omit_stages and self.log_router.records_received(request.call):
            self._authenticated_log.add(encode_line(self._build_event(request, RECEIVED)))

    def record_stream_start(self, request: AuditedRequest, code: int, writer: AuditLogWriter) -> None:
        if STARTED not in request.rule.omit_stages:
            self._add_stream_event(writer, request, STARTED, code, request.call.seconds)

    def record_stream_end(self, request: AuditedRequest, code: int, writer: AuditLogWriter) -> None:
        """The end of a watch, WebSocket or other streamed response."""
        if COMPLETE not in request.rule.omit_stages:
            self._add_stream_event(writer, request, COMPLETE, code, request.call.step_timer.elapsed_seconds())

    def record_aborted(self, request: AuditedRequest) -> None:
        """The request was cancelled or failed before there was a response."""
        if (
            COMPLETE not in request.rule.omit_stages
            and (writer := self.log_router.select_log(request.call, ABORTED_CODE)) is not None
        ):
            aborted = self._build_event(request, COMPLETE)
            aborted["annotations"][ABORTED_ANNOTATION] = "the server aborted the request before it sent a response"
            writer.add(encode_line(aborted))

    def record_response(self, request: AuditedRequest, reply: Reply) -> None:
        rule, status, call = request.rule, reply.status, request.call
        writer = self.log_router.select_log(call, status)
        if writer is None:
            return
        # Most responses need no body, or only that of a small created object.
        if status < 400 and COMPLETE not in rule.omit_stages and (rule.level < REQUEST or not call.target.resource):
            created = reply.body if status == CREATED and call.target.resource else b""
            if not created or (reply.content_type == JSON and len(created) <= MAX_INLINE_BODY_BYTES):
                kinds = self._selector_kinds(call) if call.query else ()
                event = MetadataEvent(request, COMPLETE, status, kinds, self._clock.now(), call.seconds, created)
                writer.add_lazy(event)
                return
        if status == INTERNAL_ERROR and PANIC not in rule.omit_stages:
            self._add_deferred_event(writer, request, PANIC, reply)
        if COMPLETE not in rule.omit_stages:
            self._add_deferred_event(writer, request, COMPLETE, reply)

    def _add_deferred_event(self, writer: AuditLogWriter, request: AuditedRequest, stage: str, reply: Reply) -> None:
        deferred = self._build_event(request, stage)
        deferred["responseStatus"] = {"metadata": {}, "code": reply.status}
        writer.add(self._build_deferred_event(deferred, request, reply))

    def _build_deferred_event(self, event: Object, request: AuditedRequest, reply: Reply) -> DeferredEvent:
        call, capture = request.call, request.call.body_capture
        level = request.rule.level if call.target.resource else METADATA
        kinds = self._body_kinds(call.target)
        answer = CapturedBody(reply.body, reply.content_type.partition(";")[0])
        return DeferredEvent(
            event,
            kinds,
            reply.status,
            inspected_response=answer if reply.status >= 400 or reply.status == CREATED else None,
            request=_request_body(call, capture) if level >= REQUEST and capture is not None else None,
            response=answer if level >= REQUEST_RESPONSE and reply.body else None,
            is_sensitive=any(kind.sensitive for kind in kinds) or self.credentials.matches(call.target),
        )

    def _add_stream_event(
        self, writer: AuditLogWriter, request: AuditedRequest, stage: str, code: int, seconds: float
    ) -> None:
        kinds = self._selector_kinds(request.call)
        writer.add_lazy(MetadataEvent(request, stage, code, kinds, self._clock.now(), seconds))

    def _build_event(self, request: AuditedRequest, stage: str) -> Object:
        seconds = request.call.seconds or request.call.step_timer.elapsed_seconds()
        return build_event(request, stage, self._selector_kinds(request.call), self._clock.now(), seconds)

    def _selector_kinds(self, call: Call) -> tuple[Kind, ...]:
        """The kinds whose schemas decide whether a field selector may be logged."""
        return self._body_kinds(call.target) if "fieldSelector" in call.query else ()

    def _rule_for(self, user: User | None, target: RequestInfo) -> PolicyRule:
        """The policy's rule. Requests that involve credentials are always recorded, at least as Metadata."""
        rule = self._policy.catch_all_resource_rule if target.resource else None
        if rule is None:
            rule = self._policy.rule_for(user.impersonator or user if user is not None else None, target)
        if (target.group, target.resource) in self._audit_log_resources and target.verb in READ_VERBS:
            # Always recorded, but never with the events that the response contains: the log would feed itself.
            return PolicyRule(METADATA, omit_stages=(rule.omit_stages | {RECEIVED}) - {COMPLETE})
        level = rule.level
        if level and level < (least := self.minimum_level()):
            rule = replace(rule, level=least)
        if (not level or COMPLETE in rule.omit_stages) and self.credentials.matches(target):
            return PolicyRule(max(rule.level, METADATA), omit_stages=(rule.omit_stages | {RECEIVED}) - {COMPLETE})
        return rule

    def _body_kinds(self, target: RequestInfo) -> tuple[Kind, ...]:
        """The kinds of the objects in the bodies, the request's kind first. Empty if the resource is unknown."""
        kind = self._catalog.find(target.group, target.version, target.resource)
        if kind is None:
            return ()
        if not target.subresource or target.subresource in kind.subresources:
            return (kind,)
        return next(((each.kind or kind, kind) for each in kind.actions if each.name == target.subresource), ())


def _request_body(call: Call, capture: BodyCapture) -> CapturedBody | None:
    """The request body; None if there was none. Its data is None if a body was sent but not read."""
    if capture.data is not None:
        return CapturedBody(capture.data, media_type_of(call)) if capture.data else None
    announced = call.headers.get("content-length", "0") != "0" or bool(call.headers.get("transfer-encoding", ""))
    return CapturedBody(None, "") if announced else None


QUEUE_TIMEOUT_SECONDS = 10.0
"""How long a request waits for space in a full queue before it is rejected with 503."""

_BODYLESS_METHODS = ("GET", "HEAD")


class AuditStage:
    """The audit stages of one server. `mount` is the path prefix of the management API."""

    def __init__(self, policy: Policy, logs: AuditLogs, catalog: Catalog, clock: Clock, mount: str) -> None:
        self._policy = policy
        self._authenticated_log = logs.authenticated
        self._clock = clock
        self._recorder = Recorder(policy, logs, catalog, clock)
        self._health_paths = frozenset(root + path for root in ("", mount) for path in HEALTH_PATHS)
        self._open_streams: dict[AuditedRequest, tuple[int, AuditLogWriter]] = {}

    def set_minimum_level(self, level: Callable[[], int]) -> None:
        """Records at this level or the policy's, whichever is higher. Requests at level None stay unrecorded."""
        self._recorder.minimum_level = level

    @property
    def suppressed_counts(self) -> Mapping[str, int]:
        """Requests over a quota by category: counted in a summary instead of recorded one by one."""
        return self._recorder.log_router.suppressed_counts

    @property
    def is_ready(self) -> bool:
        """Whether `begin` does not wait, and `require_auditable` neither rejects a request nor records it."""
        log = self._authenticated_log
        return not log.is_full and not log.failure and not self._policy.records_received

    def begin(self, call: Call) -> Awaitable[None] | None:
        if self._authenticated_log.is_full:
            return self._begin_when_queue_has_space(call)
        call.received_at = self._clock.now()
        if call.method not in _BODYLESS_METHODS and self._captures_bodies():
            call.body_capture = BodyCapture(call.read_body)
            call.read_body = call.body_capture.read
        return None

    async def _begin_when_queue_has_space(self, call: Call) -> None:
        """Back pressure: waits for space in the queue before the request has any effect."""
        while self._authenticated_log.is_full:
            if call.path in self._health_paths:
                return  # health checks must be answered even if the audit log is stuck
            if not await self._authenticated_log.wait_for_space(QUEUE_TIMEOUT_SECONDS):
                raise self._authenticated_log.unavailable_error()
        self.begin(call)

    def _captures_bodies(self) -> bool:
        return self._policy.max_level >= REQUEST or self._recorder.minimum_level() >= REQUEST

    def require_auditable(self, call: Call) -> None:
        if self._authenticated_log.failure and (
            call.target.verb not in READ_VERBS or self._recorder.credentials.matches(call.target)
        ):
            raise self._authenticated_log.unavailable_error()
        if self._policy.records_received and (request := self._recorder.audit_call(call)) is not None:
            self._recorder.record_received(request)

    def record(self, call: Call, reply: Reply) -> None:
        request = self._recorder.audit_call(call)
        if request is None:
            return
        if reply.status in REFUSED_CODES:
            note_refused_response(call)
        if reply.stream is None and reply.upgrade is None:
            self._recorder.record_response(request, reply)
        else:
            self._start_stream(request, reply)

    def record_aborted(self, call: Call) -> None:
        if (request := self._recorder.audit_call(call)) is not None:
            self._recorder.record_aborted(request)

    def finish(self) -> None:
        """For shutdown: writes the end of all open streams and the pending summaries."""
        for request in list(self._open_streams):
            self._end_stream(request)
        self._recorder.log_router.flush()

    def _start_stream(self, request: AuditedRequest, reply: Reply) -> None:
        """Records the start of a streamed response or upgrade, and tracks its end. A HEAD response has no stream."""
        if reply.upgrade is None and request.call.method == "HEAD":
            self._recorder.record_response(request, reply)
            return
        # WebSockets are exec, attach or port-forward: always recorded, without a quota.
        writer = (
            self._authenticated_log
            if reply.upgrade is not None
            else self._recorder.log_router.select_log(request.call, reply.status)
        )
        if writer is None:
            return
        self._recorder.record_stream_start(request, reply.status, writer)
        self._open_streams[request] = reply.status, writer
        reply.on_close += (partial(self._end_stream, request),)

    def _end_stream(self, request: AuditedRequest) -> None:
        """Records the end of a stream once: it may end while the server shuts down."""
        started = self._open_streams.pop(request, None)
        if started is not None:
            self._recorder.record_stream_end(request, *started)
