"""What virtual clusters, spaces and workspaces have in common, as things that live in projects.

A list of them, of one project or of all; being made from a template with parameters; and coming up, or not.
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
    typer.Option(
        "--parameter", help="Value for a parameter of the template. Repeatable.", metavar="K=V", show_default=False
    ),
]
WaitFlag = Annotated[bool, typer.Option("--wait", help="Wait until it is up, or has failed.")]
TimeoutFlag = Annotated[str, typer.Option("--timeout", help="How long to wait, like 90s or 10m.", metavar="TIME")]
TIMEOUT = "10m"


@dataclass(frozen=True, slots=True)
class Asked:
    project: OfProjectFlag = None
    shown: Shown = field(default_factory=Shown)


@dataclass(frozen=True, slots=True)
class Sort:
    """One kind of instance. `place` is the column that says where it runs, and the field that has it."""

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
    """The list of a server whose projects have namespaces that begin with `prefix`."""
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
    """An instance that nobody has looked at yet is pending."""
    return (
        "Deleting" if dig(instance, "metadata.deletionTimestamp") else str(dig(instance, "status.phase") or "Pending")
    )


def template_of(instance: Object) -> str:
    version = dig(instance, "spec.templateRef.version")
    return text(instance, "spec.templateRef.name") + (f"@{version}" if version else "")


def why(instance: Object) -> str:
    """The phase with whatever the server says about it. That one is ready says it all."""
    if phase_of(instance) == "Ready":
        return "Ready"
    reason, message = dig(instance, "status.reason"), dig(instance, "status.message")
    told = ": ".join(str(each) for each in (reason, message) if each)
    return f"{phase_of(instance)} ({told})" if told else phase_of(instance)


def template_ref(text: str) -> Object:
    """`NAME` or `NAME@VERSION` as the API has it."""
    name, _, version = text.partition("@")
    return {"name": name, "version": version} if version else {"name": name}


def parameters(given: Sequence[str]) -> str | None:
    """`name=value` of the command line as the API's YAML. Values are texts: the template knows what they mean."""
    found: dict[str, str] = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not name or not equals:
            raise WrongUsage(f"{each!r} gives no parameter; write it as NAME=VALUE")
        if name in found:
            raise WrongUsage(f"the parameter {name} is given twice; keep one")
        found[name] = value
    return yaml.encode(found).decode() if found else None


@dataclass(frozen=True, slots=True)
class Ending:
    """How a command ends that makes an instance: whether it waits for it, how long, and what it prints then."""

    wait: bool
    timeout: str
    output: NamedOutput


def make_instance(session: Session, sort: Sort, body: Object, project: str, ending: Ending) -> None:
    """Makes an instance and tells about it. One that has failed ends the command."""
    patience = seconds(ending.timeout)
    name = body["metadata"]["name"]
    made = session.client.create(sort.plural, body, namespace=namespace_of(session, project))
    told = f"made the {sort.word} {name} in the project {project}"
    if ending.wait:
        note(told)
        made = until_settled(session.client, sort, made, patience)
        told = f"the {sort.word} {name} is {why(made)}"
    print_made(made, ending.output, told)
    if ending.wait and has_failed(made):
        raise typer.Exit(1)


def until_settled(client: Client, sort: Sort, made: Object, patience: int) -> Object:
    """Waits until an instance is up or has failed, but no longer than `patience` seconds."""
    what, last = awaited(sort.plural, made), made
    try:
        with progress(f"waiting for {what.name}") as tell:
            for state in states(client, what, patience):
                if is_settled(state):
                    return state
                last = state
                tell(f"{what.name} is {why(state)}")
    except DeadlinePassed:
        told = f"the {sort.word} {what.name} is still {why(last)} after {duration(patience)}"
        raise ClientError(f"{told}; the server goes on with it, and a longer --timeout waits for it") from None
    raise ClientError(f"the {sort.word} {what.name} was deleted meanwhile; make it again")


def is_settled(instance: Object) -> bool:
    """Whether nothing more is to be expected. A status that speaks of an older generation settles nothing."""
    observed = dig(instance, "status.observedGeneration")
    if observed is not None and observed < (dig(instance, "metadata.generation") or 0):
        return False
    return phase_of(instance) in SETTLED or _is_stalled(instance)


def has_failed(instance: Object) -> bool:
    return phase_of(instance) == "Failed" or _is_stalled(instance)


def _is_stalled(instance: Object) -> bool:
    """Nothing more will happen until somebody changes something, such as a version that the template does not have."""
    return condition_of(instance, "Stalled").get("status") == "True"


# DOC-MERGED cli/instance_removal
# The end of spaces and virtual clusters: asked about, waited for, and with `--abandon` without their cluster.


ABANDON = "service.sh/abandon"
"""The annotation that tells the server to let an instance go without cleaning up its cluster."""

AbandonFlag = Annotated[
    bool,
    typer.Option(
        "--abandon", help="Leave behind what was made for it in its cluster, as for a cluster that is gone for good."
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
        found = session.client.get(sort.plural, name, namespace=namespace)
        if not asked.yes:
            prompts.sure(_question(sort, name, asked.abandon))
        if asked.abandon:
            change = {"metadata": {"annotations": {ABANDON: "true"}}}
            session.client.patch(sort.plural, name, change, namespace=namespace)
        session.client.delete(sort.plural, name, namespace=namespace)
        if asked.no_wait:
            note(f"the {sort.word} {name} is being deleted")
            return
        until_gone(session.client, awaited(sort.plural, found), why)
        note(f"the {sort.word} {name} is gone{_left(found) if asked.abandon else ''}")


def _question(sort: Sort, name: str, abandon: bool) -> str:
    if abandon:
        return f"Delete the {sort.word} {name}, and leave behind what was made for it in its cluster?"
    return f"Delete the {sort.word} {name} with everything in it?"


def _left(instance: Object) -> str:
    namespace, cluster = dig(instance, "spec.clusterRef.namespace"), dig(instance, "spec.clusterRef.cluster")
    if not namespace or not cluster:
        return "; what was made in it was left behind"
    return f"; if it is still there, the namespace {namespace} in the cluster {cluster} was left behind"
