"""Who somebody is: Self, SelfSubjectReview and TokenReview. Asked with a POST, never stored.

Self is what tools of the platform ask first; SelfSubjectReview is `kubectl auth whoami`; with TokenReview a service
finds out whose a token is. `subresources/whoami.py` answers them.
"""

from fairlead.kinds.access.scope import SCOPE
from fairlead.registry import limits
from fairlead.registry.kind import Kind
from fairlead.registry.schema import Schema, array, boolean, described, mapping, obj, string

AUTHENTICATION_GROUP = "authentication.k8s.io"


def _user_info(description: str) -> Schema:
    return obj(
        description,
        username=string("The name that permissions go by."),
        uid=string("Tells users of the same name apart, over time."),
        groups=array(string(), "The groups that they are in.", most=limits.ANSWERED),
        extra=mapping(array(string(longest=limits.MESSAGE)), "What else the authenticator had to say."),
    )


_ENTITY = {
    "name": string("Name of the object."),
    "displayName": string("Name shown to people."),
    "icon": string("Address of a picture, or the picture itself.", longest=limits.PICTURE),
    "username": string("Name that they sign in with."),
    "email": string("Their address."),
    "subject": string("The name that permissions go by."),
}

SELF = Kind(
    name="Self",
    plural="selves",
    namespaced=False,
    fields={
        "spec": obj(
            "Whom to tell about. Empty for the caller.",
            accessKey=string("Name of an OwnedAccessKey to tell about. Open to its owner and to administrators."),
        ),
        "status": obj(
            "Who that is.",
            user=obj(
                "The user, unless it is a team.",
                required=(),
                **_ENTITY,
                teams=array(obj(required=(), **_ENTITY), "The teams that the user is in.", most=limits.ANSWERED),
            ),
            team=obj("The team, where a team's key is used.", required=(), **_ENTITY),
            accessKey=string("Name of the access key in use. Never the key itself."),
            accessKeyType=string("Type of that key."),
            accessKeyScope=described(SCOPE, "Scope of that key; absent if it has all the rights of its owner."),
            subject=string("The name that permissions go by."),
            uid=string("The uid of the user."),
            groups=array(string(), "The groups that permissions go by.", most=limits.ANSWERED),
            instanceID=string("Names this installation."),
            projectNamespacePrefix=string("What the names of projects' namespaces begin with."),
        ),
    },
    description="Tells who the caller is, and which access key is in use. Nothing is stored.",
    verbs=("create",),
    stored=False,
    builtin=True,
)

SELF_SUBJECT_REVIEW = Kind(
    name="SelfSubjectReview",
    plural="selfsubjectreviews",
    namespaced=False,
    group=AUTHENTICATION_GROUP,
    fields={"status": obj("The answer.", userInfo=_user_info("Who the caller is."))},
    description="Asks who the caller is. Nothing is stored.",
    verbs=("create",),
    stored=False,
    builtin=True,
)

TOKEN_REVIEW = Kind(
    name="TokenReview",
    plural="tokenreviews",
    namespaced=False,
    group=AUTHENTICATION_GROUP,
    fields={
        "spec": obj(
            "The token in question.",
            token=string("The token. The answer leaves it out.", longest=limits.CREDENTIAL),
            audiences=array(
                string(),
                "Whom the token should be meant for. Access keys are meant for this server.",
                most=limits.AUDIENCES,
            ),
        ),
        "status": obj(
            "The answer.",
            authenticated=boolean("Whether the token is good."),
            user=_user_info("Whose it is."),
            audiences=array(
                string(),
                "Those audiences that the token is meant for. Empty for this server alone.",
                most=limits.AUDIENCES,
            ),
            error=string("Why the token is not good.", longest=limits.MESSAGE),
        ),
    },
    description="Asks whose a token is. Nothing is stored.",
    verbs=("create",),
    secret=("spec.token",),
    hidden=("spec.token",),
    stored=False,
    builtin=True,
)
