"""What is checked before a server starts."""

import os
from pathlib import Path

import structlog

from fairlead.app.auth import PEPPER_FILE
from fairlead.authn.access_keys import Pepper
from fairlead.authn.bootstrap import PEPPER_VARIABLE, verify_pepper
from fairlead.core.files import ensure_private_folder
from fairlead.core.machine.folder_security import is_readable_by_others, require_private, require_tamper_proof
from fairlead.server.http.listeners import free_port
from fairlead.settings import Settings, StartError
from fairlead.storage.contract import Store, StoreUnavailable

log = structlog.get_logger(__name__)


def check_before_start(settings: Settings) -> None:
    """Checks the port, and that other users of the machine cannot modify the data folder, the database or the TLS key.

    A first start on a port that is in use must not leave a data folder behind. Later ones check the port after the
    folder: that another server uses it is the better message.
    """
    if not settings.data.exists():
        free_port(settings.listen, settings.port)
    require_private(ensure_private_folder(settings.data))
    database = settings.store_url.removeprefix("sqlite:")
    if database != settings.store_url and Path(database).parent != settings.data:
        require_tamper_proof(Path(database).absolute())
    if settings.tls_key is not None:
        require_tamper_proof(settings.tls_key)
        if settings.tls_key.exists() and is_readable_by_others(settings.tls_key):
            log.warning(
                "the server's TLS key is readable by other users; restrict its permissions",
                tls_key=str(settings.tls_key),
            )


async def check_pepper(settings: Settings, store: Store, pepper: Pepper) -> None:
    """Raises StartError if the digests of the stored access keys were made with another pepper."""
    try:
        await verify_pepper(store, pepper, settings.data / PEPPER_FILE, variable=os.environ.get(PEPPER_VARIABLE, ""))
    except StoreUnavailable as error:
        raise StartError(str(error)) from None
