"""The project secrets with credentials for Git, and for which repositories each of them is.

The annotation `service.sh/git-host` of a ProjectSecret names a host, with a port if it has one, and the path below
which repositories are meant, if not all: `git.example.com/team`. Others never get the credentials.

For the clone of a workspace, all of them count that its owner may use. In its sessions, those that the owner owns
count unless the template forbids it (`credentialForwarding.git.disabled`), and those of the project if the template
offers them (`useProjectGitCredentials`): every program in the workspace can ask for them.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Self

from fairlead.core.objects import Object, get_path, metadata
from fairlead.kinds.access.users import USER
from fairlead.registry.codec import decode
from fairlead.storage.view.view import View
from fairlead.subresources.workspaces.project_secrets import ProjectSecret, ProjectSecrets

GIT_KEYS = {
    "https": {"username": "username", "password": "password"},
    "ssh": {"ssh-privatekey": "sshPrivateKey", "known_hosts": "knownHosts"},
}
"""By protocol: the keys of such a ProjectSecret, and the fields of the response."""
REQUIRED_GIT_KEYS = {"https": "password", "ssh": "ssh-privatekey"}
MAX_HOST_CHARS, MAX_PATH_CHARS = 255, 1024
_HOST = re.compile(r"[A-Za-z0-9._-]+(:[0-9]{1,5})?|\[[0-9A-Fa-f:.]+\](:[0-9]{1,5})?")


@dataclass(frozen=True, slots=True)
class Repository:
    """What credentials are wanted for. The path is empty if git did not say it."""

    protocol: str
    host: str
    path: str = ""

    def __str__(self) -> str:
        return f"{self.protocol}://{self.host}/{self.path}".removesuffix("/")

    def is_below(self, folder: str) -> bool:
        """Whether its path is this folder or below it. A path that a server could read in another way is not."""
        names = self.path.split("/")
        if not folder:
            return True
        if any(each in self.path for each in "%\\;") or any(each in ("", ".", "..") for each in names):
            return False
        return self.path.removesuffix(".git") == folder or self.path.startswith(f"{folder}/")


def parse_repository(protocol: str, host: str, path: str) -> Repository | None:
    """None if no credentials are wanted. Raises ValueError for what is no host or path."""
    if not host or protocol not in GIT_KEYS:
        return None
    if len(host) > MAX_HOST_CHARS or not _HOST.fullmatch(host):
        raise ValueError("gitHost: must be the name or address of a host, with a port if it has one")
    if len(path) > MAX_PATH_CHARS or not path.isprintable():
        raise ValueError(f"gitPath: must be printable characters, at most {MAX_PATH_CHARS}")
    return Repository(protocol, host.lower(), path.strip("/"))


@dataclass(frozen=True, slots=True)
class GitSecret:
    """One project secret with credentials for Git."""

    name: str
    host: str
    folder: str
    is_own: bool
    """It belongs to the owner of the workspace."""
    keys: frozenset[str]

    @classmethod
    def read(cls, secret: ProjectSecret, owner: object) -> Self | None:
        host, _, folder = secret.git_place.partition("/")
        if not host:
            return None
        is_own = bool(owner) and secret.owner == owner
        return cls(secret.name, host.lower(), folder.strip("/"), is_own, secret.keys)


@dataclass(frozen=True, slots=True)
class GitSecrets:
    """Those that a workspace may use, if its owner may: their own first, the most precise path before others."""

    namespace: str
    secrets: tuple[GitSecret, ...]

    @classmethod
    def collect(cls, secrets: ProjectSecrets, workspace: Object, is_session: bool) -> Self:
        namespace = str(metadata(workspace)["namespace"])
        owner = get_path(workspace, "spec.owner")
        read = (GitSecret.read(each, owner) for each in secrets.list(namespace))
        template: Mapping[str, object] = get_path(workspace, "status.instance") or {}
        found = [each for each in read if each is not None and (not is_session or _is_offered(each, template))]
        found.sort(key=lambda each: (not each.is_own, -len(each.folder), each.name))
        return cls(namespace, tuple(found))

    def find(self, repository: Repository) -> Iterator[str]:
        """The names of those for a repository."""
        for each in self.secrets:
            is_for_host = each.host == repository.host and repository.is_below(each.folder)
            if is_for_host and REQUIRED_GIT_KEYS[repository.protocol] in each.keys:
                yield each.name

    def list_hosts_with_paths(self) -> list[str]:
        """Hosts of which some credentials are for a part of the repositories. Others are of no use in git's own
        configuration, where they are written."""
        return sorted({each.host for each in self.secrets if each.folder and _HOST.fullmatch(each.host)})


def _is_offered(secret: GitSecret, template: Mapping[str, object]) -> bool:
    """Whether programs in the workspace may ask for it."""
    if secret.is_own:
        return get_path(template, "credentialForwarding.git.disabled") is not True
    return template.get("useProjectGitCredentials") is True


def find_owner(view: View, group: str, workspace: Object) -> Object:
    """The user who owns the workspace; empty if it is none."""
    name = get_path(workspace, "spec.owner.user")
    entry = view.get((group, USER.plural, "", name)) if isinstance(name, str) and name else None
    return decode(entry) if entry is not None else {}


def describe_identity(user: Object) -> Object:
    """Name and address of a user for commits; empty if it has no address."""
    email = str(get_path(user, "spec.email") or "")
    shown = str(
        get_path(user, "spec.displayName") or get_path(user, "spec.username") or metadata(user).get("name") or ""
    )
    return {"name": shown, "email": email} if email else {}
