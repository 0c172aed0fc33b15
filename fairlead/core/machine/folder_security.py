"""Checks the ownership and permissions of the data folder, like sshd's StrictModes.

The server trusts its data folder: a user who can write to it can become an administrator. So the folder, its
ancestors and its contents must belong to the user that runs the server or to root, and no other user may write to
them. A group without other members is acceptable, and so is an ancestor that is world-writable with the sticky bit,
such as /tmp. In a pod, a volume may be world-writable, because Kubernetes creates volumes like that, and only the pod's
own containers have it mounted.

`app` runs these checks at startup. Violations raise `FileProblem` with one line per path and the command that fixes
it.
"""

import grp
import os
import pwd
import shlex
import stat
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path

from fairlead.core.files import FileProblem

SECRET_FILE_PATTERNS = (
    "encryption.keys",
    "seal.keys",
    "pepper.key",
    "*.kubeconfig*",
    "*.key",
    "*.db",
    "*.db-*",
    "audit*.log*",
    "agent-config.json",
)
"""File name patterns of secrets, which other users must not be able to read either."""
CHECKED_SUBFOLDERS = ("tls",)
"""The subfolders of a data folder that are checked, too."""


def require_private(folder: Path) -> None:
    """Raise FileProblem unless the folder, its ancestors and its contents are private to this user."""
    problems = [*_ancestor_problems(folder), *_content_problems(folder)]
    if problems:
        raise FileProblem("\n".join(dict.fromkeys(problems)))


def require_tamper_proof(file: Path) -> None:
    """Raise FileProblem if another user could write to the file or replace it.

    For a key that is mounted by the platform, which is often readable by other users.
    """
    parents = dict.fromkeys((*file.absolute().parents, *file.resolve().parents))
    problems = [problem for each in parents for problem in _path_problems(each, is_secret=False, is_ancestor=True)]
    problems += _path_problems(file, is_secret=False)
    if problems:
        raise FileProblem("\n".join(dict.fromkeys(problems)))


def is_readable_by_others(file: Path) -> bool:
    return bool(_other_user_bits(file.stat()) & 0o044)


def _ancestor_problems(folder: Path) -> Iterator[str]:
    """For a symbolic link, checks both the link and its target, with their ancestors."""
    for path in dict.fromkeys((folder.absolute(), folder.resolve())):
        for each in (path, *path.parents):
            yield from _path_problems(each, is_secret=False, is_ancestor=each != path)


def _content_problems(folder: Path) -> Iterator[str]:
    for place in (folder, *(folder / name for name in CHECKED_SUBFOLDERS)):
        if not place.is_dir():
            continue
        for path in sorted(place.iterdir()):
            if path.is_dir() and path.name not in CHECKED_SUBFOLDERS:
                continue
            is_secret = any(path.match(pattern) for pattern in SECRET_FILE_PATTERNS)
            yield from _path_problems(path, is_secret=is_secret)
            if path.is_symlink() and path.exists():
                yield from _ancestor_problems(path.resolve().parent)


def _path_problems(path: Path, *, is_secret: bool, is_ancestor: bool = False) -> Iterator[str]:
    try:
        found = path.stat()
    except (FileNotFoundError, PermissionError):  # the code that opens the file reports this better
        return
    if found.st_uid not in _trusted_uids(is_ancestor):
        move = "choose a folder elsewhere" if is_ancestor else f"run: chown -R {_current_user()} {_quote_path(path)}"
        yield f"{path}: belongs to {_user_name(found.st_uid)}, who could change files that the server trusts; {move}"
    is_open = _other_user_bits(found)
    is_acceptable = (is_ancestor and found.st_mode & stat.S_ISVTX) or _is_volume_of_pod(path)
    if is_open & 0o022 and not is_acceptable:
        yield (
            f"{path}: other users may write to it; run: chmod {_chmod_argument(found, is_open & 0o022)} "
            f"{_quote_path(path)}"
        )
    elif is_secret and is_open & 0o044 and not path.is_dir():
        yield f"{path}: other users may read it; run: chmod 600 {_quote_path(path)}"


def _is_volume_of_pod(path: Path) -> bool:
    return "KUBERNETES_SERVICE_HOST" in os.environ and path.is_mount()


def _other_user_bits(status: os.stat_result) -> int:
    """The permission bits that apply to other users. Group bits count only if the group has other members."""
    bits = stat.S_IMODE(status.st_mode) & 0o077
    return bits if bits & 0o070 and _has_other_members(status.st_gid) else bits & 0o007


def _chmod_argument(status: os.stat_result, bits: int) -> str:
    who = "".join(letter for letter, bit in (("g", 0o020), ("o", 0o002)) if bits & bit)
    return f"{who}-w"


@lru_cache(maxsize=64)
def _has_other_members(group: int) -> bool:
    """Whether the group has members other than this user and root."""
    if group == 0:
        return False  # root's own group; root can access everything anyway
    try:
        members: Iterable[str] = grp.getgrgid(group).gr_mem
    except KeyError:
        members = ()
    own_names = {_current_user(), "root"}
    listed = [user.pw_name for user in pwd.getpwall() if user.pw_gid == group and user.pw_uid not in (0, os.geteuid())]
    return bool(set(members) - own_names or listed)


def _trusted_uids(is_ancestor: bool) -> set[int]:
    trusted = {0, os.geteuid()}
    if is_ancestor and _has_unmapped_users():
        # In a user namespace, mounted folders of users outside of it appear to belong to the overflow user.
        trusted.add(int(Path("/proc/sys/kernel/overflowuid").read_text()))
    return trusted


def _has_unmapped_users() -> bool:
    try:
        return Path("/proc/self/uid_map").read_text().split() != ["0", "0", "4294967295"]
    except OSError:
        return False


def _current_user() -> str:
    return _user_name(os.geteuid())


def _user_name(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return str(user)


def _quote_path(path: Path) -> str:
    return shlex.quote(str(path))
