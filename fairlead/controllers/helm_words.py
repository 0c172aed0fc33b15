"""What of helm's complaints may be told to whoever looks at an instance. Pure; `helm.py` asks.

The one who reads a condition may be the one who has chosen the chart and its repository. What a server inside the
network answers, or what is in a file of this machine, must not reach him that way. So only helm's own words about a
release are told, with credentials and addresses taken out.
"""

import re
from collections.abc import Sequence

LENGTH = 200

# How helm begins when it is about the release, and not about where the chart or the cluster is.
_about_release = re.compile(
    r"Error: (?:"
    r"(?:UPGRADE|INSTALLATION) FAILED: (?!.*(?:looks like |failed to fetch|failed to download|Get \"|dial tcp))"
    r"|execution error at |template: |parse error at |values don't meet the specifications"
    r"|unable to build kubernetes objects|unable to continue with |Unable to continue with "
    r"|failed (?:pre|post)-(?:install|upgrade|delete): |another operation \(install/upgrade/rollback\)"
    r"|cannot re-use a name|release[: ]|uninstall: |uninstallation completed with |timed out waiting for "
    r"|context deadline exceeded"
    r")"
)
_address = re.compile(
    r"[A-Za-z][A-Za-z0-9+.-]*://\S+|\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b|\[[0-9A-Fa-f:]{3,}\](?::\d+)?"
)


def told(complaint: bytes, secrets: Sequence[str]) -> str:
    """The last line of a complaint if it is about the release, short, without secrets and addresses; else nothing."""
    lines = [line.strip() for line in complaint.decode(errors="replace").splitlines() if line.strip()]
    if not lines or not _about_release.match(lines[-1]):
        return ""
    text = lines[-1]
    for secret in secrets:
        text = text.replace(secret, "[...]")
    return "".join(each for each in _address.sub("[...]", text) if each.isprintable())[:LENGTH]
