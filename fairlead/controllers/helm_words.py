"""What of helm's complaints may be told to whoever looks at an instance. Pure; `helm.py` asks.

The one who reads a condition may be the one who has chosen the chart and its repository. What a server inside the
network answers, or what is in a file of this machine, must not reach him that way. So only helm's own words about a
release are told, with credentials and addresses taken out; of a chart that cannot be fetched and a cluster that cannot
be reached only that. How helm begins was seen on Helm 3.17 and 4.2, which differ: 3 counts errors, 4 applies on the
server's side. A complaint may have several lines, and warnings may come before it.
"""

import re
from collections.abc import Sequence

LENGTH = 500
CHART_NOT_FETCHED = (
    "the chart could not be fetched; see the repository, the name, the version and the credential in helmRelease.chart"
)
CLUSTER_NOT_REACHED = "helm did not reach the cluster, or the cluster refused the stored credential"

# How helm begins when it is about the release, and not about where the chart or the cluster is.
_about_release = re.compile(
    r"Error: (?:"
    r"(?:UPGRADE|INSTALLATION) FAILED: "
    r"|execution error at |template: |parse error at |YAML parse error on |values don't meet the specifications"
    r"|[\w.-]+/(?:charts/[\w.-]+/)*templates/\S+:\d+:\d+ executing "
    r"|failed to parse \[\.\.\.\]/values\.yaml: |chart requires kubeVersion: |chart dependencies processing failed"
    r"|an error occurred while checking for chart dependencies"
    r"|chart \"[^\"]*\"(?: version \"[^\"]*\")? not found in "
    r"|unable to build kubernetes objects|[Uu]nable to continue with |failed to install CRD "
    r"|\d+ errors? occurred: |server-side apply failed for object |conflict occurred while applying object "
    r"|create: failed to create: |query: failed to query with labels: "
    r"|failed (?:pre|post)-(?:install|upgrade|delete): |another operation \(install/upgrade/rollback\)"
    r"|cannot re-?use a name|release[: ]|uninstall: |uninstallation completed with |failed to delete release: "
    r"|timed out waiting for |context deadline exceeded"
    r")"
)
_not_fetched = re.compile(
    r"looks like |failed to fetch|failed to download|failed to do request|\b(?:Get|GET|Head|HEAD) \"|dial tcp"
    r"|authenticating to "
)
_not_reached = re.compile(r"[Kk]ubernetes cluster unreachable: ")
_not_installed = re.compile(r"Error: uninstall: Release not loaded: \S+: release: not found")
_pending = re.compile(r"Error: UPGRADE FAILED: another operation \(install/upgrade/rollback\) is in progress")
_forbidden = re.compile(r"Error: uninstall: Release not loaded: .* is forbidden: ")
_address = re.compile(
    r"[A-Za-z][A-Za-z0-9+.-]*://\S+|\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b|\[[0-9A-Fa-f:]{3,}\](?::\d+)?"
)


def told(complaint: bytes, secrets: Sequence[str]) -> str:
    """A complaint about the release, short, without secrets and addresses; of another one what it is about, if that
    is known."""
    text = _complaint_of(complaint)
    for secret in secrets:
        text = text.replace(secret, "[...]")
    if _not_reached.search(text):
        return CLUSTER_NOT_REACHED
    is_about_release = _about_release.match(text)
    if _not_fetched.search(text):
        return "" if is_about_release else CHART_NOT_FETCHED
    if not is_about_release:
        return ""
    return "".join(each for each in _address.sub("[...]", text) if each.isprintable())[:LENGTH]


def is_not_installed(complaint: bytes) -> bool:
    """Whether that is why a release could not be uninstalled."""
    return bool(_not_installed.match(_complaint_of(complaint)))


def is_forbidden(complaint: bytes) -> bool:
    """Whether a release could not be uninstalled for want of the right to look for it."""
    return bool(_forbidden.match(_complaint_of(complaint)))


def is_pending(complaint: bytes) -> bool:
    """Whether helm finds that another run is at work on the release, or was."""
    return bool(_pending.match(_complaint_of(complaint)))


def _complaint_of(text: bytes) -> str:
    """The last error in what helm has printed, on one line."""
    lines = [line.strip() for line in text.decode(errors="replace").splitlines() if line.strip()]
    begins = [number for number, line in enumerate(lines) if line.startswith("Error: ")]
    return " ".join(lines[begins[-1] :]) if begins else ""
