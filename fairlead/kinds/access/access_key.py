"""OwnedAccessKey: a bearer token for the API, with its owner, its life and its scope.

The store keeps a keyed digest instead of the key (`admission/access_keys.py` sees to it) and no answer has even that: the
key itself is shown once, when it is made or rotated.
"""

from collections.abc import Iterable
from typing import Any

from fairlead.core.objects import Object, dig, metadata
from fairlead.domain.key_lifetime import MAX_TTL
from fairlead.kinds.access.principal_fields import is_disabled
from fairlead.kinds.access.scope import SCOPE, scope_problems
from fairlead.kinds.fields import CATEGORY, DESCRIPTION, DISPLAY_NAME
from fairlead.registry import limits
from fairlead.registry.kind import Action, Change, Column, Kind, Problem
from fairlead.registry.schema import Schema, array, boolean, described, enum, integer, mapping, obj, string, timestamp

TYPES = ("", "User", "Login", "Other", "Reset", "OIDCRefreshToken", "NetworkPeer", "Workspace")
OWNERS = ("user", "team", "subject")
"""The fields that say whom a key stands for. One of them is set."""
MAX_OVERLAP = 7 * 24 * 3600


def _token(description: str) -> Schema:
    return string(description, format="password", longest=limits.CREDENTIAL)


_REFRESHED = timestamp("When the identity was last refreshed.")

SPEC = obj(
    "Whom the key stands for, how long, and for what.",
    displayName=DISPLAY_NAME,
    description=DESCRIPTION,
    user=string("User that the key stands for. Defaults to whoever creates it. Stays as it is."),
    team=string("Team that the key stands for, instead of a user. Only administrators set it."),
    subject=string("Name that the key stands for, instead of a user or team. Only administrators set it."),
    groups=array(
        string(),
        "Further groups that the holder of the key is in. Only administrators set them.",
        most=limits.GROUPS,
    ),
    key=_token(
        "The key, used as a bearer token. Made by the server if left out; one's own has at least 16 characters. "
        "Shown in the answer to the create and never again."
    ),
    disabled=boolean("The key does not work, and can be made to work again. Defaults to false."),
    ttl=integer("Seconds that the key lives. 0 or left out means that it does not expire.", minimum=0),
    ttlAfterLastActivity=boolean(
        "The life of the key is counted from its last use instead of its creation. Defaults to false."
    ),
    scope=described(SCOPE, "What the key is cut down to. Left out, it has all the rights of its owner."),
    type=enum(
        "What the key is for. Defaults to `User`; the server makes and ends those of other types itself.", *TYPES
    ),
    identity=obj(
        "Whom an identity provider took the owner for, if the key was made by a single sign-on.",
        userId=string("What the provider calls the user."),
        username=string("Name of the user at the provider."),
        preferredUsername=string("Name that the user wants to be called there."),
        email=string("Address of the user."),
        emailVerified=boolean("Whether the provider has checked that address. Defaults to false."),
        groups=array(string(), "Groups that the provider has the user in.", most=limits.GROUPS),
        connector=string("Name of the connector that the key was made through."),
        connectorData=_token("What the connector needs to refresh the identity. Never shown."),
        identityRefresh=_REFRESHED,
        extraClaims=mapping(string(longest=limits.DESCRIPTION), "What else the provider says about the user."),
    ),
    identityRefresh=_REFRESHED,
    oidcProvider=obj(
        "The client that the key is a refresh token for, if it is one.",
        clientId=string("Id of the client."),
        nonce=string("What the client sent along, to recognise the answer by."),
        redirectUri=string("Where the client was sent back to.", longest=limits.URL),
        scopes=string("What the client asked for.", longest=limits.EXPRESSION),
    ),
    parent=string("DEPRECATED, kept as sent. The key that this one shares its single sign-on with."),
    oidcLogin=obj(
        "DEPRECATED: use identity. What a single sign-on left behind.",
        idToken=_token("Token about the user. Never shown."),
        accessToken=_token("Token for the provider. Never shown."),
        refreshToken=_token("Token to get new ones with. Never shown."),
        lastRefresh=timestamp("When the tokens were last refreshed."),
    ),
)

STATUS = obj(
    "What became of the key. Written by the server.",
    lastActivity=timestamp("When the key was last used, to the minute or so."),
    expired=timestamp("When the server found that the key has expired. Such a key never works again."),
    previous=array(
        obj(
            required=("key", "until"),
            key=string("Digest of the value."),
            until=timestamp("When it stops working."),
        ),
        "Values from before a rotation that still work. Never shown.",
    ),
)

ROTATION = Kind(
    name="OwnedAccessKeyRotation",
    plural="ownedaccesskeyrotations",
    namespaced=False,
    fields={
        "spec": obj(
            "How to change over.",
            overlapSeconds=integer(
                f"Seconds that the old value goes on working, at most {MAX_OVERLAP}. Defaults to 0: it ends at once.",
                minimum=0,
            ),
        )
    },
    description="Gives an access key a new value.",
    verbs=("create",),
    stored=False,
    builtin=True,
)
"""What `ownedaccesskeys/<name>/rotate` takes; it answers with the access key."""


_DEPRECATED = {"parent": "nothing reads it any more", "oidcLogin": "use spec.identity"}


def warn(change: Change) -> None:
    """Deprecated fields stay and work, but their users hear of it."""
    for field, advice in _DEPRECATED.items():
        if change.spec.get(field) and not change.subresource:
            change.warnings.append(f"spec.{field} is deprecated: {advice}")
    if dig(change.spec, "scope.rules") and not change.subresource:
        change.warnings.append("spec.scope.rules is deprecated: name projects, spaces and virtualClusters instead")


def check(change: Change) -> Iterable[Problem]:
    spec = change.spec
    yield from _owner_problems(spec)
    if (spec.get("ttl") or 0) > MAX_TTL:
        why = f"must be at most {MAX_TTL}; leave it out for a key that does not expire"
        yield Problem.invalid("spec.ttl", spec["ttl"], why)
    for index, group in enumerate(spec.get("groups") or ()):
        if not group:
            yield Problem.required(f"spec.groups[{index}]", "a group has a name")
    yield from scope_problems(spec.get("scope"), "spec.scope")


def _owner_problems(spec: Object) -> Iterable[Problem]:
    first, *others = [name for name in OWNERS if spec.get(name)] or [""]
    if not first:
        yield Problem.required("spec.user", "say whom the key stands for: spec.user, spec.team or spec.subject")
    for other in others:
        yield Problem.forbidden(f"spec.{other}", f"spec.{first} is set too; a key stands for one of them")


def owner_of(key: Object) -> Any:
    """Whom the key stands for, for tables."""
    found = (dig(key, f"spec.{name}") for name in OWNERS)
    return next((each for each in found if each), None)


def owner_reference(owner: Object) -> Object:
    """The reference by which a key belongs to its user or team: it goes with it, and stands for no later namesake."""
    meta = metadata(owner)
    return {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": meta["name"], "uid": meta["uid"]}


def _selected(key: Object, path: str) -> Any:
    """`spec.disabled=false` also finds the keys that do not mention it."""
    value = dig(key, path)
    return bool(value) if path == "spec.disabled" else value


def _is_scoped(key: Object) -> bool:
    return dig(key, "spec.scope") is not None


_SECRET = (
    "spec.key",
    "spec.identity.connectorData",
    "spec.oidcLogin.idToken",
    "spec.oidcLogin.accessToken",
    "spec.oidcLogin.refreshToken",
    "status.previous",
)

OWNED_ACCESS_KEY = Kind(
    name="OwnedAccessKey",
    plural="ownedaccesskeys",
    namespaced=False,
    fields={"spec": SPEC, "status": STATUS},
    description="A key for the API, used as a bearer token: whoever holds it is its user, team or subject.",
    categories=(CATEGORY,),
    status_subresource=True,
    columns=(
        Column("Display Name", "spec.displayName", description="Name shown to people."),
        Column("Owner", owner_of, description="User, team or subject that the key stands for."),
        Column("Type", "spec.type", description="What the key is for."),
        Column("Scoped", _is_scoped, type="boolean", description="Whether the key is cut down to a scope."),
        Column("Disabled", is_disabled, type="boolean", description="Whether the key is switched off."),
        Column("Last Used", "status.lastActivity", type="date", description="How long ago the key was last used."),
        Column("TTL", "spec.ttl", type="integer", description="Seconds that the key lives; 0 for ever.", wide=True),
        Column("Expired", "status.expired", type="date", description="How long ago it has expired.", wide=True),
    ),
    selectable=("spec.user", "spec.team", "spec.type", "spec.disabled"),
    selectable_value=_selected,
    immutable=("spec.user", "spec.team", "spec.subject"),
    secret=_SECRET,
    strict=("spec.scope",),
    hidden=_SECRET,
    unbound={
        "spec.key": tuple(SPEC["properties"]),  # a digest, which opens nothing
        "status.previous": tuple(STATUS["properties"]),
    },
    actions=(Action("rotate", ("create",), ROTATION),),
    prepare=warn,
    check=check,
)
