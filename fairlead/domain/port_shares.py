"""Shares of ports of a workspace: who else may open one in a browser, and until when.

They are a JSON list in the annotation `service.sh/port-shares` of the workspace:

    [{"port": 8080, "user": "ada", "until": 1767225600}, {"port": 3000, "project": true, "until": 1767225600}]

`until` is in Unix seconds. A share that is over counts no more, and may stay in the list. When a share with a user is
written, the server adds the `uid`: it is with that user, and not with a later one of the same name. Bindings and
members go by names, as in Kubernetes, and administrators can look through them; shares are in annotations that few see.

The server also adds `by` and `byUID`: who shares the port. A share counts as long as that user may use the workspace.
Otherwise who leaves the project could keep an editor in a workspace of it, by a share with themselves.
"""

import msgspec

from fairlead.core import json
from fairlead.core.body_errors import Malformed
from fairlead.core.objects import Object, annotations_of

SHARES_ANNOTATION = "service.sh/port-shares"
MAX_SHARES = 32
MAX_SHARES_BYTES = 16 * 1024
MAX_SHARE_SECONDS = 7 * 24 * 3600
"""A port that is needed for longer is shared again, and so is not forgotten."""
FORMAT = 'must be a list such as [{"port": 8080, "user": "ada", "until": 1767225600}], or with "project": true'


class PortShare(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One share: with a user, or with all members of the project."""

    port: int
    until: int
    user: str = ""
    uid: str = ""
    """Of the user."""
    project: bool = False
    by: str = ""
    """The name of the user who shares it; `system:masters` for an administrator who is no User."""
    by_uid: str = msgspec.field(default="", name="byUID")

    def is_same(self, other: "PortShare") -> bool:
        """Whether a client means this share. Clients that write a list anew do not know what the server has added."""
        return other in (self, msgspec.structs.replace(self, uid="", by="", by_uid=""))

    def is_current(self, now: float) -> bool:
        """Whether it counts at this time. One that ends too late does not: it was not checked when it was written."""
        return now < self.until <= now + MAX_SHARE_SECONDS


def parse_shares(text: str) -> list[PortShare]:
    """Raises ValueError, with what is wrong."""
    if len(text.encode()) > MAX_SHARES_BYTES:
        raise ValueError(f"may have at most {MAX_SHARES_BYTES} bytes; remove shares that are over")
    try:
        shares = msgspec.convert(json.decode(text.encode()), list[PortShare])
    except (Malformed, msgspec.ValidationError):
        raise ValueError(FORMAT) from None
    if len(shares) > MAX_SHARES:
        raise ValueError(f"may have at most {MAX_SHARES} shares; remove those that are over")
    for share in shares:
        if not 0 < share.port < 65536:
            raise ValueError(f"port {share.port}: must be a number from 1 to 65535")
        if bool(share.user) == share.project or (share.uid and not share.user):
            raise ValueError(
                f"the share of port {share.port} must be with a user or with the project, and not with both"
            )
    return shares


def format_shares(shares: list[PortShare]) -> str:
    """Raises ValueError if that is too long."""
    text = msgspec.json.encode(shares).decode()
    parse_shares(text)
    return text


def find_shares(workspace: Object) -> list[PortShare]:
    """The shares of a workspace; none if the annotation is invalid."""
    text = annotations_of(workspace).get(SHARES_ANNOTATION)
    try:
        return parse_shares(text) if text else []
    except ValueError:
        return []
