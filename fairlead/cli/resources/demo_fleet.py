"""The objects of `fairlead demo`: a small fleet of an imaginary company, with some trouble in it.

`demo.py` creates and removes them. Everything is created in this order, and has the label `DEMO_LABEL`. Nothing of it
runs: the status of the connected clusters, of the runner and of the workspaces is written by the command, like agents
and runners do.
"""

from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass, field

from fairlead.core import json
from fairlead.core.objects import Object

DEMO_LABEL = "service.sh/demo"
SYSTEM_NAMESPACE = "service-system"
STUCK_PROJECT, STUCK_FINALIZER = "legacy-billing", "example.com/backup"
"""A project whose deletion waits for a finalizer."""
UNREACHABLE_SERVER = "https://singapore.invalid:6443"
"""An address that never resolves (RFC 2606)."""


@dataclass(frozen=True, slots=True)
class DemoObject:
    """One object. It is in the namespace of `project`, or in `namespace`, or cluster-scoped."""

    plural: str
    kind: str
    name: str
    spec: Object = field(default_factory=dict)
    project: str = ""
    namespace: str = ""
    status: Object = field(default_factory=dict)
    """What the command reports on it after the create."""
    content: Object = field(default_factory=dict)
    """Fields beside metadata and spec, for kinds of the core group."""
    finalizers: tuple[str, ...] = ()

    @property
    def is_core(self) -> bool:
        return self.plural in ("configmaps", "secrets")


def demo_objects() -> Iterator[DemoObject]:
    yield from _users_and_teams()
    yield from _platform()
    yield from _projects()
    yield from _instances()
    yield from _keys()


def _users_and_teams() -> Iterator[DemoObject]:
    names = {"barbara": "Barbara", "edsger": "Edsger", "grace": "Grace", "margaret": "Margaret"}
    for name, display_name in names.items():
        yield DemoObject("users", "User", name, {"displayName": display_name, "email": f"{name}@example.com"})
    yield DemoObject("teams", "Team", "platform", {"displayName": "Platform", "users": ["barbara", "grace"]})
    yield DemoObject("teams", "Team", "shop", {"displayName": "Shop", "users": ["edsger", "margaret"]})


def _platform() -> Iterator[DemoObject]:
    owner = {"team": "platform"}
    online = {"phase": "Initialized", "online": True}
    for name, display_name in (("frankfurt", "Frankfurt"), ("virginia", "Virginia")):
        spec = {"displayName": display_name, "networkPeer": True, "owner": owner}
        yield DemoObject("clusters", "Cluster", name, spec, status=online)
    yield DemoObject("secrets", "Secret", "singapore", namespace=SYSTEM_NAMESPACE, content=_unreachable_kubeconfig())
    config = {"secretName": "singapore", "secretNamespace": SYSTEM_NAMESPACE}
    yield DemoObject(
        "clusters", "Cluster", "singapore", {"displayName": "Singapore (gone)", "owner": owner, "config": config}
    )
    yield DemoObject("runners", "Runner", "build-farm", {"owner": owner}, status={"phase": "Initialized"})
    provider = {"template": {"provider": {"name": "devcontainer"}}}
    yield DemoObject(
        "devpodworkspacetemplates", "DevPodWorkspaceTemplate", "python", {"displayName": "Python", **provider}
    )
    yield DemoObject(
        "spacetemplates", "SpaceTemplate", "team-space", {"displayName": "Space of a team", "template": {}}
    )
    for name, display_name in (("ingress", "Ingress"), ("monitoring", "Monitoring"), ("backup", "Backup")):
        chart = {"name": name, "repoURL": "https://charts.example.com", "version": "1.0.0"}
        spec = {"displayName": display_name, "recommendedApp": ["cluster"], "config": {"chart": chart}, "owner": owner}
        yield DemoObject("apps", "App", name, spec)


def _unreachable_kubeconfig() -> Object:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "singapore", "cluster": {"server": UNREACHABLE_SERVER}}],
        "users": [{"name": "demo", "user": {"token": "not-a-token"}}],
        "contexts": [{"name": "demo", "context": {"cluster": "singapore", "user": "demo"}}],
        "current-context": "demo",
    }
    return {"data": {"config": b64encode(json.encode(config)).decode()}}


def _projects() -> Iterator[DemoObject]:
    clusters = [{"name": name} for name in ("frankfurt", "singapore", "virginia")]
    storefront = {
        "displayName": "Storefront",
        "owner": {"team": "platform"},
        "members": [
            {"kind": "Team", "name": "shop", "clusterRole": "user"},
            {"kind": "User", "name": "barbara", "clusterRole": "admin"},
        ],
        "allowedClusters": clusters,
        "quotas": {"project": {"spaceinstances": "5"}, "user": {"devpodworkspaceinstances": "2"}},
    }
    yield DemoObject("projects", "Project", "storefront", storefront)
    members = [{"kind": "User", "name": "grace", "clusterRole": "admin"}]
    payments = {"displayName": "Payments", "members": members, "allowedClusters": clusters[:1]}
    yield DemoObject("projects", "Project", "payments", payments)
    yield DemoObject("projects", "Project", STUCK_PROJECT, {"displayName": "Billing (old)"})
    yield DemoObject(
        "configmaps",
        "ConfigMap",
        "invoices",
        project=STUCK_PROJECT,
        content={"data": {"note": "waits for a backup that never comes"}},
        finalizers=(STUCK_FINALIZER,),
    )


def _instances() -> Iterator[DemoObject]:
    for name, cluster in (("web", "frankfurt"), ("checkout-test", "singapore")):
        spec = {
            "templateRef": {"name": "team-space"},
            "clusterRef": {"cluster": cluster},
            "owner": {"team": "shop"},
        }
        yield DemoObject("spaceinstances", "SpaceInstance", name, spec, project="storefront")
    external = {"displayName": "Staging", "external": True, "owner": {"user": "grace"}, "template": {}}
    yield DemoObject("virtualclusterinstances", "VirtualClusterInstance", "staging", external, project="payments")
    workspaces = (
        ("cart", "storefront", "edsger", {"phase": "Ready", "lastWorkspaceStatus": "Running"}),
        ("search", "storefront", "margaret", {"phase": "Sleeping", "lastWorkspaceStatus": "Stopped"}),
        (
            *("ledger", "payments", "grace"),
            {
                "phase": "Failed",
                "reason": "ImageNotFound",
                "message": "the image of the dev container does not exist",
                "lastWorkspaceStatus": "NotFound",
            },
        ),
    )
    for name, project, owner, status in workspaces:
        spec = {
            "templateRef": {"name": "python"},
            "runnerRef": {"runner": "build-farm"},
            "owner": {"user": owner},
        }
        yield DemoObject(
            "devpodworkspaceinstances", "DevPodWorkspaceInstance", name, spec, project=project, status=status
        )


def _keys() -> Iterator[DemoObject]:
    scope = {"projects": [{"project": "storefront"}]}
    specs: dict[str, Object] = {
        "barbara-laptop": {"user": "barbara", "displayName": "Laptop"},
        "storefront-ci": {"user": "edsger", "displayName": "CI of the storefront", "scope": scope},
        "margaret-lost": {"user": "margaret", "displayName": "Lost phone", "disabled": True},
        "grace-expired": {"user": "grace", "displayName": "Expired", "ttl": 1},
    }
    for name, spec in specs.items():
        yield DemoObject("ownedaccesskeys", "OwnedAccessKey", name, spec)
