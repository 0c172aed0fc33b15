"""Shared by the commands for spaces, virtual clusters and workspaces: list, create, wait and delete.

Instances are namespaced in projects and may be created from a template with parameters. Deleting one with `--abandon`
skips the cleanup in its cluster.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Annotated

import typer

from fairlead.cli.ui import prompts
from fairlead.cli.ui.describe import condition_of, owner_of, print_made, text
from fairlead.cli.ui.durations import duration, seconds, since
from fairlead.cli.ui.flags import ContextFlag, NoWaitFlag, OfProjectFlag, YesFlag
from fairlead.cli.ui.list import Listing, Shown, show_list
from fairlead.cli.ui.output import NamedOutput, note
from fairlead.cli.ui.session import Session, WrongUsage, connected, namespace_of, namespace_prefix
from fairlead.cli.ui.wait import awaited, progress, states, until_gone
from fairlead.client import Client, ClientError, DeadlinePassed
from fairlead.core import yaml
from fairlead.core.objects import Object, dig, name_of

SETTLED = ("Ready", "Sleeping", "Failed")

ParameterFlag = Annotated[
    list[str] | None,
    typer.Option("--parameter", help="Value of a template parameter. Repeatable.", metavar="K=V", show_default=False),
]
WaitFlag = Annotated[bool, typer.Option("--wait", help="Wait until it is ready or has failed.")]
TimeoutFlag = Annotated[str, typer.Option("--timeout", help="Timeout of --wait, like 90s or 10m.", metavar="TIME")]
TIMEOUT = "10m"


@dataclass(frozen=True, slots=True)
class Asked:
    project: OfProjectFlag = None
    shown: Shown = field(default_factory=Shown)


@dataclass(frozen=True, slots=True)
class Sort:
    """A kind of instance. `location_column` is the header and the field of the column that shows where it runs."""

    plural: str
    kind: str
    place: tuple[str, str]
    nothing: str
    word: str


def show_instances(sort: Sort, asked: Asked) -> None:
    with connected(asked.shown.context) as session:
        prefix = namespace_prefix(session.client)
        listing = listing_of(sort, prefix)
        if asked.project:
            listing = replace(listing, namespace=prefix + asked.project, nothing=f"{sort.nothing} in {asked.project}")
        show_list(session.client, listing, asked.shown)


def listing_of(sort: Sort, prefix: str) -> Listing:
    """Builds the listing. `prefix` is the prefix of project namespaces."""
    header, at = sort.place

    def row(instance: Object, now: datetime) -> Sequence[str]:
        return (
            name_of(instance),
            text(instance, "metadata.namespace").removeprefix(prefix),
            phase_of(instance),
            owner_of(instance),
            template_of(instance),
            text(instance, at),
            since(dig(instance, "metadata.creationTimestamp"), now),
        )

    columns = ("NAME", "PROJECT", "PHASE", "OWNER", "TEMPLATE", header, "AGE")
    return Listing(sort.plural, sort.kind, columns, row, sort.nothing)


def phase_of(instance: Object) -> str:
    """The phase: Deleting with a deletion timestamp, Pending if the status has none yet."""
    return (
        "Deleting" if dig(instance, "metadata.deletionTimestamp") else str(dig(instance, "status.phase") or "Pending")
    )


def template_of(instance: Object) -> str:
    version = dig(instance, "spec.templateRef.version")
    return text(instance, "spec.templateRef.name") + (f"@{version}" if version else "")


def why(instance: Object) -> str:
    """The phase with its reason and message, unless the instance is ready."""
    if phase_of(instance) == "Ready":
        return "Ready"
    reason, message = dig(instance, "status.reason"), dig(instance, "status.message")
    details = ": ".join(str(each) for each in (reason, message) if each)
    return f"{phase_of(instance)} ({details})" if details else phase_of(instance)


def template_ref(text: str) -> Object:
    """Parses `NAME` or `NAME@VERSION` into a templateRef."""
    name, _, version = text.partition("@")
    return {"name": name, "version": version} if version else {"name": name}


def parameters(given: Sequence[str]) -> str | None:
    """Encodes `NAME=VALUE` flags as the YAML of spec.parameters. Values are strings; the template has their types."""
    values: dict[str, str] = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not name or not equals:
            raise WrongUsage(f"{each!r} is not a parameter; use the format NAME=VALUE")
        if name in values:
            raise WrongUsage(f"the parameter {name} is set twice; keep one")
        values[name] = value
    return yaml.encode(values).decode() if values else None


@dataclass(frozen=True, slots=True)
class Ending:
    """Whether a create command waits, for how long, and its output format."""

    wait: bool
    timeout: str
    output: NamedOutput


def make_instance(session: Session, sort: Sort, body: Object, project: str, ending: Ending) -> None:
    """Creates an instance and prints it. With --wait, exits with code 1 if it has failed."""
    timeout = seconds(ending.timeout)
    name = body["metadata"]["name"]
    created = session.client.create(sort.plural, body, namespace=namespace_of(session, project))
    message = f"created the {sort.word} {name} in the project {project}"
    if ending.wait:
        note(message)
        created = until_settled(session.client, sort, created, timeout)
        message = f"the {sort.word} {name} is {why(created)}"
    print_made(created, ending.output, message)
    if ending.wait and has_failed(created):
        raise typer.Exit(1)


def until_settled(client: Client, sort: Sort, made: Object, patience: int) -> Object:
    """Waits until an instance is ready or has failed, for at most `timeout` seconds."""
    ref, last = awaited(sort.plural, made), made
    try:
        with progress(f"waiting for {ref.name}") as update:
            for state in states(client, ref, patience):
                if is_settled(state):
                    return state
                last = state
                update(f"{ref.name} is {why(state)}")
    except DeadlinePassed:
        message = f"the {sort.word} {ref.name} is still {why(last)} after {duration(patience)}"
        raise ClientError(f"{message}; the server continues; use a longer --timeout to wait longer") from None
    raise ClientError(f"the {sort.word} {ref.name} was deleted while waiting; create it again")


def is_settled(instance: Object) -> bool:
    """Whether the phase is final. A status of an older generation does not count."""
    observed = dig(instance, "status.observedGeneration")
    if observed is not None and observed < (dig(instance, "metadata.generation") or 0):
        return False
    return phase_of(instance) in SETTLED or _is_stalled(instance)


def has_failed(instance: Object) -> bool:
    return phase_of(instance) == "Failed" or _is_stalled(instance)


def _is_stalled(instance: Object) -> bool:
    """Whether the controller waits for a change of the spec, such as a template version that exists."""
    return condition_of(instance, "Stalled").get("status") == "True"


ABANDON = "service.sh/abandon"
"""Annotation that makes the server delete an instance without cleaning up in its cluster."""

AbandonFlag = Annotated[
    bool,
    typer.Option(
        "--abandon", help="Leave its objects in the cluster behind, for example if the cluster no longer exists."
    ),
]


@dataclass(frozen=True, slots=True)
class Removal:
    yes: YesFlag = False
    no_wait: NoWaitFlag = False
    abandon: AbandonFlag = False
    context: ContextFlag = None


def remove_instance(sort: Sort, name: str, project: str, asked: Removal) -> None:
    with connected(asked.context) as session:
        namespace = namespace_of(session, project)
        instance = session.client.get(sort.plural, name, namespace=namespace)
        if not asked.yes:
            prompts.sure(_question(sort, name, asked.abandon))
        if asked.abandon:
            change = {"metadata": {"annotations": {ABANDON: "true"}}}
            session.client.patch(sort.plural, name, change, namespace=namespace)
        session.client.delete(sort.plural, name, namespace=namespace)
        if asked.no_wait:
            note(f"the {sort.word} {name} is being deleted")
            return
        until_gone(session.client, awaited(sort.plural, instance), why)
        note(f"the {sort.word} {name} is deleted{_left(instance) if asked.abandon else ''}")


def _question(sort: Sort, name: str, abandon: bool) -> str:
    if abandon:
        return f"Delete the {sort.word} {name}, and leave its objects in the cluster behind?"
    return f"Delete the {sort.word} {name} with everything in it?"


def _left(instance: Object) -> str:
    namespace, cluster = dig(instance, "spec.clusterRef.namespace"), dig(instance, "spec.clusterRef.cluster")
    if not namespace or not cluster:
        return "; its objects in the cluster, if any, were left behind"
    return f"; the namespace {namespace} in the cluster {cluster} was left behind, if it exists"
