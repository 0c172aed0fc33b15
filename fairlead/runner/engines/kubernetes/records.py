"""What the runner remembers of a workspace in a cluster, written before anything is created.

Objects are found by it, also when the template is gone or names another place. If it is lost, labels tell where the
objects are, and the rest is found out anew.
"""

import msgspec

from fairlead.runner.engines.records import UidRecord


class Session(msgspec.Struct, frozen=True):
    """How processes inside are started. Empty until the first Pod has run."""

    user: str = ""
    container_user: str = ""
    """The number of the user of the container. Root can become another user."""
    folder: str = ""
    environment: dict[str, str] = {}
    """Expressions of a shell."""


NO_SESSION = Session()


class Record(UidRecord, frozen=True):
    cluster: str
    """The name of the context."""
    namespace: str
    project: str = "workspace"
    """The name of the work folder. It does not follow the name of the workspace."""
    configuration: str | None = None
    """The devcontainer.json. Empty: the source has none. None: not read yet."""
    session: Session = NO_SESSION
    ready_pod: str = ""
    """The uid of the Pod whose lifecycle commands have ended."""
    ready_template: str = ""
