"""Where a browser goes after a sign-on: only to pages of this server's console."""

import re
from urllib.parse import unquote

from fairlead.authn.sign_on_policy import SignOnReason
from fairlead.signin.sso.reasons import SignOnRefused

DEFAULT_RETURN_PATH = "/console/"
MAX_RETURN_PATH_LENGTH = 2_048
_ALLOWED = re.compile(r"/console/[A-Za-z0-9/._~!$&'()*+,;=:@%?-]*")


def check_return_path(path: str) -> str:
    """The path, if it is one of the console. Raises SignOnRefused for any other address.

    Neither an address of another server, nor one that a browser could read as such, nor one that leaves the console.
    """
    plain = unquote(path)
    segments = plain.partition("?")[0].split("/")
    if (
        len(path) > MAX_RETURN_PATH_LENGTH
        or not _ALLOWED.fullmatch(path)
        or not plain.isprintable()
        or "\\" in plain
        or not {".", ".."}.isdisjoint(segments)
        or "" in segments[1:-1]
    ):
        raise SignOnRefused(SignOnReason.INVALID_RETURN_PATH)
    return path
