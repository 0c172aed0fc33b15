"""Formats the status of a connected cluster: table row, summary, probe results and advice.

Everything is read from the status of the Cluster, which the server updates by probing every few seconds.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime

from fairlead.cli.ui.describe import age_cell, cell, find_condition, text_of
from fairlead.cli.ui.durations import age, parse_time
from fairlead.core.objects import Object, get_path, name_of

COLUMNS = ("NAME", "PHASE", "ONLINE", "VERSION", "REASON", "AGE")
CONNECTED, READY, STALLED, ADMINISTRATORS_BOUND = "Connected", "Ready", "Stalled", "AdministratorsBound"
GOOD, BAD, WARNING = "✓", "✗", "!"
STALE_SECONDS = 660
"""Seconds without an update after which a status is stale; the server updates lastProbeTime every five minutes."""


def table_row(cluster: Object, now: datetime) -> Sequence[str]:
    online = get_path(cluster, "status.online")
    return (
        name_of(cluster),
        "Deleting" if get_path(cluster, "metadata.deletionTimestamp") else cell(cluster, "status.phase"),
        "-" if online is None else "true" if online else "false",
        cell(cluster, "status.version"),
        cell(cluster, "status.reason"),
        age_cell(cluster, now),
    )


def is_connected(cluster: Object) -> bool:
    return find_condition(cluster, CONNECTED).get("status") == "True"


def is_healthy(cluster: Object) -> bool:
    """Whether the cluster is ready and all probes that are not mere warnings succeeded."""
    return find_condition(cluster, READY).get("status") == "True" and not failed_probes(cluster)


def is_probed(cluster: Object) -> bool:
    """Whether the server has a result, good or bad. A failure may still be transient."""
    phase = get_path(cluster, "status.phase")
    return phase in ("Initialized", "Failed") or find_condition(cluster, CONNECTED).get("status") == "False"


def summary_line(cluster: Object) -> str:
    """The status in one sentence."""
    name = name_of(cluster)
    problem = ": ".join(part for part in failure(cluster) if part)
    if is_healthy(cluster):
        return f"the cluster {name} is connected{_describe_facts(cluster)}"
    if is_connected(cluster):
        return f"the cluster {name} is connected, but not healthy: {problem}"
    return f"the cluster {name} is not connected: {problem or 'the server has not probed it yet'}"


def _describe_facts(cluster: Object) -> str:
    version = get_path(cluster, "status.version")
    nodes = get_path(cluster, "status.nodes")
    facts = (
        f"Kubernetes {version}" if version else "",
        f"{nodes} node{'' if nodes == 1 else 's'}" if isinstance(nodes, int) else "",
    )
    summary = ", ".join(fact for fact in facts if fact)
    return f": {summary}" if summary else ""


def failure(cluster: Object) -> tuple[str, str]:
    """Reason and message of the first failure: of a condition, a probe, or the phase."""
    for type in (CONNECTED, READY):
        condition = find_condition(cluster, type)
        if condition.get("status") == "False":
            return str(condition.get("reason") or ""), str(condition.get("message") or "")
    for probe in failed_probes(cluster):
        return str(probe.get("name") or ""), str(probe.get("message") or "")
    return text_of(cluster, "status.reason"), text_of(cluster, "status.message")


def list_probes(cluster: Object) -> list[Object]:
    return [each for each in get_path(cluster, "status.probes") or () if isinstance(each, dict)]


def failed_probes(cluster: Object) -> list[Object]:
    return [each for each in list_probes(cluster) if _probe_mark(each) == BAD]


def _probe_mark(probe: Object) -> str:
    """The symbol of a probe result. A failure of severity Warning affects only a feature."""
    if probe.get("ok") is True:
        return GOOD
    return WARNING if probe.get("severity") == "Warning" else BAD


def probe_lines(cluster: Object) -> list[str]:
    """A line for each probe."""
    results = [(_probe_mark(each), cell(each, "name"), cell(each, "message")) for each in list_probes(cluster)]
    width = max((len(name) for _, name, _ in results), default=0)
    return [f"{mark} {name.ljust(width)}   {message}" for mark, name, message in results]


def advice(cluster: Object, now: datetime) -> Iterator[str]:
    """Further advice. The messages of failed probes contain their own."""
    if not is_healthy(cluster):
        yield _next_step(cluster)
    bound = find_condition(cluster, ADMINISTRATORS_BOUND)
    if bound.get("status") == "False":
        yield str(bound.get("message") or "")
    probed = get_path(cluster, "status.lastProbeTime")
    if (then := parse_time(probed)) is not None and (now - then).total_seconds() > STALE_SECONDS:
        yield f"the last probe was {age(probed, now)} ago; check that the server is running and clocks are in sync"


def _next_step(cluster: Object) -> str:
    if not get_path(cluster, "spec.config.secretName"):
        return "it has no kubeconfig, so the server does not probe it; set a Secret with one in spec.config"
    command = f"`fairlead cluster check {name_of(cluster)}`"
    if get_path(cluster, "status.phase") == "Failed" or find_condition(cluster, STALLED).get("status") == "True":
        return f"after you have fixed it, the server reconnects by itself; {command} shows the status"
    return f"the server retries by itself; {command} shows the status"
