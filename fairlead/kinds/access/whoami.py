"""Self, SelfSubjectReview and TokenReview: identity reviews. Create-only and not persisted.

Self is for tools of the platform, SelfSubjectReview for `kubectl auth whoami`, TokenReview for services that
authenticate tokens. `subresources/whoami.py` implements them.
"""

from fairlead.kinds.access.scope import SCOPE
from fairlead.kinds.answered import create_only_kind
from fairlead.registry import limits
from fairlead.registry.kind import Kind, Sensitivity
from fairlead.registry.schema import Schema, array, boolean, mapping, obj, string, with_description

AUTHENTICATION_GROUP = "authentication.k8s.io"


def _user_info(description: str) -> Schema:
    return obj(
        description,
        username=string("The name that uniquely identifies this user among all active users."),
        uid=string("A value that identifies this user across time, if a user of the same name is created again."),
        groups=array(string(), "The groups that this user is in.", max_items=limits.SERVER_WRITTEN_ITEMS),
        extra=mapping(array(string(max_length=limits.MESSAGE)), "Additional information from the authenticator."),
    )


_PRINCIPAL_FIELDS = {
    "name": string("Name of the object."),
    "displayName": string("Human-readable name."),
    "icon": string("URL of an image, or the image itself as a data URL.", max_length=limits.ICON),
    "username": string("Name for signing in."),
    "email": string("Email address."),
    "subject": string("The user name that authorization uses."),
}

SELF = Kind(
    name="Self",
    plural="selves",
    namespaced=False,
    fields={
        "spec": obj(
            "The identity to describe. Empty for the requester.",
            accessKey=string("Name of an OwnedAccessKey to describe. Allowed for its owner and for administrators."),
        ),
        "status": obj(
            "The identity.",
            user=obj(
                "The user, unless the identity is a team.",
                required=(),
                **_PRINCIPAL_FIELDS,
                teams=array(
                    obj(required=(), **_PRINCIPAL_FIELDS), "Teams of the user.", max_items=limits.SERVER_WRITTEN_ITEMS
                ),
            ),
            team=obj("The team, if the key belongs to a team.", required=(), **_PRINCIPAL_FIELDS),
            accessKey=string("Name of the access key in use. Never the key itself."),
            accessKeyType=string("Type of that key."),
            accessKeyScope=with_description(SCOPE, "Scope of that key; absent if it has all permissions of its owner."),
            subject=string("The user name that authorization uses."),
            uid=string("UID of the user."),
            groups=array(string(), "The groups that authorization uses.", max_items=limits.SERVER_WRITTEN_ITEMS),
            impersonator=string("Name of the user who impersonates the identity; absent without impersonation."),
            instanceID=string("ID of this installation."),
            projectNamespacePrefix=string("Prefix of the names of project namespaces."),
        ),
    },
    description="Returns the identity of the requester and the access key in use. Not persisted.",
    verbs=("create",),
    persisted=False,
    builtin=True,
    sensitivity=Sensitivity.NORMAL,
)

SELF_SUBJECT_REVIEW = create_only_kind(
    "SelfSubjectReview",
    "Returns the user attributes of the requester. Not persisted.",
    {"status": obj("The result of the review.", userInfo=_user_info("User attributes of the requester."))},
    group=AUTHENTICATION_GROUP,
)

TOKEN_REVIEW = Kind(
    name="TokenReview",
    plural="tokenreviews",
    namespaced=False,
    group=AUTHENTICATION_GROUP,
    fields={
        "spec": obj(
            "The token to review.",
            token=string("The bearer token. Omitted in the response.", max_length=limits.CREDENTIAL),
            audiences=array(
                string(),
                "Audiences that the token should be valid for. The audience of access keys is this server.",
                max_items=limits.AUDIENCES,
            ),
        ),
        "status": obj(
            "The result of the review.",
            authenticated=boolean("Whether the token is valid."),
            user=_user_info("The user that the token authenticates as."),
            audiences=array(
                string(),
                "Requested audiences that the token is valid for. Empty means this server only.",
                max_items=limits.AUDIENCES,
            ),
            error=string("Why the token is not valid.", max_length=limits.MESSAGE),
        ),
    },
    description="Authenticates a token and returns its user. Not persisted.",
    verbs=("create",),
    sensitive=("spec.token",),
    write_only=("spec.token",),
    persisted=False,
    builtin=True,
    sensitivity=Sensitivity.NORMAL,
)
