"""Which way in is meant by a path of the direct endpoint, and what is asked behind it.

    /kubernetes/cluster/...                              the cluster that the agent stands beside; it needs no name
    /kubernetes/project/<project>/space/<name>/...       one namespace of it

The path is taken as it was sent, once it is free of whatever two servers could read differently.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from fairlead.authz.scope import gateway_target
from fairlead.authz.scope.names import CLUSTER, SPACE
from fairlead.core.call import Call, Target
from fairlead.core.errors import NotFound, NotImplementedHere
from fairlead.gateway.direct.state import State
from fairlead.gateway.paths import below, plain_path

Route = Callable[[str, str, Mapping[str, list[str]], str], Target]
"""Method, path and query of a request to a Kubernetes API, and the sort of entrance to it: what is being asked."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked of the cluster: `target` has the entrance in `via`, `inner` is the path and query to send.

    Of a space, `project` and `name` say which one.
    """

    target: Target
    inner: str
    project: str = ""
    name: str = ""

    @property
    def entrance(self) -> Target:
        return self.target.via or self.target


def asked(call: Call, state: State, route: Route) -> Asked:
    """Raises BadRequest for a path that is none, and NotFound for one that leads nowhere here."""
    match plain_path(below(call.raw_target, 0)).split("/"):
        case ["", "kubernetes", "cluster", *_]:
            return _behind(call, gateway_target(CLUSTER, state.cluster), 2, route)
        case ["", "kubernetes", "project", project, "space", name, *_] if project and name:
            entrance = gateway_target(SPACE, name, state.names.namespace_prefix + project)
            return replace(_behind(call, entrance, 5, route), project=project, name=name)
        case ["", "kubernetes", "project", _, "virtualcluster", *_]:
            raise NotImplementedHere(
                "virtual clusters are not reached directly; use the same path at the Fairlead server"
            )
        case ["", "kubernetes", "management", *_]:
            raise NotFound("the management API is not here; ask the Fairlead server that this endpoint belongs to")
        case _:
            raise NotFound(
                "there is nothing here; a direct endpoint serves /kubernetes/cluster/... and "
                "/kubernetes/project/<project>/space/<name>/..."
            )


def _behind(call: Call, entrance: Target, steps: int, route: Route) -> Asked:
    inner = below(call.raw_target, steps)
    target = route(call.method, plain_path(inner), call.query, entrance.root)
    return Asked(replace(target, via=entrance), inner)
