"""The kinds whose objects have generated lives: where they are served, and what their valid fields look like.

Management kinds come with the schemas of `fairlead export crds`, which the reference serves, too. Built-in kinds of
Kubernetes have hand-written fields. What only Fairlead does with an object (rules in code, defaults, controllers) a
CustomResourceDefinition cannot express; fields with such rules are left out here, and docs/conformance.md says so.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from fairlead.kinds import KINDS
from fairlead.registry.crds import build_crds
from fairlead.registry.kind import MANAGEMENT_GROUP

Json = Any
NAMESPACE = "service-p-demo"
"""The namespace of a project on our side, a plain one on the reference."""


@dataclass(frozen=True, slots=True)
class GeneratedKind:
    """A kind: its names and scope, the schema of its spec (management) or choices for each field (built-in)."""

    name: str
    api_version: str
    plural: str
    namespaced: bool
    always: Json = field(default_factory=dict)
    """Fields that every valid object has."""
    schema: Json = None
    choices: Mapping[str, tuple[Json, ...]] = field(default_factory=dict)
    has_status: bool = False
    """It has the subresource `status`."""
    has_controller: bool = False
    """Controllers write every new object, so its life is a series of dry runs."""
    weight: int = 1

    @property
    def is_built_in(self) -> bool:
        """The reference has compiled-in types for it, and so strategic merge patches and no pruning."""
        return self.schema is None

    @property
    def key(self) -> str:
        return f"{self.plural}.{self.api_version.rpartition('/')[0]}".rstrip(".")

    @property
    def collection(self) -> str:
        root = f"/apis/{self.api_version}" if "/" in self.api_version else f"/api/{self.api_version}"
        return f"{root}/namespaces/{NAMESPACE}/{self.plural}" if self.namespaced else f"{root}/{self.plural}"

    @property
    def type_meta(self) -> Json:
        return {"apiVersion": self.api_version, "kind": self.name}


NOT_GENERATED: Mapping[str, str] = {
    "configs": "there is one object, and its name is fixed",
    "ownedaccesskeys": "every create makes a key, and only its answer contains it",
    "pods": "read-only: clients list them, and there are none",
    "services": "read-only: clients list them, and there are none",
    "customresourcedefinitions": "read-only: clients list them, and there are none",
}
"""Kinds without generated lives, by plural, and why. Kinds that are not persisted have no life either."""

PRODUCT_FIELDS: Mapping[str, frozenset[str]] = {
    "": frozenset(
        {
            "owner",
            "clusterRef",
            "runnerRef",
            "templateRef",
            "template",
            "versions",
            "parameterSecrets",
            "extraAccessRules",
        }
    ),
    "apps": frozenset({"parameters", "helm", "config", "timeout", "manifests", "streamContainer"}),
    "clusters": frozenset({"config", "local", "managementNamespace"}),
    "devpodworkspacetemplates": frozenset({"parameters"}),
    "spacetemplates": frozenset({"parameters"}),
    "virtualclustertemplates": frozenset({"parameters"}),
    "teams": frozenset({"username", "users", "clusterRoles"}),
    "users": frozenset({"username", "clusterRoles", "passwordRef", "codesRef", "subject", "email", "tokenGeneration"}),
    "projects": frozenset(
        {"members", "allowedClusters", "allowedRunners", "allowedTemplates", "quotas", "namespacePattern"}
    ),
    "projectsecrets": frozenset({"data"}),
    "sharedsecrets": frozenset({"data"}),
}
"""Fields of the spec with rules in code, by plural; the empty one is for all management kinds."""

ALWAYS: Mapping[str, Json] = {
    "spaceinstances": {"owner": {"user": "admin"}},
    "virtualclusterinstances": {"owner": {"user": "admin"}},
    "teams": {"username": "a-$run"},
    "users": {"username": "a-$run"},
}
"""Fields of the spec that Fairlead would set by default, by plural."""

CONTROLLED = frozenset(
    {
        *("spaceinstances", "virtualclusterinstances", "spacetemplates", "virtualclustertemplates"),
        *("runners", "teams", "users", "projects"),
    }
)
"""Plurals of the kinds whose new objects controllers or admission write at once."""

_RULES: tuple[Json, ...] = (
    [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}],
    [{"apiGroups": ["apps", "*"], "resources": ["*"], "verbs": ["get"], "resourceNames": ["one"]}],
    [{"apiGroups": [""], "resources": ["configmaps"], "verbs": []}],
    [],
)
_SUBJECTS: tuple[Json, ...] = (
    [{"kind": "User", "name": "ann", "apiGroup": "rbac.authorization.k8s.io"}],
    [{"kind": "ServiceAccount", "name": "robot", "namespace": "default"}, {"kind": "Group", "name": "devs"}],
    [],
)
_TIMES = ("2026-01-02T03:04:05.000000Z", "2026-01-02T03:04:05Z", "nope")
_ROLE = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}
_RBAC = "rbac.authorization.k8s.io/v1"
_DATA: tuple[Json, ...] = ({"k": "v"}, {"k": "w", "k1": "v"}, {"a.b": "x\ny"}, {"k": ""}, {})
_BYTES: tuple[Json, ...] = ({"k": "dg=="}, {"k": "d2E=", "k1": ""}, {})

BUILT_IN = (
    GeneratedKind(
        *("ConfigMap", "v1", "configmaps", True),
        choices={
            "data": _DATA,
            "binaryData": ({"bin": "AAEC"}, {"bin": ""}, {"k": "AA=="}),
            "immutable": (True, False),
        },
        weight=4,
    ),
    GeneratedKind(
        *("Secret", "v1", "secrets", True),
        choices={
            "data": _BYTES,
            "stringData": ({"k": "v"}, {"s": ""}),
            "type": ("Opaque", "example.com/t", "kubernetes.io/basic-auth", "kubernetes.io/tls", ""),
            "immutable": (True, False),
        },
        weight=2,
    ),
    GeneratedKind(
        *("ServiceAccount", "v1", "serviceaccounts", True),
        choices={
            "secrets": ([{"name": "a"}], [{"name": "a"}, {"name": "b"}], []),
            "imagePullSecrets": ([{"name": "p"}], []),
            "automountServiceAccountToken": (True, False),
        },
    ),
    GeneratedKind(
        *("Lease", "coordination.k8s.io/v1", "leases", True),
        choices={
            "spec": tuple(
                {"holderIdentity": holder, "leaseDurationSeconds": seconds, "renewTime": renewed}
                for holder in ("a", "b")
                for seconds in (15, 1, 0)
                for renewed in _TIMES
            )
        },
    ),
    GeneratedKind(*("Role", _RBAC, "roles", True), choices={"rules": _RULES}),
    GeneratedKind(
        *("ClusterRole", _RBAC, "clusterroles", False),
        choices={
            "rules": (*_RULES, [{"nonResourceURLs": ["/version", "/x/*"], "verbs": ["get"]}]),
            "aggregationRule": tuple(
                {"clusterRoleSelectors": selectors} for selectors in ([], [{"matchLabels": {"bad key": "x"}}])
            ),
        },
    ),
    GeneratedKind(
        *("RoleBinding", _RBAC, "rolebindings", True), always={"roleRef": _ROLE}, choices={"subjects": _SUBJECTS}
    ),
    GeneratedKind(
        *("ClusterRoleBinding", _RBAC, "clusterrolebindings", False),
        always={"roleRef": _ROLE},
        choices={"subjects": _SUBJECTS},
    ),
    GeneratedKind(
        *("Event", "v1", "events", True),
        always={"involvedObject": {"kind": "ConfigMap", "name": "x", "namespace": NAMESPACE}},
        choices={
            "reason": ("Started", "Ended", ""),
            "message": ("it began", ""),
            "type": ("Normal", "Warning", "Other"),
            "count": (1, 3),
            "firstTimestamp": ("2026-01-02T03:04:05Z",),
            "source": ({"component": "tester"}, {"component": "tester", "host": "h"}),
        },
    ),
    GeneratedKind(
        *("Event", "events.k8s.io/v1", "events", True),
        always={
            "regarding": {"kind": "ConfigMap", "name": "x", "namespace": NAMESPACE},
            "eventTime": "2026-01-02T03:04:05.000000Z",
            **{"action": "Doing", "reason": "Started", "type": "Normal"},
            **{"reportingController": "example.com/c", "reportingInstance": "i-1"},
        },
        choices={
            "note": ("it began", ""),
            "series": ({"count": 2, "lastObservedTime": "2026-01-02T03:04:05.000000Z"},),
        },
    ),
    GeneratedKind(*("Namespace", "v1", "namespaces", False), weight=0),
)
"""Namespaces have lives of their own, `namespaces.py`: everything that ends one is asynchronous."""


@cache
def generated_kinds() -> tuple[GeneratedKind, ...]:
    return (*(_management_kind(crd) for crd in exported_crds()), *BUILT_IN)


@cache
def exported_crds() -> tuple[Json, ...]:
    """The definitions of the management kinds with generated lives, for the reference."""
    crds = build_crds(KINDS, MANAGEMENT_GROUP)
    return tuple(crd for crd in crds if crd["spec"]["names"]["plural"] not in NOT_GENERATED)


def _management_kind(crd: Json) -> GeneratedKind:
    names, version = crd["spec"]["names"], crd["spec"]["versions"][0]
    schema = version["schema"]["openAPIV3Schema"]["properties"]
    hidden = PRODUCT_FIELDS[""] | PRODUCT_FIELDS.get(names["plural"], frozenset())
    spec = {name: value for name, value in schema["spec"]["properties"].items() if name not in hidden}
    return GeneratedKind(
        names["kind"],
        f"{MANAGEMENT_GROUP}/{version['name']}",
        names["plural"],
        crd["spec"]["scope"] == "Namespaced",
        always={"spec": {"displayName": "one", **ALWAYS.get(names["plural"], {})}},
        schema={**schema["spec"], "properties": spec},
        has_status="status" in version.get("subresources", {}),
        has_controller=names["plural"] in CONTROLLED,
        weight=6 if names["plural"] == "apps" else 1 if names["plural"] in CONTROLLED else 2,
    )
