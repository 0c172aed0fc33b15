"""Fields and validation that User and Team share: user names, role templates, references to secrets."""

from collections.abc import Iterable

from fairlead.core.objects import Object, get_path, name_of
from fairlead.registry.kind import Change, Problem
from fairlead.registry.schema import Schema, array, obj, string

MAX_NAME_LENGTH = 253

ROLE_TEMPLATE_REFS = array(
    obj(required=("name",), name=string("Name of the role template.")),
    "Role templates that apply everywhere. Only administrators can set them.",
)

IMAGE_PULL_SECRETS = array(
    obj(
        apiGroup=string("API group of the secret's kind. Empty means the core group."),
        kind=string("Kind of the secret, such as `Secret` or `SharedSecret`. Empty means `Secret`."),
        secretName=string("Name of the secret."),
        secretNamespace=string("Namespace of the secret."),
        key=string("Key within the secret."),
    ),
    "Secrets for pulling images.",
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
