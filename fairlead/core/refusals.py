"""Notes in the audit event of a request what refused it.

Every response with the status 401 or 403 has such a note, and every login that was refused, whatever the status: a
browser is redirected, and OAuth answers with 400. The annotation `authorization.k8s.io/decision` is only about
authorization: a request that admission or a quota refuses was allowed.
"""

from fairlead.core.call import Call
from fairlead.core.errors import AUTHENTICATION, CLUSTER, ENDPOINT, GATEWAY, ApiError

REFUSED_BY_ANNOTATION = "service.sh/refused-by"
"""Annotation of the audit event: what refused the request. For logins, `sign-on/<reason>` or `login/<reason>`."""
REFUSED_CODES = frozenset({401, 403})
"""Every response with one of these statuses has the annotation."""
SIGN_ON = "sign-on"
LOGIN = "login"
"""Methods: single sign-on, and all other logins."""
TOO_MANY_ATTEMPTS = "too_many_attempts"
"""Reason: the client or the user has failed too often, and must wait."""

_SIGN_IN_PREFIX = "/auth/"


def note_refusal(call: Call, error: ApiError) -> None:
    """Notes what raised the error, if it is a 401 or 403."""
    if error.code in REFUSED_CODES:
        call.annotations[REFUSED_BY_ANNOTATION] = error.refused_by or _describe_handler(call, GATEWAY)


def note_refused_response(call: Call) -> None:
    """The same for a response that no error of this server made: one of a cluster, or a page about a failed sign-on."""
    if REFUSED_BY_ANNOTATION not in call.annotations:
        call.annotations[REFUSED_BY_ANNOTATION] = _describe_handler(call, CLUSTER)


def note_refused_login(call: Call, method: str, reason: str) -> None:
    """Notes why a login was refused. `method` is SIGN_ON or LOGIN, `reason` one of a fixed list."""
    call.annotations[REFUSED_BY_ANNOTATION] = f"{method}/{reason}"


def _describe_handler(call: Call, behind_gateway: str) -> str:
    target = call.target
    if target.gateway is not None:
        return behind_gateway
    return AUTHENTICATION if target.path.startswith(_SIGN_IN_PREFIX) else ENDPOINT
