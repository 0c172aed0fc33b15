"""Whether a folder of secrets is really its owner's: who else could change it, put another in its place, or read keys.

A server trusts what lies in its data folder: whoever can write there can make himself an administrator. So the rules
are those by which sshd looks at a home folder: the folder, everything above it and everything in it must belong to the
user that runs the server or to root, and nobody else may write. A group counts as nobody else if no other user is in
it, and a folder above may be open to all if its sticky bit keeps people from renaming each other's files, as in /tmp.

`app` calls this at the start. What is wrong is a FileProblem with a line, and the command to run, for each path.
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

SECRETS = ("seal.keys", "pepper.key", "*.kubeconfig*", "*.key", "*.db", "*.db-*", "audit*.log*", "knowledge.json")
"""Names of files that hold secrets: nobody else may read them either."""
BELOW = ("tls",)
"""The folders in a data folder that are looked into."""


def require_private(folder: Path) -> None:
    """Raises FileProblem unless the folder, what is above it and what is in it are for this user alone."""
    problems = [*_above(folder), *_inside(folder)]
    if problems:
        raise FileProblem("\n".join(dict.fromkeys(problems)))


def require_unchangeable(file: Path) -> None:
    """Raises FileProblem if somebody else could write to the file or put another in its place.

    For a key that the platform has put there: it is often readable by more users than one would like.
    """
    problems = [*_above(file.parent), *_problems(file, is_secret=False)]
    if problems:
        raise FileProblem("\n".join(dict.fromkeys(problems)))


def is_readable_by_others(file: Path) -> bool:
    return bool(_open_bits(file.stat()) & 0o044)


def _above(folder: Path) -> Iterator[str]:
    """Of a symbolic link, both ends and the ways to them count."""
    for path in dict.fromkeys((folder.absolute(), folder.resolve())):
        for each in (path, *path.parents):
            yield from _problems(each, is_secret=False, is_above=each != path)


def _inside(folder: Path) -> Iterator[str]:
    for place in (folder, *(folder / name for name in BELOW)):
        if not place.is_dir():
            continue
        for path in sorted(place.iterdir()):
            if path.is_dir() and path.name not in BELOW:
                continue
            is_secret = any(path.match(pattern) for pattern in SECRETS)
            yield from _problems(path, is_secret=is_secret)
            if path.is_symlink() and path.exists():
                yield from _above(path.resolve().parent)


def _problems(path: Path, *, is_secret: bool, is_above: bool = False) -> Iterator[str]:
    try:
        found = path.stat()
    except (FileNotFoundError, PermissionError):  # whoever needs it says so better
        return
    if found.st_uid not in _trusted(is_above):
        move = "choose a folder elsewhere" if is_above else f"run: chown -R {_name()} {_quoted(path)}"
        yield f"{path}: belongs to {_owner(found.st_uid)}, who could change what the server trusts; {move}"
    is_open = _open_bits(found)
    if is_open & 0o022 and not (is_above and found.st_mode & stat.S_ISVTX):
        yield f"{path}: other users may write to it; run: chmod {_without(found, is_open & 0o022)} {_quoted(path)}"
    elif is_secret and is_open & 0o044 and not path.is_dir():
        yield f"{path}: other users may read it; run: chmod 600 {_quoted(path)}"


def _open_bits(found: os.stat_result) -> int:
    """The bits of a mode that are for other users. Those of a group count unless nobody else is in it."""
    bits = stat.S_IMODE(found.st_mode) & 0o077
    return bits if bits & 0o070 and _has_others(found.st_gid) else bits & 0o007


def _without(found: os.stat_result, bits: int) -> str:
    who = "".join(letter for letter, bit in (("g", 0o020), ("o", 0o002)) if bits & bit)
    return f"{who}-w"


@lru_cache(maxsize=64)
def _has_others(group: int) -> bool:
    """Whether anybody is in the group who is neither this user nor root."""
    if group == 0:
        return False  # the group of root, who may do everything anyway
    try:
        members: Iterable[str] = grp.getgrgid(group).gr_mem
    except KeyError:
        members = ()
    ours = {_name(), "root"}
    listed = [user.pw_name for user in pwd.getpwall() if user.pw_gid == group and user.pw_uid not in (0, os.geteuid())]
    return bool(set(members) - ours or listed)


def _trusted(is_above: bool) -> set[int]:
    trusted = {0, os.geteuid()}
    if is_above and _has_unmapped_users():
        # In a user namespace, whoever is outside of it looks like nobody, and owns the folders that were mounted.
        trusted.add(int(Path("/proc/sys/kernel/overflowuid").read_text()))
    return trusted


def _has_unmapped_users() -> bool:
    try:
        return Path("/proc/self/uid_map").read_text().split() != ["0", "0", "4294967295"]
    except OSError:
        return False


def _name() -> str:
    return _owner(os.geteuid())


def _owner(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return str(user)


def _quoted(path: Path) -> str:
    return shlex.quote(str(path))
