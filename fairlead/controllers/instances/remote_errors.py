"""What keeps an instance in a connected cluster from being as it should: one word, a sentence with advice, and how bad.

Whatever goes wrong on the way to a cluster or in it becomes a Trouble, and a Trouble becomes a condition. What the
cluster says about an object that it does not take is passed on, since nobody could correct a template without; what it
says about our own credential is not.
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
"""Somebody has to do something; it may heal by itself; it is on its way."""

NAMESPACE_TERMINATING = "NamespaceTerminating"
ADMISSION_DENIED, INVALID = "AdmissionDenied", "Invalid"
QUOTA_EXCEEDED, QUOTA_UNKNOWN = "QuotaExceeded", "QuotaUnknown"
OWNER_FORBIDDEN, IMPERSONATION_FORBIDDEN = "OwnerForbidden", "ImpersonationForbidden"
UNAUTHORIZED, FORBIDDEN, REFUSED, BAD_REQUEST = "Unauthorized", "Forbidden", "Refused", "BadRequest"
CLUSTER_FAILING, WEBHOOK_FAILING, ODD_ANSWER = "ClusterFailing", "WebhookFailing", "OddAnswer"

_QUOTED = 500
_reason = re.compile(r"[A-Z][A-Za-z]{0,63}", re.ASCII)
_UNAUTHORIZED, _FORBIDDEN, _NOT_FOUND, _CONFLICT, _TOO_MANY, _SERVER = 401, 403, 404, 409, 429, 500

# How a kube-apiserver begins, or goes on, when it is about the object and not about who sent it. The codes do not tell:
# a webhook denies with whatever code it likes, and an apply that does not fit the schema is a 500 without a reason.
_denied = re.compile(r'admission webhook "[^"]*" denied the request|ValidatingAdmissionPolicy .* denied request')
_untyped = re.compile(r"failed to (create typed patch object|convert new object) ")
_quota = re.compile(r"is forbidden: (exceeded quota|failed quota|insufficient quota)")
_quota_unknown = re.compile(r"is forbidden: status unknown for quota")
_webhook = re.compile(r'failed calling webhook "([A-Za-z0-9.-]{1,253})"')
# Authorizers, and those who keep people from granting what they do not have themselves.
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
    """Whatever a cluster answers or fails to answer inside is raised as Trouble. `doing` is such as "make a Role".
    `acting_as` is the user of the cluster that it was asked as, if not the stored credential's."""
    try:
        yield
    except FarError as error:
        raise (_answered_to_deployer(error, cluster, doing) if acting_as else None) or _answered(
            error, cluster, doing
        ) from error
    except UpstreamError as error:
        raise Trouble(error.reason, f'cluster "{cluster}": {error.message}', WARNING) from error
    except BadRequest as error:  # ours: what was asked for cannot be put into a request
        why = f'cluster "{cluster}" cannot be asked to {doing}: {error.message}; correct the template or the instance'
        raise Trouble(BAD_REQUEST, why, ERROR) from error


def odd_answer(what: str) -> Trouble:
    """A cluster may answer with anything, and everything that it answers is looked at as such."""
    return Trouble(ODD_ANSWER, f"the cluster does not answer as Kubernetes does: {what}; see what it is", WARNING)


def quoted(text: object) -> str:
    """What a cluster says, as far as people may be shown it: printable, on one line, and not too long."""
    said = "".join(each for each in " ".join(str(text).split()) if each.isprintable())
    return said if len(said) <= _QUOTED else f"{said[:_QUOTED]}..."


def _answered_to_deployer(error: FarError, cluster: str, doing: str) -> Trouble | None:
    """What is about the rights of whoever something is made for; None where the answer is about something else."""
    if error.status != _FORBIDDEN or NAMESPACE_TERMINATING in error.causes or not _about_user.search(error.message):
        return None
    if _impersonating.search(error.message):
        why = f'the credential that is stored for cluster "{cluster}" may not impersonate users, so it cannot {doing}'
        advice = "give it that right: `fairlead cluster role` prints a role that has it"
        return Trouble(IMPERSONATION_FORBIDDEN, f"{why} with the rights of the owner; {advice}", ERROR)
    why = f'cluster "{cluster}" does not let the owner of this {doing}: {quoted(error.message)}'
    advice = "leave it out, or have it put into a template of an administrator"
    return Trouble(OWNER_FORBIDDEN, f"{why}; {advice}", ERROR)


def _answered(error: FarError, cluster: str, doing: str) -> Trouble:
    """Whose matter a refusal is: the template's, that of the credential which is stored for the cluster, or neither."""
    if _quota_unknown.search(error.message):
        why = f'cluster "{cluster}" cannot {doing}: it has not counted yet what its quotas are about; it is tried again'
        return Trouble(QUOTA_UNKNOWN, why, WARNING)
    about_object = _about_object(error)
    if about_object:
        return _refused(error, about_object, cluster, doing)
    if error.status == _UNAUTHORIZED:
        why = f'cluster "{cluster}" does not know the credential that is stored for it; connect it anew'
        return Trouble(UNAUTHORIZED, why, WARNING)
    if NAMESPACE_TERMINATING in error.causes:
        why = f'cluster "{cluster}" cannot {doing}: the namespace is being deleted; it is made again after that'
        return Trouble(NAMESPACE_TERMINATING, why, INFO)
    if error.status == _FORBIDDEN:
        why = f'the credential that is stored for cluster "{cluster}" may not {doing}; have it given that right there'
        return Trouble(FORBIDDEN, why, ERROR)
    if error.status in (_NOT_FOUND, _CONFLICT):  # what was there a moment ago, or was another
        return Trouble(_word(error), f'cluster "{cluster}" cannot {doing}: {quoted(error.message)}', WARNING)
    if error.status >= _SERVER or error.status == _TOO_MANY:
        return _failing(error, cluster, doing)
    return _refused(error, _word(error), cluster, doing)


def _about_object(error: FarError) -> str:
    """One word for what is wrong with the object that was sent; empty where that is not what the answer is about."""
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
    return Trouble(reason, f'cluster "{cluster}" refuses to {doing}: {quoted(message)}; {advice}', ERROR)


def _failing(error: FarError, cluster: str, doing: str) -> Trouble:
    if webhook := _webhook.search(error.message):
        why = f'cluster "{cluster}" cannot {doing}: its webhook "{webhook[1]}" does not answer; see that it runs'
        return Trouble(WEBHOOK_FAILING, why, WARNING)
    why = f'cluster "{cluster}" cannot {doing} just now ({error.status}); it is tried again'
    return Trouble(CLUSTER_FAILING, why, WARNING)


def _word(error: FarError) -> str:
    return error.reason if _reason.fullmatch(error.reason) else REFUSED
