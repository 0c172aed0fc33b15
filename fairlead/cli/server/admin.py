"""`fairlead admin`: for the administrator, on the machine of the server or in its container.

`reset` writes a request for a new key into the data folder. A running server replaces the key within seconds, others at
their next start. `kubeconfig` and `ca` print files of the data folder: the container has no program that does.
"""

import os
import time
from pathlib import Path
from typing import Annotated

from fairlead.cli.server.setting_flags import config_option, setting_option
from fairlead.cli.ui import prompts
from fairlead.cli.ui.flags import YesFlag
from fairlead.cli.ui.groups import create_group
from fairlead.cli.ui.output import print_note
from fairlead.cli.ui.session import report_errors
from fairlead.cli.ui.streams import write_data
from fairlead.client.admin_kubeconfig import KUBECONFIG_NAME, read_key
from fairlead.client.admin_reset import NOW, is_pending, request_reset
from fairlead.core.files import FileProblem, read_file
from fairlead.settings import Settings, StartError, load

WAIT_SECONDS = 15.0

group = create_group("Get in again as the administrator, on the machine of the server.")


@group.command("reset")
def reset(
    config: Annotated[str | None, config_option()] = None,
    data: Annotated[str | None, setting_option("data")] = None,
    yes: YesFlag = False,
) -> None:
    """Replace the first key of the user admin, and enable the user.

    Works on the data folder, so it needs no key. The new key is in admin.kubeconfig there.
    """
    with report_errors():
        folder = _load_settings(config, data).data
        if not yes:
            prompts.confirm("Replace the key admin-first-key? It stops working at once.")
        file = folder / KUBECONFIG_NAME
        before = _read_key_before(file)
        request_reset(folder, NOW)
        deadline = time.monotonic() + WAIT_SECONDS
        while is_pending(folder):
            if time.monotonic() > deadline:
                print_note(f"no server runs with the data folder {folder}: the key is replaced at its next start")
                return
            time.sleep(0.1)
        key = read_key(file)
        if key is None or key == before:
            raise FileProblem(f"{folder}: the server did not replace the key; its log says why")
        print_note(f"the new key of the user admin is in {file}. It expires in 24 hours, unless you create")
        print_note("another way in: a key of an administrator that does not expire, a password, or single sign-on")
        print(key)


@group.command("kubeconfig")
def kubeconfig(
    config: Annotated[str | None, config_option()] = None,
    data: Annotated[str | None, setting_option("data")] = None,
) -> None:
    """Print the administrator's kubeconfig, with the key and the CA of the server.

    The server writes it into its data folder at its first start.
    """
    with report_errors():
        file = _load_settings(config, data).data / KUBECONFIG_NAME
        advice = "a server writes it at its first start; `fairlead admin reset` makes a running one write it again"
        write_data(_read(file, advice))


@group.command("ca")
def print_ca(
    config: Annotated[str | None, config_option()] = None,
    data: Annotated[str | None, setting_option("data")] = None,
) -> None:
    """Print the certificate of the CA that clients of the server must trust, as PEM.

    Prints the one of the setting tls_ca, or the one that the server has created in its data folder.
    """
    with report_errors():
        settings = _load_settings(config, data)
        if settings.tls_cert is not None and settings.tls_ca is None:
            raise FileProblem(
                "the certificate of the server was not issued by a CA of its own, and tls_ca is not set: clients trust "
                "the CA by other means, or set tls_ca"
            )
        write_data(_read(settings.tls_ca or settings.data / "tls" / "ca.crt", "a server writes it at its first start"))


def _load_settings(config: str | None, data: str | None) -> Settings:
    """Those of a server whose data folder exists."""
    try:
        settings = load({"config": config, "data": data}, os.environ)
    except StartError as error:
        raise FileProblem(str(error)) from None
    if not settings.data.is_dir():
        raise FileProblem(f"{settings.data}: no such folder; specify the data folder of the server with --data")
    return settings


def _read(file: Path, advice: str) -> bytes:
    content = read_file(file)
    if content is None:
        raise FileProblem(f"{file}: no such file; {advice}")
    return content


def _read_key_before(kubeconfig: Path) -> str | None:
    """None also for a file that cannot be read, which the server replaces."""
    try:
        return read_key(kubeconfig)
    except FileProblem:
        return None
