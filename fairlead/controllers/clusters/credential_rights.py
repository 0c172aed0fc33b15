"""Which rights the stored credential of a cluster lacks, by SelfSubjectAccessReviews. For `probe.py`.

Requests through gateways are made with the stored credential in the name of their user, so it has to be allowed to
impersonate users, groups and uids: a cluster where it is not is connected, and of no use to anybody. The extra value is
only sent when a user impersonates another one. The names are those by which Kubernetes authorizes the headers of an
impersonation: users and groups of the core group, uids and userextras of `authentication.k8s.io`.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from fairlead.controllers.clusters.status import Probe
from fairlead.core.cluster_identity import IMPERSONATOR
from fairlead.core.objects import Object, dig

REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
AUTHENTICATION = "authentication.k8s.io"
ROLE_COMMAND = "fairlead cluster role"
"""The command that prints roles for the credential."""
OPTIONAL = "Warning"


@dataclass(frozen=True, slots=True)
class Right:
    """To impersonate all names of a resource."""

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


REQUIRED = (Right("users"), Right("groups"), Right("uids", AUTHENTICATION))
EXTRA = Right("userextras", AUTHENTICATION, IMPERSONATOR)

Ask = Callable[[Object], Awaitable[tuple[int, object]]]
"""Sends a review; gives the status and the body of the answer."""


@dataclass(frozen=True, slots=True)
class Rights:
    """`missing` says which required rights are missing, and what to do; empty where none is, or nobody can tell."""

    probes: tuple[Probe, ...] = ()
    missing: str = ""


async def review_rights(ask: Ask) -> Rights:
    """What a cluster without this API allows is not known, and not held against it."""
    missing: list[Right] = []
    for right in REQUIRED:
        allowed = await _is_allowed(ask, right)
        if allowed is None:
            return Rights()
        if not allowed:
            missing.append(right)
    if missing:
        why = _say_missing(missing)
        return Rights((Probe("impersonation", False, why),), why)
    required = Probe("impersonation", True, "the credential may impersonate users, groups and uids")
    return Rights((required, _extra_probe(await _is_allowed(ask, EXTRA))))


async def _is_allowed(ask: Ask, right: Right) -> bool | None:
    status, body = await ask(right.review())
    allowed = dig(body, "status.allowed")
    return allowed if status in (200, 201) and isinstance(allowed, bool) else None


def _say_missing(missing: Sequence[Right]) -> str:
    return (
        f"the stored credential may not impersonate {', '.join(map(str, missing))}, so the cluster refuses requests "
        f"through gateways; give it that right for all names: `{ROLE_COMMAND} gateways` prints a role that has it"
    )


def _extra_probe(allowed: bool | None) -> Probe:
    if allowed is False:
        why = (
            f"the stored credential may not impersonate {EXTRA}, so the cluster refuses `kubectl --as` through "
            f"gateways; `{ROLE_COMMAND} gateways` prints a role that may"
        )
        return Probe("impersonation-extra", False, why, OPTIONAL)
    return Probe("impersonation-extra", True, "`kubectl --as` can be used through gateways")
