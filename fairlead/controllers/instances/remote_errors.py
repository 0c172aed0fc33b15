"""`InstanceError`: why an instance cannot be reconciled, with the reason, message and severity of a condition.

`translate_errors` turns connection errors and error responses of a cluster into an InstanceError, which becomes a
condition. What a cluster says about a rejected object is quoted, since it is needed to correct the template; what it
says about the stored credential is not.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from fairlead.core.errors import BadRequest
from fairlead.core.objects import Object
from fairlead.registry.conditions import FALSE, condition
from fairlead.upstream.errors import UpstreamError
from fairlead.upstream.kube_client import RemoteApiError

ERROR, WARNING, INFO = "Error", "Warning", "Info"
"""Needs intervention; may recover by itself; in progress."""

NAMESPACE_TERMINATING = "NamespaceTerminating"
ABANDONED = "Abandoned"
ADMISSION_DENIED, INVALID = "AdmissionDenied", "Invalid"
QUOTA_EXCEEDED, QUOTA_UNKNOWN = "QuotaExceeded", "QuotaUnknown"
OWNER_FORBIDDEN, IMPERSONATION_FORBIDDEN = "OwnerForbidden", "ImpersonationForbidden"
UNAUTHORIZED, FORBIDDEN, REJECTED, BAD_REQUEST = "Unauthorized", "Forbidden", "Rejected", "BadRequest"
CLUSTER_FAILING, WEBHOOK_FAILING, UNEXPECTED_RESPONSE = "ClusterFailing", "WebhookFailing", "UnexpectedResponse"

_MAX_QUOTED_LENGTH = 500
_reason_pattern = re.compile(r"[A-Z][A-Za-z]{0,63}", re.ASCII)
_UNAUTHORIZED, _FORBIDDEN, _NOT_FOUND, _CONFLICT, _TOO_MANY, _SERVER = 401, 403, 404, 409, 429, 500

# Patterns of kube-apiserver messages about the object, not about the requester. Status codes are not enough: a webhook
# may deny with any code, and an apply that violates the schema is a 500 without a reason.
_admission_denied = re.compile(
    r'admission webhook "[^"]*" denied the request|ValidatingAdmissionPolicy .* denied request'
)
_schema_error = re.compile(r"failed to (create typed patch object|convert new object) ")
_quota_exceeded = re.compile(r"is forbidden: (exceeded quota|failed quota|insufficient quota)")
_quota_unknown = re.compile(r"is forbidden: status unknown for quota")
_webhook_failed = re.compile(r'failed calling webhook "([A-Za-z0-9.-]{1,253})"')
# Messages of authorizers, and of the RBAC escalation check.
_user_denied = re.compile(r'\b[Uu]ser "')
_impersonation_denied = re.compile(r'cannot impersonate resource "')
_got_value = re.compile(r", got .*")


class InstanceError(Exception):
    def __init__(self, reason: str, message: str, severity: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.severity = severity

    def as_condition(self, type: str) -> Object:
        return condition(type, FALSE, self.reason, self.message, self.severity)


class StillDeleting(InstanceError):
    """A deletion is in progress; the reason and message are about what it waits for."""


@contextmanager
def translate_errors(cluster: str, action: str, impersonate_user: str = "") -> Iterator[None]:
    """Raises errors of requests to a cluster as InstanceError. `action` is a phrase such as "create a Role".
    `impersonate_user` is the impersonated user; empty: the stored credential was used."""
    try:
        yield
    except RemoteApiError as error:
        raise (_translate_deployer_error(error, cluster, action) if impersonate_user else None) or _translate_response(
            error, cluster, action
        ) from error
    except UpstreamError as error:
        raise InstanceError(error.reason, f'cluster "{cluster}": {error.message}', WARNING) from error
    except BadRequest as error:  # raised locally: the values do not fit into a request
        message = f'cluster "{cluster}" cannot {action}: {error.message}; correct the template or app, or the instance'
        raise InstanceError(BAD_REQUEST, message, ERROR) from error


@asynccontextmanager
async def limit_seconds(
    cluster: str, action: str, seconds: float, impersonate_user: str = "", noun: str = "virtual cluster"
) -> AsyncIterator[None]:
    """`translate_errors` for several requests to a cluster, such as a virtual one, whose owner controls how slowly it
    answers: more than `seconds` for all of them is an error, too."""
    try:
        with translate_errors(cluster, action, impersonate_user):
            async with asyncio.timeout(seconds):
                yield
    except TimeoutError:
        message = f'{noun} "{cluster}" takes too long to {action}; check its API server'
        raise InstanceError("TimedOut", message, WARNING) from None


def unexpected_response(detail: str) -> InstanceError:
    """The response of a cluster is not trusted and may have any shape."""
    return InstanceError(
        UNEXPECTED_RESPONSE,
        f"the cluster returned an unexpected response: {detail}; check that it is a Kubernetes API server",
        WARNING,
    )


def quote_remote(text: object) -> str:
    """A text of a cluster, sanitized for messages: printable, on one line, and truncated."""
    printable = "".join(each for each in " ".join(str(text).split()) if each.isprintable())
    return printable if len(printable) <= _MAX_QUOTED_LENGTH else f"{printable[:_MAX_QUOTED_LENGTH]}..."


def _translate_deployer_error(error: RemoteApiError, cluster: str, action: str) -> InstanceError | None:
    """The error if the impersonated user lacks a permission; None if the response is about something else."""
    if error.status != _FORBIDDEN or NAMESPACE_TERMINATING in error.causes or not _user_denied.search(error.message):
        return None
    if _impersonation_denied.search(error.message):
        message = f'the stored credential of cluster "{cluster}" may not impersonate users, so it cannot {action}'
        advice = "grant that: `fairlead cluster role` prints a suitable role"
        return InstanceError(IMPERSONATION_FORBIDDEN, f"{message} with fewer permissions than its own; {advice}", ERROR)
    message = f'the owner of this is not permitted to {action} in cluster "{cluster}": {quote_remote(error.message)}'
    advice = "remove it, or ask for an administrator's template that has it"
    return InstanceError(OWNER_FORBIDDEN, f"{message}; {advice}", ERROR)


def _translate_response(error: RemoteApiError, cluster: str, action: str) -> InstanceError:
    """Attributes an error response to the template, to the stored credential, or to the cluster."""
    if _quota_unknown.search(error.message):
        message = f'cluster "{cluster}" cannot {action}: the usage of its quotas is not known yet; this is retried'
        return InstanceError(QUOTA_UNKNOWN, message, WARNING)
    about_object = _object_error_reason(error)
    if about_object:
        return _rejected_error(error, about_object, cluster, action)
    if error.status == _UNAUTHORIZED:
        message = f'cluster "{cluster}" rejects its stored credential; connect it again'
        return InstanceError(UNAUTHORIZED, message, WARNING)
    if NAMESPACE_TERMINATING in error.causes:
        message = (
            f'cluster "{cluster}" cannot {action}: the namespace is terminating; it will be created again after that'
        )
        return InstanceError(NAMESPACE_TERMINATING, message, INFO)
    if error.status == _FORBIDDEN:
        message = f'the stored credential of cluster "{cluster}" may not {action}; grant that permission in the cluster'
        return InstanceError(FORBIDDEN, message, ERROR)
    if error.status in (_NOT_FOUND, _CONFLICT):  # changed or deleted concurrently
        return InstanceError(
            _reason_of(error), f'cluster "{cluster}" cannot {action}: {quote_remote(error.message)}', WARNING
        )
    if error.status >= _SERVER or error.status == _TOO_MANY:
        return _server_error(error, cluster, action)
    return _rejected_error(error, _reason_of(error), cluster, action)


def is_about_object(error: RemoteApiError) -> bool:
    """Whether the cluster rejected the object itself, whatever the status code is."""
    return bool(_object_error_reason(error))


def _object_error_reason(error: RemoteApiError) -> str:
    """The reason if the cluster rejected the object itself; empty if the response is about something else."""
    if _admission_denied.search(error.message):
        return ADMISSION_DENIED
    if _schema_error.match(error.message):
        return INVALID
    is_admission = error.status == _FORBIDDEN and error.reason == FORBIDDEN and " is forbidden: " in error.message
    if not is_admission or NAMESPACE_TERMINATING in error.causes or _user_denied.search(error.message):
        return ""
    return QUOTA_EXCEEDED if _quota_exceeded.search(error.message) else ADMISSION_DENIED


def _rejected_error(error: RemoteApiError, reason: str, cluster: str, action: str) -> InstanceError:
    message = _got_value.sub("", error.message) if "Kind=Secret)" in error.message else error.message
    advice = "correct the template or app, the cluster or the instance"
    return InstanceError(reason, f'cluster "{cluster}" refused to {action}: {quote_remote(message)}; {advice}', ERROR)


def _server_error(error: RemoteApiError, cluster: str, action: str) -> InstanceError:
    if webhook := _webhook_failed.search(error.message):
        message = f'cluster "{cluster}" cannot {action}: its webhook "{webhook[1]}" does not answer; check that it runs'
        return InstanceError(WEBHOOK_FAILING, message, WARNING)
    message = f'cluster "{cluster}" cannot {action} now (HTTP status {error.status}); this is retried'
    return InstanceError(CLUSTER_FAILING, message, WARNING)


def _reason_of(error: RemoteApiError) -> str:
    return error.reason if _reason_pattern.fullmatch(error.reason) else REJECTED
