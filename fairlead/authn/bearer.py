"""The `Authorization` header: one well-formed bearer token, or nothing at all.

Whatever else stands there is invalid rather than absent: who tries to say who they are is never taken for somebody who
does not. That holds for what is no text at all, too: the HTTP server keeps such values from us, and only their name is
there.
"""

from fairlead.core.call import Call
from fairlead.core.errors import Unauthorized

INVALID = "invalid bearer token"
"""What is wrong with a credential is not told."""
MAX_HEADER = 4 * 1024


def bearer_token(call: Call, longest: int = MAX_HEADER) -> str | None:
    """The token that a call carries; None if there is no such header. Raises Unauthorized for any other content."""
    headers = call.headers.get_all("authorization")
    if not headers:
        if "authorization" in call.headers.keys():  # noqa: SIM118 - they are no mapping
            raise Unauthorized(INVALID)
        return None
    header = headers[0]
    if len(headers) > 1 or len(header) > longest or not header.isascii():
        raise Unauthorized(INVALID)
    scheme, _, token = header.partition(" ")
    token = token.strip()
    if scheme.lower() != "bearer" or not token:
        raise Unauthorized(INVALID)
    return token
