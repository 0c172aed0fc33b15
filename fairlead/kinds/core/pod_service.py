"""Pod and Service of the core group: readable, and always empty.

Both run in connected clusters and are reached through the gateways. They are served here because clients ask every
Kubernetes for them: `kubectl cluster-info` lists Services before it prints anything, and `kubectl create clusterrole
--resource=pods` looks the resource up. A list that is empty says the truth, where a missing resource is an error.
"""

from fairlead.registry.kind import Kind
from fairlead.registry.schema import free


def _empty_kind(name: str, plural: str, short_name: str) -> Kind:
    return Kind(
        name=name,
        plural=plural,
        namespaced=True,
        group="",
        fields={"spec": free("What is wanted."), "status": free("How it is doing.")},
        description=f"A {name} of a cluster. There are none here: ask a connected cluster through its gateway.",
        short_names=(short_name,),
        verbs=("get", "list", "watch"),
        tracks_generation=False,
        builtin=True,
    )


POD = _empty_kind("Pod", "pods", "po")
SERVICE = _empty_kind("Service", "services", "svc")
