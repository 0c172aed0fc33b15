"""Fields and validation that User and Team share: user names, role templates, references to secrets."""

from collections.abc import Iterable, Mapping
from typing import Any

from fairlead.core.objects import Object, get_path, name_of
from fairlead.kinds.fields import ACCESS, DESCRIPTION, DISPLAY_NAME, OWNER
from fairlead.registry.kind import Change, Problem
from fairlead.registry.schema import Schema, array, obj, string, without_effect

MAX_NAME_LENGTH = 253

_MANAGED_BY_ROLES = "has no effect; bind a role to those who manage users and teams"

DESCRIPTIVE_FIELDS: Mapping[str, Any] = {
    "displayName": DISPLAY_NAME,
    "description": DESCRIPTION,
    "owner": without_effect(OWNER, _MANAGED_BY_ROLES),
    "access": without_effect(ACCESS, _MANAGED_BY_ROLES),
}
"""Fields that nearly all kinds have. Here an owner has no rights: users could otherwise manage their own groups."""

ROLE_TEMPLATE_REFS = without_effect(
    array(
        obj(required=("name",), name=string("Name of the role template.")),
        "Role templates that apply everywhere. Only administrators can set them.",
    ),
    "has no effect; bind roles with a ClusterRoleBinding or RoleBinding",
)

IMAGE_PULL_SECRETS = without_effect(
    array(
        obj(
            apiGroup=string("API group of the secret's kind. Empty means the core group."),
            kind=string("Kind of the secret, such as `Secret` or `SharedSecret`. Empty means `Secret`."),
            secretName=string("Name of the secret."),
            secretNamespace=string("Namespace of the secret."),
            key=string("Key within the secret."),
        ),
        "Secrets for pulling images.",
    ),
    "has no effect; set the option imagePullSecret of the provider in a workspace template",
)


def secret_ref(description: str) -> Schema:
    return obj(
        description,
        secretName=string("Name of the secret."),
        secretNamespace=string("Namespace of the secret."),
        key=string("Key within the secret."),
    )


def default_username(change: Change) -> None:
    """Defaults spec.username to the object's name, so that role bindings can use either."""
    if change.new is None or change.subresource:
        return
    spec = change.new.setdefault("spec", {})
    spec["username"] = spec.get("username") or get_path(change.old or {}, "spec.username") or name_of(change.new)


def username_problems(spec: Object) -> Iterable[Problem]:
    username = spec.get("username") or ""
    if len(username) > MAX_NAME_LENGTH:
        yield Problem.too_long("spec.username", MAX_NAME_LENGTH)
    elif not username.isprintable() or " " in username:
        yield Problem.invalid("spec.username", username, "must have only printable characters and no spaces")


def is_disabled(principal: Object) -> bool:
    return bool(get_path(principal, "spec.disabled"))
