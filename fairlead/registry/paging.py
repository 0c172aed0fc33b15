"""Continue tokens: where the next page of a list starts, and in which snapshot."""

import base64
import binascii
from dataclasses import dataclass

import orjson

from fairlead.core.errors import BadRequest

_NOT_OURS = "invalid continue token: continue key is not valid: pass metadata.continue of the previous page as it was"

WHATEVER_REVISION = -1
"""In a token handed out with 410: go on from there in whatever the list looks like now."""


@dataclass(frozen=True, slots=True)
class Position:
    """The snapshot being paged through and the last place that was handed out."""

    revision: int
    after: tuple[str, str]

    def token(self) -> str:
        document = {"v": "meta.k8s.io/v1", "rv": self.revision, "after": self.after}
        return base64.urlsafe_b64encode(orjson.dumps(document)).rstrip(b"=").decode()


def parse_token(token: str) -> Position:
    """Anything that `Position.token` did not make is a 400, never a crash."""
    try:
        padded = token.encode() + b"=" * (-len(token) % 4)
        document = orjson.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
        revision, (namespace, name) = document["rv"], document["after"]
    except (binascii.Error, ValueError, KeyError, TypeError):
        raise BadRequest(_NOT_OURS) from None
    if type(revision) is not int or not isinstance(namespace, str) or not isinstance(name, str):
        raise BadRequest(_NOT_OURS)
    return Position(revision, (namespace, name))
