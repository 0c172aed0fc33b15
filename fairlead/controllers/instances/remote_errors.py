"""`InstanceError`: why an instance cannot be reconciled, with the reason, message and severity of a condition.

`translate_errors` turns connection errors and error responses of a cluster into an InstanceError, which becomes a
condition. What a cluster says about a rejected object is quoted, since it is needed to correct the template; what it
says about the stored credential is not.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from fairlead.core.errors import BadRequest
from fairlead.core.objects import Object
from fairlead.registry.conditions import FALSE, condition
from fairlead.upstream.errors import UpstreamError
from fairlead.upstream.kube_client import FarError

ERROR, WARNING, INFO = "Error", "Warning", "Info"
"""Needs intervention; may recover by itself; in progress."""

NAMESPACE_TERMINATING = "NamespaceTerminating"
ADMISSION_DENIED, INVALID = "AdmissionDenied", "Invalid"
QUOTA_EXCEEDED, QUOTA_UNKNOWN = "QuotaExceeded", "QuotaUnknown"
OWNER_FORBIDDEN, IMPERSONATION_FORBIDDEN = "OwnerForbidden", "ImpersonationForbidden"
UNAUTHORIZED, FORBIDDEN, REFUSED, BAD_REQUEST = "Unauthorized", "Forbidden", "Refused", "BadRequest"
CLUSTER_FAILING, WEBHOOK_FAILING, ODD_ANSWER = "ClusterFailing", "WebhookFailing", "OddAnswer"

_QUOTED = 500
_reason = re.compile(r"[A-Z][A-Za-z]{0,63}", re.ASCII)
_UNAUTHORIZED, _FORBIDDEN, _NOT_FOUND, _CONFLICT, _TOO_MANY, _SERVER = 401, 403, 404, 409, 429, 500

# Patterns of kube-apiserver messages about the object, not about the requester. Status codes are not enough: a webhook
# may deny with any code, and an apply that violates the schema is a 500 without a reason.
_denied = re.compile(r'admission webhook "[^"]*" denied the request|ValidatingAdmissionPolicy .* denied request')
_untyped = re.compile(r"failed to (create typed patch object|convert new object) ")
_quota = re.compile(r"is forbidden: (exceeded quota|failed quota|insufficient quota)")
_quota_unknown = re.compile(r"is forbidden: status unknown for quota")
_webhook = re.compile(r'failed calling webhook "([A-Za-z0-9.-]{1,253})"')
# Messages of authorizers, and of the RBAC escalation check.
_about_user = re.compile(r'\b[Uu]ser "')
_impersonating = re.compile(r'cannot impersonate resource "')
_got = re.compile(r", got .*")


class Trouble(Exception):
    def __init__(self, reason: str, message: str, severity: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.severity = severity

    def as_condition(self, type: str) -> Object:
        return condition(type, FALSE, self.reason, self.message, self.severity)


@contextmanager
def troubles(cluster: str, doing: str, acting_as: str = "") -> Iterator[None]:
    """Raises errors of requests to a cluster as InstanceError. `action` is a phrase such as "create a Role".
    `impersonate_user` is the impersonated user; empty: the stored credential was used."""
    try:
        yield
    except FarError as error:
        raise (_answered_to_deployer(error, cluster, doing) if acting_as else None) or _answered(
            error, cluster, doing
        ) from error
    except UpstreamError as error:
        raise Trouble(error.reason, f'cluster "{cluster}": {error.message}', WARNING) from error
    except BadRequest as error:  # raised locally: the values do not fit into a request
        message = f'cluster "{cluster}" cannot {doing}: {error.message}; correct the template or the instance'
        raise Trouble(BAD_REQUEST, message, ERROR) from error


def odd_answer(what: str) -> Trouble:
    """The response of a cluster is not trusted and may have any shape."""
    return Trouble(
        ODD_ANSWER,
        f"the cluster returned an unexpected response: {what}; check that it is a Kubernetes API server",
        WARNING,
    )


def quoted(text: object) -> str:
    """A text of a cluster, sanitized for messages: printable, on one line, and truncated."""
    printable = "".join(each for each in " ".join(str(text).split()) if each.isprintable())
    return printable if len(printable) <= _QUOTED else f"{printable[:_QUOTED]}..."


def _answered_to_deployer(error: FarError, cluster: str, doing: str) -> Trouble | None:
    """The error if the impersonated user lacks a permission; None if the response is about something else."""
    if error.status != _FORBIDDEN or NAMESPACE_TERMINATING in error.causes or not _about_user.search(error.message):
        return None
    if _impersonating.search(error.message):
        message = f'the stored credential of cluster "{cluster}" may not impersonate users, so it cannot {doing}'
        advice = "grant that: `fairlead cluster role` prints a suitable role"
        return Trouble(IMPERSONATION_FORBIDDEN, f"{message} with the permissions of the owner; {advice}", ERROR)
    message = f'the owner of this is not permitted to {doing} in cluster "{cluster}": {quoted(error.message)}'
    advice = "remove it, or ask for an administrator's template that has it"
    return Trouble(OWNER_FORBIDDEN, f"{message}; {advice}", ERROR)


def _answered(error: FarError, cluster: str, doing: str) -> Trouble:
    """Attributes an error response to the template, to the stored credential, or to the cluster."""
    if _quota_unknown.search(error.message):
        message = f'cluster "{cluster}" cannot {doing}: the usage of its quotas is not known yet; this is retried'
        return Trouble(QUOTA_UNKNOWN, message, WARNING)
    about_object = _about_object(error)
    if about_object:
        return _refused(error, about_object, cluster, doing)
    if error.status == _UNAUTHORIZED:
        message = f'cluster "{cluster}" rejects its stored credential; connect it again'
        return Trouble(UNAUTHORIZED, message, WARNING)
    if NAMESPACE_TERMINATING in error.causes:
        message = (
            f'cluster "{cluster}" cannot {doing}: the namespace is terminating; it will be created again after that'
        )
        return Trouble(NAMESPACE_TERMINATING, message, INFO)
    if error.status == _FORBIDDEN:
        message = f'the stored credential of cluster "{cluster}" may not {doing}; grant that permission in the cluster'
        return Trouble(FORBIDDEN, message, ERROR)
    if error.status in (_NOT_FOUND, _CONFLICT):  # changed or deleted concurrently
        return Trouble(_word(error), f'cluster "{cluster}" cannot {doing}: {quoted(error.message)}', WARNING)
    if error.status >= _SERVER or error.status == _TOO_MANY:
        return _failing(error, cluster, doing)
    return _refused(error, _word(error), cluster, doing)


def _about_object(error: FarError) -> str:
    """The reason if the cluster rejected the object itself; empty if the response is about something else."""
    if _denied.search(error.message):
        return ADMISSION_DENIED
    if _untyped.match(error.message):
        return INVALID
    is_admission = error.status == _FORBIDDEN and error.reason == FORBIDDEN and " is forbidden: " in error.message
    if not is_admission or NAMESPACE_TERMINATING in error.causes or _about_user.search(error.message):
        return ""
    return QUOTA_EXCEEDED if _quota.search(error.message) else ADMISSION_DENIED


def _refused(error: FarError, reason: str, cluster: str, doing: str) -> Trouble:
    message = _got.sub("", error.message) if "Kind=Secret)" in error.message else error.message
    advice = "correct the template, the cluster or the instance"
    return Trouble(reason, f'cluster "{cluster}" refused to {doing}: {quoted(message)}; {advice}', ERROR)


def _failing(error: FarError, cluster: str, doing: str) -> Trouble:
    if webhook := _webhook.search(error.message):
        message = f'cluster "{cluster}" cannot {doing}: its webhook "{webhook[1]}" does not answer; check that it runs'
        return Trouble(WEBHOOK_FAILING, message, WARNING)
    message = f'cluster "{cluster}" cannot {doing} now (HTTP status {error.status}); this is retried'
    return Trouble(CLUSTER_FAILING, message, WARNING)


def _word(error: FarError) -> str:
    return error.reason if _reason.fullmatch(error.reason) else REFUSED
