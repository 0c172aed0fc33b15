"""`fairlead key explain`: may this key do that, and who decided so?"""

from dataclasses import dataclass
from typing import Annotated

import typer

from fairlead.cli.asking import About, Question, about
from fairlead.cli.flags import ContextFlag, NamespaceFlag, OutputFlag, ProjectFlag, takes
from fairlead.cli.output import Output, print_data, print_table
from fairlead.cli.session import Session, connected
from fairlead.client import ApiProblem
from fairlead.core.objects import Object

REFUSALS = (403, 404, 422)


@dataclass(frozen=True, slots=True)
class Place:
    name: Annotated[
        str | None, typer.Option("--name", help="Name of the object; all of them without.", show_default=False)
    ] = None
    namespace: NamespaceFlag = None
    project: ProjectFlag = None


@dataclass(frozen=True, slots=True)
class Asked:
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


@takes(Asked)
def command(asked: Asked) -> None:
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
