"""`fairlead who-can` and `fairlead key explain`: permission checks with access reviews.

`who-can` sends a ResourceAccessReview. Without the permission for that, or to an older server, it sends one
SubjectAccessReview for each user and each team.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import typer

from fairlead.cli.ui.completion import complete_names
from fairlead.cli.ui.flags import ContextFlag, NamespaceFlag, OutputFlag, ProjectNamespaceFlag, flag, options_from
from fairlead.cli.ui.output import Output, build_list, print_data, print_note, print_table
from fairlead.cli.ui.session import Session, UsageError, open_session, project_namespace
from fairlead.client import ApiStatusError, Client, discovery
from fairlead.core.objects import Object, get_path, name_of
from fairlead.core.user import AUTHENTICATED_GROUPS

NOT_FOUND = 404
GRANT_ONLY_VERBS = frozenset({"*", "bind", "escalate", "impersonate", "makeowner", "use"})
"""Verbs that roles can grant although no request has them."""
NAMED_VERBS = frozenset({"get", "update", "patch", "delete"})
"""Verbs of requests for one object, which may be allowed for some objects only."""
FILTERED = "filtered: only the objects that it may get"


@dataclass(frozen=True, slots=True)
class PermissionQuery:
    """The action to check. Either `resource` or `path` is set."""

    verb: str
    resource: str | None = None
    name: str | None = None
    namespace: str | None = None
    project: str | None = None
    path: str | None = None


@dataclass(frozen=True, slots=True)
class ResolvedQuery:
    """The attributes of an access review, and a description such as `create configmaps in service-p-demo`."""

    attributes: Object
    description: str


def resolve_query(session: Session, query: PermissionQuery) -> ResolvedQuery:
    """Validates and resolves the query. Warns about likely mistakes, which would otherwise only get a no."""
    if bool(query.resource) == bool(query.path):
        # The resource of `who-can` is an argument, which is always set.
        raise UsageError("set either --resource, such as --resource apps, or --path")
    if query.namespace and query.project:
        raise UsageError("--namespace and --project are mutually exclusive; choose one")
    return _resolve_path_query(query) if query.path else _resolve_resource_query(session, query)


def _resolve_path_query(query: PermissionQuery) -> ResolvedQuery:
    if query.name or query.namespace or query.project:
        raise UsageError("a path has neither name nor namespace; leave them out")
    if not (query.path or "").startswith("/"):
        raise UsageError(f"{query.path!r} is not a path; a path starts with a slash, like /metrics")
    attributes = {"path": query.path, "verb": query.verb}
    return ResolvedQuery({"nonResourceAttributes": attributes}, f"{query.verb} {query.path}")


def _resolve_resource_query(session: Session, query: PermissionQuery) -> ResolvedQuery:
    resource = discovery.find_resource(session.client, query.resource or "")
    namespace = project_namespace(session, query.project) if query.project else query.namespace or ""
    _warn_unlikely(resource, query.verb, namespace)
    attributes = {
        "verb": query.verb,
        "group": resource.group,
        "resource": resource.plural,
        "subresource": resource.subresource,
        "name": query.name or "",
        "namespace": namespace,
    }
    name = f" {query.name}" if query.name else ""
    location = f" in {namespace}" if namespace else " in all namespaces" if resource.namespaced else ""
    nonempty = {field: value for field, value in attributes.items() if value}
    return ResolvedQuery({"resourceAttributes": nonempty}, f"{query.verb} {resource}{name}{location}")


def _warn_unlikely(resource: discovery.ApiResource, verb: str, namespace: str) -> None:
    # A resource that discovery does not list has no verbs, and a subresource has its own.
    if resource.verbs and not resource.subresource and verb not in resource.verbs | GRANT_ONLY_VERBS:
        print_note(f"warning: {resource} has no verb {verb!r}; it has {', '.join(sorted(resource.verbs))}")
    if resource.verbs and namespace and not resource.namespaced:
        print_note(f"warning: {resource} is cluster-scoped; leave out --namespace and --project")


TEAM_PREFIX = "service:team:"


@dataclass(frozen=True, slots=True)
class WhoCanOptions:
    verb: Annotated[str, typer.Argument(help="Verb: get, list, create, ...")]
    resource: Annotated[
        str,
        typer.Argument(help="Resource, or a path like /metrics.", metavar="RESOURCE[.GROUP][/SUBRESOURCE]"),
    ]
    name: Annotated[
        str | None, typer.Argument(help="Name of the object; without it, all objects.", show_default=False)
    ] = None
    namespace: NamespaceFlag = None
    project: ProjectNamespaceFlag = None
    context: ContextFlag = None
    output: OutputFlag = Output.TABLE


@options_from(WhoCanOptions)
def who_can(options: WhoCanOptions) -> None:
    """List the users, groups and teams that may perform an action, and why.

    Requires permission to create resourceaccessreviews; without it, to list users and teams and to create
    subjectaccessreviews.

    A key may be restricted further by its scope: see `fairlead key explain`.
    """
    is_path = options.resource.startswith("/")
    query = PermissionQuery(
        verb=options.verb,
        resource=None if is_path else options.resource,
        name=options.name,
        namespace=options.namespace,
        project=options.project,
        path=options.resource if is_path else None,
    )
    with open_session(options.context) as session:
        resolved = resolve_query(session, query)
        subjects = list(find_allowed(session.client, resolved))
        if options.output is not Output.TABLE:
            print_data(build_list(subjects), options.output)
            return
        rows = [(each["kind"].lower(), each["name"], each["reason"]) for each in subjects]
        print_table(("KIND", "NAME", "REASON"), rows, f"no user or team may {resolved.description}")


def find_allowed(client: Client, resolved: ResolvedQuery) -> Iterator[Object]:
    """The allowed users, groups and teams."""
    try:
        status = client.create("resourceaccessreviews", {"spec": resolved.attributes}).get("status") or {}
    except ApiStatusError as problem:
        if problem.code not in FALLBACK_CODES:
            raise
        yield from _find_by_single_reviews(client, resolved)
        return
    for kind, field in (("User", "users"), ("Group", "groups"), ("Team", "teams")):
        for subject in status.get(field) or ():
            yield {"kind": kind, "name": subject["name"], "reason": str(subject.get("reason") or "")}
    if status.get("truncated"):
        print_note("warning: there are more subjects than the server lists")


def _find_by_single_reviews(client: Client, resolved: ResolvedQuery) -> Iterator[Object]:
    """The allowed users, then the allowed teams."""
    for kind, name, subject in (*_user_subjects(client), *_team_subjects(client)):
        status = client.create("subjectaccessreviews", {"spec": {**subject, **resolved.attributes}}).get("status") or {}
        if status.get("allowed"):
            yield {"kind": kind, "name": name, "reason": str(status.get("reason") or "")}


def _user_subjects(client: Client) -> Iterator[tuple[str, str, Object]]:
    """Enabled users as review subjects; the server adds their groups."""
    for user in client.list("users"):
        if not get_path(user, "spec.disabled"):
            yield "User", name_of(user), {"user": name_of(user)}


def _team_subjects(client: Client) -> Iterator[tuple[str, str, Object]]:
    """Enabled teams as review subjects, with the user name and groups of a team's access key."""
    for team in client.list("teams"):
        if not get_path(team, "spec.disabled"):
            subject = TEAM_PREFIX + name_of(team)
            yield "Team", name_of(team), {"user": subject, "groups": [subject, *AUTHENTICATED_GROUPS]}


FALLBACK_CODES = (403, 404, 422)


@dataclass(frozen=True, slots=True)
class TargetOptions:
    name: Annotated[str | None, flag("--name", help="Name of the object; without it, all objects.")] = None
    namespace: NamespaceFlag = None
    project: ProjectNamespaceFlag = None


@dataclass(frozen=True, slots=True)
class ExplainOptions:
    key: Annotated[
        str,
        typer.Argument(help="Name of the key.", metavar="KEYNAME", autocompletion=complete_names("ownedaccesskeys")),
    ]
    verb: Annotated[str, flag("--verb", help="Verb: get, list, create, ...")]
    resource: Annotated[str | None, flag("--resource", help="Resource.", metavar="RESOURCE[.GROUP][/SUBRESOURCE]")] = (
        None
    )
    path: Annotated[str | None, flag("--path", help="A non-resource path, like /metrics.")] = None
    target: TargetOptions = TargetOptions()
    context: ContextFlag = None
    output: OutputFlag = Output.TABLE


@options_from(ExplainOptions)
def explain(options: ExplainOptions) -> None:
    """Check whether a key may perform an action, and show which authorizer decides.

    Exits with 0 for yes and 1 for no, like `kubectl auth can-i`. A list or watch that succeeds with only a part of the
    objects is a yes, and the answer says that it is filtered.
    """
    target = options.target
    query = PermissionQuery(
        verb=options.verb,
        resource=options.resource,
        name=target.name,
        namespace=target.namespace,
        project=target.project,
        path=options.path,
    )
    with open_session(options.context) as session:
        resolved = resolve_query(session, query)
        status = review_access(session, options.key, resolved)
        succeeds = bool(status.get("allowed") or status.get("filtered"))
        if not succeeds:
            _require_existing(session.client, options.key)
        if options.output is not Output.TABLE:
            print_data(status, options.output)
        else:
            print_decision(status, options.key, resolved)
    if not succeeds:
        if query.resource and not query.name and query.verb in NAMED_VERBS:
            print_note(f"the answer is for all objects; add --name to ask whether the key may {query.verb} one of them")
        raise typer.Exit(1)


def _require_existing(client: Client, key: str) -> None:
    """Raises UsageError for a name that no key has: a denial would look the same."""
    try:
        client.get("ownedaccesskeys", key)
    except ApiStatusError as problem:
        if problem.code == NOT_FOUND:
            raise UsageError(f"there is no access key {key}; `fairlead key list` shows yours") from None


def review_access(session: Session, key: str, resolved: ResolvedQuery) -> Object:
    """Reviews access of a key: with a SelfSubjectAccessReview for own keys, else with a SubjectAccessReview."""
    body = {"spec": {"accessKey": key, **resolved.attributes}}
    try:
        response = session.client.create("selfsubjectaccessreviews", body)
    except ApiStatusError as problem:
        if problem.code not in FALLBACK_CODES:
            raise
        response = session.client.create("subjectaccessreviews", body)
    status: Object = response.get("status") or {}
    return status


def print_decision(status: Object, key: str, resolved: ResolvedQuery) -> None:
    verdict = "may" if status.get("allowed") or status.get("filtered") else "may not"
    suffix = f", {FILTERED}" if status.get("filtered") else ""
    steps = [step for step in status.get("path") or () if isinstance(step, dict)]
    print_table((f"{key} {verdict} {resolved.description}{suffix}",), [(_decision_reason(status, steps),)], "")
    if steps:
        print()
        rows = [tuple(str(step.get(field) or "-") for field in ("step", "verdict", "reason")) for step in steps]
        print_table(("AUTHORIZER", "VERDICT", "REASON"), rows, "")


def _decision_reason(status: Object, steps: list[Object]) -> str:
    """The reason of the review; if it has none, that of the last authorizer with an opinion."""
    decided = [str(step.get("reason") or "") for step in steps if step.get("verdict") in ("allow", "deny")]
    return str(status.get("reason") or "") or (decided or [""])[-1] or "no reason was given"
