"""`fairlead audit`: lists and follows the audit log, and explains one request."""

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from fairlead.cli.resources.any_kind import NOUNS
from fairlead.cli.ui.durations import DURATION_PATTERN, parse_time
from fairlead.cli.ui.flags import (
    ContextFlag,
    ObjectOutputFlag,
    flag,
    options_from,
    parameter,
    parameters_of,
    reject_empty,
    with_parameters,
)
from fairlead.cli.ui.groups import AliasGroup
from fairlead.cli.ui.output import (
    TABLE,
    Format,
    ObjectOutput,
    Output,
    column_widths,
    print_event,
    print_name,
    print_pairs,
    print_row,
    print_table,
    print_value,
)
from fairlead.cli.ui.resource_commands import print_items
from fairlead.cli.ui.session import Session, UsageError, open_session
from fairlead.client import ApiStatusError
from fairlead.core.objects import Object, get_path, name_of

PLURAL, KIND = "auditevents", "AuditEvent"
MAX_PAGE = 500
WATCH_SECONDS = 240
"""How long one watch lasts. The next one continues where it ended."""
SILENCE_SECONDS = WATCH_SECONDS + 30.0
DECISION, REASON, ACCESS_KEY = "authorization.k8s.io/decision", "authorization.k8s.io/reason", "service.sh/access-key"
DRY_RUN = "service.sh/dry-run"
FORBID = "forbid"
REFUSED_BY = "service.sh/refused-by"
AUTHORIZATION = "authorization"
SIGN_ON = "sign-on/"
COLUMNS = ("TIME", "USER", "VERB", "OBJECT", "CODE", "DECISION", "REFUSED BY", "AUDIT ID")
WIDE_COLUMNS = (*COLUMNS, "KEY", "SOURCE", "USER AGENT", "REASON")
VERBS = (
    *("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"),
    *("post", "put", "head", "options", "connect", "trace", "unknown"),
)
"""All that the log has: those of Kubernetes, and for other paths the HTTP methods."""
CHANGES = (
    *("verb!=get", "verb!=list", "verb!=watch", "verb!=head", "verb!=options", "dryRun!=All"),
    *("objectRef.resource!=selves", "objectRef.resource!=leases", "objectRef.resource!=selfsubjectrulesreviews"),
    *("objectRef.resource!=selfsubjectaccessreviews", "objectRef.resource!=selfsubjectaccessreviewbatches"),
)
"""Without what clients ask all the time by creating an object that is not stored."""
GATEWAY_PATH = re.compile(r"/kubernetes/(?:cluster/([^/]+)|project/([^/]+)/(space|virtualcluster)/([^/]+))/")
EMPTY = "no events; `fairlead audit --help` has the flags that select others"

group = typer.Typer(
    cls=AliasGroup, help="Show who did what, and what was denied.", invoke_without_command=True, no_args_is_help=False
)


def parse_verb(text: str) -> str:
    """Checks a verb. Used as a Typer parser, so errors are usage errors."""
    if text not in VERBS:
        raise typer.BadParameter(f"{text!r} is no verb; there are {', '.join(VERBS)}. Repeat --verb for several")
    return text


def parse_moment(text: str) -> str:
    """Checks a time or a duration. Used as a Typer parser, so errors are usage errors."""
    match = DURATION_PATTERN.fullmatch(text)
    if match is not None and any(match.groups()):
        return text
    if parse_time(text) is None or "T" not in text:
        raise typer.BadParameter(f"{text!r} is neither a duration like 90m nor a time like 2026-01-02T03:04:05Z")
    return text


@dataclass(frozen=True, slots=True)
class AuditOptions:
    user: Annotated[str | None, flag("--user", help="User who sent the request.", metavar="U", complete="users")] = None
    verb: Annotated[
        list[str] | None,
        flag("--verb", help="Verb: get, list, create, delete, ... Can be repeated.", metavar="V", parser=parse_verb),
    ] = None
    changes: Annotated[bool, typer.Option("--changes", help="Only requests that change something.")] = False
    resource: Annotated[
        str | None,
        flag("--resource", help="Resource, like secrets or spaces.", metavar="R", callback=reject_empty),
    ] = None
    project: Annotated[
        str | None,
        flag(
            "--project",
            help="A project, what is in it, and requests into its spaces and virtual clusters.",
            metavar="P",
            complete="projects",
        ),
    ] = None
    name: Annotated[str | None, flag("--name", help="Name of the object.", metavar="N", callback=reject_empty)] = None
    since: Annotated[
        str | None, flag("--since", help="Not before: 1h ago, or a time.", metavar="TIME", parser=parse_moment)
    ] = None
    until: Annotated[
        str | None, flag("--until", help="Not after: 1h ago, or a time.", metavar="TIME", parser=parse_moment)
    ] = None
    denied: Annotated[bool, typer.Option("--denied", help="Only requests and logins that were refused.")] = False
    code: Annotated[
        int | None, flag("--code", help="HTTP status code of the response.", metavar="CODE", min=100, max=599)
    ] = None
    limit: Annotated[int, typer.Option("--limit", help="Maximum number of events.", metavar="N", min=1)] = 50
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Print new events until Ctrl-C.")] = False
    context: ContextFlag = None
    output: ObjectOutputFlag = TABLE


def list_command(ctx: typer.Context, **values: Any) -> None:
    """Show who did what, and what was denied, newest first.

    Users without permission to list auditevents see their own requests.
    """
    if ctx.invoked_subcommand is not None:
        return
    options = AuditOptions(**values)
    with open_session(options.context) as session:
        query = {"fieldSelector": selector} if (selector := _build_selector(options)) else {}
        if options.follow:
            _follow(session, query, options)
            return
        events, _ = fetch_events(session, query, options.limit)
        output = options.output
        print_items(events, KIND, output, _columns(output), lambda event: event_row(event, output), EMPTY)


def _build_selector(options: AuditOptions) -> str:
    values = {
        "user.username": options.user,
        "verb": options.verb[0] if options.verb and len(options.verb) == 1 else None,
        "objectRef.resource": _resource_of(options.resource) if options.resource else None,
        "project": options.project,
        "objectRef.name": options.name,
        "since": options.since,
        "until": options.until,
        "responseStatus.code": str(options.code) if options.code is not None else None,
    }
    chosen = [f"{field}={_escape(value)}" for field, value in values.items() if value]
    if options.verb and len(options.verb) > 1:  # a field selector has no "one of these"
        chosen += [f"verb!={each}" for each in VERBS if each not in options.verb]
    if options.changes:
        chosen += CHANGES
    if options.denied:
        chosen.append("refusedBy!=")
    return ",".join(chosen)


def _resource_of(text: str) -> str:
    """The resource that a noun of other commands stands for. Clusters have resources that no one here knows."""
    return NOUNS.get(text.removesuffix("s"), text)


def _escape(value: str) -> str:
    """The value as a field selector needs it."""
    return re.sub(r"([\\,=])", r"\\\1", value)


def fetch_events(session: Session, query: dict[str, str], limit: int) -> tuple[list[Object], str]:
    """The latest events, newest first, and the resourceVersion of the list. Pages may be empty before the last one."""
    found: list[Object] = []
    token, version = "", ""
    while True:
        page_query = {
            **query,
            "limit": str(min(limit - len(found), MAX_PAGE)),
            **({"continue": token} if token else {}),
        }
        page = session.client.send("GET", session.client.path(PLURAL), query=page_query)
        metadata = page.get("metadata") or {}
        found += page.get("items") or ()
        token = str(metadata.get("continue") or "")
        version = version or str(metadata.get("resourceVersion") or "")
        if not token or len(found) >= limit:
            return found[:limit], version


def _follow(session: Session, query: dict[str, str], options: AuditOptions) -> None:
    """Prints the latest events in the order of time, then new ones. Ctrl-C ends it with exit code 0."""
    output = options.output
    if options.until or output.format is Format.JSONPATH:
        raise UsageError("--follow cannot be combined with --until or -o jsonpath; leave one of them out")
    with suppress(KeyboardInterrupt):
        events, version = fetch_events(session, query, options.limit)
        events.reverse()
        rows = [event_row(each, output) for each in events]
        widths = column_widths(_columns(output), rows)
        if output.is_table:
            print_table(_columns(output), rows, "no events yet")
        else:
            for each in events:
                _print_event("ADDED", each, output)
        for type, event in watch_events(session, query, version):
            if output.is_table:
                print_row(_columns(output), event_row(event, output), widths)
            else:
                _print_event(type, event, output)


def _print_event(type: str, event: Object, output: ObjectOutput) -> None:
    if output.format is Format.NAME:
        print_name(KIND, name_of(event))
    else:
        print_event(type, event, Output(output.format))


def watch_events(session: Session, query: dict[str, str], version: str) -> Iterator[tuple[str, Object]]:
    """New events, endlessly: a watch that the server ends is resumed."""
    client = session.client
    while True:
        watch = {**query, "watch": "1", "resourceVersion": version, "timeoutSeconds": str(WATCH_SECONDS)}
        for event in client.stream_objects(client.path(PLURAL), watch, timeout=SILENCE_SECONDS):
            found = event.get("object") or {}
            if event.get("type") == "ERROR":
                raise ApiStatusError(
                    int(found.get("code") or 500), str(found.get("reason") or ""), str(found.get("message") or "")
                )
            version = str(get_path(found, "metadata.resourceVersion") or version)
            yield str(event.get("type")), found


def _columns(output: ObjectOutput) -> tuple[str, ...]:
    return WIDE_COLUMNS if output.format is Format.WIDE else COLUMNS


def event_row(event: Object, output: ObjectOutput) -> Sequence[str]:
    annotations = event.get("annotations") or {}
    row = (
        f"{str(event.get('stageTimestamp') or '-')[:19]}Z",
        describe_user(event),
        describe_verb(event) or "-",
        describe_object(event),
        str(get_path(event, "responseStatus.code") or "-"),
        str(annotations.get(DECISION) or "-"),
        str(annotations.get(REFUSED_BY) or "-"),
        name_of(event),
    )
    if output.format is not Format.WIDE:
        return row
    return (
        *row,
        _key_of(event),
        _source_of(event),
        str(event.get("userAgent") or "-"),
        str(annotations.get(REASON, "-")),
    )


def describe_verb(event: Object) -> str:
    """The verb, and that a dry run stored nothing."""
    mark = " (dry run)" if (event.get("annotations") or {}).get(DRY_RUN) else ""
    return f"{event.get('verb') or ''}{mark}"


def describe_user(event: Object) -> str:
    name = str(get_path(event, "user.username") or "-")
    acted_as = get_path(event, "impersonatedUser.username")
    return f"{name} as {acted_as}" if acted_as else name


def describe_object(event: Object) -> str:
    reference = event.get("objectRef") or {}
    if not reference.get("resource"):
        return str(event.get("requestURI") or "-").partition("?")[0]
    names = ("namespace", "resource", "name", "subresource")
    described = "/".join(str(reference[name]) for name in names if reference.get(name))
    return f"{_describe_gateway(event)}{described}"


def _describe_gateway(event: Object) -> str:
    """Where the object is, if it is in a connected cluster: with a colon and a space; else empty."""
    match = GATEWAY_PATH.match(str(event.get("requestURI") or ""))
    if match is None:
        return ""
    cluster, project, kind, name = match.groups()
    return f"cluster {cluster}: " if cluster else f"{kind} {project}/{name}: "


def _key_of(event: Object) -> str:
    return ", ".join((get_path(event, "user.extra") or {}).get(ACCESS_KEY) or ()) or "-"


def _source_of(event: Object) -> str:
    return ", ".join(map(str, event.get("sourceIPs") or ())) or "-"


group.callback()(with_parameters(list_command, (parameter("ctx", typer.Context), *parameters_of(AuditOptions))))


@dataclass(frozen=True, slots=True)
class ShowOptions:
    audit_id: Annotated[str, typer.Argument(help="ID of the request: the header Audit-Id of its response.")]
    context: ContextFlag = None
    output: ObjectOutputFlag = TABLE


@group.command("show")
@options_from(ShowOptions)
def show_command(options: ShowOptions) -> None:
    """Explain one request: who did what, whether it was allowed, and why."""
    with open_session(options.context) as session:
        event = session.client.get(PLURAL, options.audit_id)
        if options.output.format is Format.NAME:
            print_name(KIND, name_of(event))
        elif options.output.is_table:
            print_pairs([pair for pair in explain_event(event) if pair[1]])
        else:
            print_value(event, options.output)


def explain_event(event: Object) -> Iterator[tuple[str, str]]:
    """The request in words. Rows without a value are left out."""
    annotations = event.get("annotations") or {}
    status = event.get("responseStatus") or {}
    yield "request", f"{describe_user(event)}: {describe_verb(event)} {describe_object(event)}"
    yield "path", str(event.get("requestURI") or "")
    yield "received", str(event.get("requestReceivedTimestamp") or "")
    yield "stage", _describe_stage(event)
    yield "key", _key_of(event).removeprefix("-")
    yield "groups", ", ".join(get_path(event, "user.groups") or ())
    yield "from", f"{_source_of(event)} with {event.get('userAgent') or 'an unknown client'}"
    yield "decision", _describe_decision(annotations)
    yield "refused by", str(annotations.get(REFUSED_BY) or "")
    yield "result", " ".join(str(part) for part in (status.get("code"), status.get("reason")) if part)
    yield "", str(status.get("message") or "")
    for name, value in sorted(annotations.items()):
        if name not in (DECISION, REASON, REFUSED_BY):
            yield name.rpartition("/")[2], str(value)
    yield "next", next_step(event)


def _describe_stage(event: Object) -> str:
    stage = str(event.get("stage") or "")
    moment = str(event.get("stageTimestamp") or "")
    return f"{stage} at {moment}" if stage == "ResponseComplete" else f"{stage} at {moment}; not complete yet"


def _describe_decision(annotations: Object) -> str:
    decision = annotations.get(DECISION)
    reason = str(annotations.get(REASON) or "")
    if not decision:
        return "none: the request was not authenticated, or was rejected before"
    if decision == FORBID:
        return f"forbidden: {reason or 'no role, ownership or membership allows it'}"
    return f"allowed: {reason}" if reason else "allowed"


def next_step(event: Object) -> str:
    """What to do about a request that failed; empty if it did not."""
    code = get_path(event, "responseStatus.code")
    reference = event.get("objectRef") or {}
    annotations = event.get("annotations") or {}
    if code == 401:
        return "the credential was missing, wrong, disabled or expired; `fairlead login` stores a new one"
    if str(annotations.get(REFUSED_BY) or "").startswith(SIGN_ON):
        return "`fairlead sso test --claims FILE` shows who a user with these claims would be, and why"
    if annotations.get(DECISION) == FORBID or annotations.get(REFUSED_BY) == AUTHORIZATION:
        if not reference.get("resource"):
            return f"`fairlead who-can {event.get('verb')} {describe_object(event)}` shows who may do this"
        words = [
            "fairlead who-can",
            str(event.get("verb")),
            str(reference["resource"]),
            str(reference.get("name") or ""),
        ]
        where = f"-n {reference['namespace']}" if reference.get("namespace") else ""
        return f"`{' '.join(word for word in (*words, where) if word)}` shows who may do this"
    if isinstance(code, int) and code >= 500:
        return "the log of the server has the error, with this audit ID"
    return ""
