"""A `helm` program for the tests: Helm 4 itself as a library, behind a command line that is ours.

There is no package of the helm program that a test could install on every machine. There is one of Helm's own Go
library (`helm-python-sdk`), and this script puts the few commands that Fairlead runs in front of it: `upgrade
--install`, `uninstall`, `repo add`, `registry login` and `version`. So charts are really fetched, rendered and deployed
by Helm, and what it says about failures is its own. Not real is the surface: how arguments are parsed, the words
`Error:` and `UPGRADE FAILED:`, and the file that `repo add` writes, which were written after Helm's and compared with
the program of Helm 3.17. It knows only the flags that Fairlead uses, so that a new one is noticed.

`write_program` makes the executable; nothing but it starts this file.
"""

import argparse
import json
import logging
import os
import shlex
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

PROGRAM = """#!/bin/sh
{variables}exec {python} -I {script} "$@"
"""


def write_program(folder: Path, **variables: str) -> Path:
    """The executable `helm` in a folder. `variables` are set for it: nobody else hands it an environment."""
    path = folder / "helm"
    lines = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables.items())
    python, script = shlex.quote(sys.executable), shlex.quote(__file__)
    path.write_text(PROGRAM.format(variables=lines, python=python, script=script))
    path.chmod(0o755)
    return path


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise SystemExit(_complain(message))


def _complain(text: str) -> int:
    sys.stderr.write(f"Error: {text}\n")
    return 1


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="helm", allow_abbrev=False)
    commands = parser.add_subparsers(dest="command", required=True)
    upgrade = commands.add_parser("upgrade", allow_abbrev=False)
    upgrade.add_argument("--install", action="store_true", required=True)
    for flag in ("repo", "version", "values"):
        upgrade.add_argument(f"--{flag}", default="")
    upgrade.add_argument("--history-max", type=int, default=10)
    uninstall = commands.add_parser("uninstall", allow_abbrev=False)
    for each in (upgrade, uninstall):
        each.add_argument("--timeout", type=_read_seconds, default=300)
        for flag in ("kubeconfig", "namespace", "kube-as-user"):
            each.add_argument(f"--{flag}", default=None)
        each.add_argument("name")
    upgrade.add_argument("chart")
    for command, action, positionals in (("repo", "add", ("name", "url")), ("registry", "login", ("host",))):
        actions = commands.add_parser(command).add_subparsers(dest="action", required=True)
        signing_in = actions.add_parser(action, allow_abbrev=False)
        signing_in.add_argument("--username", default="")
        signing_in.add_argument("--password-stdin", action="store_true", required=True)
        for positional in positionals:
            signing_in.add_argument(positional)
    commands.add_parser("version")
    return parser


def _read_seconds(text: str) -> int:
    return int(text.removesuffix("s"))


def _upgrade(helm: Any, asked: argparse.Namespace) -> None:
    with _config(helm, asked) as config:
        config.set_registry_client(helm.RegistryClient(credentials_file=_registry_file()))
        try:
            config.history(asked.name, max_revisions=1)
        except helm.HelmNotFoundError:
            chart, options = _chart(helm, asked)
            config.install(chart, asked.name, _values(helm, asked), **options)
            return
        (chart, options), values = _chart(helm, asked), _values(helm, asked)
        try:
            config.upgrade(chart, asked.name, values, max_history=asked.history_max, **options)
        except (helm.HelmReleaseError, helm.HelmNotFoundError, helm.HelmCancelledError) as error:
            raise SystemExit(_complain(f"UPGRADE FAILED: {error.detail}")) from None


def _chart(helm: Any, asked: argparse.Namespace) -> tuple[str, dict[str, Any]]:
    """The chart, and which version of it from where. That of a repository with a name is fetched here: the library
    has no such names."""
    running = {"timeout": asked.timeout, "context": asked.context}
    options = {**running, "chart_repo_url": asked.repo or None, "chart_version": asked.version or None}
    repository, _, name = asked.chart.partition("/")
    if asked.repo or not name or asked.chart.startswith("oci://"):
        return asked.chart, options
    entry = next(
        each for each in json.loads(_repositories_file().read_text())["repositories"] if each["name"] == repository
    )
    place = Path(os.environ["HELM_CACHE_HOME"]) / "fetched"
    place.mkdir(parents=True)
    known = {"username": entry["username"], "password": entry["password"]}
    helm.pull(name, destination=place, version=asked.version or None, repo_url=entry["url"], **known)
    return str(next(place.iterdir())), running


def _values(helm: Any, asked: argparse.Namespace) -> dict[str, Any]:
    try:
        values: dict[str, Any] = helm.values_from_yaml(Path(asked.values).read_text())
    except helm.HelmError as error:
        raise SystemExit(_complain(f"failed to parse {asked.values}: {error.detail}")) from None
    return values


def _config(helm: Any, asked: argparse.Namespace) -> Any:
    return helm.Config(
        kubeconfig_path=asked.kubeconfig, namespace=asked.namespace, kube_as_user=asked.kube_as_user or None
    )


def _uninstall(helm: Any, asked: argparse.Namespace) -> None:
    with _config(helm, asked) as config:
        config.uninstall(asked.name, timeout=asked.timeout)


def _repo_add(helm: Any, asked: argparse.Namespace) -> None:
    password = sys.stdin.read()
    try:
        helm.repo_index(asked.url, username=asked.username, password=password)
    except helm.HelmError as error:
        why = f'looks like "{asked.url}" is not a valid chart repository or cannot be reached: {error.detail}'
        raise SystemExit(_complain(why)) from None
    entry = {"name": asked.name, "url": asked.url, "username": asked.username, "password": password}
    _repositories_file().parent.mkdir(parents=True, exist_ok=True)
    _repositories_file().write_text(json.dumps({"repositories": [entry]}))


def _registry_login(helm: Any, asked: argparse.Namespace) -> None:
    with helm.RegistryClient(credentials_file=_registry_file()) as client:
        client.login(asked.host, asked.username, sys.stdin.read())


def _repositories_file() -> Path:
    return Path(os.environ["HELM_CONFIG_HOME"]) / "repositories.yaml"


def _registry_file() -> Path:
    return Path(os.environ["HELM_CONFIG_HOME"]) / "registry" / "config.json"


def main(arguments: Sequence[str]) -> int:
    asked = _parser().parse_args(arguments)
    import helm_python as helm  # loads the library, which takes longer than refusing arguments

    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format='level=%(levelname)s msg="%(message)s"')
    helm.enable_logging(logging.INFO)
    if asked.command == "version":
        sys.stdout.write(f"{helm.helm_sdk_version()}\n")
        return 0
    do = {"upgrade": _upgrade, "uninstall": _uninstall, "repo": _repo_add, "registry": _registry_login}[asked.command]
    if asked.command == "upgrade":
        # As helm does: the release is noted as failed.
        asked.context = helm.HelmContext()
        signal.signal(signal.SIGTERM, lambda *_: asked.context.cancel())
    codes: list[int] = []
    # Not in this thread: signals are handled in it, and only while it runs Python.
    worker = threading.Thread(target=lambda: codes.append(_run(do, helm, asked)))
    worker.start()
    while worker.is_alive():
        worker.join(0.05)
    return codes[0]


def _run(do: Callable[[Any, argparse.Namespace], None], helm: Any, asked: argparse.Namespace) -> int:
    try:
        do(helm, asked)
    except helm.HelmError as error:
        return _complain(error.detail)
    except SystemExit as ended:
        return int(str(ended))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
