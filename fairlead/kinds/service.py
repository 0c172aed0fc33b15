"""Service of the core group: readable, and always empty.

Services run in connected clusters and are reached through the gateways. `kubectl cluster-info` asks every server for
those in `kube-system` before it prints anything, and takes a missing resource for an error.
"""

from fairlead.registry.kind import Kind
from fairlead.registry.schema import free

SERVICE = Kind(
    name="Service",
    plural="services",
    namespaced=True,
    group="",
    fields={"spec": free("Where it leads."), "status": free("How it is doing.")},
    description="A Service of a Kubernetes cluster. There are none here: ask a connected cluster through its gateway.",
    short_names=("svc",),
    verbs=("get", "list", "watch"),
    tracks_generation=False,
    builtin=True,
)
