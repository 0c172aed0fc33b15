"""`fairlead restore`: what `fairlead backup` has written, into a store that is empty. Its servers are not running."""

import asyncio
from typing import Annotated

import typer

from fairlead.cli.moving_words import Config, Data, Force, Store, needs, plural, problems, settings_of


def command(
    file: Annotated[str, typer.Argument(metavar="FILE", help="The backup; - for the standard input.")],
    config: Config = None,
    data: Data = None,
    store: Store = None,
    force: Force = False,
) -> None:
    """Write what a backup holds into an empty store.

    Objects keep their uids. Their resourceVersions become larger than any that a client can have seen, so that clients
    that come back list again. Access keys stay valid with the same pepper, and credentials open with the same keys.
    """
    from fairlead.app import moving
    from fairlead.core.files import private_folder

    with problems():
        settings = settings_of(config, data, store)
        if not settings.store:
            private_folder(settings.data)
        moved = asyncio.run(moving.restore(file, settings.store_url, force=force))
    typer.echo(
        f"{plural(moved.filled.count)} of revision {moved.revision} restored; the store is at revision "
        f"{moved.filled.revision} now\nBefore a server starts on it, its data folder needs {needs(moved.seal_keys)}"
    )
