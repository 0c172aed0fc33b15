"""ServiceAccount of the core group, and TokenRequest, which issues its tokens.

A token authenticates as `system:serviceaccount:<namespace>:<name>`. It is stored as an access key
(`authn/service_accounts.py` creates it) with the account's uid in a label, so that it is not valid for a later account
of the same name.
"""

from collections.abc import Iterable

from fairlead.core.objects import Object, labels_of
from fairlead.core.user import SERVICE_ACCOUNT_PREFIX as SUBJECT_PREFIX
from fairlead.kinds.access.whoami import AUTHENTICATION_GROUP
from fairlead.kinds.answered import create_only_kind
from fairlead.kinds.core.event import REFERENCE
from fairlead.registry import limits
from fairlead.registry.kind import Action, Change, Kind, Problem, Sensitivity
from fairlead.registry.schema import array, array_map, atomic, boolean, integer, obj, string, timestamp

UID_LABEL = "service.sh/service-account-uid"
"""Label on an access key: the uid of its service account."""
TOKEN_SUBRESOURCE = "token"
DEFAULT_TOKEN_SECONDS, MIN_TOKEN_SECONDS, MAX_TOKEN_SECONDS = 3600, 600, 1 << 32
"""Default, minimum and maximum of spec.expirationSeconds. The server may issue a shorter-lived token."""


def account_username(namespace: str, name: str) -> str:
    """The user name of a service account."""
    return f"{SUBJECT_PREFIX}{namespace}:{name}"


def parse_account_username(username: str) -> tuple[str, str]:
    """Namespace and name of the service account with that user name; both empty for any other user."""
    namespace, _, name = username.removeprefix(SUBJECT_PREFIX).partition(":")
    return (namespace, name) if username.startswith(SUBJECT_PREFIX) else ("", "")


def is_account_key(key: Object) -> bool:
    """Whether an access key is the token of a service account."""
    return str((key.get("spec") or {}).get("subject") or "").startswith(SUBJECT_PREFIX)


def account_uid(key: Object) -> str:
    """The uid of the service account that an access key belongs to."""
    return str(labels_of(key).get(UID_LABEL) or "")


def token_problems(spec: Object) -> Iterable[Problem]:
    """Validation errors of the requested lifetime."""
    seconds = spec.get("expirationSeconds")
    if seconds is not None and seconds < MIN_TOKEN_SECONDS:
        reason = "may not specify a duration less than 10 minutes"
        yield Problem.invalid("spec.expirationSeconds", seconds, reason)
    if seconds is not None and seconds > MAX_TOKEN_SECONDS:
        reason = "may not specify a duration larger than 2^32 seconds"
        yield Problem.invalid("spec.expirationSeconds", seconds, reason)


def _normalize_secret_refs(change: Change) -> None:
    """Drops empty lists, and reduces references to Secrets to names: the Secrets are in the account's namespace."""
    for field in ("secrets", "imagePullSecrets"):
        if change.obj.get(field) == []:
            del change.obj[field]
    if change.obj.get("secrets"):
        change.obj["secrets"] = [{"name": each["name"]} for each in change.obj["secrets"]]


TOKEN_REQUEST = create_only_kind(
    "TokenRequest",
    "Requests a token for a service account.",
    {
        "spec": obj(
            "Requested properties of the token. May be empty.",
            audiences=array(
                string(),
                "Intended audiences of the token. The only supported audience is this server.",
                max_items=limits.AUDIENCES,
            ),
            expirationSeconds=integer(
                f"Requested lifetime in seconds, at least {MIN_TOKEN_SECONDS}. Defaults to {DEFAULT_TOKEN_SECONDS}. "
                "The "
                "server may issue a shorter-lived token; see status.expirationTimestamp."
            ),
            boundObjectRef=obj(
                "An object that the token is bound to. Not supported: leave it out.",
                kind=string("Kind of the object."),
                apiVersion=string("API version of the object."),
                name=string("Name of the object."),
                uid=string("UID of the object."),
            ),
        ),
        "status": obj(
            "The issued token.",
            token=string(
                "The bearer token. Returned only once.",
                format="password",
                max_length=limits.CREDENTIAL,
            ),
            expirationTimestamp=timestamp("When the token expires."),
        ),
    },
    group=AUTHENTICATION_GROUP,
    namespaced=True,
    sensitive=("status.token",),
)
"""Request and response body of `serviceaccounts/<name>/token`."""

SERVICE_ACCOUNT = Kind(
    name="ServiceAccount",
    plural="serviceaccounts",
    namespaced=True,
    group="",
    fields={
        "secrets": array_map(
            ("name",),
            atomic(obj(required=("name",), **REFERENCE["properties"])),
            "Names of Secrets in the same namespace. Stored; has no effect here.",
        ),
        "imagePullSecrets": array(
            obj(name=string("Name of a Secret in the same namespace.")), "Stored as sent; has no effect here."
        ),
        "automountServiceAccountToken": boolean("Stored as sent; has no effect here."),
    },
    description="An identity for automation. Requests with one of its tokens have the permissions of its roles.",
    short_names=("sa",),
    actions=(Action(TOKEN_SUBRESOURCE, ("create",), TOKEN_REQUEST),),
    tracks_generation=False,
    builtin=True,
    allows_unconditional_update=True,
    returns_deleted_object=True,
    default=_normalize_secret_refs,
    sensitivity=Sensitivity.NORMAL,
)
