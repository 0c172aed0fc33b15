"""Formats the status of a connected cluster: table row, summary, probe results and advice.

Everything is read from the status of the Cluster, which the server updates by probing every few seconds.
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
"""Seconds without an update after which a status is stale; the server updates lastProbeTime every 30 seconds."""


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
    """Whether the cluster is ready and all probes that are not mere warnings succeeded."""
    return condition_of(cluster, READY).get("status") == "True" and not failed_probes(cluster)


def is_settled(cluster: Object) -> bool:
    """Whether the server has a result, good or bad. A failure may still be transient."""
    phase = dig(cluster, "status.phase")
    return phase in ("Initialized", "Failed") or condition_of(cluster, CONNECTED).get("status") == "False"


def standing(cluster: Object) -> str:
    """The status in one sentence."""
    name, problem = name_of(cluster), ": ".join(part for part in trouble(cluster) if part)
    if is_healthy(cluster):
        return f"the cluster {name} is connected{_facts(cluster)}"
    if is_connected(cluster):
        return f"the cluster {name} is connected, but not healthy: {problem}"
    return f"the cluster {name} is not connected: {problem or 'the server has not probed it yet'}"


def _facts(cluster: Object) -> str:
    version, nodes = dig(cluster, "status.version"), dig(cluster, "status.nodes")
    facts = (
        f"Kubernetes {version}" if version else "",
        f"{nodes} node{'' if nodes == 1 else 's'}" if isinstance(nodes, int) else "",
    )
    summary = ", ".join(fact for fact in facts if fact)
    return f": {summary}" if summary else ""


def trouble(cluster: Object) -> tuple[str, str]:
    """Reason and message of the first failure: of a condition, a probe, or the phase."""
    for type in (CONNECTED, READY):
        condition = condition_of(cluster, type)
        if condition.get("status") == "False":
            return str(condition.get("reason") or ""), str(condition.get("message") or "")
    for probe in failed_probes(cluster):
        return str(probe.get("name") or ""), str(probe.get("message") or "")
    return str(dig(cluster, "status.reason") or ""), str(dig(cluster, "status.message") or "")


def probes_of(cluster: Object) -> list[Object]:
    return [each for each in dig(cluster, "status.probes") or () if isinstance(each, dict)]


def failed_probes(cluster: Object) -> list[Object]:
    return [each for each in probes_of(cluster) if _mark(each) == BAD]


def _mark(probe: Object) -> str:
    """The symbol of a probe result. A failure of severity Warning affects only a feature."""
    if probe.get("ok") is True:
        return GOOD
    return WARNING if probe.get("severity") == "Warning" else BAD


def probe_lines(cluster: Object) -> list[str]:
    """A line for each probe."""
    results = [(_mark(each), text(each, "name"), text(each, "message")) for each in probes_of(cluster)]
    width = max((len(name) for _, name, _ in results), default=0)
    return [f"{mark} {name.ljust(width)}   {message}" for mark, name, message in results]


def advice(cluster: Object, now: datetime) -> Iterator[str]:
    """Further advice. The messages of failed probes contain their own."""
    if not is_healthy(cluster):
        yield _next(cluster)
    bound = condition_of(cluster, BOUND)
    if bound.get("status") == "False":
        yield str(bound.get("message") or "")
    probed = dig(cluster, "status.lastProbeTime")
    if (then := moment(probed)) is not None and (now - then).total_seconds() > STALE:
        yield f"the last probe was {since(probed, now)} ago; check that the server is running and clocks are in sync"


def _next(cluster: Object) -> str:
    if not dig(cluster, "spec.config.secretName"):
        return "it has no kubeconfig, so the server does not probe it; set a Secret with one in spec.config"
    command = f"`fairlead cluster check {name_of(cluster)}`"
    if dig(cluster, "status.phase") == "Failed" or condition_of(cluster, STALLED).get("status") == "True":
        return f"after you have fixed it, the server reconnects by itself; {command} shows the status"
    return f"the server retries by itself; {command} shows the status"
