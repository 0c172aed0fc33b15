"""`fairlead kubeconfig`: adds a kubectl context for the server's own API or for a gateway to a cluster.

`fairlead space kubeconfig` uses it too. The key is embedded in the file, so that any client can use it. With `--exec`,
kubectl runs `fairlead token` instead, and later logins and key rotations take effect automatically.

A gateway is a path on the server that proxies the API of a cluster. The target is looked up first, so that a mistyped
name fails here and not in kubectl. A scoped key may be able to use a cluster without reading it; the lookup is then
skipped.
"""

import os
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

from fairlead.cli.ui.completion import names_of
from fairlead.cli.ui.flags import ContextFlag, takes
from fairlead.cli.ui.output import note
from fairlead.cli.ui.session import Session, WrongUsage, connected, namespace_of
from fairlead.client import ApiProblem, ClientError
from fairlead.client.client import MANAGEMENT, segment
from fairlead.client.kubeconfig import Entry, cluster_of, merge_into, merged
from fairlead.core import yaml
from fairlead.core.objects import Object, dig

ROOT = "/kubernetes"


@dataclass(frozen=True, slots=True)
class Where:
    """A Kubernetes API behind the server: its path, the default namespace, and a label for the context name."""

    path: str
    namespace: str = ""
    word: str = ""


def in_management(session: Session, project: str) -> Where:
    """The server's own API, with the namespace of a project if one is set."""
    return Where(MANAGEMENT, namespace_of(session, project) if project else "", project)


def in_cluster(session: Session, cluster: str) -> Where:
    _look_up(session, "clusters", cluster)
    return Where(f"{ROOT}/cluster/{segment(cluster)}", word=f"cluster-{cluster}")


def in_space(session: Session, project: str, space: str) -> Where:
    """The gateway of a space. Its namespace is set in the context, because no other can be accessed."""
    instance = session.client.get("spaceinstances", space, namespace=namespace_of(session, project))
    namespace = dig(instance, "spec.clusterRef.namespace")
    if not namespace:
        advice = f"`fairlead space list --project {project}` shows its phase"
        raise ClientError(f"the space {space} has no namespace in a cluster yet; {advice}")
    return Where(_inside(project, "space", space), str(namespace), f"space-{project}/{space}")


def in_virtual_cluster(session: Session, project: str, name: str) -> Where:
    _look_up(session, "virtualclusterinstances", name, namespace_of(session, project))
    return Where(_inside(project, "virtualcluster", name), word=f"virtualcluster-{project}/{name}")


def _inside(project: str, kind: str, name: str) -> str:
    return f"{ROOT}/project/{segment(project)}/{kind}/{segment(name)}"


def _look_up(session: Session, plural: str, name: str, namespace: str = "") -> None:
    try:
        session.client.get(plural, name, namespace=namespace)
    except ApiProblem as problem:
        if problem.code != 403:
            raise


EXEC_VERSION = "client.authentication.k8s.io/v1"
STDOUT = Path("-")


@dataclass(frozen=True, slots=True)
class Written:
    """Flags for the kubeconfig file and the authentication of the context."""

    context: ContextFlag = None
    context_name: Annotated[
        str | None,
        typer.Option("--context-name", help="Name of the context in the file.", show_default="fairlead-LOGIN[-TARGET]"),
    ] = None
    run: Annotated[
        bool,
        typer.Option("--exec/--embed", help="Let kubectl run `fairlead token`, or embed the key in the file."),
    ] = False
    file: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="File to write; - for stdout.", show_default="~/.kube/config"),
    ] = None
    keep_current: Annotated[bool, typer.Option("--keep-current", help="Do not change the file's current context.")] = (
        False
    )


@dataclass(frozen=True, slots=True)
class Asked:
    project: Annotated[
        str | None,
        typer.Option(
            "--project",
            help="Project whose namespace the context uses.",
            metavar="P",
            show_default=False,
            autocompletion=names_of("projects"),
        ),
    ] = None
    cluster: Annotated[
        str | None,
        typer.Option(
            "--cluster",
            help="Connected cluster for the context.",
            metavar="C",
            show_default=False,
            autocompletion=names_of("clusters"),
        ),
    ] = None
    space: Annotated[
        str | None,
        typer.Option("--space", help="Space for the context.", metavar="P/S", show_default=False),
    ] = None
    virtual_cluster: Annotated[
        str | None,
        typer.Option(
            "--virtual-cluster",
            help="Virtual cluster for the context.",
            metavar="P/V",
            show_default=False,
        ),
    ] = None
    written: Written = field(default_factory=Written)


@takes(Asked)
def command(asked: Asked) -> None:
    """Write a kubectl context for the server's own API, or for a cluster behind it.

    Other contexts in the file are kept, and the previous version is saved next to it as a .bak file.
    """
    with connected(asked.written.context) as session:
        write_context(session, _where(session, asked), asked.written)


def _where(session: Session, asked: Asked) -> Where:
    targets = [each for each in (asked.project, asked.cluster, asked.space, asked.virtual_cluster) if each is not None]
    if len(targets) > 1:
        raise WrongUsage("--project, --cluster, --space and --virtual-cluster are mutually exclusive; choose one")
    if asked.cluster is not None:
        return in_cluster(session, asked.cluster)
    if asked.space is not None:
        return in_space(session, *_pair(asked.space, "--space P/S"))
    if asked.virtual_cluster is not None:
        return in_virtual_cluster(session, *_pair(asked.virtual_cluster, "--virtual-cluster P/V"))
    return in_management(session, asked.project or "")


def _pair(text: str, form: str) -> tuple[str, str]:
    project, slash, name = text.partition("/")
    if not project or not slash or not name or "/" in name:
        raise WrongUsage(f"{text!r} does not include the project; use the format {form}")
    return project, name


def write_context(session: Session, where: Where, asked: Written) -> None:
    """Writes the context for `target` into the requested file."""
    entry = _entry(session, where, asked)
    if asked.file == STDOUT:
        sys.stdout.write(yaml.encode(merged({}, entry, make_current=True)).decode())
        return
    path = (asked.file or Path("~/.kube/config")).expanduser()
    backup = merge_into(path, entry, make_current=not asked.keep_current)
    saved = f"; the previous version is {backup}" if backup else ""
    note(f"wrote the context {entry.name!r} to {path}{saved}")
    _explain_use(asked, path, entry.name)


def _entry(session: Session, where: Where, asked: Written) -> Entry:
    parts = ("fairlead", session.name, where.word)
    name = asked.context_name or "-".join(part for part in parts if part)
    user = {"exec": _exec(session.name)} if asked.run else {"token": session.login.key}
    return Entry(name, cluster_of(session.login, where.path), user, where.namespace)


def _exec(login: str) -> Object:
    executable = shutil.which("fairlead")
    command_line = [executable] if executable else [sys.executable, "-m", "fairlead"]
    context = ["--context", login] if login else []
    return {
        "apiVersion": EXEC_VERSION,
        "command": command_line[0],
        "args": [*command_line[1:], "token", *context],
        "interactiveMode": "Never",
        "provideClusterInfo": False,
    }


def _explain_use(asked: Written, path: Path, name: str) -> None:
    variable = os.environ.get("KUBECONFIG", "")
    if asked.file is None and variable:
        note(f"kubectl reads KUBECONFIG={variable}; `unset KUBECONFIG` to use this file")
    elif asked.file is not None:
        note(f"use it with `kubectl --kubeconfig {path} --context {name}`")
    elif asked.keep_current:
        note(f"use it with `kubectl --context {name}`")
