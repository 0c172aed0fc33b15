"""`fairlead kubeconfig`: a context for kubectl and its relatives, beside those that are there already.

The key stands in the file, so that any client can use it; with `--exec` the file calls `fairlead token` instead, and a
later login or rotation reaches kubectl by itself.
"""

import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from fairlead.cli.flags import ContextFlag, takes
from fairlead.cli.output import note
from fairlead.cli.session import Session, connected, namespace_of
from fairlead.client.kubeconfig import Entry, cluster_of, merge_into, merged
from fairlead.core import yaml
from fairlead.core.objects import Object

EXEC_VERSION = "client.authentication.k8s.io/v1"
STDOUT = Path("-")


@dataclass(frozen=True, slots=True)
class Asked:
    context: ContextFlag = None
    context_name: Annotated[
        str | None,
        typer.Option(
            "--context-name", help="Name of the context in the file.", show_default="fairlead-LOGIN[-PROJECT]"
        ),
    ] = None
    run: Annotated[
        bool,
        typer.Option("--exec/--embed", help="Have kubectl call `fairlead token`, or put the key into the file."),
    ] = False
    project: Annotated[
        str | None,
        typer.Option("--project", help="Project whose namespace the context uses.", metavar="P", show_default=False),
    ] = None
    file: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="File to write into; - for stdout.", show_default="~/.kube/config"),
    ] = None
    keep_current: Annotated[bool, typer.Option("--keep-current", help="Leave the file's current context as it is.")] = (
        False
    )


@takes(Asked)
def command(asked: Asked) -> None:
    """Write a context for kubectl.

    Other contexts in the file stay, and the state before is kept beside it in a file that ends in .bak.
    """
    with connected(asked.context) as session:
        entry = _entry(asked, session)
        if asked.file == STDOUT:
            sys.stdout.write(yaml.encode(merged({}, entry, make_current=True)).decode())
            return
        path = (asked.file or Path("~/.kube/config")).expanduser()
        backup = merge_into(path, entry, make_current=not asked.keep_current)
        kept = f"; the file before is {backup}" if backup else ""
        note(f"wrote the context {entry.name!r} into {path}{kept}")
        _explain_use(asked, path, entry.name)


def _entry(asked: Asked, session: Session) -> Entry:
    parts = ("fairlead", session.name, asked.project or "")
    name = asked.context_name or "-".join(part for part in parts if part)
    namespace = namespace_of(session, asked.project) if asked.project else ""
    user = {"exec": _exec(session.name)} if asked.run else {"token": session.login.key}
    return Entry(name, cluster_of(session.login), user, namespace)


def _exec(login: str) -> Object:
    found = shutil.which("fairlead")
    start = [found] if found else [sys.executable, "-m", "fairlead"]
    context = ["--context", login] if login else []
    return {
        "apiVersion": EXEC_VERSION,
        "command": start[0],
        "args": [*start[1:], "token", *context],
        "interactiveMode": "Never",
        "provideClusterInfo": False,
    }


def _explain_use(asked: Asked, path: Path, name: str) -> None:
    elsewhere = os.environ.get("KUBECONFIG", "")
    if asked.file is None and elsewhere:
        note(f"kubectl reads KUBECONFIG={elsewhere}; `unset KUBECONFIG` to use this file")
    elif asked.file is not None:
        note(f"use it with `kubectl --kubeconfig {path} --context {name}`")
    elif asked.keep_current:
        note(f"use it with `kubectl --context {name}`")
