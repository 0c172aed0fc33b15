"""Brings the source of a workspace into its work folder.

All of it happens in a holder of its own, which has neither what earlier programs left nor what later ones may read. Git
gets no configuration but this, may use only the listed protocols, and runs no hooks. Submodules are not fetched.
"""

import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from fairlead.runner.engines.contract import (
    GIT_KNOWN_HOSTS,
    GIT_SSH_KEY,
    GIT_TOKEN,
    GIT_USER,
    EngineError,
    FolderSource,
    GitSource,
    ImageSource,
    Reason,
    Source,
    WorkspaceSpec,
)
from fairlead.runner.engines.devcontainer.settings import Settings
from fairlead.runner.engines.specification import clone_options

SCRIPT = """
set -eu
umask 022
find /work -mindepth 1 -delete
eval "$(cat)"
if [ -n "${SSH_KEY:-}" ]; then
    printf '%s\\n' "$SSH_KEY" >/tmp/key && chmod 600 /tmp/key
    printf '%s\\n' "${KNOWN_HOSTS:-}" >/tmp/known_hosts
fi
unset SSH_KEY
case "$KIND" in
git)
    # In a file, because the process that reads a repository on disk ignores what the command line says.
    printf '[safe]\n\tdirectory = *\n[core]\n\thooksPath = /dev/null\n' >"$HOME/.gitconfig"
    set -- -c http.followRedirects=false -c credential.helper='!f() {
        [ -z "${TOKEN:-}" ] || printf "username=%s\\npassword=%s\\n" "${GIT_USER:-git}" "$TOKEN"; }; f'
    git "$@" clone --quiet --no-recurse-submodules $STRATEGY ${BRANCH:+--branch "$BRANCH"} -- "$URL" /work
    cd /work
    if [ -n "${COMMIT:-}" ]; then
        git "$@" cat-file -e "$COMMIT^{commit}" 2>/dev/null || git "$@" fetch --quiet $STRATEGY origin "$COMMIT"
        git "$@" checkout --quiet --detach "$COMMIT" --
    fi
    # At the end: a checkout may fetch what a partial clone left out.
    git "$@" remote set-url origin "$ORIGIN"
    ;;
folder) cp -a --no-preserve=ownership /source/. /work ;;
esac
"""
DOTFILES_OPTION = "dotfiles"
"""The option of a template that names a repository with dotfiles."""
_PLAIN_URL = re.compile(r"[A-Za-z0-9@:/._~+-]+")
_COMMIT = re.compile(r"[0-9a-f]{7,64}")
_BRANCH = re.compile(r"[A-Za-z0-9_][\w./+@#=-]*")
_SSH_SHORT_FORM = re.compile(r"[\w.-]+@[\w.-]+:[^-].*")


@dataclass(frozen=True, slots=True)
class Fetch:
    """What is needed to fetch a source."""

    variables: Mapping[str, str] = field(repr=False)
    folder: str = ""
    """A folder of the machine that it comes from, if it does."""

    @property
    def script_input(self) -> bytes:
        """The variables for the script, some of them secret: not a part of its command line or environment."""
        lines = (f"export {name}={shlex.quote(value)}\n" for name, value in self.variables.items())
        return "".join(lines).encode()


def plan_fetch(source: Source, settings: Settings, secrets: Mapping[str, str], strategy: str = "") -> Fetch:
    """Checks the source against the settings of the runner. `strategy` is that of the clone."""
    match source:
        case ImageSource():
            return Fetch({"KIND": "image"})
        case FolderSource(path):
            folder = _find_allowed_folder(path, settings)
            return Fetch({"KIND": "folder"}, folder)
        case GitSource():
            variables = {"STRATEGY": " ".join(clone_options(source, strategy))}
            clone = _plan_clone(source, settings, secrets)
            return Fetch({**clone.variables, **variables}, clone.folder)


def _plan_clone(source: GitSource, settings: Settings, secrets: Mapping[str, str]) -> Fetch:
    if source.commit and not _COMMIT.fullmatch(source.commit):
        raise EngineError(Reason.SOURCE_REFUSED, f"{source.commit!r} is not a commit; use its hexadecimal name")
    if source.branch and not _BRANCH.fullmatch(source.branch):
        raise EngineError(Reason.SOURCE_REFUSED, f"{source.branch!r} is not the name of a branch or tag")
    if ".." in Path(source.subfolder).parts or source.subfolder.startswith("/"):
        raise EngineError(Reason.SOURCE_REFUSED, f"the subfolder {source.subfolder!r} leaves the repository")
    protocol = find_protocol(source.url)
    if protocol == "file":
        folder = _find_allowed_folder(source.url.removeprefix("file://"), settings)
        return Fetch(_describe_clone(source, "file:///source", protocol, secrets), folder)
    if protocol not in settings.protocols:
        allowed = ", ".join(sorted(settings.protocols))
        raise EngineError(Reason.SOURCE_REFUSED, f"the protocol {protocol!r} is not allowed here; use one of {allowed}")
    if protocol != "ssh" and "@" in urlsplit(source.url).netloc:
        raise EngineError(
            Reason.SOURCE_REFUSED,
            f"the URL contains a user or password, which would stay in the work folder; use {GIT_TOKEN}",
        )
    return Fetch(_describe_clone(source, source.url, protocol, secrets))


def _describe_clone(source: GitSource, url: str, protocol: str, secrets: Mapping[str, str]) -> dict[str, str]:
    ssh_options = ("BatchMode=yes", "StrictHostKeyChecking=yes", "UserKnownHostsFile=/tmp/known_hosts")
    ssh = " ".join(("ssh", "-F", "/dev/null", "-i", "/tmp/key", *(f"-o {option}" for option in ssh_options)))
    return {
        "KIND": "git",
        "URL": url,
        "ORIGIN": source.url,
        "BRANCH": source.branch,
        "COMMIT": source.commit,
        "HOME": "/tmp",
        "GIT_ALLOW_PROTOCOL": protocol,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_LFS_SKIP_SMUDGE": "1",
        "GIT_SSH_COMMAND": ssh,
        "GIT_USER": secrets.get(GIT_USER, ""),
        "TOKEN": secrets.get(GIT_TOKEN, ""),
        "SSH_KEY": secrets.get(GIT_SSH_KEY, ""),
        "KNOWN_HOSTS": secrets.get(GIT_KNOWN_HOSTS, ""),
    }


def dotfiles_options(spec: WorkspaceSpec, settings: Settings) -> list[str]:
    """Options of the CLI that install the dotfiles of the owner, or else those of the template. A shell inside clones
    them."""
    url = spec.dotfiles or spec.options.get(DOTFILES_OPTION, "")
    if not url:
        return []
    if problem := find_dotfiles_problem(url, settings):
        raise EngineError(Reason.SOURCE_REFUSED, problem)
    return ["--dotfiles-repository", url]


def find_dotfiles_problem(url: str, settings: Settings) -> str:
    """Why these dotfiles cannot be used; empty if they can."""
    if _PLAIN_URL.fullmatch(url) and find_protocol(url) in settings.protocols:
        return ""
    return f"{url!r} is not the URL of a repository with dotfiles"


def find_protocol(url: str) -> str:
    """The protocol that git would use. Helpers, as in `ext::command`, count as protocols."""
    if url.startswith("-") or not url.isprintable():
        raise EngineError(Reason.SOURCE_REFUSED, f"{url!r} is not the URL of a repository")
    if "::" in url.partition("/")[0]:
        return url.partition("::")[0]
    if "://" in url:
        return url.partition("://")[0].lower()
    return "ssh" if _SSH_SHORT_FORM.fullmatch(url) else "file"


def _find_allowed_folder(path: str, settings: Settings) -> str:
    real = os.path.realpath(path)
    if not os.path.isabs(path) or not any(Path(real).is_relative_to(each) for each in settings.allowed_folders):
        raise EngineError(
            Reason.SOURCE_REFUSED, f"the folder {path!r} is not below one that this runner allows; use a repository"
        )
    if not os.path.isdir(real):
        raise EngineError(Reason.SOURCE_REFUSED, f"there is no folder {path!r} that could be used")
    return real
