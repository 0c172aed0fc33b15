"""Default ClusterRoles and bindings, reconciled at every start of the server.

    cluster-admin      everything
    admin              in a namespace: everything, including roles, bindings and tokens of service accounts
    edit               like admin, but without roles and bindings, and service accounts are read-only
    view               like edit, but read-only and without secrets
    system:discovery   discovery documents; for all authenticated users
    system:basic-user  reviews of one's own identity and permissions; for all authenticated users
    system:monitoring  metrics and health checks

Missing roles are created again. A role that users have changed is left alone; an unchanged one is updated with the
server, so that an upgrade adds the rules for new kinds. An annotation has the digest of the rules that the server
wrote: if it matches the current rules, the role is unchanged. A role without the annotation is left alone, unless its
rules are the defaults; then the annotation is added.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import partial
from hashlib import sha256

import orjson

from fairlead.core.errors import AlreadyExists, NotFound
from fairlead.core.objects import Object, copied, metadata
from fairlead.core.user import AUTHENTICATED
from fairlead.kinds.access.whoami import AUTHENTICATION_GROUP
from fairlead.kinds.core.service_account import SERVICE_ACCOUNT, TOKEN
from fairlead.kinds.rbac.access_reviews import AUTHORIZATION_GROUP
from fairlead.kinds.rbac.roles import EVERYTHING, GROUP
from fairlead.registry.codec import decode
from fairlead.registry.kind import Kind
from fairlead.registry.registry import Registry
from fairlead.registry.write_options import by_the_server

DIGEST = "service.sh/default-rules"
"""Annotation with the digest of the rules that the server wrote."""
LABELS = {"kubernetes.io/bootstrapping": "rbac-defaults"}
READ = ("get", "list", "watch")
WRITE = ("create", "delete", "deletecollection", "patch", "update")
DISCOVERY = (
    *("/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*"),
    *("/healthz", "/livez", "/readyz", "/version", "/version/"),
)
MONITORING = ("/healthz", "/healthz/*", "/livez", "/livez/*", "/metrics", "/readyz", "/readyz/*")
_SECRETS = ("Secret",)
_CREDENTIALS = ("AccessKey", "Token")
"""Suffixes of the names of kinds: those that contain secrets, and those that are credentials."""


async def ensure_default_roles(registry: Registry, api_group: str) -> None:
    """Creates missing default roles and bindings, and updates the roles that users have not changed."""
    defaults = _roles(registry.catalog.kinds, api_group)
    roles = [_noted(_object("ClusterRole", name, {"rules": rules})) for name, rules in defaults]
    for body in (*roles, *_bindings()):
        plural, name = f"{body['kind'].lower()}s", body["metadata"]["name"]
        resource = registry.resource(GROUP, plural)
        entry = resource.peek("", name)
        if entry is None:
            with suppress(AlreadyExists):  # another replica created it first
                await resource.create(body, "", by_the_server())
        elif "rules" in body and _is_outdated(decode(entry), body):
            with suppress(NotFound):
                await resource.modify("", name, partial(_updated, body), by_the_server())


def _is_outdated(current: Object, default: Object) -> bool:
    """Whether a role still has the rules of an earlier version, or has the default rules but no current annotation."""
    noted = _noted_digest(current)
    if current.get("rules") == default["rules"]:
        return noted != _noted_digest(default)
    return noted == _digest(current)


def _updated(default: Object, current: Object) -> Object:
    return _noted({**current, "rules": default["rules"]}) if _is_outdated(current, default) else current


def _noted(role: Object) -> Object:
    meta = metadata(role)
    return {**role, "metadata": {**meta, "annotations": {**(meta.get("annotations") or {}), DIGEST: _digest(role)}}}


def _noted_digest(role: Object) -> str:
    return str((metadata(role).get("annotations") or {}).get(DIGEST) or "")


def _digest(role: Object) -> str:
    return sha256(orjson.dumps(role.get("rules") or [], option=orjson.OPT_SORT_KEYS)).hexdigest()


def _roles(kinds: Iterable[Kind], api_group: str) -> Iterator[tuple[str, list[Object]]]:
    here = [kind for kind in kinds if kind.namespaced and kind.stored and kind.group != GROUP]
    usable = [kind for kind in here if not kind.name.endswith(_CREDENTIALS)]
    writable = [kind for kind in usable if "create" in kind.verbs and kind is not SERVICE_ACCOUNT]
    readable = [kind for kind in usable if not kind.name.endswith(_SECRETS)]
    namespaces = _rule("", ("namespaces", "namespaces/status"), READ)
    read_only = [*_plurals(kind for kind in usable if kind not in writable), *_statuses(usable)]
    edit = [*_rules(_plurals(writable), (*READ, *WRITE)), *_rules(read_only, READ), namespaces]
    yield "cluster-admin", list(EVERYTHING)
    yield (
        "admin",
        [
            *edit,
            _rule(GROUP, ("rolebindings", "roles"), (*READ, *WRITE)),
            _rule("", (SERVICE_ACCOUNT.plural,), (*READ, *WRITE)),
            _rule("", (f"{SERVICE_ACCOUNT.plural}/{TOKEN}",), ("create",)),
            _rule(AUTHORIZATION_GROUP, ("localsubjectaccessreviews",), ("create",)),
        ],
    )
    yield "edit", edit
    yield "view", [*_rules((*_plurals(readable), *_statuses(readable)), READ), namespaces]
    yield (
        "system:discovery",
        [
            {"nonResourceURLs": list(DISCOVERY), "verbs": ["get"]},
            # This server has no CRDs, but kubectl lists them.
            _rule("apiextensions.k8s.io", ("customresourcedefinitions",), ("list",)),
        ],
    )
    yield "system:monitoring", [{"nonResourceURLs": list(MONITORING), "verbs": ["get"]}]
    yield (
        "system:basic-user",
        [
            _rule(AUTHENTICATION_GROUP, ("selfsubjectreviews",), ("create",)),
            _rule(AUTHORIZATION_GROUP, ("selfsubjectaccessreviews", "selfsubjectrulesreviews"), ("create",)),
            _rule(api_group, ("selfsubjectaccessreviews", "selves"), ("create",)),
        ],
    )


def _bindings() -> Iterator[Object]:
    groups = {
        "cluster-admin": "system:masters",
        "system:discovery": AUTHENTICATED,
        "system:basic-user": AUTHENTICATED,
        "system:monitoring": "system:monitoring",
    }
    for role, group in groups.items():
        subjects = [{"kind": "Group", "apiGroup": GROUP, "name": group}]
        reference = {"apiGroup": GROUP, "kind": "ClusterRole", "name": role}
        yield _object("ClusterRoleBinding", role, {"subjects": subjects, "roleRef": reference})


def _plurals(kinds: Iterable[Kind]) -> list[tuple[str, str]]:
    return [(kind.group, kind.plural) for kind in kinds]


def _statuses(kinds: Iterable[Kind]) -> list[tuple[str, str]]:
    """The status subresources, for read-only rules: controllers write them."""
    return [(kind.group, f"{kind.plural}/status") for kind in kinds if kind.status_subresource]


def _rules(resources: Iterable[tuple[str, str]], verbs: Iterable[str]) -> Iterator[Object]:
    """One rule per API group."""
    by_group: dict[str, list[str]] = {}
    for group, resource in resources:
        by_group.setdefault(group, []).append(resource)
    return (_rule(group, sorted(names), verbs) for group, names in sorted(by_group.items()))


def _rule(group: str, resources: Iterable[str], verbs: Iterable[str]) -> Object:
    return {"apiGroups": [group], "resources": list(resources), "verbs": sorted(verbs)}


def _object(kind: str, name: str, fields: Object) -> Object:
    meta = {"name": name, "labels": LABELS}
    return copied({"apiVersion": f"{GROUP}/v1", "kind": kind, "metadata": meta, **fields})
