"""`fairlead who-can`: everybody who may do something, and why.

The server is asked about each user and each team, one after the other: it alone knows how permissions come together.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import typer

from fairlead.cli.asking import About, Question, about
from fairlead.cli.flags import ContextFlag, NamespaceFlag, OutputFlag, ProjectFlag, takes
from fairlead.cli.output import Output, print_list, print_table
from fairlead.cli.session import connected
from fairlead.client import Client
from fairlead.core.objects import Object, dig, name_of
from fairlead.core.user import EVERYBODY

TEAM_PREFIX = "service:team:"


@dataclass(frozen=True, slots=True)
class Asked:
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


@takes(Asked)
def command(asked: Asked) -> None:
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
