"""The connection to the server, over which the server opens streams to this runner.

Nothing else depends on it: tasks and workspaces go on without a connection, and it is dialed again for ever.
"""

import ssl
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import quote

from fairlead.client.client import read_ca_file
from fairlead.client.tls import build_ssl_context
from fairlead.core.files import FileProblem
from fairlead.links.contract import OpenHandler
from fairlead.links.dialing import DialError, LinkAddress, Superseded, keep_link
from fairlead.runner.heartbeat import Replaced, RunnerIdentity
from fairlead.runner.settings import RunnerSettings, key_reader


@dataclass(frozen=True, slots=True)
class LinkTarget:
    """Where the runner dials. `read_key` is called for each attempt, because the key may have been rotated."""

    url: str
    tls: ssl.SSLContext
    read_key: Callable[[], str]

    def build_address(self) -> LinkAddress:
        """Raises DialError if there is no key now, so that the runner tries again."""
        try:
            return LinkAddress(self.url, self.read_key(), self.tls)
        except FileProblem as error:
            raise DialError(str(error)) from None


def find_target(settings: RunnerSettings) -> LinkTarget:
    """Raises FileProblem or ClientError if the key or the CA is not usable."""
    base = settings.server.replace("http", "ws", 1)
    name = quote(settings.name, safe="")
    url = f"{base}/kubernetes/management/apis/{settings.api_group}/v1/runners/{name}/link"
    authority = read_ca_file(settings.ca_file) if settings.ca_file is not None else ""
    return LinkTarget(url, build_ssl_context(authority), key_reader(settings))


async def serve_link(target: LinkTarget, identity: RunnerIdentity, on_open: OpenHandler) -> None:
    """Serves the streams that the server opens, for ever. Raises Replaced if another process has taken over."""
    try:
        await keep_link(target.build_address, on_open, identity.boot)
    except Superseded as error:
        raise Replaced(str(error)) from None
