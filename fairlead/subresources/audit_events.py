"""The handler of AuditEvent: answers get, list and watch from the files of the audit log.

Who may list audit events sees all of them. Other users see the events of their own requests: authorization marks such
a request with an object filter (list, watch) or with `OWN_AUDIT_EVENTS` (get).
"""

import re
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace

import orjson
import structlog

from fairlead.authz.authorizer import forbidden_error
from fairlead.authz.self_access import OWN_AUDIT_EVENTS
from fairlead.core.call import RECHECK_SECONDS, Call, Decision, Reply, RequestInfo
from fairlead.core.clock import Clock
from fairlead.core.concurrency import compute
from fairlead.core.errors import ApiError, BadRequest, Internal, NotAcceptable, NotFound
from fairlead.core.objects import Object
from fairlead.core.user import User
from fairlead.registry.kind import Kind
from fairlead.registry.selectors import parse_fields, selected_name
from fairlead.registry.table import partial_object_metadata, render_table
from fairlead.registry.watch import encode_event
from fairlead.server.api import query_options
from fairlead.server.api.actions import ActionHandler, ActionPath, ActionRequest
from fairlead.server.api.content import JSON, negotiate, wants_pretty
from fairlead.server.api.errors import status_of
from fairlead.server.api.presentation import Presentation, render_list, render_object
from fairlead.server.api.routing import read_flag
from fairlead.server.api.watch import BOOKMARK_SECONDS, INITIAL_EVENTS_END
from fairlead.server.audit.log_query import (
    VIRTUAL_FIELDS,
    EventQuery,
    LoggedEvent,
    Requester,
    build_object,
    build_query,
    can_be_given_once,
    query_by_id,
    single_value,
)
from fairlead.server.audit.log_reader import AuditLogReader, FollowedLine
from fairlead.server.audit.log_search import Page, Positions, decode_positions, encode_positions, parse_continue_token
from fairlead.server.audit.policy import COMPLETE
from fairlead.server.flow.streams import StreamLimits

MAX_LIMIT = 500
"""The largest page, and the default."""
PROJECT = "project"
"""A field of selectors: see `ProjectEvents`."""
_PLAIN_NAME = re.compile(r"[a-z0-9.-]{1,253}", re.ASCII)
OTHER_REPLICAS = "these are the events of the replica that answered; each of several replicas has a log of its own"
MAX_OPEN_REQUESTS = 1_000
"""How many unfinished requests a watch remembers, to send their next stage as MODIFIED."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class AuditEventSources:
    """`is_within_scope` checks the scope of the requester's key. `watch_seconds` is the default timeout of a watch."""

    reader: AuditLogReader
    streams: StreamLimits
    clock: Clock
    is_within_scope: Callable[[User, RequestInfo], bool]
    watch_seconds: float
    namespace_prefix: str
    """Of the namespaces of projects."""
    has_replicas: bool
    """Whether other servers may write logs of their own about the same objects."""


@dataclass(frozen=True, slots=True)
class ProjectEvents:
    """The requests about a project: the object itself, what is in its namespace, and requests to its spaces and virtual
    clusters through their gateways."""

    project: str
    namespace: str

    @property
    def needle(self) -> bytes:
        return self.project.encode() if _PLAIN_NAME.fullmatch(self.project) else b""

    def matches(self, event: LoggedEvent) -> bool:
        if event.requestURI.startswith("/kubernetes/project/"):
            return event.requestURI.startswith(f"/kubernetes/project/{self.project}/")
        if not event.requestURI.startswith("/kubernetes/management/") or event.objectRef is None:
            return False
        reference = event.objectRef
        return reference.namespace == self.namespace or (reference.resource, reference.name) == (
            "projects",
            self.project,
        )


def audit_event_handlers(api_group: str, sources: AuditEventSources) -> dict[ActionPath, ActionHandler]:
    """The handlers by group, resource and subresource."""
    return {(api_group, "auditevents", ""): AuditEvents(sources)}


class AuditEvents:
    """The handler of all verbs."""

    def __init__(self, sources: AuditEventSources) -> None:
        self._sources = sources

    async def __call__(self, request: ActionRequest) -> Reply:
        verbs = {"get": self._get, "list": self._list, "watch": self._watch}
        return await verbs[request.verb](request)

    async def _get(self, request: ActionRequest) -> Reply:
        own = _requester(request.user) if request.call.decision == OWN_AUDIT_EVENTS else None
        query = query_by_id(request.name, own)
        missing = NotFound.of(request.kind.plural, request.kind.group, request.name)
        if query is None:
            raise missing
        page, is_complete = await self._sources.reader.find(query)
        if not page.lines:
            if is_complete:
                raise missing
            raise NotFound(
                f"{missing.message} in the latest part of the audit log, which is all that is searched for an ID; "
                "list the events of the time of the request instead, with since and until"
            )
        body = orjson.dumps(build_object(page.lines[0], request.kind.api_version, encode_positions(page.snapshot)))
        presentation = self._presentation(request)
        _check_shape(presentation, is_list=False)
        return Reply(200, render_object(body, presentation), presentation.representation.media_type)

    async def _list(self, request: ActionRequest) -> Reply:
        call, kind = request.call, request.kind
        limit, labels = query_options.check_list_options(call)
        query = self._query(request)
        start = parse_continue_token(token) if (token := call.parameter("continue")) else None
        presentation = self._presentation(request)
        _check_shape(presentation, is_list=True)
        page = await self._sources.reader.search(start, query, min(limit or MAX_LIMIT, MAX_LIMIT))
        if not all(each.matches({}) for each in labels):  # the events have no labels
            page = Page(page.snapshot)
        if self._sources.has_replicas:
            call.warnings.append(OTHER_REPLICAS)
        if page.unreadable:
            call.warnings.append(f"{page.unreadable} lines of the audit log are not readable and were skipped")
        size = sum(map(len, page.lines))
        inline_size = presentation.inline_size
        body = await compute(size, _render_page, page, kind, presentation, inline_size=inline_size)
        return Reply(200, body, presentation.representation.media_type)

    async def _watch(self, request: ActionRequest) -> Reply:
        call, sources = request.call, self._sources
        if negotiate(call.headers.get("accept", "")).media_type != JSON:
            raise NotAcceptable(f"a watch is only available as {JSON}")
        is_bookmarked = read_flag(call, "allowWatchBookmarks")
        query = self._query(request)
        version = call.parameter("resourceVersion")
        start = decode_positions(version) if version not in ("", "0") else None
        if start is None and version not in ("", "0"):
            raise BadRequest("invalid resource version: it must be a value that this server has returned")
        seconds = query_options.parse_integer(call, "timeoutSeconds") or sources.watch_seconds
        presentation = self._presentation(request)
        sources.reader.require_room(query)
        await sources.streams.require_room(request.user)
        stream = _WatchStream(sources, query, start, presentation, call)
        stream.sends_bookmarks = is_bookmarked
        stream.marks_start = is_bookmarked and read_flag(call, "sendInitialEvents")
        deadline = sources.clock.monotonic() + max(seconds, 0)
        return Reply(200, stream=stream.lines(deadline, sources.streams.admit(request.user)))

    def _query(self, request: ActionRequest) -> EventQuery:
        call, user = request.call, request.user
        own: Requester | None = None
        selector = call.parameter("fieldSelector")
        if call.object_filter is not None:
            target = replace(call.target, name=selected_name(selector))
            if not self._sources.is_within_scope(user, target):
                # A filter checks the scope for each object. Here it must allow the whole list, or the selected event.
                decision = Decision(False, "the scope allows only some audit events", is_about_scope=True)
                raise forbidden_error(user, call.target, decision)
            own = _requester(user)
        fields = parse_fields(selector, ("metadata.name", *request.kind.selectable, *VIRTUAL_FIELDS, PROJECT))
        others = tuple(each for each in fields if each.key != PROJECT)
        projects = [single_value(each) for each in fields if each.key == PROJECT]
        if len(projects) > 1 or "" in projects:
            raise can_be_given_once(PROJECT)
        group = ProjectEvents(projects[0], self._sources.namespace_prefix + projects[0]) if projects else None
        return build_query(others, own, self._sources.clock.now(), group)

    def _presentation(self, request: ActionRequest) -> Presentation:
        call = request.call
        representation = negotiate(call.headers.get("accept", ""))
        include = query_options.include_object(call) if representation.as_kind == "Table" else ""
        return Presentation(request.kind, representation, wants_pretty(call), include, self._sources.clock.now())


def _requester(user: User) -> Requester:
    return Requester(user.name, user.uid)


def _check_shape(presentation: Presentation, *, is_list: bool) -> None:
    wrong = "PartialObjectMetadata" if is_list else "PartialObjectMetadataList"
    if presentation.representation.as_kind == wrong:
        raise NotAcceptable(f"you requested {wrong}, but this is {'a list' if is_list else 'not a list'}")


def _render_page(page: Page, kind: Kind, presentation: Presentation) -> bytes:
    version = encode_positions(page.snapshot)
    metadata: Object = {"resourceVersion": version}
    if page.next_page is not None:
        metadata["continue"] = page.next_page.encode()
    bodies = [orjson.dumps(build_object(line, kind.api_version, version)) for line in page.lines]
    return render_list(bodies, metadata, presentation)


class _WatchStream:
    """One open watch. Events have the resourceVersion after them, so a watch can continue there."""

    def __init__(
        self,
        sources: AuditEventSources,
        query: EventQuery,
        start: Positions | None,
        presentation: Presentation,
        call: Call,
    ) -> None:
        self._sources = sources
        self._query = query
        self._start = start
        self._presentation = presentation
        self._call = call
        self._open_requests: dict[str, None] = {}
        self.sends_bookmarks = False
        self.marks_start = False
        """Whether to send the bookmark that ends the initial events, of which there are none."""
        self._version = ""

    async def lines(self, deadline: float, tracking: AbstractAsyncContextManager[None]) -> AsyncIterator[bytes]:
        """Yields events until the deadline, shutdown or an error. `tracking` counts the watch."""
        reader, clock = self._sources.reader, self._sources.clock
        try:
            async with tracking, reader.subscribe(self._query) as (subscription, now):
                self._version = encode_positions(now)
                if self.marks_start:
                    yield self._encode_bookmark({INITIAL_EVENTS_END: "true"})
                if self._start is not None:
                    async for found in reader.catch_up(self._query, self._start, now):
                        if clock.monotonic() >= deadline:
                            return
                        self._call.recheck()
                        if found:
                            yield await self._encode_lines(found)
                recheck_at = clock.monotonic() + RECHECK_SECONDS
                bookmark_at = clock.monotonic() + BOOKMARK_SECONDS
                while (moment := clock.monotonic()) < deadline and not subscription.is_ended:
                    if moment >= recheck_at:
                        self._call.recheck()
                        recheck_at = moment + RECHECK_SECONDS
                    found = await subscription.wait(max(min(deadline, recheck_at) - moment, 0.001))
                    if found:
                        yield await self._encode_lines(found)
                    elif self.sends_bookmarks and moment >= bookmark_at:
                        bookmark_at = moment + BOOKMARK_SECONDS
                        yield self._encode_bookmark({})
        except ApiError as error:
            yield encode_event("ERROR", orjson.dumps(status_of(error)))
        except Exception:  # an internal error must not look like a regular end
            log.exception("a watch of the audit log failed unexpectedly")
            problem = Internal("an internal error has ended this watch; see the server log")
            yield encode_event("ERROR", orjson.dumps(status_of(problem)))

    async def _encode_lines(self, found: list[FollowedLine]) -> bytes:
        size = sum(len(each.line) for each in found)
        return await compute(size, self._encode, found)

    def _encode_bookmark(self, annotations: dict[str, str]) -> bytes:
        metadata: Object = {"resourceVersion": self._version, "creationTimestamp": None}
        if annotations:
            metadata["annotations"] = annotations
        return encode_event("BOOKMARK", orjson.dumps(self._presentation.kind.build(metadata)))

    def _encode(self, lines: list[FollowedLine]) -> bytes:
        self._version = lines[-1].version
        return b"".join([encode_event(self._event_type(each), self._encode_object(each)) for each in lines])

    def _event_type(self, found: FollowedLine) -> str:
        audit_id, known = found.event.auditID, self._open_requests
        is_known = audit_id in known
        if found.event.stage == COMPLETE:
            known.pop(audit_id, None)
        elif len(known) < MAX_OPEN_REQUESTS:
            known[audit_id] = None
        return "MODIFIED" if is_known else "ADDED"

    def _encode_object(self, found: FollowedLine) -> bytes:
        kind, as_kind = self._presentation.kind, self._presentation.representation.as_kind
        built = build_object(found.line, kind.api_version, found.version)
        if as_kind == "Table":
            metadata = {"resourceVersion": found.version}
            include, now = self._presentation.include_object, self._sources.clock.now()
            return orjson.dumps(render_table(kind, [built], metadata, include, now))
        return orjson.dumps(partial_object_metadata(built) if as_kind else built)
