"""`fairlead kubeconfig`: a context for kubectl and its relatives, beside those that are there already.

`fairlead space kubeconfig` writes one, too. Where a context leads is `kubeconfig.py`'s to say.

The key stands in the file, so that any client can use it; with `--exec` the file calls `fairlead token` instead, and a
later login or rotation reaches kubectl by itself.
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

# DOC-MERGED cli/gateways
# Where kubectl can go through the server: its own API, connected clusters, spaces and virtual clusters.
#
# A gateway is a path of the server below which the API of a cluster is. What is named is looked up first, so that a slip
# shows here and not as kubectl's riddle. A key that is cut down to a cluster may use it without being able to look it up;
# its word is then taken.


ROOT = "/kubernetes"


@dataclass(frozen=True, slots=True)
class Where:
    """An API: its path at the server, the namespace to begin in, and a word for names of contexts."""

    path: str
    namespace: str = ""
    word: str = ""


def in_management(session: Session, project: str) -> Where:
    """The server's own API, in the namespace of a project if one is given."""
    return Where(MANAGEMENT, namespace_of(session, project) if project else "", project)


def in_cluster(session: Session, cluster: str) -> Where:
    _look_up(session, "clusters", cluster)
    return Where(f"{ROOT}/cluster/{segment(cluster)}", word=f"cluster-{cluster}")


def in_space(session: Session, project: str, space: str) -> Where:
    """A space is one namespace, and kubectl would ask for another unless it is told."""
    found = session.client.get("spaceinstances", space, namespace=namespace_of(session, project))
    namespace = dig(found, "spec.clusterRef.namespace")
    if not namespace:
        advice = f"`fairlead space list --project {project}` tells how it stands"
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
    """Where a context goes, and how it signs in."""

    context: ContextFlag = None
    context_name: Annotated[
        str | None,
        typer.Option("--context-name", help="Name of the context in the file.", show_default="fairlead-LOGIN[-WHERE]"),
    ] = None
    run: Annotated[
        bool,
        typer.Option("--exec/--embed", help="Have kubectl call `fairlead token`, or put the key into the file."),
    ] = False
    file: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="File to write into; - for stdout.", show_default="~/.kube/config"),
    ] = None
    keep_current: Annotated[bool, typer.Option("--keep-current", help="Leave the file's current context as it is.")] = (
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
            help="Connected cluster that the context leads into.",
            metavar="C",
            show_default=False,
            autocompletion=names_of("clusters"),
        ),
    ] = None
    space: Annotated[
        str | None,
        typer.Option("--space", help="Space that the context leads into.", metavar="P/S", show_default=False),
    ] = None
    virtual_cluster: Annotated[
        str | None,
        typer.Option(
            "--virtual-cluster",
            help="Virtual cluster that the context leads into.",
            metavar="P/V",
            show_default=False,
        ),
    ] = None
    written: Written = field(default_factory=Written)


@takes(Asked)
def command(asked: Asked) -> None:
    """Write a context for kubectl: of the server itself, or of a cluster that is reached through it.

    Other contexts in the file stay, and the state before is kept beside it in a file that ends in .bak.
    """
    with connected(asked.written.context) as session:
        write_context(session, _where(session, asked), asked.written)


def _where(session: Session, asked: Asked) -> Where:
    given = [each for each in (asked.project, asked.cluster, asked.space, asked.virtual_cluster) if each is not None]
    if len(given) > 1:
        raise WrongUsage("--project, --cluster, --space and --virtual-cluster are different places; choose one")
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
        raise WrongUsage(f"{text!r} does not say which project it is in; write it as {form}")
    return project, name


def write_context(session: Session, where: Where, asked: Written) -> None:
    """A context for a place, into the file that was asked for."""
    entry = _entry(session, where, asked)
    if asked.file == STDOUT:
        sys.stdout.write(yaml.encode(merged({}, entry, make_current=True)).decode())
        return
    path = (asked.file or Path("~/.kube/config")).expanduser()
    backup = merge_into(path, entry, make_current=not asked.keep_current)
    kept = f"; the file before is {backup}" if backup else ""
    note(f"wrote the context {entry.name!r} into {path}{kept}")
    _explain_use(asked, path, entry.name)


def _entry(session: Session, where: Where, asked: Written) -> Entry:
    parts = ("fairlead", session.name, where.word)
    name = asked.context_name or "-".join(part for part in parts if part)
    user = {"exec": _exec(session.name)} if asked.run else {"token": session.login.key}
    return Entry(name, cluster_of(session.login, where.path), user, where.namespace)


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


def _explain_use(asked: Written, path: Path, name: str) -> None:
    elsewhere = os.environ.get("KUBECONFIG", "")
    if asked.file is None and elsewhere:
        note(f"kubectl reads KUBECONFIG={elsewhere}; `unset KUBECONFIG` to use this file")
    elif asked.file is not None:
        note(f"use it with `kubectl --kubeconfig {path} --context {name}`")
    elif asked.keep_current:
        note(f"use it with `kubectl --context {name}`")
