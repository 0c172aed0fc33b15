"""A connected cluster as people want to see it: in a list, probe by probe, and with what to do about what is wrong.

Everything is read from the cluster's status, which the server keeps true by looking at the cluster every few seconds.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime

from fairlead.cli.ui.describe import condition_of, text
from fairlead.cli.ui.durations import moment, since
from fairlead.core.objects import Object, dig, name_of

COLUMNS = ("NAME", "PHASE", "ONLINE", "VERSION", "REASON", "AGE")
CONNECTED, READY, STALLED, BOUND = "Connected", "Ready", "Stalled", "AdministratorsBound"
GOOD, BAD, WARNING = "✓", "✗", "!"
STALE = 90
"""Seconds after which a status is news from yesterday: the server writes when it last looked every half minute."""


def row(cluster: Object, now: datetime) -> Sequence[str]:
    online = dig(cluster, "status.online")
    return (
        name_of(cluster),
        "Deleting" if dig(cluster, "metadata.deletionTimestamp") else text(cluster, "status.phase"),
        "-" if online is None else "true" if online else "false",
        text(cluster, "status.version"),
        text(cluster, "status.reason"),
        since(dig(cluster, "metadata.creationTimestamp"), now),
    )


def is_connected(cluster: Object) -> bool:
    return condition_of(cluster, CONNECTED).get("status") == "True"


def is_healthy(cluster: Object) -> bool:
    """Whether nothing at all is wrong: a cluster may be well, and yet of no use to anybody."""
    return condition_of(cluster, READY).get("status") == "True" and not failed_probes(cluster)


def is_settled(cluster: Object) -> bool:
    """Whether the server knows how it stands. What it knows to be wrong may mend itself, but need not."""
    phase = dig(cluster, "status.phase")
    return phase in ("Initialized", "Failed") or condition_of(cluster, CONNECTED).get("status") == "False"


def standing(cluster: Object) -> str:
    """How it stands, in one sentence."""
    name, told = name_of(cluster), ": ".join(part for part in trouble(cluster) if part)
    if is_healthy(cluster):
        return f"the cluster {name} is connected{_facts(cluster)}"
    if is_connected(cluster):
        return f"the cluster {name} is connected, but not all is well: {told}"
    return f"the cluster {name} is not connected: {told or 'the server has not looked at it yet'}"


def _facts(cluster: Object) -> str:
    version, nodes = dig(cluster, "status.version"), dig(cluster, "status.nodes")
    facts = (
        f"Kubernetes {version}" if version else "",
        f"{nodes} node{'' if nodes == 1 else 's'}" if isinstance(nodes, int) else "",
    )
    told = ", ".join(fact for fact in facts if fact)
    return f": {told}" if told else ""


def trouble(cluster: Object) -> tuple[str, str]:
    """What is wrong: in a word and in a sentence, which says what to do. Conditions know more than the phase does."""
    for type in (CONNECTED, READY):
        found = condition_of(cluster, type)
        if found.get("status") == "False":
            return str(found.get("reason") or ""), str(found.get("message") or "")
    for probe in failed_probes(cluster):
        return str(probe.get("name") or ""), str(probe.get("message") or "")
    return str(dig(cluster, "status.reason") or ""), str(dig(cluster, "status.message") or "")


def probes_of(cluster: Object) -> list[Object]:
    return [each for each in dig(cluster, "status.probes") or () if isinstance(each, dict)]


def failed_probes(cluster: Object) -> list[Object]:
    return [each for each in probes_of(cluster) if _mark(each) == BAD]


def _mark(probe: Object) -> str:
    """What costs only a feature is a warning."""
    if probe.get("ok") is True:
        return GOOD
    return WARNING if probe.get("severity") == "Warning" else BAD


def probe_lines(cluster: Object) -> list[str]:
    """A line for each thing that the server looks at."""
    told = [(_mark(each), text(each, "name"), text(each, "message")) for each in probes_of(cluster)]
    width = max((len(name) for _, name, _ in told), default=0)
    return [f"{mark} {name.ljust(width)}   {message}" for mark, name, message in told]


def advice(cluster: Object, now: datetime) -> Iterator[str]:
    """What else to know. What to do about a probe that failed is in its own words."""
    if not is_healthy(cluster):
        yield _next(cluster)
    bound = condition_of(cluster, BOUND)
    if bound.get("status") == "False":
        yield str(bound.get("message") or "")
    looked = dig(cluster, "status.lastProbeTime")
    if (then := moment(looked)) is not None and (now - then).total_seconds() > STALE:
        yield f"the server last looked {since(looked, now)} ago; see that it is running, and that clocks are right"


def _next(cluster: Object) -> str:
    if not dig(cluster, "spec.config.secretName"):
        return "it names no kubeconfig, so the server leaves it alone; name a Secret with one in spec.config"
    if dig(cluster, "status.phase") == "Failed" or condition_of(cluster, STALLED).get("status") == "True":
        return f"once that is mended, the server notices; `fairlead cluster check {name_of(cluster)}` tells"
    return f"the server tries again by itself; `fairlead cluster check {name_of(cluster)}` tells how it stands"
