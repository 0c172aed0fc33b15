"""Checks by SelfSubjectAccessReviews whether the stored credential of a cluster may impersonate. For `probe.py`.

Requests through gateways use the stored credential and impersonate their user, so it needs the permission to
impersonate users, groups and uids: without that, a connected cluster is unusable. The extra value is sent only when a
user impersonates another one. Kubernetes authorizes impersonation headers as these resources: `users` and `groups` of
the core group, `uids` and `userextras` of `authentication.k8s.io`.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from fairlead.controllers.clusters.status import Probe
from fairlead.core.cluster_identity import IMPERSONATOR_EXTRA_KEY
from fairlead.core.objects import Object, get_path

REVIEWS_PATH = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
AUTHENTICATION = "authentication.k8s.io"
ROLE_COMMAND = "fairlead cluster role"
"""The command that prints a ClusterRole for the credential."""
OPTIONAL_SEVERITY = "Warning"


@dataclass(frozen=True, slots=True)
class ImpersonationRight:
    """The permission to impersonate all names of a resource."""

    resource: str
    group: str = ""
    subresource: str = ""

    def __str__(self) -> str:
        resource = f"{self.resource}/{self.subresource}" if self.subresource else self.resource
        return f"{resource} ({self.group})" if self.group else resource

    def review(self) -> Object:
        attributes = {"verb": "impersonate", "resource": self.resource}
        if self.group:
            attributes["group"] = self.group
        if self.subresource:
            attributes["subresource"] = self.subresource
        return {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        }


REQUIRED_RIGHTS = (
    ImpersonationRight("users"),
    ImpersonationRight("groups"),
    ImpersonationRight("uids", AUTHENTICATION),
)
EXTRA_RIGHT = ImpersonationRight("userextras", AUTHENTICATION, IMPERSONATOR_EXTRA_KEY)

SendReview = Callable[[Object], Awaitable[tuple[int, object]]]
"""Sends a review. Returns the status and the body of the response."""


@dataclass(frozen=True, slots=True)
class RightsReview:
    """`missing`: a message about missing required permissions; empty if there are none, or if that is unknown."""

    probes: tuple[Probe, ...] = ()
    missing: str = ""


async def review_rights(send: SendReview) -> RightsReview:
    """If the cluster does not serve this API, nothing is known and nothing is reported as missing."""
    missing: list[ImpersonationRight] = []
    for right in REQUIRED_RIGHTS:
        allowed = await _is_allowed(send, right)
        if allowed is None:
            return RightsReview()
        if not allowed:
            missing.append(right)
    if missing:
        message = _describe_missing(missing)
        return RightsReview((Probe("impersonation", False, message),), message)
    required = Probe("impersonation", True, "the credential may impersonate users, groups and uids")
    return RightsReview((required, _extra_probe(await _is_allowed(send, EXTRA_RIGHT))))


async def _is_allowed(send: SendReview, right: ImpersonationRight) -> bool | None:
    status, body = await send(right.review())
    allowed = get_path(body, "status.allowed")
    return allowed if status in (200, 201) and isinstance(allowed, bool) else None


def _describe_missing(missing: Sequence[ImpersonationRight]) -> str:
    return (
        f"the stored credential may not impersonate {', '.join(map(str, missing))}, so the cluster rejects requests "
        f"through gateways; grant that for all names: `{ROLE_COMMAND} gateways` prints a suitable role"
    )


def _extra_probe(allowed: bool | None) -> Probe:
    if allowed is False:
        message = (
            f"the stored credential may not impersonate {EXTRA_RIGHT}, so the cluster rejects `kubectl --as` through "
            f"gateways; `{ROLE_COMMAND} gateways` prints a suitable role"
        )
        return Probe("impersonation-extra", False, message, OPTIONAL_SEVERITY)
    return Probe("impersonation-extra", True, "`kubectl --as` works through gateways")
