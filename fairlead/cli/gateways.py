"""Where kubectl can go through the server: its own API, connected clusters, spaces and virtual clusters.

A gateway is a path of the server below which the API of a cluster is. What is named is looked up first, so that a slip
shows here and not as kubectl's riddle. A key that is cut down to a cluster may use it without being able to look it up;
its word is then taken.
"""

from dataclasses import dataclass

from fairlead.cli.session import Session, namespace_of
from fairlead.client import ApiProblem, ClientError
from fairlead.client.client import MANAGEMENT, segment
from fairlead.core.objects import dig

ROOT = "/kubernetes"


@dataclass(frozen=True, slots=True)
class Where:
    """An API: its path at the server, the namespace to begin in, and a word for names of contexts."""

    path: str
    namespace: str = ""
    word: str = ""


def in_management(session: Session, project: str) -> Where:
    """The server's own API, in the namespace of a project if one is given."""
    return Where(MANAGEMENT, namespace_of(session, project) if project else "", project)


def in_cluster(session: Session, cluster: str) -> Where:
    _look_up(session, "clusters", cluster)
    return Where(f"{ROOT}/cluster/{segment(cluster)}", word=f"cluster-{cluster}")


def in_space(session: Session, project: str, space: str) -> Where:
    """A space is one namespace, and kubectl would ask for another unless it is told."""
    found = session.client.get("spaceinstances", space, namespace=namespace_of(session, project))
    namespace = dig(found, "spec.clusterRef.namespace")
    if not namespace:
        advice = f"`fairlead space list --project {project}` tells how it stands"
        raise ClientError(f"the space {space} has no namespace in a cluster yet; {advice}")
    return Where(_inside(project, "space", space), str(namespace), f"space-{project}/{space}")


def in_virtual_cluster(session: Session, project: str, name: str) -> Where:
    _look_up(session, "virtualclusterinstances", name, namespace_of(session, project))
    return Where(_inside(project, "virtualcluster", name), word=f"virtualcluster-{project}/{name}")


def _inside(project: str, kind: str, name: str) -> str:
    return f"{ROOT}/project/{segment(project)}/{kind}/{segment(name)}"


def _look_up(session: Session, plural: str, name: str, namespace: str = "") -> None:
    try:
        session.client.get(plural, name, namespace=namespace)
    except ApiProblem as problem:
        if problem.code != 403:
            raise
