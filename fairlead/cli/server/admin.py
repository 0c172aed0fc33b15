"""`fairlead admin reset`: a new key for the administrator, on the machine of the server.

It writes a request into the data folder. A running server replaces the key within seconds, others at their next start.
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
from fairlead.core.admin_kubeconfig import KUBECONFIG_NAME, read_key
from fairlead.core.admin_reset import NOW, is_pending, request_reset
from fairlead.core.files import FileProblem
from fairlead.settings import StartError, load

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
        try:
            folder = load({"config": config, "data": data}, os.environ).data
        except StartError as error:
            raise FileProblem(str(error)) from None
        if not folder.is_dir():
            raise FileProblem(f"{folder}: no such folder; specify the data folder of the server with --data")
        if not yes:
            prompts.confirm("Replace the key admin-first-key? It stops working at once.")
        kubeconfig = folder / KUBECONFIG_NAME
        before = _read_key_before(kubeconfig)
        request_reset(folder, NOW)
        deadline = time.monotonic() + WAIT_SECONDS
        while is_pending(folder):
            if time.monotonic() > deadline:
                print_note(f"no server runs with the data folder {folder}: the key is replaced at its next start")
                return
            time.sleep(0.1)
        key = read_key(kubeconfig)
        if key is None or key == before:
            raise FileProblem(f"{folder}: the server did not replace the key; its log says why")
        print_note(f"the new key of the user admin is in {kubeconfig}. It expires in 24 hours, unless you create")
        print_note("another way in: a key of an administrator that does not expire, a password, or single sign-on")
        print(key)


def _read_key_before(kubeconfig: Path) -> str | None:
    """None also for a file that cannot be read, which the server replaces."""
    try:
        return read_key(kubeconfig)
    except FileProblem:
        return None
