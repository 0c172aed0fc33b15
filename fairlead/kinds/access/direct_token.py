"""DirectClusterEndpointToken and TokenKeyRotation: tokens for clusters themselves, and a new key to sign them with.

Both are asked with a POST and answered; nothing is stored. `subresources/direct_tokens.py` answers them. docs/direct-tokens.md says
what a token holds and who can verify it.
"""

from collections.abc import Iterable

from fairlead.kinds.access.scope import SCOPE, scope_problems
from fairlead.registry import limits
from fairlead.registry.kind import Change, Kind, Problem
from fairlead.registry.schema import described, integer, obj, string, timestamp


def prepare(change: Change) -> None:
    if change.obj.get("spec") is None:
        change.obj["spec"] = {}


def check(change: Change) -> Iterable[Problem]:
    yield from scope_problems(change.spec.get("scope"), "spec.scope")


DIRECT_CLUSTER_ENDPOINT_TOKEN = Kind(
    name="DirectClusterEndpointToken",
    plural="directclusterendpointtokens",
    namespaced=False,
    fields={
        "spec": obj(
            "What token is wanted. May be empty.",
            ttl=integer("Seconds that the token lives. 0 or nothing for the default of the server.", minimum=0),
            scope=described(
                SCOPE, "What the token is cut down to: a part of the scope of the key in use, which is the default."
            ),
        ),
        "status": obj(
            "The answer.",
            token=string(
                "The token, a signed JWT. Shown this once, and kept nowhere.",
                format="password",
                longest=limits.CREDENTIAL,
            ),
        ),
    },
    description="A token that lets a client connect directly to a connected cluster. Nothing is stored.",
    verbs=("create",),
    secret=("status.token",),
    stored=False,
    builtin=True,
    prepare=prepare,
    check=check,
)

TOKEN_KEY_ROTATION = Kind(
    name="TokenKeyRotation",
    plural="tokenkeyrotations",
    namespaced=False,
    fields={
        "status": obj(
            "What has become of the keys.",
            keyID=string("Names the key that direct tokens are signed with from now on."),
            retiredUntil=timestamp(
                "When the last token of the key before has ended; until then that key is published. "
                "Absent if there was none."
            ),
        ),
    },
    description="Puts a new key to use for signing direct tokens. Earlier tokens stay valid. Nothing is stored.",
    verbs=("create",),
    stored=False,
    builtin=True,
)
