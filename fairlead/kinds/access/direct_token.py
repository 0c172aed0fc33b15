"""DirectClusterEndpointToken and TokenKeyRotation: issue tokens for direct cluster endpoints, rotate their signing key.

Both are create-only and not persisted; `subresources/credentials.py` implements them. docs/direct-tokens.md describes
the claims and the verification of a token.
"""

from collections.abc import Iterable

from fairlead.kinds.access.scope import SCOPE, scope_problems, scope_warnings
from fairlead.kinds.answered import create_only_kind
from fairlead.registry import limits
from fairlead.registry.kind import Change, Kind, Problem, Sensitivity
from fairlead.registry.schema import integer, obj, string, timestamp, with_description


def set_defaults(change: Change) -> None:
    if change.obj.get("spec") is None:
        change.obj["spec"] = {}
    change.warnings.extend(scope_warnings(change.spec.get("scope"), "spec.scope"))


def check(change: Change) -> Iterable[Problem]:
    yield from scope_problems(change.spec.get("scope"), "spec.scope")


DIRECT_CLUSTER_ENDPOINT_TOKEN = Kind(
    name="DirectClusterEndpointToken",
    plural="directclusterendpointtokens",
    namespaced=False,
    fields={
        "spec": obj(
            "Requested properties of the token. May be empty.",
            ttl=integer("Lifetime of the token in seconds. 0 or omitted means the server's default.", minimum=0),
            scope=with_description(
                SCOPE, "Restricts the token. A subset of the scope of the key in use. Defaults to that scope."
            ),
        ),
        "status": obj(
            "The issued token.",
            token=string(
                "The token, a signed JWT. Returned only once and not stored.",
                format="password",
                max_length=limits.CREDENTIAL,
            ),
        ),
    },
    description="Issues a token for direct connections to connected clusters. Not persisted.",
    verbs=("create",),
    sensitive=("status.token",),
    persisted=False,
    builtin=True,
    default=set_defaults,
    check=check,
    sensitivity=Sensitivity.CREDENTIAL,
)

TOKEN_KEY_ROTATION = create_only_kind(
    "TokenKeyRotation",
    "Rotates the signing key of direct tokens. Tokens issued before stay valid. Not persisted.",
    {
        "status": obj(
            "Signing keys after the rotation.",
            keyID=string("ID of the key that signs direct tokens from now on."),
            retiredUntil=timestamp(
                "When the last token signed with the previous key expires; until then that key stays published. "
                "Absent if there was no previous key."
            ),
        ),
    },
)
