"""SignOnReview: who a user of an identity provider would be here, and why. Create-only and not persisted.

With another text of the Config, it evaluates that one instead of the stored one, and lists the present users whose
access would change. `signin/sso/review.py` answers it.
"""

from collections.abc import Iterable
from dataclasses import replace

from fairlead.kinds.answered import create_only_kind
from fairlead.registry import limits
from fairlead.registry.kind import Change, Problem
from fairlead.registry.schema import Schema, array, boolean, integer, obj, open_object, string

MAX_LISTED_USERS = 1_000


def _names(description: str) -> Schema:
    return array(string(), description, max_items=limits.SERVER_WRITTEN_ITEMS)


def _access(description: str) -> Schema:
    return obj(
        description,
        allowed=boolean("Whether the user can sign in."),
        reason=string("Why not."),
        teams=_names("Teams that rules give."),
        groups=_names("Groups that rules give."),
    )


_RULE = obj(
    id=string("Id of the rule."),
    claim=string("Claim that it compares."),
    value=string("Value that it looks for."),
    matched=boolean("Whether the user has that value."),
    teams=_names("Teams that it gives."),
    groups=_names("Groups that it gives."),
)

_USER_CHANGE = obj(
    name=string("Name of the user."),
    before=_access("With the stored Config."),
    after=_access("With the Config in the spec."),
)

SPEC = obj(
    "The claims to review, and optionally another Config.",
    connector=string("Id of the connector. Defaults to the one with the issuer in the claims, or to the only one."),
    claims=open_object("Claims as in an ID token. They are not verified."),
    config=string(
        "Text of a Config, as in its spec.raw, to use instead of the stored one.", max_length=limits.CONFIG_TEXT
    ),
)

STATUS = obj(
    "The result of the review.",
    allowed=boolean("Whether the user can sign in."),
    reason=string("Why not, out of a fixed list."),
    detail=string("What exactly is wrong.", max_length=limits.MESSAGE),
    connector=string("Id of the connector."),
    issuer=string("Issuer URL of the provider.", max_length=limits.URL),
    subject=string("Subject of the user at the provider."),
    user=string("Name of the user: an existing one, or the one that would be created."),
    userExists=boolean("Whether the user exists."),
    resembles=string("Another user that this one could be mistaken for."),
    displayName=string("Display name."),
    email=string("Email address."),
    emailVerified=boolean("Whether the provider has verified the address."),
    ssoGroups=_names("Groups at the provider, as connector:group."),
    rules=array(_RULE, "All rules for the connector, in order.", max_items=limits.SERVER_WRITTEN_ITEMS),
    teams=_names("Teams of the user by rules, or by a group of the provider in spec.groups of the team."),
    missingTeams=_names("Teams that rules give and that do not exist."),
    groups=_names("Groups that rules give."),
    users=array(
        _USER_CHANGE,
        f"Present users whose access the Config in the spec would change, at most {MAX_LISTED_USERS}.",
        max_items=limits.SERVER_WRITTEN_ITEMS,
    ),
    changedUsers=integer("Number of present users whose access would change."),
)


def check(change: Change) -> Iterable[Problem]:
    if "claims" not in change.spec and "config" not in change.spec:
        yield Problem.required("spec.claims", "set claims to review a user, or config to preview it for present users")


SIGN_ON_REVIEW = replace(
    create_only_kind(
        "SignOnReview",
        "Returns who a user of an identity provider would be, and which rules apply. Not persisted.",
        {"spec": SPEC, "status": STATUS},
        sensitive=("spec.claims", "spec.config"),
    ),
    write_only=("spec.claims", "spec.config"),
    check=check,
)
