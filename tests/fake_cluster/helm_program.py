"""A `helm` program for tests: Helm 4 itself as a library, behind a command line of our own.

There is no package of the helm program that a test could install on every machine. There is one of Helm's own Go
library (`helm-python-sdk`), and this script puts the few commands that Fairlead runs in front of it: `upgrade
--install`, `uninstall` and `version`; and `history -o json`, with which tests ask Helm what it has done. So charts are
really rendered and deployed by Helm, and the error messages are its own. Not real are the argument parser and the words
`Error:` and `UPGRADE FAILED:`, which imitate Helm's and were compared with the program of Helm 3.17. It accepts only
the flags that Fairlead and its tests use, so that a new one fails.

`write_helm_program` writes the executable, which alone starts this file.
"""

import argparse
import json
import logging
import shlex
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

MISSING_DEPENDENCIES = (
    "chart dependencies are missing; run dependency update/build first: ",
    "an error occurred while checking for chart dependencies. You may need to run 'helm dependency build' to fetch "
    "missing dependencies: ",
)
"""What the library says, and what the program of Helm 4.2 says instead."""
PROGRAM = """#!/bin/sh
exec {python} -I {script} "$@"
"""


def write_helm_program(folder: Path) -> Path:
    """Writes the executable `helm` to a folder."""
    path = folder / "helm"
    python, script = shlex.quote(sys.executable), shlex.quote(__file__)
    path.write_text(PROGRAM.format(python=python, script=script))
    path.chmod(0o755)
    return path


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """The library has no way to force conflicts; Helm 3 has none either, and says so."""
        raise SystemExit(_print_error(message.replace("unrecognized arguments: --", "unknown flag: --")))


def _print_error(text: str) -> int:
    sys.stderr.write(f"Error: {text}\n")
    return 1


def _build_parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="helm", allow_abbrev=False)
    commands = parser.add_subparsers(dest="command", required=True)
    upgrade = commands.add_parser("upgrade", allow_abbrev=False)
    upgrade.add_argument("--install", action="store_true", required=True)
    upgrade.add_argument("--values", default="")
    upgrade.add_argument("--history-max", type=int, default=10)
    upgrade.add_argument("--wait", action="store_true")
    uninstall = commands.add_parser("uninstall", allow_abbrev=False)
    for each in (upgrade, uninstall):
        each.add_argument("--timeout", type=_read_seconds, default=300)
        for flag in ("kubeconfig", "namespace", "kube-as-user"):
            each.add_argument(f"--{flag}", default=None)
        each.add_argument("name")
    upgrade.add_argument("chart")
    history = commands.add_parser("history", allow_abbrev=False)
    history.add_argument("name")
    history.add_argument("-o", choices=["json"], required=True)
    for flag in ("kubeconfig", "namespace", "kube-as-user"):
        history.add_argument(f"--{flag}", default=None)
    commands.add_parser("version")
    return parser


def _read_seconds(text: str) -> int:
    return int(text.removesuffix("s"))


def _run_upgrade(helm: Any, args: argparse.Namespace) -> None:
    with _build_config(helm, args) as config:
        options = {"timeout": args.timeout, "context": args.context, "wait": "watcher" if args.wait else None}
        try:
            config.history(args.name, max_revisions=1)
        except helm.HelmNotFoundError:
            config.install(args.chart, args.name, _read_values(helm, args), **options)
            return
        values = _read_values(helm, args)
        try:
            config.upgrade(args.chart, args.name, values, max_history=args.history_max, **options)
        except (helm.HelmReleaseError, helm.HelmNotFoundError, helm.HelmCancelledError) as error:
            raise SystemExit(_print_error(f"UPGRADE FAILED: {error.detail}")) from None


def _read_values(helm: Any, args: argparse.Namespace) -> dict[str, Any]:
    try:
        values: dict[str, Any] = helm.values_from_yaml(Path(args.values).read_text())
    except helm.HelmError as error:
        raise SystemExit(_print_error(f"failed to parse {args.values}: {error.detail}")) from None
    return values


def _build_config(helm: Any, args: argparse.Namespace) -> Any:
    return helm.Config(
        kubeconfig_path=args.kubeconfig, namespace=args.namespace, kube_as_user=args.kube_as_user or None
    )


def _run_uninstall(helm: Any, args: argparse.Namespace) -> None:
    with _build_config(helm, args) as config:
        config.uninstall(args.name, timeout=args.timeout)


def _print_history(helm: Any, args: argparse.Namespace) -> None:
    with _build_config(helm, args) as config:
        found = config.history(args.name)
    sys.stdout.write(json.dumps([{"revision": each["revision"], "status": each["status"]} for each in found]))


def main(arguments: Sequence[str]) -> int:
    args = _build_parser().parse_args(arguments)
    import helm_python as helm  # slow; invalid arguments must be rejected fast

    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format='level=%(levelname)s msg="%(message)s"')
    helm.enable_logging(logging.INFO)
    if args.command == "version":
        sys.stdout.write(f"{helm.helm_sdk_version()}\n")
        return 0
    run_command = {
        "upgrade": _run_upgrade,
        "uninstall": _run_uninstall,
        "history": _print_history,
    }[args.command]
    if args.command == "upgrade":
        # As helm does: the release is recorded as failed.
        args.context = helm.HelmContext()
        signal.signal(signal.SIGTERM, lambda *_: args.context.cancel())
    codes: list[int] = []
    # Not in this thread: signals are handled in it, and only while it runs Python.
    worker = threading.Thread(target=lambda: codes.append(_run(run_command, helm, args)))
    worker.start()
    while worker.is_alive():
        worker.join(0.05)
    return codes[0]


def _run(run_command: Callable[[Any, argparse.Namespace], None], helm: Any, args: argparse.Namespace) -> int:
    try:
        run_command(helm, args)
    except helm.HelmError as error:
        return _print_error(error.detail.replace(*MISSING_DEPENDENCIES))
    except SystemExit as exit:
        return int(str(exit))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
