"""What users and teams have in common: their names, roles and references to secrets."""

from collections.abc import Iterable

from fairlead.core.objects import Object, dig, name_of
from fairlead.registry.kind import Change, Problem
from fairlead.registry.schema import Schema, array, obj, string

"""How the groups begin that a team is to its members, and a user to itself."""
NAME_LENGTH = 253

ROLE_NAMES = array(
    obj(required=("name",), name=string("Name of the role template.")),
    "Role templates that are assigned everywhere. Only administrators set them.",
)

IMAGE_PULL_SECRETS = array(
    obj(
        apiGroup=string("API group of the secret's kind. Empty means the core group."),
        kind=string("Kind of the secret, such as `Secret` or `SharedSecret`. Empty means `Secret`."),
        secretName=string("Name of the secret."),
        secretNamespace=string("Namespace of the secret."),
        key=string("Key within the secret."),
    ),
    "Secrets that images may be pulled with.",
)


def secret_ref(description: str) -> Schema:
    return obj(
        description,
        secretName=string("Name of the secret."),
        secretNamespace=string("Namespace of the secret."),
        key=string("Key within the secret."),
    )


def name_it(change: Change) -> None:
    """The username is the object's name unless another one is chosen: what people see and what rules name agree."""
    if change.new is None or change.subresource:
        return
    spec = change.new.setdefault("spec", {})
    spec["username"] = spec.get("username") or dig(change.old or {}, "spec.username") or name_of(change.new)


def username_problems(spec: Object) -> Iterable[Problem]:
    username = spec.get("username") or ""
    if len(username) > NAME_LENGTH:
        yield Problem.too_long("spec.username", NAME_LENGTH)
    elif not username.isprintable() or " " in username:
        yield Problem.invalid("spec.username", username, "must be printable and without spaces")


def is_disabled(identity: Object) -> bool:
    return bool(dig(identity, "spec.disabled"))
