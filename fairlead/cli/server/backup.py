"""`fairlead backup`, `fairlead restore` and `fairlead store copy`: back up, restore and copy a store.

They access the store directly. Servers may run during a backup, but not during a restore or a copy.
`fairlead backup FILE` is short for `fairlead backup create FILE`.
"""

import asyncio
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from fairlead.cli.server.event_loop import report_start_errors
from fairlead.cli.server.setting_flags import config_option, setting_option
from fairlead.cli.ui.groups import CommandGroup, create_group
from fairlead.core.crypto.encryption import KEY_FILE_NAME, KEYS_VARIABLE, key_file_path
from fairlead.settings import Settings, load

ConfigFlag = Annotated[str | None, config_option()]
DataFlag = Annotated[str | None, setting_option("data")]
StoreFlag = Annotated[str | None, setting_option("store")]
ForceFlag = Annotated[bool, typer.Option("--force", help="Replace the content of the store. Stop its servers first.")]

PEPPER_FILE = "pepper.key"
PEPPER_VARIABLE = "FAIRLEAD_PEPPER"


def load_settings(config: str | None, data: str | None, store: str | None) -> Settings:
    """Loads the settings as a server on this machine would."""
    return load({"config": config, "data": data, "store": store}, os.environ)


@contextmanager
def report_errors() -> Iterator[None]:
    """Prints errors, and exits. Logs go to stderr: stdout may be the backup."""
    from fairlead.core.log import configure_logging

    configure_logging("warning", "console")
    with report_start_errors():
        yield


def format_record_count(count: int) -> str:
    return "1 record" if count == 1 else f"{count:,} records"


def required_secrets(key_ids: Sequence[str], key_file_name: str = KEY_FILE_NAME) -> str:
    """The secrets that are required to use the content of a backup."""
    key_file = f"{key_file_name} with {', '.join(key_ids)}" if key_ids else key_file_name
    return f"{key_file}, and {PEPPER_FILE} (or the variables {KEYS_VARIABLE} and {PEPPER_VARIABLE})"


class BackupGroup(CommandGroup):
    """Treats a first argument that is not a subcommand as the FILE of `create`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in (*self.commands, *ctx.help_option_names):
            args = ["create", *args]
        return super().parse_args(ctx, args)


backup_group = typer.Typer(
    cls=BackupGroup, no_args_is_help=True, help="Back up the store to a file, or verify a backup."
)


@backup_group.command("create")
def create(
    file: Annotated[str, typer.Argument(metavar="FILE", help="File to write; - for stdout.")],
    config: ConfigFlag = None,
    data: DataFlag = None,
    store: StoreFlag = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
) -> None:
    """Back up the store to a file: `fairlead backup FILE`.

    Servers can keep running. The backup is a consistent snapshot. Encrypted values stay encrypted.
    """
    from fairlead.app import maintenance

    with report_errors():
        if file == maintenance.STDIO and sys.stdout.isatty():
            typer.echo("fairlead: a backup is binary; redirect stdout to a file or a pipe", err=True)
            raise typer.Exit(1)
        settings = load_settings(config, data, store)
        backup = asyncio.run(maintenance.back_up(settings.store_url, file, force=force))
    target = "stdout" if file == maintenance.STDIO else file
    typer.echo(
        f"{target}: {format_record_count(backup.count)} at revision {backup.header.revision}, {backup.size_bytes:,} "
        "bytes, "
        f"digest {backup.digest}\nStore separately: "
        f"{required_secrets(backup.encryption_key_ids, key_file_path(settings.data).name)}",
        err=file == maintenance.STDIO,
    )


@backup_group.command("verify")
def verify(
    file: Annotated[str, typer.Argument(metavar="FILE", help="The backup; - for stdin.")],
) -> None:
    """Verify that a backup is complete and not corrupted. Needs no store and no keys."""
    from fairlead.app import maintenance

    with report_errors():
        backup = maintenance.verify_backup(file)
    needed = backup.data_version.minimum_release
    release = f"Fairlead {needed} or newer, " if needed else ""
    typer.echo(
        f"{file}: valid; {format_record_count(backup.count)} of a {backup.header.store} store at revision "
        f"{backup.header.revision}, created {backup.header.made}, digest {backup.digest}\n"
        f"A restore requires {release}{required_secrets(backup.encryption_key_ids)}"
    )


def restore(
    file: Annotated[str, typer.Argument(metavar="FILE", help="The backup; - for stdin.")],
    config: ConfigFlag = None,
    data: DataFlag = None,
    store: StoreFlag = None,
    force: ForceFlag = False,
) -> None:
    """Restore a backup into an empty store. Stop its servers first.

    The backup is verified first. One of a newer version whose data this version cannot use is rejected.
    Objects keep their uids. Their resourceVersions become larger than any that a client has seen, so that clients
    list again. Access keys stay valid with the same pepper, and credentials can be decrypted with the same keys.
    A server on the store connects to the clusters of the backup, unless its setting `cluster_connections` is off.
    """
    from fairlead.app import maintenance
    from fairlead.core.files import ensure_private_folder

    with report_errors():
        settings = load_settings(config, data, store)
        if not settings.store:
            ensure_private_folder(settings.data)
        restored = asyncio.run(maintenance.restore_backup(file, settings.store_url, force=force))
    typer.echo(
        f"restored {format_record_count(restored.stats.count)} of revision {restored.revision}; "
        f"the store is now at revision {restored.stats.revision}\n"
        f"Before you start a server on it, its data folder needs {required_secrets(restored.encryption_keys)}\n"
        "That server changes the clusters of the backup. To try it beside the one that runs, start it with "
        "--cluster-connections off"
    )


store_group = create_group("Copy a store to another one.")


@store_group.callback()
def root() -> None:
    """Copy a store to another one."""


@store_group.command("copy")
def copy(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="The store to read: sqlite:PATH, postgres://...")],
    target: Annotated[str, typer.Argument(metavar="TARGET", help="The store to write, which must be empty.")],
    force: ForceFlag = False,
) -> None:
    """Copy a store to another one, possibly of another type, like a backup followed by a restore.

    Stop the servers first: a source that is in use is rejected, because later writes would be missing in the copy.
    """
    from fairlead.app import maintenance

    with report_errors():
        copied = asyncio.run(maintenance.copy_store(source, target, force=force))
    typer.echo(
        f"copied {format_record_count(copied.stats.count)} of revision {copied.revision}; the store is now at revision "
        f"{copied.stats.revision}\nBefore you start a server on it, its data folder needs {required_secrets(())}"
    )
