"""What is wrong with an answer, given who asked. It knows rights from the outside only: who made what, and where."""

import re
from collections.abc import Iterator
from urllib.parse import unquote

from tests.generated.identities import EVERYTHING, IN_PROJECT, PROJECT, PROJECT_NAMESPACE, Cast, Identity
from tests.generated.templates import READING
from tests.security import response_checks
from tests.security.raw_http import Answer, Ask

_PLACE = re.compile(
    r"/kubernetes/management/apis?/[^/]+(?:/v[^/]+)?/(?:namespaces/(?P<namespace>[^/]+)/)?(?P<plural>[a-z]+)"
    r"(?:/(?P<name>[^/]+)(?:/(?P<part>[^/]+))?)?/?"
)
OWN = frozenset({"ownedaccesskeys", "directclusterendpointtokens", "selves"})
"""What everybody may write: it is about oneself."""
_NO_KEY = "no-answer-has-this"

RIGHT_CAUSES = re.compile(
    rb"cluster|agent|virtual cluster|audit log|too many|try again|kubeconfig|is not connected|no answer in time", re.I
)
"""What a 502, 503 or 504 may be about: somebody else's trouble, or a limit."""


class Oracle:
    def __init__(self, cast: Cast, unstored: frozenset[str]) -> None:
        """`unstored` are the plurals of what is only asked."""
        self._canary = cast.canary.encode()
        self._unstored = unstored
        self._keys = re.compile(b"|".join(re.escape(each.key.encode()) for each in cast.identities if each.key))

    def faults(self, identity: Identity, ask: Ask, answer: Answer) -> Iterator[str]:
        for fault in response_checks.faults(ask, answer, _NO_KEY):
            if not _is_right_cause(ask, answer):
                yield fault
        if self._keys.search(answer.body) and not _hands_out_key(ask):
            yield "an access key is in the answer"
        if identity.rights == EVERYTHING:
            return
        if self._canary in answer.body:
            yield f"{identity.name} sees what is in the vault"
        if 200 <= answer.status < 300 and ask.method not in READING and not self._may_write(identity, ask):
            yield f"{identity.name} may not write that"

    def _may_write(self, identity: Identity, ask: Ask) -> bool:
        path = unquote(re.sub(r"^https?://[^/]*", "", ask.path))
        if not path.startswith("/kubernetes/management/api"):
            return path.startswith(("/auth/", "/kubernetes/cluster/", "/kubernetes/project/"))
        found = _PLACE.fullmatch(path)
        if found is None:
            return False
        plural, namespace, name, part = found["plural"], found["namespace"], found["name"], found["part"]
        if plural in OWN or plural in self._unstored:
            return True
        if plural == "users" and (name or "").startswith("gen-"):
            return True  # one's own; to others it is answered with 403, which a breach would show in the vault
        if name == "gen-component" and part is not None:
            return True
        if identity.rights == IN_PROJECT:
            return namespace == PROJECT_NAMESPACE or (plural, name) == ("projects", PROJECT)
        return False


def _is_right_cause(ask: Ask, answer: Answer) -> bool:
    """Whether an error of the server is somebody else's trouble. To a HEAD, nobody says what it is about."""
    if answer.status not in (502, 503, 504):
        return False
    return ask.method == "HEAD" or RIGHT_CAUSES.search(answer.body) is not None


def _hands_out_key(ask: Ask) -> bool:
    return ask.path.endswith(("/accesskey", "/token", "/rotate", "/resetaccesskey"))
