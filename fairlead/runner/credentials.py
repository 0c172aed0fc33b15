"""The secrets of a workspace, which the server resolves for each `up`. They are in memory only, until it ends.

The journal, the status and the log never have them; the log masks them.
"""

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from fairlead.client import ApiStatusError, ClientError
from fairlead.core.objects import Object, get_path
from fairlead.runner.engines.contract import (
    GIT_KNOWN_HOSTS,
    GIT_SSH_KEY,
    GIT_TOKEN,
    GIT_USER,
    EngineError,
    GitSource,
    RegistryCredentials,
    Source,
)
from fairlead.runner.services import RunnerServices
from fairlead.runner.tasks import RunningTask

SECRETS_UNAVAILABLE = "SecretsUnavailable"
STEP, STEP_SECONDS, RETRY_SECONDS = "Secrets", 60.0, 2.0
MAX_REGISTRIES = 64
HIDDEN = "<hidden>"
"""What the server shows instead of a password parameter."""
GIT_FIELDS = {
    "username": GIT_USER,
    "password": GIT_TOKEN,
    "sshPrivateKey": GIT_SSH_KEY,
    "knownHosts": GIT_KNOWN_HOSTS,
}
"""Fields of the response, and the names of secrets by which engines know them."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """Secret values by name: options of the provider, environment variables, and those for the clone."""

    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    git: Mapping[str, str] = field(default_factory=dict, repr=False)
    commit_name: str = ""
    """Name and address of the owner, which are no secrets."""
    commit_email: str = ""
    dotfiles: str = ""
    """The URL of the owner's repository with dotfiles."""
    git_path_hosts: tuple[str, ...] = ()
    """Hosts of which some credentials are only for repositories below a path."""

    registries: tuple[RegistryCredentials, ...] = field(default=(), repr=False)

    def values(self) -> Iterator[str]:
        """What must not be in any log. The name of a Git user and host keys are no secrets."""
        yield from self.options.values()
        yield from self.environment.values()
        yield from (value for name, value in self.git.items() if name in (GIT_TOKEN, GIT_SSH_KEY))
        yield from (each.password for each in self.registries)


NO_CREDENTIALS = Credentials()


async def fetch_credentials(
    services: RunnerServices, workspace: Object, source: Source, running: RunningTask
) -> Credentials:
    """Raises EngineError if the template needs secrets that are not available. A repository may need none."""
    repository = find_git_repository(source)
    if needs_secrets(workspace):
        async with running.step(STEP, STEP_SECONDS):
            return _read_response(await _fetch_patiently(services, workspace, repository), running)
    try:
        return _read_response(await _fetch(services, workspace, repository), running)
    except ClientError as error:
        what = f"credentials for {repository.host}" if repository.host else "the name and address of the owner for git"
        running.log_message(f"going on without {what}: {error}")
        return NO_CREDENTIALS


async def _fetch(services: RunnerServices, workspace: Object, repository: "GitRepository") -> Object:
    return await services.api.get_credentials(workspace, repository.host, repository.protocol, repository.path)


async def _fetch_patiently(services: RunnerServices, workspace: Object, repository: "GitRepository") -> Object:
    while True:
        try:
            return await _fetch(services, workspace, repository)
        except ApiStatusError as error:
            if error.code < 500 and error.code != 429:
                raise EngineError(SECRETS_UNAVAILABLE, f"the server refuses the secrets: {error.message}") from None
        except ClientError:
            pass  # the server is being restarted
        await asyncio.sleep(RETRY_SECONDS)


def _read_response(response: Object, running: RunningTask) -> Credentials:
    git = response.get("gitCredentials") or {}
    identity = response.get("gitIdentity") or {}
    credentials = Credentials(
        options=response.get("providerOptions") or {},
        environment=response.get("workspaceEnv") or {},
        git={name: git[field] for field, name in GIT_FIELDS.items() if git.get(field)},
        commit_name=identity.get("name") or "",
        commit_email=identity.get("email") or "",
        dotfiles=response.get("dotfiles") or "",
        git_path_hosts=tuple(response.get("gitPathHosts") or ()),
        registries=tuple(_read_registries(response)),
    )
    running.mask(credentials.values())
    if errors := [str(each.get("message")) for each in response.get("errors") or ()]:
        raise EngineError(SECRETS_UNAVAILABLE, "; ".join(errors))
    return credentials


def _read_registries(response: Object) -> Iterator[RegistryCredentials]:
    for each in (response.get("registryCredentials") or ())[:MAX_REGISTRIES]:
        if each.get("registry") and each.get("password"):
            yield RegistryCredentials(each["registry"], each.get("username") or "", each["password"])


def needs_secrets(workspace: Object) -> bool:
    """Whether values of the template come from secrets or password parameters."""
    template = get_path(workspace, "status.instance") or {}
    maps = (get_path(template, "provider.options") or {}, template.get("workspaceEnv") or {})
    return any(is_secret(each) for found in maps for each in found.values())


def is_secret(value: Any) -> bool:
    """Whether a value of a template comes from a secret or a password parameter."""
    return isinstance(value, Mapping) and bool(value.get("valueFrom") or HIDDEN in str(value.get("value") or ""))


@dataclass(frozen=True, slots=True)
class GitRepository:
    """The host, with a port if there is one, the protocol and the path of a repository; empty if it needs no
    credentials."""

    host: str = ""
    protocol: str = ""
    path: str = ""


def find_git_repository(source: Source) -> GitRepository:
    if not isinstance(source, GitSource):
        return GitRepository()
    if "://" not in source.url:
        user, _, rest = source.url.partition("@")
        host, is_short_form, path = rest.partition(":")
        is_remote = bool(is_short_form) and "/" not in user + host
        return GitRepository(host, "ssh", path) if is_remote else GitRepository()
    parts = urlsplit(source.url)
    host = parts.netloc.rpartition("@")[2]
    return GitRepository(host, parts.scheme, parts.path) if parts.scheme in ("https", "ssh") else GitRepository()
