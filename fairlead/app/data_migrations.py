"""The migrations of the data, from the first release on. `upgrade.py` applies them at startup.

A released migration is never changed or removed, so that data of every release can be migrated. To add one, append it,
with the release that will contain it, and run `python -m tests.upgrade.make_fixture RELEASE` for the release before.

Replicas of two consecutive releases share a store during an upgrade, and a migration runs while the older ones serve
requests. So a change of a format takes three releases:

1. expand: the release can read the new form, and still writes the old one.
2. migrate: it writes the new form, and a migration converts what is stored. Its `minimum_version` is that of step 1.
3. contract: another migration converts what replicas of step 1 have written meanwhile, and the old form is no longer
   read. Its `minimum_version` is that of step 2.

A new field that may be ignored needs no migration: older replicas preserve it. A field that restricts something must
not be used before all replicas enforce it, so it takes steps 1 and 2. So does a sensitive or write-only field: older
replicas return it to clients, because they do not know that it is one.
"""

from collections.abc import Mapping
from typing import Any

import orjson

from fairlead.authz.role_updates import FIRST_RELEASE_ROLES, mark_first_release
from fairlead.core.objects import Object
from fairlead.kinds.core.server_objects import PASSWORD_SECRET_TYPE
from fairlead.kinds.rbac.roles import GROUP as RBAC_GROUP
from fairlead.storage.contract import Key
from fairlead.storage.migration import Migration

RECONCILED_PLURALS = frozenset(
    {
        *("appinstances", "clusters", "devpodworkspaceinstances", "projects", "runners"),
        *("spaceinstances", "virtualclusterinstances"),
    }
)
SYSTEM_NAMESPACE = "service-system"
PASSWORD_SUFFIX = "-password"
FORMER_REASONS: Mapping[str, str] = {
    "AccessTaken": "AccessConflict",
    "BadChart": "InvalidChart",
    "BadKubeconfig": "InvalidKubeconfig",
    "BadNamespace": "InvalidNamespace",
    "BindingTaken": "BindingConflict",
    "Blocked": "AddressNotAllowed",
    "BoundOtherwise": "ForeignBinding",
    "Broken": "ProtocolError",
    "Busy": "ClusterLimitExceeded",
    "LeftAlone": "ManagedExternally",
    "NamespacePattern": "InvalidNamespacePattern",
    "NamespaceTaken": "NamespaceConflict",
    "NoChart": "ChartNotSet",
    "NoConfig": "KubeconfigNotSet",
    "OddAnswer": "UnexpectedResponse",
    "Reached": "Reachable",
    "Refused": "Rejected",
    "SecretTaken": "SecretConflict",
    "TargetNotServed": "TargetNotSupported",
    "TemplateObjects": "InvalidTemplateObjects",
    "Untrusted": "CertificateNotTrusted",
    "WaitingForTurn": "WaitingForHelmSlot",
}
"""Reasons of conditions and phases in 0.1, with those of 0.2. docs/upgrades.md has the same table."""


def rename_reasons(key: Key, value: bytes) -> bytes | None:
    """The reasons of 0.1 in a status get their new names. Those of offline clusters would stay for long."""
    if key[1] not in RECONCILED_PLURALS or b'"reason"' not in value:
        return None
    obj: Object = orjson.loads(value)
    status = obj.get("status")
    if not isinstance(status, dict):
        return None
    conditions = status.get("conditions")
    rows: list[Any] = [status, *(conditions if isinstance(conditions, list) else ())]
    changed = False
    for row in rows:
        reason = row.get("reason") if isinstance(row, dict) else None
        if isinstance(reason, str) and reason in FORMER_REASONS:
            row["reason"] = FORMER_REASONS[reason]
            changed = True
    return orjson.dumps(obj) if changed else None


def mark_default_role(key: Key, value: bytes) -> bytes | None:
    """Only a role in the data of 0.1 gets the permissions that are new since: later, a role without a record of what
    it was offered is one that users have replaced, and what they have removed must not be added again."""
    if key[:3] != (RBAC_GROUP, "clusterroles", "") or key[3] not in FIRST_RELEASE_ROLES:
        return None
    role: Object = orjson.loads(value)
    marked = mark_first_release(role)
    return orjson.dumps(marked) if marked is not role else None


def convert_first_release(key: Key, value: bytes) -> bytes | None:
    return mark_default_role(key, value) or rename_reasons(key, value)


def mark_password(key: Key, value: bytes) -> bytes | None:
    """Secrets with password hashes get the type by which the server recognises its own: 0.1 created them without."""
    if key[:3] != ("", "secrets", SYSTEM_NAMESPACE) or not key[3].endswith(PASSWORD_SUFFIX):
        return None
    secret: Object = orjson.loads(value)
    user = key[3].removesuffix(PASSWORD_SUFFIX)
    owners = (secret.get("metadata") or {}).get("ownerReferences") or ()
    is_of_user = any(owner.get("kind") == "User" and owner.get("name") == user for owner in owners)
    if secret.get("type", "Opaque") != "Opaque" or not is_of_user:
        return None
    return orjson.dumps({**secret, "type": PASSWORD_SECRET_TYPE})


MIGRATIONS: tuple[Migration, ...] = (
    Migration(1, "0.2.0", 0, "new names of reasons, and marks of default roles", convert_first_release),
    Migration(2, "0.3.0", 0, "the type of Secrets with passwords", mark_password),
)
