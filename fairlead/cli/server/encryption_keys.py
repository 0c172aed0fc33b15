"""`fairlead encryption-key`: manages the key file for encryption at rest. It works on the file, not on a server.

A running server reloads the file; otherwise it is read at the next start.
"""

import json
import os
import shlex
import stat
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

from fairlead.cli.server.event_loop import report_start_errors
from fairlead.cli.server.setting_flags import setting_option
from fairlead.cli.ui.groups import create_group
from fairlead.core.files import FileProblem
from fairlead.settings import load, read_variable

group = create_group("Manage the keys for encryption at rest.")

DataFlag = Annotated[str | None, setting_option("data")]


@dataclass(frozen=True, slots=True)
class EncryptionKeyStatus:
    """Output of `status`. `mode` is the file mode; empty if the keys come from an environment variable."""

    source: str
    mode: str
    active: str
    older: list[str]
    reencrypted: bool
    """Whether everything is encrypted with the active key."""


@group.command("rotate")
def rotate(data: DataFlag = None) -> None:
    """Add a new key and make it the active one.

    A running server detects it within seconds and re-encrypts everything. Older keys are kept for backups.
    """
    from fairlead.core.crypto import encryption

    with report_start_errors():
        _check_not_from_environment("prepend a new key to it and restart the server")
        folder = _data_folder(data)
        new, *older = [key.id for key in encryption.rotate_key(folder)]
    typer.echo(f"{new} is now the active key, the first of {len(older) + 1} in {encryption.key_file_path(folder)}")
    typer.echo("Back up that file, separately from the backups of the database.")
    typer.echo(
        "The server re-encrypts everything: within some minutes if it is running, otherwise after its next start."
    )
    data_flag = f" --data {shlex.quote(data)}" if data else ""
    typer.echo(f"`fairlead encryption-key status{data_flag}` shows when that is done.")
    typer.echo("Once no backup needs the old key, run:")
    typer.echo(f"  fairlead encryption-key forget {older[0]}{data_flag}")


@group.command("status")
def status(
    data: DataFlag = None, as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False
) -> None:
    """Show the keys, which one is active, and whether everything is encrypted with it."""
    with report_start_errors():
        found = _read_status(data)
    if as_json:
        print(json.dumps(asdict(found)))
        return
    typer.echo(f"{found.source}, mode {found.mode}" if found.mode else found.source)
    for id in (found.active, *found.older):
        typer.echo(f"  {id}  {'active' if id == found.active else 'older'}")
    if found.mode not in ("", "0600", "0400"):
        typer.echo(f"Other users may be able to read that file. Restrict it: chmod 600 {found.source}")
    if found.reencrypted:
        typer.echo(f"Everything in the store is encrypted with {found.active}; it needs no older key.")
    else:
        typer.echo(f"Not everything in the store is encrypted with {found.active} yet; the server re-encrypts it.")


@group.command("forget")
def forget(
    id: Annotated[
        str, typer.Argument(metavar="ID", help="ID of the key, as `fairlead encryption-key status` shows it.")
    ],
    data: DataFlag = None,
    force: Annotated[bool, typer.Option("--force", help="Even if the database may still need the key.")] = False,
) -> None:
    """Delete an older key. Data that is still encrypted with it, also in backups, becomes unreadable forever."""
    from fairlead.core.crypto import encryption

    with report_start_errors():
        _check_not_from_environment("remove the key from it and restart the server")
        folder = _data_folder(data)
        remaining = encryption.remove_key(folder, id, force=force)
    typer.echo(f"deleted {id}; {encryption.key_file_path(folder)} still has {', '.join(key.id for key in remaining)}")
    typer.echo("To delete the key for good, remove it from your backups of that file too.")


def _read_status(data: str | None) -> EncryptionKeyStatus:
    from fairlead.core.crypto import encryption

    folder = _data_folder(data)
    source, text = read_variable("encryption_keys", os.environ)
    mode = ""
    if text:
        keys = encryption.parse_keys(text, source)
    else:
        path = encryption.key_file_path(folder)
        source = str(path)
        keys = encryption.read_keys(folder)
        mode = f"{stat.S_IMODE(path.stat().st_mode):04o}"
    active, *older = [key.id for key in keys]
    return EncryptionKeyStatus(source, mode, active, older, encryption.reencrypted_key_id(folder) == active)


def _data_folder(data: str | None) -> Path:
    return load({"data": data}, os.environ).data


def _check_not_from_environment(advice: str) -> None:
    variable, text = read_variable("encryption_keys", os.environ)
    if text:
        raise FileProblem(f"{variable} is set, so the keys come from it and not from a file; {advice}")
