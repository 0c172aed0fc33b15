"""`fairlead up`: runs a local server for development and evaluation, and prints the next commands."""

import json
import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairlead import __version__
from fairlead.cli.server.event_loop import load_settings, report_start_errors
from fairlead.cli.server.serve import start_server
from fairlead.cli.server.setting_flags import setting_option
from fairlead.cli.ui.output import print_note
from fairlead.client.admin_kubeconfig import CONTEXT_NAME, KUBECONFIG_NAME, read_current_context, write_admin_kubeconfig
from fairlead.client.admin_reset import IF_EXPIRED, is_pending, request_reset
from fairlead.core.machine.helm_program import HELM_ADVICE, find_helm
from fairlead.settings.values import ON

if TYPE_CHECKING:
    from rich.console import Console

    from fairlead.app import StartedServer

PRIVATE_NETWORKS = ("127.0.0.0/8", "::1/128", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7")
DEFAULTS = {
    "log_level": "warning",
    "log_format": "console",
    "cluster_networks": PRIVATE_NETWORKS,
    "workers": 1,
    "shutdown_drain": 0,
}
"""Defaults for interactive use: readable logs, warnings only, clusters on private networks are allowed, one process. No
load balancer has to notice the end."""

KEY_REJECTED = "in the kubeconfig does not work: it was revoked or disabled, has expired, or is for another store"
KEY_MISSING = "shown at the first start; the kubeconfig with it is missing"
EXAMPLE_MANIFEST = "examples/app.yaml"
KEY_ADVICE = """
The access key admin-first-key may do everything. Keep it and the kubeconfig private. It expires in 24 hours, unless you
create another way in for an administrator: a password ({fairlead} user passwd), a key that does not expire, or single
sign-on. To replace it, on this machine:

{fairlead} admin reset{data}"""


def command(
    data: Annotated[str | None, setting_option("data")] = None,
    port: Annotated[str | None, setting_option("port")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON line when ready, for scripts.")] = False,
) -> None:
    """Start a server on this machine and show how to connect to it.

    The first start creates the database, a certificate, the user admin and an access key. Later starts reuse them.

    FAIRLEAD_* variables apply too; `fairlead serve --help` lists all settings.
    """
    settings = load_settings({"data": data, "port": port}, DEFAULTS)
    kubeconfig = settings.data / KUBECONFIG_NAME
    data_flag = f" --data {shlex.quote(data)}" if data else ""
    if kubeconfig.exists() and not is_pending(settings.data):
        with report_start_errors():  # such as a read-only file system
            request_reset(settings.data, IF_EXPIRED)

    def ready(started: "StartedServer") -> None:
        key = write_admin_kubeconfig(kubeconfig, started.url, started.ca_file, started.new_key)
        console_url = f"{started.url}/console/" if settings.console == ON else None
        if as_json:
            if started.is_key_rejected:
                print_note(f"the access key {KEY_REJECTED}; get a new one: {_own_command()} admin reset{data_flag}")
            print(format_json(started, kubeconfig, key, console_url))
            return
        from rich.console import Console

        output = Console(markup=False, emoji=False, highlight=False, soft_wrap=True)
        print_summary(output, started, kubeconfig, key, console_url, data_flag)

    start_server(settings, ready)


def format_json(started: "StartedServer", kubeconfig: Path, key: str | None, console_url: str | None) -> str:
    """The line for scripts. A key that the server does not accept is left out, and `accessKeyRejected` says so."""
    return json.dumps(
        {
            "url": started.url,
            "consoleUrl": console_url,
            "accessKey": None if started.is_key_rejected else key,
            "accessKeyRejected": started.is_key_rejected,
            "kubeconfig": str(kubeconfig) if key else None,
            "caFile": str(started.ca_file) if started.ca_file else None,
        }
    )


def print_summary(
    console: "Console",
    started: "StartedServer",
    kubeconfig: Path,
    key: str | None,
    console_url: str | None,
    data_flag: str = "",
) -> None:
    """Prints the access key and the next commands as plain lines, for copying. `console_url` is of the web console."""
    from rich.text import Text

    console.print(Text.assemble(f"Fairlead {__version__} is ready at ", (started.url, "bold")))
    console.print()
    if console_url:
        console.print(f"  console     {console_url}")
    if started.new_key:
        console.print(
            Text.assemble(
                "  access key  ", (started.new_key, "bold green"), "  user admin; later only in the kubeconfig"
            )
        )
        if started.is_key_replaced:
            console.print("              it replaces the earlier key, which has expired or was to be replaced")
    elif key and not started.is_key_rejected:
        console.print("  access key  in the kubeconfig; it was shown at the first start")
    else:
        console.print(f"  access key  {KEY_REJECTED if key else KEY_MISSING}")
        console.print(f"              use another valid key, or get a new one: {_own_command()} admin reset{data_flag}")
    if key:
        console.print(f"  kubeconfig  {kubeconfig}")
    if find_helm() is None:
        console.print(f"  helm        not found; apps and virtual clusters need it: {HELM_ADVICE}")
    if key and not started.is_key_rejected:
        console.print("\nNext, in another terminal:\n")
        for line in next_commands(kubeconfig, bool(started.new_key)):
            console.print(f"  {line}", style="cyan")
    if started.new_key:
        console.print(KEY_ADVICE.format(fairlead=_own_command(), data=data_flag))
    console.print("\nCtrl-C stops the server.")


def next_commands(kubeconfig: Path, first_start: bool) -> tuple[str, str, str]:
    """Commands to try next, with kubectl if it is installed.

    The example manifest is suggested at the first start, if it is in the working directory.
    """
    example = Path(EXAMPLE_MANIFEST).resolve()
    file = shlex.quote(str(kubeconfig))
    suggest_example = first_start and example.is_file()
    # The user may have made a gateway the current context.
    context = "" if read_current_context(kubeconfig) in ("", CONTEXT_NAME) else f" --context {CONTEXT_NAME}"
    if shutil.which("kubectl"):
        client = f"kubectl{context}"
        login, kinds = f"export KUBECONFIG={file}", f"{client} api-resources"
    else:
        client = _own_command()
        login, kinds = f"{client} login --kubeconfig {file}{context}", f"{client} get"
    return login, f"{client} apply -f {shlex.quote(str(example))}" if suggest_example else kinds, f"{client} get apps"


def _own_command() -> str:
    """`fairlead` as it can be typed in another terminal: with its path, if it is not on the PATH."""
    script = Path(sys.executable).with_name("fairlead")
    if shutil.which("fairlead"):
        return "fairlead"
    return shlex.quote(str(script)) if script.is_file() else f"{shlex.quote(sys.executable)} -m fairlead"
