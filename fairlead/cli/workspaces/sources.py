"""The argument SOURCE: where the content of a workspace comes from, as the annotation that runners read.

A path of this machine is resolved here. Whether the runner has the same folder and allows it, only the runner knows.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from fairlead.cli.ui.session import UsageError

FORMS = "a URL of a git repository, the path of one on this machine, or image:NAME"
_HOST_AND_PATH = re.compile(r"[\w-]+(?:\.[\w-]+)+(?::\d+)?/\S+")
_SSH_SHORT_FORM = re.compile(r"[\w.-]+@[\w.-]+:\S+")
_SEPARATOR = "@"
"""Between the URL of a repository and its branch, commit and subfolder in the annotation."""


@dataclass(frozen=True, slots=True)
class Revision:
    """Which part of a repository."""

    branch: str = ""
    commit: str = ""
    subfolder: str = ""

    def flags(self) -> list[str]:
        values = {"--branch": self.branch, "--commit": self.commit, "--subfolder": self.subfolder}
        return [flag for flag, value in values.items() if value]


def encode_source(text: str, revision: Revision) -> str:
    """The value of the annotation. Raises UsageError."""
    if text.startswith(("image:", "local:")):
        if flags := revision.flags():
            raise UsageError(f"{flags[0]} is for git repositories, and {text!r} is none; leave it out")
        if not text.partition(":")[2]:
            raise UsageError(f"{text!r} names nothing; use {FORMS}")
        return text
    url = _find_url(text.removeprefix("git:"))
    if url.startswith("local:"):
        if flags := revision.flags():
            raise UsageError(f"{flags[0]} is for git repositories, and {text!r} is none; run `git init` in it first")
        return url
    return f"git:{url}{_encode_revision(url, revision)}"


def _find_url(text: str) -> str:
    """The URL of a repository, or `local:PATH` for a folder that is none."""
    if "://" in text:
        if urlsplit(text).password:
            raise UsageError("the URL contains a password, which every reader of the workspace would see; remove it")
        return text
    folder = Path(text).expanduser()
    if folder.is_dir():
        is_repository = (folder / ".git").exists() or (folder / "HEAD").is_file()
        return f"file://{folder.resolve()}" if is_repository else f"local:{folder.resolve()}"
    if _SSH_SHORT_FORM.fullmatch(text):
        return text
    if text.startswith(("/", ".", "~")):
        advice = "for a folder that only the machine of the runner has, write git:file:///PATH or local:/PATH"
        raise UsageError(f"{text}: there is no such folder on this machine; {advice}")
    if _HOST_AND_PATH.fullmatch(text):
        return f"https://{text}"
    raise UsageError(f"{text!r} is not a source; use {FORMS}")


def _encode_revision(url: str, revision: Revision) -> str:
    path = urlsplit(url).path if "://" in url else url.partition(":")[2]
    for name, value in (("the URL", path), *zip(revision.flags(), _values(revision), strict=True)):
        if _SEPARATOR in value:
            raise UsageError(f"{name} contains {_SEPARATOR!r}, which separates the parts of a source; rename it")
    if revision.branch and revision.commit:
        raise UsageError("--branch and --commit are two ways to choose a revision; choose one")
    if revision.commit and not re.fullmatch(r"[0-9a-f]{7,64}", revision.commit):
        raise UsageError(f"--commit {revision.commit!r} is not a commit; use its hexadecimal name")
    parts = (revision.branch, revision.commit and f"sha256:{revision.commit}")
    subfolder = revision.subfolder.strip("/")
    return "".join(f"{_SEPARATOR}{each}" for each in (*parts, subfolder and f"subpath:{subfolder}") if each)


def _values(revision: Revision) -> list[str]:
    return [each for each in (revision.branch, revision.commit, revision.subfolder) if each]


def describe_source(annotation: str) -> str:
    """The annotation in words."""
    kind, _, rest = annotation.partition(":")
    if kind == "local":
        return f"copy of the folder {rest}"
    if kind == "image":
        return f"image {rest}"
    return rest if kind == "git" else annotation
