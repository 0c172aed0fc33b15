"""`fairlead seal`: the keys that credentials in the database are sealed with. It works on the file, not on a server.

A server that runs notices the change by itself; one that does not, at its next start.
"""

import json
import os
import shlex
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

from fairlead.cli.server.setting_flags import option
from fairlead.core.files import FileProblem
from fairlead.settings import StartError, load

group = typer.Typer(no_args_is_help=True, help="The keys that credentials in the database are sealed with.")

Data = Annotated[str | None, option("data")]


@dataclass(frozen=True, slots=True)
class Found:
    """What `status` shows. A variable has no mode."""

    source: str
    mode: str
    active: str
    older: list[str]
    sealed: bool


@group.command("rotate")
def rotate(data: Data = None) -> None:
    """Add a new key and make it the active one.

    A running server notices within seconds and seals everything anew. The older keys stay, for backups and until then.
    """
    from fairlead.core.crypto import key_file

    with _problems():
        _refuse_variable("put a new pair before the others in it and restart the server")
        folder = _folder(data)
        new, *older = [key.id for key in key_file.rotate(folder)]
    typer.echo(f"{new} is the active key now, the first of {len(older) + 1} in {folder / key_file.FILE_NAME}")
    typer.echo("Copy that file to where you keep secrets, apart from the copies of the database.")
    typer.echo(
        "The server seals everything anew by itself, in some minutes if it is running, else after its next start."
    )
    where = f" --data {shlex.quote(data)}" if data else ""
    typer.echo(f"`fairlead seal status{where}` tells when that is done; then, and once no backup needs the old key:")
    typer.echo(f"  fairlead seal forget {older[0]}{where}")


@group.command("status")
def status(
    data: Data = None, as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False
) -> None:
    """Show which keys there are, which one is active, and whether everything is sealed under it."""
    with _problems():
        found = _look(data)
    if as_json:
        print(json.dumps(asdict(found)))
        return
    typer.echo(f"{found.source}, mode {found.mode}" if found.mode else found.source)
    for id in (found.active, *found.older):
        typer.echo(f"  {id}  {'active' if id == found.active else 'older'}")
    if found.mode not in ("", "0600", "0400"):
        typer.echo(f"Others may read that file. Close it to them: chmod 600 {found.source}")
    if found.sealed:
        typer.echo(f"Everything in the store is sealed under {found.active}; it needs no older key.")
    else:
        typer.echo(f"Not everything in the store is sealed under {found.active} yet; the server sees to that.")


@group.command("forget")
def forget(
    id: Annotated[str, typer.Argument(metavar="ID", help="The key, as `fairlead seal status` names it.")],
    data: Data = None,
    force: Annotated[bool, typer.Option("--force", help="Also if the database may still need the key.")] = False,
) -> None:
    """Remove an older key for ever. What is still sealed under it, in backups too, can then never be read again."""
    from fairlead.core.crypto import key_file

    with _problems():
        _refuse_variable("take the pair out of it and restart the server")
        folder = _folder(data)
        kept = key_file.forget(folder, id, force=force)
    typer.echo(f"{id} is gone; {folder / key_file.FILE_NAME} still has {', '.join(key.id for key in kept)}")
    typer.echo("Remove it from your copies of that file, too, if nobody shall ever use it again.")


def _look(data: str | None) -> Found:
    from fairlead.core.crypto import key_file

    folder = _folder(data)
    path, mode = folder / key_file.FILE_NAME, ""
    if text := _variable():
        source, keys = key_file.VARIABLE, key_file.parse(text, key_file.VARIABLE)
    else:
        source, keys = str(path), key_file.existing(folder)
        mode = f"{stat.S_IMODE(path.stat().st_mode):04o}"
    active, *older = [key.id for key in keys]
    return Found(source, mode, active, older, key_file.resealed_under(folder) == active)


def _folder(data: str | None) -> Path:
    return load({"data": data}, os.environ).data


def _variable() -> str:
    from fairlead.core.crypto.key_file import VARIABLE

    return os.environ.get(VARIABLE, "").strip()


def _refuse_variable(advice: str) -> None:
    from fairlead.core.crypto.key_file import VARIABLE

    if _variable():
        raise FileProblem(f"{VARIABLE} is set, so the keys are there and not in a file; {advice}")


@contextmanager
def _problems() -> Iterator[None]:
    try:
        yield
    except (StartError, FileProblem) as error:
        for line in str(error).splitlines():
            typer.echo(f"fairlead: {line}", err=True)
        raise typer.Exit(1) from None
