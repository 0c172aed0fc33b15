"""Finds faults in responses, given the identity. It derives permissions from paths only, not from the server."""

import re
from collections.abc import Iterator
from urllib.parse import unquote

from tests.generated.identities import EVERYTHING, IN_PROJECT, PROJECT, PROJECT_NAMESPACE, Identities, Identity
from tests.generated.templates import READ_METHODS
from tests.requests import response_checks
from tests.requests.raw_http import RawRequest, RawResponse

_RESOURCE_PATH = re.compile(
    r"/kubernetes/management/apis?/[^/]+(?:/v[^/]+)?/(?:namespaces/(?P<namespace>[^/]+)/)?(?P<plural>[a-z]+)"
    r"(?:/(?P<name>[^/]+)(?:/(?P<part>[^/]+))?)?/?"
)
PERSONAL_RESOURCES = frozenset({"ownedaccesskeys", "directclusterendpointtokens", "selves"})
"""Resources that every user may write, because they concern only that user."""
_NO_KEY = "never-in-a-response"

EXTERNAL_CAUSES = re.compile(
    rb"cluster|agent|virtual cluster|audit log|too many|try again|kubeconfig|is not connected|no answer in time", re.I
)
"""Causes of a legitimate 502, 503 or 504: another system, or a limit."""


class Oracle:
    def __init__(self, identities: Identities, unstored: frozenset[str]) -> None:
        """`unstored` are the plurals of resources without stored objects, such as reviews."""
        self._canary = identities.canary.encode()
        self._unstored = unstored
        self._keys = re.compile(b"|".join(re.escape(each.key.encode()) for each in identities.identities if each.key))

    def find_faults(self, identity: Identity, request: RawRequest, response: RawResponse) -> Iterator[str]:
        for fault in response_checks.find_faults(request, response, _NO_KEY):
            if not _has_external_cause(request, response):
                yield fault
        if self._keys.search(response.body) and not _returns_key(request):
            yield "an access key is in the response"
        if identity.permissions == EVERYTHING:
            return
        if self._canary in response.body:
            yield f"{identity.name} can read the vault"
        if (
            200 <= response.status < 300
            and request.method not in READ_METHODS
            and not self._can_write(identity, request)
        ):
            yield f"{identity.name} must not write there"

    def _can_write(self, identity: Identity, request: RawRequest) -> bool:
        path = unquote(re.sub(r"^https?://[^/]*", "", request.path))
        if not path.startswith("/kubernetes/management/api"):
            return path.startswith(("/auth/", "/kubernetes/cluster/", "/kubernetes/project/"))
        match = _RESOURCE_PATH.fullmatch(path)
        if match is None:
            return False
        plural, namespace, name, part = match["plural"], match["namespace"], match["name"], match["part"]
        if plural in PERSONAL_RESOURCES or plural in self._unstored:
            return True
        if plural == "users" and (name or "").startswith("gen-"):
            return True  # the user's own; a write to another user is caught by the vault
        if name == "gen-component" and part is not None:
            return True
        if identity.permissions == IN_PROJECT:
            return namespace == PROJECT_NAMESPACE or (plural, name) == ("projects", PROJECT)
        return False


def _has_external_cause(request: RawRequest, response: RawResponse) -> bool:
    """Whether a server error has an external cause. The response to HEAD does not say which."""
    if response.status not in (502, 503, 504):
        return False
    return request.method == "HEAD" or EXTERNAL_CAUSES.search(response.body) is not None


def _returns_key(request: RawRequest) -> bool:
    return request.path.endswith(("/accesskey", "/token", "/rotate", "/resetaccesskey"))
