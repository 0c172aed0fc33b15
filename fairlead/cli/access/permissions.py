"""`fairlead who-can` and `fairlead key explain`: permission checks with access reviews.

`who-can` sends one SubjectAccessReview for each user and each team, because only the server can evaluate permissions.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import typer

from fairlead.cli.ui.flags import ContextFlag, NamespaceFlag, OutputFlag, ProjectFlag, takes
from fairlead.cli.ui.output import Output, note, print_data, print_list, print_table
from fairlead.cli.ui.session import Session, WrongUsage, connected, namespace_of
from fairlead.client import ApiProblem, Client, discovery
from fairlead.core.objects import Object, dig, name_of
from fairlead.core.user import EVERYBODY

PERMISSIONS = frozenset({"*", "bind", "escalate", "impersonate", "makeowner", "use"})
"""Verbs that roles can grant although no request has them."""


@dataclass(frozen=True, slots=True)
class Question:
    """The action to check. Either `resource` or `path` is set."""

    verb: str
    resource: str | None = None
    name: str | None = None
    namespace: str | None = None
    project: str | None = None
    path: str | None = None


@dataclass(frozen=True, slots=True)
class About:
    """The attributes of an access review, and a description such as `create configmaps in service-p-demo`."""

    attributes: Object
    words: str


def about(session: Session, question: Question) -> About:
    """Validates and resolves the query. Warns about likely mistakes, which would otherwise only get a no."""
    if bool(question.resource) == bool(question.path):
        raise WrongUsage("set either a resource or a path")
    if question.namespace and question.project:
        raise WrongUsage("--namespace and --project are mutually exclusive; choose one")
    return _about_path(question) if question.path else _about_resource(session, question)


def _about_path(question: Question) -> About:
    if question.name or question.namespace or question.project:
        raise WrongUsage("a path has neither name nor namespace; leave them out")
    if not (question.path or "").startswith("/"):
        raise WrongUsage(f"{question.path!r} is not a path; a path starts with a slash, like /metrics")
    attributes = {"path": question.path, "verb": question.verb}
    return About({"nonResourceAttributes": attributes}, f"{question.verb} {question.path}")


def _about_resource(session: Session, question: Question) -> About:
    resource = discovery.find(session.client, question.resource or "")
    namespace = namespace_of(session, question.project) if question.project else question.namespace or ""
    _remark(resource, question.verb, namespace)
    attributes = {
        "verb": question.verb,
        "group": resource.group,
        "resource": resource.plural,
        "subresource": resource.subresource,
        "name": question.name or "",
        "namespace": namespace,
    }
    name = f" {question.name}" if question.name else ""
    location = f" in {namespace}" if namespace else " in all namespaces" if resource.namespaced else ""
    nonempty = {field: value for field, value in attributes.items() if value}
    return About({"resourceAttributes": nonempty}, f"{question.verb} {resource}{name}{location}")


def _remark(found: discovery.Resource, verb: str, namespace: str) -> None:
    # A resource that discovery does not list has no verbs, and a subresource has its own.
    if found.verbs and not found.subresource and verb not in found.verbs | PERMISSIONS:
        note(f"warning: {found} has no verb {verb!r}; it has {', '.join(sorted(found.verbs))}")
    if found.verbs and namespace and not found.namespaced:
        note(f"warning: {found} is cluster-scoped; leave out --namespace and --project")


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
    project: ProjectFlag = None
    context: ContextFlag = None
    output: OutputFlag = Output.TABLE


@takes(WhoCanOptions)
def who_can(asked: WhoCanOptions) -> None:
    """List the users and teams that may perform an action, and why.

    Requires permission to list users and teams, and to create subjectaccessreviews.

    A key may be restricted further by its scope: see [bold]fairlead key explain[/bold].
    """
    is_path = asked.resource.startswith("/")
    query = Question(
        asked.verb,
        None if is_path else asked.resource,
        asked.name,
        asked.namespace,
        asked.project,
        asked.resource if is_path else None,
    )
    with connected(asked.context) as session:
        resolved = about(session, query)
        subjects = list(allowed(session.client, resolved))
        if asked.output is not Output.TABLE:
            print_list(subjects, asked.output)
            return
        rows = [(each["kind"].lower(), each["name"], each["reason"]) for each in subjects]
        print_table(("KIND", "NAME", "REASON"), rows, f"no user or team may {resolved.words}")


def allowed(client: Client, what: About) -> Iterator[Object]:
    """The allowed users, then the allowed teams."""
    for kind, name, subject in (*_users(client), *_teams(client)):
        status = client.create("subjectaccessreviews", {"spec": {**subject, **what.attributes}}).get("status") or {}
        if status.get("allowed"):
            yield {"kind": kind, "name": name, "reason": str(status.get("reason") or "")}


def _users(client: Client) -> Iterator[tuple[str, str, Object]]:
    """Enabled users as review subjects; the server adds their groups."""
    for user in client.list("users"):
        if not dig(user, "spec.disabled"):
            yield "User", name_of(user), {"user": name_of(user)}


def _teams(client: Client) -> Iterator[tuple[str, str, Object]]:
    """Enabled teams as review subjects, with the user name and groups of a team's access key."""
    for team in client.list("teams"):
        if not dig(team, "spec.disabled"):
            subject = TEAM_PREFIX + name_of(team)
            yield "Team", name_of(team), {"user": subject, "groups": [subject, *EVERYBODY]}


REFUSALS = (403, 404, 422)


@dataclass(frozen=True, slots=True)
class Place:
    name: Annotated[
        str | None, typer.Option("--name", help="Name of the object; without it, all objects.", show_default=False)
    ] = None
    namespace: NamespaceFlag = None
    project: ProjectFlag = None


@dataclass(frozen=True, slots=True)
class ExplainOptions:
    key: Annotated[str, typer.Argument(help="Name of the key.", metavar="KEYNAME")]
    verb: Annotated[str, typer.Option("--verb", help="Verb: get, list, create, ...", show_default=False)]
    resource: Annotated[
        str | None,
        typer.Option("--resource", help="Resource.", metavar="RESOURCE[.GROUP][/SUBRESOURCE]", show_default=False),
    ] = None
    path: Annotated[
        str | None, typer.Option("--path", help="A non-resource path, like /metrics.", show_default=False)
    ] = None
    place: Place = Place()
    context: ContextFlag = None
    output: OutputFlag = Output.TABLE


@takes(ExplainOptions)
def explain(asked: ExplainOptions) -> None:
    """Check whether a key may perform an action, and show which authorizer decides.

    Exits with 0 for yes and 1 for no, like [bold]kubectl auth can-i[/bold].
    """
    target = asked.place
    query = Question(asked.verb, asked.resource, target.name, target.namespace, target.project, asked.path)
    with connected(asked.context) as session:
        resolved = about(session, query)
        status = review(session, asked.key, resolved)
        if asked.output is not Output.TABLE:
            print_data(status, asked.output)
        else:
            show(status, asked.key, resolved)
    if not status.get("allowed"):
        raise typer.Exit(1)


def review(session: Session, key: str, what: About) -> Object:
    """Reviews access of a key: with a SelfSubjectAccessReview for own keys, else with a SubjectAccessReview."""
    body = {"spec": {"accessKey": key, **what.attributes}}
    try:
        response = session.client.create("selfsubjectaccessreviews", body)
    except ApiProblem as problem:
        if problem.code not in REFUSALS:
            raise
        response = session.client.create("subjectaccessreviews", body)
    status: Object = response.get("status") or {}
    return status


def show(status: Object, key: str, what: About) -> None:
    verdict = "may" if status.get("allowed") else "may not"
    steps = [step for step in status.get("path") or () if isinstance(step, dict)]
    print_table((f"{key} {verdict} {what.words}",), [(_reason(status, steps),)], "")
    if steps:
        print()
        rows = [tuple(str(step.get(field) or "-") for field in ("step", "verdict", "reason")) for step in steps]
        print_table(("AUTHORIZER", "VERDICT", "REASON"), rows, "")


def _reason(status: Object, steps: list[Object]) -> str:
    """The reason of the review; if it has none, that of the last authorizer with an opinion."""
    decided = [str(step.get("reason") or "") for step in steps if step.get("verdict") in ("allow", "deny")]
    return str(status.get("reason") or "") or (decided or [""])[-1] or "no reason was given"
