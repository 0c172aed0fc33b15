"""The keys of the agent, and where they are kept: in a file, or in a Secret of the cluster that all its agents share.

Several agents of one cluster have one identity. The first to write it wins, and the others take what is there.
"""

from base64 import b64decode, b64encode
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import msgspec

from fairlead.core.files import FileProblem, read_file, write_file
from fairlead.upstream.errors import UpstreamError
from fairlead.upstream.kube_client import CONFLICT, KubeClient, RemoteApiError

FIELD = "identity.json"


class Identity(msgspec.Struct, frozen=True):
    """Private keys of the agent of a cluster. The first one is tried first; a second one is its predecessor, until the
    server has confirmed the first."""

    cluster: str
    keys: tuple[str, ...]

    def __repr__(self) -> str:
        return f"Identity({self.cluster!r})"


class IdentityError(Exception):
    """The identity cannot be read or written. The message is for the log."""


class IdentityStore(Protocol):
    async def load(self) -> Identity | None:
        """Raises IdentityError."""

    async def save(self, identity: Identity) -> Identity:
        """Stores the identity, unless another agent has changed it since `load`. Returns the stored one. Raises
        IdentityError."""


def _decode(content: bytes, place: str) -> Identity:
    try:
        return msgspec.json.decode(content, type=Identity)
    except msgspec.MsgspecError:
        raise IdentityError(
            f"{place}: not the identity of an agent; delete it, and join again with a new token"
        ) from None


@dataclass(frozen=True, slots=True)
class FileStore:
    """For an agent outside of its cluster. Its state folder is private."""

    path: Path

    async def load(self) -> Identity | None:
        try:
            content = read_file(self.path)
        except FileProblem as error:
            raise IdentityError(str(error)) from None
        return _decode(content, str(self.path)) if content else None

    async def save(self, identity: Identity) -> Identity:
        try:
            write_file(self.path, msgspec.json.encode(identity))
        except (FileProblem, OSError) as error:
            raise IdentityError(f"{self.path}: cannot be written: {error}") from None
        return identity


class SecretStore:
    """For the agents in a cluster. The Secret exists already: they may change it, and create none."""

    def __init__(self, connect: Callable[[], KubeClient], namespace: str, name: str) -> None:
        self._connect = connect
        self._path = f"/api/v1/namespaces/{namespace}/secrets/{name}"
        self._place = f"Secret {namespace}/{name}"
        self._version = ""

    async def load(self) -> Identity | None:
        try:
            secret = await self._connect().get(self._path)
        except (RemoteApiError, UpstreamError) as error:
            raise IdentityError(f"{self._place} cannot be read: {error}") from None
        self._version = secret["metadata"]["resourceVersion"]
        content = (secret.get("data") or {}).get(FIELD)
        return _decode(b64decode(content), self._place) if content else None

    async def save(self, identity: Identity) -> Identity:
        encoded = b64encode(msgspec.json.encode(identity)).decode()
        body = {"metadata": {"resourceVersion": self._version}, "data": {FIELD: encoded}}
        try:
            saved = await self._connect().patch(self._path, body)
        except RemoteApiError as error:
            if error.status != CONFLICT:
                raise IdentityError(f"{self._place} cannot be written: {error}") from None
            return await self.load() or await self.save(identity)
        except UpstreamError as error:
            raise IdentityError(f"{self._place} cannot be written: {error}") from None
        self._version = saved["metadata"]["resourceVersion"]
        return identity
