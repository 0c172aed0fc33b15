"""The end of spaces and virtual clusters: asked about, waited for, and with `--abandon` without their cluster."""

from dataclasses import dataclass
from typing import Annotated

import typer

from fairlead.cli import prompts
from fairlead.cli.flags import ContextFlag, NoWaitFlag, YesFlag
from fairlead.cli.instances import Sort, why
from fairlead.cli.output import note
from fairlead.cli.session import connected, namespace_of
from fairlead.cli.waiting import awaited, until_gone
from fairlead.core.objects import Object, dig

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
