"""What keeps an instance in a connected cluster from being as it should: one word, a sentence with advice, and how bad.

Whatever goes wrong on the way to a cluster or in it becomes a Trouble, and a Trouble becomes a condition. What the
cluster says about an object that it does not take is passed on, since nobody could mend a template without; what it
says about our own credential is not.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from fairlead.core.objects import Object
from fairlead.registry.conditions import FALSE, condition
from fairlead.upstream.cluster_api import FarError
from fairlead.upstream.errors import UpstreamError

ERROR, WARNING, INFO = "Error", "Warning", "Info"
"""Somebody has to do something; it may heal by itself; it is on its way."""

_QUOTED = 300
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


def _answered(error: FarError, cluster: str, doing: str) -> Trouble:
    if error.status == _UNAUTHORIZED:
        why = f'cluster "{cluster}" does not know the credential that is stored for it; connect it anew'
        return Trouble("Unauthorized", why, WARNING)
    if error.status == _FORBIDDEN:
        why = f'the credential that is stored for cluster "{cluster}" may not {doing}; have it given that right there'
        return Trouble("Forbidden", why, ERROR)
    said = " ".join(error.message.split())[:_QUOTED]
    if error.status >= _SERVER or error.status == _TOO_MANY:
        why = f'cluster "{cluster}" cannot {doing} just now ({error.status}); it is tried again'
        return Trouble("ClusterFailing", why, WARNING)
    why = f'cluster "{cluster}" refuses to {doing}: {said}; mend the template, the cluster or the instance'
    return Trouble(error.reason or "Refused", why, ERROR)
