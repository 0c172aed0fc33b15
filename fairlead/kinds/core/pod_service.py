"""Pod and Service of the core group: read-only, and always empty.

Both exist only in connected clusters, behind the gateways. They are served here for clients that expect them in every
Kubernetes API: `kubectl cluster-info` lists Services, and `kubectl create clusterrole --resource=pods` looks up the
resource. An empty list is correct, while a missing resource would be an error.
"""

from fairlead.registry.kind import Kind, Sensitivity
from fairlead.registry.schema import open_object


def _empty_kind(name: str, plural: str, short_name: str) -> Kind:
    return Kind(
        name=name,
        plural=plural,
        namespaced=True,
        group="",
        fields={"spec": open_object("Desired state."), "status": open_object("Observed state.")},
        description=f"A {name} of a cluster. The list is always empty here: use the gateway of a connected cluster.",
        short_names=(short_name,),
        verbs=("get", "list", "watch"),
        tracks_generation=False,
        builtin=True,
        sensitivity=Sensitivity.NORMAL,
    )


POD = _empty_kind("Pod", "pods", "po")
SERVICE = _empty_kind("Service", "services", "svc")
