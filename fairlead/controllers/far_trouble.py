"""What keeps an instance in a connected cluster from being as it should: one word, a sentence with advice, and how bad.

Whatever goes wrong on the way to a cluster or in it becomes a Trouble, and a Trouble becomes a condition. What the
cluster says about an object that it does not take is passed on, since nobody could mend a template without; what it
says about our own credential is not.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from fairlead.core.errors import BadRequest
from fairlead.core.objects import Object
from fairlead.registry.conditions import FALSE, condition
from fairlead.upstream.cluster_api import FarError
from fairlead.upstream.errors import UpstreamError

ERROR, WARNING, INFO = "Error", "Warning", "Info"
"""Somebody has to do something; it may heal by itself; it is on its way."""

_QUOTED = 300
_reason = re.compile(r"[A-Z][A-Za-z]{0,63}", re.ASCII)
_UNAUTHORIZED, _FORBIDDEN, _TOO_MANY, _SERVER = 401, 403, 429, 500


class Trouble(Exception):
    def __init__(self, reason: str, message: str, severity: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.severity = severity

    def as_condition(self, type: str) -> Object:
        return condition(type, FALSE, self.reason, self.message, self.severity)


@contextmanager
def troubles(cluster: str, doing: str) -> Iterator[None]:
    """Whatever a cluster answers or fails to answer inside is raised as Trouble. `doing` is such as "make a Role"."""
    try:
        yield
    except FarError as error:
        raise _answered(error, cluster, doing) from error
    except UpstreamError as error:
        raise Trouble(error.reason, f'cluster "{cluster}": {error.message}', WARNING) from error
    except BadRequest as error:  # ours: what was asked for cannot be put into a request
        why = f'cluster "{cluster}" cannot be asked to {doing}: {error.message}; mend the template or the instance'
        raise Trouble("BadRequest", why, ERROR) from error


def odd_answer(what: str) -> Trouble:
    """A cluster may answer with anything, and everything that it answers is looked at as such."""
    return Trouble("OddAnswer", f"the cluster does not answer as Kubernetes does: {what}; see what it is", WARNING)


def _answered(error: FarError, cluster: str, doing: str) -> Trouble:
    if error.status == _UNAUTHORIZED:
        why = f'cluster "{cluster}" does not know the credential that is stored for it; connect it anew'
        return Trouble("Unauthorized", why, WARNING)
    if error.status == _FORBIDDEN:
        why = f'the credential that is stored for cluster "{cluster}" may not {doing}; have it given that right there'
        return Trouble("Forbidden", why, ERROR)
    said = "".join(each for each in " ".join(error.message.split()) if each.isprintable())[:_QUOTED]
    if error.status >= _SERVER or error.status == _TOO_MANY:
        why = f'cluster "{cluster}" cannot {doing} just now ({error.status}); it is tried again'
        return Trouble("ClusterFailing", why, WARNING)
    why = f'cluster "{cluster}" refuses to {doing}: {said}; mend the template, the cluster or the instance'
    return Trouble(error.reason if _reason.fullmatch(error.reason) else "Refused", why, ERROR)
