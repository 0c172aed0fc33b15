"""Default ClusterRoles and bindings, reconciled at every start of the server.

    cluster-admin          everything
    admin                  in a namespace: everything, including roles, bindings and tokens of service accounts
    edit                   like admin, but without roles and bindings, and service accounts are read-only
    view                   like edit, but read-only and without secrets
    system:auth-delegator  reviews of the tokens and permissions of others; for services that leave both to this server
    system:discovery       discovery documents; for all authenticated users
    system:basic-user      reviews of one's own identity and permissions; for all authenticated users
    system:monitoring      metrics and health checks
    system:auditor         the audit events of all users

Missing roles are created again. Roles of an earlier version get the permissions that are new in this one, so that an
upgrade adds the rules for new kinds; `role_updates.py` preserves what users have changed.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import partial

from fairlead.authz.role_updates import new_default_role, update_role
from fairlead.core.errors import AlreadyExists, NotFound
from fairlead.core.objects import Object, deep_copy
from fairlead.core.user import AUTHENTICATED
from fairlead.kinds.access.audit_event import AUDIT_EVENT
from fairlead.kinds.access.whoami import AUTHENTICATION_GROUP
from fairlead.kinds.core.empty_kinds import CRD_GROUP, CUSTOM_RESOURCE_DEFINITION
from fairlead.kinds.core.service_account import SERVICE_ACCOUNT, TOKEN_SUBRESOURCE
from fairlead.kinds.rbac.access_reviews import AUTHORIZATION_GROUP
from fairlead.kinds.rbac.roles import ALL_PERMISSIONS, GROUP
from fairlead.registry.codec import decode
from fairlead.registry.kind import Kind, Sensitivity
from fairlead.registry.registry import Registry
from fairlead.registry.write_options import server_write_options

BOOTSTRAP_LABELS = {"kubernetes.io/bootstrapping": "rbac-defaults"}
READ_VERBS = ("get", "list", "watch")
WRITE_VERBS = ("create", "delete", "deletecollection", "patch", "update")
DISCOVERY_PATHS = (
    *("/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*"),
    *("/healthz", "/livez", "/readyz", "/version", "/version/"),
)
MONITORING_PATHS = ("/healthz", "/healthz/*", "/livez", "/livez/*", "/metrics", "/readyz", "/readyz/*")


async def ensure_default_roles(registry: Registry, api_group: str, *, update: bool = True) -> None:
    """Creates missing default roles and bindings, and updates the roles of an earlier version.

    Without `update`, existing roles stay: a newer version has updated them already.
    """
    defaults = _default_roles(registry.catalog.kinds, api_group)
    roles = [new_default_role(_build_object("ClusterRole", name, {"rules": rules})) for name, rules in defaults]
    for body in (*roles, *_default_bindings()):
        plural, name = f"{body['kind'].lower()}s", body["metadata"]["name"]
        resource = registry.resource(GROUP, plural)
        entry = resource.get_cached("", name)
        if entry is None:
            with suppress(AlreadyExists):  # another replica created it first
                await resource.create(body, "", server_write_options())
        elif update and "rules" in body and update_role(body, current := decode(entry)) != current:
            with suppress(NotFound):
                await resource.modify("", name, partial(update_role, body), server_write_options())


def _default_roles(kinds: Iterable[Kind], api_group: str) -> Iterator[tuple[str, list[Object]]]:
    here = [kind for kind in kinds if kind.namespaced and kind.persisted and kind.group != GROUP]
    usable = [kind for kind in here if kind.sensitivity is not Sensitivity.CREDENTIAL]
    writable = [kind for kind in usable if "create" in kind.verbs and kind is not SERVICE_ACCOUNT]
    readable = [kind for kind in usable if kind.sensitivity is Sensitivity.NORMAL]
    namespaces = _build_rule("", ("namespaces", "namespaces/status"), READ_VERBS)
    read_only = [*_resources(kind for kind in usable if kind not in writable), *_status_resources(usable)]
    edit = [
        *_build_rules(_resources(writable), (*READ_VERBS, *WRITE_VERBS)),
        *_build_rules(read_only, READ_VERBS),
        namespaces,
    ]
    yield "cluster-admin", list(ALL_PERMISSIONS)
    yield (
        "admin",
        [
            *edit,
            _build_rule(GROUP, ("rolebindings", "roles"), (*READ_VERBS, *WRITE_VERBS)),
            _build_rule("", (SERVICE_ACCOUNT.plural,), (*READ_VERBS, *WRITE_VERBS)),
            _build_rule("", (f"{SERVICE_ACCOUNT.plural}/{TOKEN_SUBRESOURCE}",), ("create",)),
            _build_rule(AUTHORIZATION_GROUP, ("localsubjectaccessreviews",), ("create",)),
            _build_rule(api_group, ("resourceaccessreviews",), ("create",)),  # if the role is bound cluster-wide
        ],
    )
    yield "edit", edit
    yield "view", [*_build_rules((*_resources(readable), *_status_resources(readable)), READ_VERBS), namespaces]
    yield (
        "system:auth-delegator",
        [
            _build_rule(AUTHENTICATION_GROUP, ("tokenreviews",), ("create",)),
            _build_rule(AUTHORIZATION_GROUP, ("subjectaccessreviews",), ("create",)),
        ],
    )
    yield (
        "system:discovery",
        [
            {"nonResourceURLs": list(DISCOVERY_PATHS), "verbs": ["get"]},
            # The list is always empty. kubectl and Terraform need it to know that.
            _build_rule(CRD_GROUP, (CUSTOM_RESOURCE_DEFINITION.plural,), READ_VERBS),
        ],
    )
    yield "system:auditor", [_build_rule(api_group, (AUDIT_EVENT.plural,), READ_VERBS)]
    yield "system:monitoring", [{"nonResourceURLs": list(MONITORING_PATHS), "verbs": ["get"]}]
    yield (
        "system:basic-user",
        [
            _build_rule(AUTHENTICATION_GROUP, ("selfsubjectreviews",), ("create",)),
            _build_rule(AUTHORIZATION_GROUP, ("selfsubjectaccessreviews", "selfsubjectrulesreviews"), ("create",)),
            _build_rule(
                api_group, ("selfsubjectaccessreviewbatches", "selfsubjectaccessreviews", "selves"), ("create",)
            ),
            _build_rule(api_group, ("resourcecounts",), ("list",)),  # of what the user may list
        ],
    )


def _default_bindings() -> Iterator[Object]:
    groups = {
        "cluster-admin": "system:masters",
        "system:discovery": AUTHENTICATED,
        "system:basic-user": AUTHENTICATED,
        "system:monitoring": "system:monitoring",
    }
    for role, group in groups.items():
        subjects = [{"kind": "Group", "apiGroup": GROUP, "name": group}]
        reference = {"apiGroup": GROUP, "kind": "ClusterRole", "name": role}
        yield _build_object("ClusterRoleBinding", role, {"subjects": subjects, "roleRef": reference})


def _resources(kinds: Iterable[Kind]) -> list[tuple[str, str]]:
    return [(kind.group, kind.plural) for kind in kinds]


def _status_resources(kinds: Iterable[Kind]) -> list[tuple[str, str]]:
    """The status subresources, for read-only rules: controllers write them."""
    return [(kind.group, f"{kind.plural}/status") for kind in kinds if kind.status_subresource]


def _build_rules(resources: Iterable[tuple[str, str]], verbs: Iterable[str]) -> Iterator[Object]:
    """One rule per API group."""
    by_group: dict[str, list[str]] = {}
    for group, resource in resources:
        by_group.setdefault(group, []).append(resource)
    return (_build_rule(group, sorted(names), verbs) for group, names in sorted(by_group.items()))


def _build_rule(group: str, resources: Iterable[str], verbs: Iterable[str]) -> Object:
    return {"apiGroups": [group], "resources": list(resources), "verbs": sorted(verbs)}


def _build_object(kind: str, name: str, fields: Object) -> Object:
    meta = {"name": name, "labels": BOOTSTRAP_LABELS}
    return deep_copy({"apiVersion": f"{GROUP}/v1", "kind": kind, "metadata": meta, **fields})
