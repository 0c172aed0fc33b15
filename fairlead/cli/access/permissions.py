"""`fairlead who-can`: everybody who may do something, and why.

The server is asked about each user and each team, one after the other: it alone knows how permissions come together.
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

# DOC-MERGED cli/asking
# Questions about permissions: what `fairlead key explain` and `fairlead who-can` have in common.


PERMISSIONS = frozenset({"*", "bind", "escalate", "impersonate", "makeowner", "use"})
"""Verbs that no request has and that roles grant all the same."""


@dataclass(frozen=True, slots=True)
class Question:
    """May somebody do this? Either `resource` or `path` is set."""

    verb: str
    resource: str | None = None
    name: str | None = None
    namespace: str | None = None
    project: str | None = None
    path: str | None = None


@dataclass(frozen=True, slots=True)
class About:
    """A question as an access review puts it, and as people do: `create configmaps in service-p-demo`."""

    attributes: Object
    words: str


def about(session: Session, question: Question) -> About:
    """What is asked, once it makes sense. What looks like a slip is remarked on, as the answer would be a plain no."""
    if bool(question.resource) == bool(question.path):
        raise WrongUsage("ask about a resource or about a path: one of them, and not both")
    if question.namespace and question.project:
        raise WrongUsage("a project has one namespace; give --namespace or --project, not both")
    return _about_path(question) if question.path else _about_resource(session, question)


def _about_path(question: Question) -> About:
    if question.name or question.namespace or question.project:
        raise WrongUsage("a path has neither name nor namespace; leave them out")
    if not (question.path or "").startswith("/"):
        raise WrongUsage(f"{question.path!r} is no path; write it like /metrics, or ask about a resource")
    asked = {"path": question.path, "verb": question.verb}
    return About({"nonResourceAttributes": asked}, f"{question.verb} {question.path}")


def _about_resource(session: Session, question: Question) -> About:
    found = discovery.find(session.client, question.resource or "")
    namespace = namespace_of(session, question.project) if question.project else question.namespace or ""
    _remark(found, question.verb, namespace)
    asked = {
        "verb": question.verb,
        "group": found.group,
        "resource": found.plural,
        "subresource": found.subresource,
        "name": question.name or "",
        "namespace": namespace,
    }
    name = f" {question.name}" if question.name else ""
    place = f" in {namespace}" if namespace else " in all namespaces" if found.namespaced else ""
    given = {part: value for part, value in asked.items() if value}
    return About({"resourceAttributes": given}, f"{question.verb} {found}{name}{place}")


def _remark(found: discovery.Resource, verb: str, namespace: str) -> None:
    # What was taken at its word has no verbs, and a subresource has its own.
    if found.verbs and not found.subresource and verb not in found.verbs | PERMISSIONS:
        note(f"warning: {found} has no verb {verb!r}; it has {', '.join(sorted(found.verbs))}")
    if found.verbs and namespace and not found.namespaced:
        note(f"warning: {found} is in no namespace; ask without --namespace and --project")


TEAM_PREFIX = "service:team:"


@dataclass(frozen=True, slots=True)
class WhoCanOptions:
    verb: Annotated[str, typer.Argument(help="What is to be done: get, list, create, ...")]
    resource: Annotated[
        str,
        typer.Argument(help="What it is done to; or a path like /metrics.", metavar="RESOURCE[.GROUP][/SUBRESOURCE]"),
    ]
    name: Annotated[str | None, typer.Argument(help="Name of the object; all of them without.", show_default=False)] = (
        None
    )
    namespace: NamespaceFlag = None
    project: ProjectFlag = None
    context: ContextFlag = None
    output: OutputFlag = Output.TABLE


@takes(WhoCanOptions)
def who_can(asked: WhoCanOptions) -> None:
    """List the users and teams that may do something, and why.

    Needs the right to list users and teams, and to review access.

    Keys may be cut down further by their scope: [bold]fairlead key explain[/bold] tells.
    """
    is_path = asked.resource.startswith("/")
    question = Question(
        asked.verb,
        None if is_path else asked.resource,
        asked.name,
        asked.namespace,
        asked.project,
        asked.resource if is_path else None,
    )
    with connected(asked.context) as session:
        what = about(session, question)
        found = list(allowed(session.client, what))
        if asked.output is not Output.TABLE:
            print_list(found, asked.output)
            return
        rows = [(each["kind"].lower(), each["name"], each["reason"]) for each in found]
        print_table(("WHO", "NAME", "WHY"), rows, f"nobody may {what.words}")


def allowed(client: Client, what: About) -> Iterator[Object]:
    """Those who may: users first, then teams."""
    for kind, name, subject in (*_users(client), *_teams(client)):
        status = client.create("subjectaccessreviews", {"spec": {**subject, **what.attributes}}).get("status") or {}
        if status.get("allowed"):
            yield {"kind": kind, "name": name, "reason": str(status.get("reason") or "")}


def _users(client: Client) -> Iterator[tuple[str, str, Object]]:
    """Users, whose groups the server knows. Who is disabled can do nothing."""
    for user in client.list("users"):
        if not dig(user, "spec.disabled"):
            yield "User", name_of(user), {"user": name_of(user)}


def _teams(client: Client) -> Iterator[tuple[str, str, Object]]:
    """Teams, as their own keys are known to the server."""
    for team in client.list("teams"):
        if not dig(team, "spec.disabled"):
            subject = TEAM_PREFIX + name_of(team)
            yield "Team", name_of(team), {"user": subject, "groups": [subject, *EVERYBODY]}


# DOC-MERGED cli/key_explain
# `fairlead key explain`: may this key do that, and who decided so?


REFUSALS = (403, 404, 422)


@dataclass(frozen=True, slots=True)
class Place:
    name: Annotated[
        str | None, typer.Option("--name", help="Name of the object; all of them without.", show_default=False)
    ] = None
    namespace: NamespaceFlag = None
    project: ProjectFlag = None


@dataclass(frozen=True, slots=True)
class ExplainOptions:
    key: Annotated[str, typer.Argument(help="Name of the key.", metavar="KEYNAME")]
    verb: Annotated[str, typer.Option("--verb", help="What is to be done: get, list, create, ...", show_default=False)]
    resource: Annotated[
        str | None,
        typer.Option(
            "--resource", help="What it is done to.", metavar="RESOURCE[.GROUP][/SUBRESOURCE]", show_default=False
        ),
    ] = None
    path: Annotated[
        str | None, typer.Option("--path", help="A path that is no resource, like /metrics.", show_default=False)
    ] = None
    place: Place = Place()
    context: ContextFlag = None
    output: OutputFlag = Output.TABLE


@takes(ExplainOptions)
def explain(asked: ExplainOptions) -> None:
    """Say whether a key may do something, and who decides that.

    Ends with 0 for yes and with 1 for no, like [bold]kubectl auth can-i[/bold].
    """
    place = asked.place
    question = Question(asked.verb, asked.resource, place.name, place.namespace, place.project, asked.path)
    with connected(asked.context) as session:
        what = about(session, question)
        status = review(session, asked.key, what)
        if asked.output is not Output.TABLE:
            print_data(status, asked.output)
        else:
            show(status, asked.key, what)
    if not status.get("allowed"):
        raise typer.Exit(1)


def review(session: Session, key: str, what: About) -> Object:
    """Anybody may ask about their own keys; about those of others, only who may review access."""
    body = {"spec": {"accessKey": key, **what.attributes}}
    try:
        answer = session.client.create("selfsubjectaccessreviews", body)
    except ApiProblem as problem:
        if problem.code not in REFUSALS:
            raise
        answer = session.client.create("subjectaccessreviews", body)
    status: Object = answer.get("status") or {}
    return status


def show(status: Object, key: str, what: About) -> None:
    verdict = "may" if status.get("allowed") else "may not"
    steps = [step for step in status.get("path") or () if isinstance(step, dict)]
    print_table((f"{key} {verdict} {what.words}",), [(_reason(status, steps),)], "")
    if steps:
        print()
        rows = [tuple(str(step.get(part) or "-") for part in ("step", "verdict", "reason")) for step in steps]
        print_table(("ASKED", "VERDICT", "REASON"), rows, "")


def _reason(status: Object, steps: list[Object]) -> str:
    """What the server says, which is nothing where nobody was for it or against it; then what the path ends with."""
    decided = [str(step.get("reason") or "") for step in steps if step.get("verdict") in ("allow", "deny")]
    return str(status.get("reason") or "") or (decided or [""])[-1] or "no reason was given"
