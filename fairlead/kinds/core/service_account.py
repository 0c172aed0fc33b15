"""ServiceAccount of the core group: an identity for automation in a namespace, and TokenRequest, which asks for its
tokens.

Whoever holds a token of an account is `system:serviceaccount:<namespace>:<name>`. A token is an access key underneath
(`authn/service_accounts.py` makes it) that carries the account's uid in a label, so that it stands for no later account
of the same name.
"""

from collections.abc import Iterable

from fairlead.core.objects import Object, metadata
from fairlead.core.user import SERVICE_ACCOUNT as SUBJECT_PREFIX
from fairlead.kinds.access.whoami import AUTHENTICATION_GROUP
from fairlead.kinds.core.event import REFERENCE
from fairlead.registry import limits
from fairlead.registry.kind import Action, Change, Kind, Problem
from fairlead.registry.schema import array, array_map, atomic, boolean, integer, obj, string, timestamp

UID_LABEL = "service.sh/service-account-uid"
"""On an access key: the uid of the service account that it stands for."""
TOKEN = "token"
DEFAULT_SECONDS, SHORTEST_SECONDS, LONGEST_SECONDS = 3600, 600, 1 << 32
"""How long a token is asked for where nobody says so, at least and at most. The server may make it less."""


def subject_of(namespace: str, name: str) -> str:
    """The user name of a service account."""
    return f"{SUBJECT_PREFIX}{namespace}:{name}"


def account_of(subject: str) -> tuple[str, str]:
    """Namespace and name of the service account with that user name; both empty for any other user."""
    namespace, _, name = subject.removeprefix(SUBJECT_PREFIX).partition(":")
    return (namespace, name) if subject.startswith(SUBJECT_PREFIX) else ("", "")


def is_account_key(key: Object) -> bool:
    """Whether an access key is the token of a service account."""
    return str((key.get("spec") or {}).get("subject") or "").startswith(SUBJECT_PREFIX)


def account_uid(key: Object) -> str:
    """The uid of the service account that an access key was made for."""
    return str((metadata(key).get("labels") or {}).get(UID_LABEL) or "")


def token_problems(spec: Object) -> Iterable[Problem]:
    """What is wrong with the life that a token is asked for."""
    seconds = spec.get("expirationSeconds")
    if seconds is not None and seconds < SHORTEST_SECONDS:
        why = "may not specify a duration less than 10 minutes"
        yield Problem.invalid("spec.expirationSeconds", seconds, why)
    if seconds is not None and seconds > LONGEST_SECONDS:
        why = "may not specify a duration larger than 2^32 seconds"
        yield Problem.invalid("spec.expirationSeconds", seconds, why)


def _keep_names(change: Change) -> None:
    """Of a reference to a Secret only the name counts: the Secret is in the account's own namespace."""
    if change.obj.get("secrets"):
        change.obj["secrets"] = [{"name": each["name"]} for each in change.obj["secrets"]]


TOKEN_REQUEST = Kind(
    name="TokenRequest",
    plural="tokenrequests",
    namespaced=True,
    group=AUTHENTICATION_GROUP,
    fields={
        "spec": obj(
            "What token is wanted. May be empty.",
            audiences=array(
                string(),
                "Whom the token is meant for. Tokens of this server are meant for it alone.",
                most=limits.AUDIENCES,
            ),
            expirationSeconds=integer(
                f"Seconds that the token lives, at least {SHORTEST_SECONDS}. Defaults to {DEFAULT_SECONDS}. The server "
                "may make it less: the answer says how long it is."
            ),
            boundObjectRef=obj(
                "An object that the token should not outlive. Not supported: leave it out.",
                kind=string("Kind of the object."),
                apiVersion=string("API version of the object."),
                name=string("Name of the object."),
                uid=string("Uid of the object."),
            ),
        ),
        "status": obj(
            "The answer.",
            token=string(
                "The token, used as a bearer token. Shown this once.",
                format="password",
                longest=limits.CREDENTIAL,
            ),
            expirationTimestamp=timestamp("When the token expires."),
        ),
    },
    description="Asks for a token of a service account.",
    verbs=("create",),
    secret=("status.token",),
    stored=False,
    builtin=True,
)
"""What `serviceaccounts/<name>/token` takes and answers with."""

SERVICE_ACCOUNT = Kind(
    name="ServiceAccount",
    plural="serviceaccounts",
    namespaced=True,
    group="",
    fields={
        "secrets": array_map(
            ("name",),
            atomic(obj(required=("name",), **REFERENCE["properties"])),
            "Secrets of the same namespace, by their names. Kept; nothing here goes by it.",
        ),
        "imagePullSecrets": array(
            obj(name=string("Name of a Secret in the same namespace.")), "Kept as sent; nothing here goes by it."
        ),
        "automountServiceAccountToken": boolean("Kept as sent; nothing here goes by it."),
    },
    description="An identity for automation: who has a token of it acts as the account, with the rights of its roles.",
    short_names=("sa",),
    actions=(Action(TOKEN, ("create",), TOKEN_REQUEST),),
    tracks_generation=False,
    builtin=True,
    writes_without_version=True,
    prepare=_keep_names,
)
