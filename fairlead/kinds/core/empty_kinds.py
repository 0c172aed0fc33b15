"""Kinds that are read-only and always empty: Pod, Service and CustomResourceDefinition.

Pods and Services exist only in connected clusters, behind the gateways, and the kinds of this server are not defined by
CustomResourceDefinitions. They are served here for clients that expect them in every Kubernetes API: `kubectl
cluster-info` lists Services, `kubectl create clusterrole --resource=pods` looks up the resource, and Terraform looks up
and lists CustomResourceDefinitions before each plan. An empty list is correct, while a missing resource would be an
error.
"""

from dataclasses import replace

from fairlead.registry.kind import Kind, Sensitivity
from fairlead.registry.schema import open_object

CRD_GROUP = "apiextensions.k8s.io"


def _empty_kind(name: str, plural: str, description: str, *short_names: str) -> Kind:
    return Kind(
        name=name,
        plural=plural,
        namespaced=True,
        group="",
        fields={"spec": open_object("Desired state."), "status": open_object("Observed state.")},
        description=description,
        short_names=short_names,
        verbs=("get", "list", "watch"),
        tracks_generation=False,
        builtin=True,
        sensitivity=Sensitivity.NORMAL,
    )


def _describe_remote(name: str) -> str:
    return f"A {name} of a cluster. The list is always empty here: use the gateway of a connected cluster."


POD = _empty_kind("Pod", "pods", _describe_remote("Pod"), "po")
SERVICE = _empty_kind("Service", "services", _describe_remote("Service"), "svc")
CUSTOM_RESOURCE_DEFINITION = replace(
    _empty_kind(
        "CustomResourceDefinition",
        "customresourcedefinitions",
        "The definition of a custom resource. The list is always empty here: the kinds of this server are fixed.",
        "crd",
        "crds",
    ),
    namespaced=False,
    group=CRD_GROUP,
    categories=("api-extensions",),
)
