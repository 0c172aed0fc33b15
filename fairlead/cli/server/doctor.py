"""`fairlead doctor` and `fairlead support-bundle`: examine this machine and the installation on it."""

import asyncio
import inspect
import io
import json
import os
import tarfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairlead.cli.server.event_loop import exit_with_error, report_start_errors
from fairlead.cli.server.setting_flags import settings_signature
from fairlead.cli.ui.output import escape_control, print_note
from fairlead.core.files import FileProblem, write_file
from fairlead.settings import Settings, StartError, load, load_credentials

if TYPE_CHECKING:
    from fairlead.core.machine.findings import Finding


def describe_finding(finding: "Finding") -> list[str]:
    text = finding.problem or finding.detail
    lines = [f"{_state(finding):8} {finding.subject}" + (f": {text}" if text else "")]
    return [*lines, f"         fix: {finding.remedy}"] if finding.problem and finding.remedy else lines


def encode_finding(finding: "Finding") -> dict[str, Any]:
    found = {"problem": finding.problem, "remedy": finding.remedy} if finding.problem else {}
    detail = {"detail": finding.detail} if finding.detail and not finding.problem else {}
    return {"subject": finding.subject, "state": _state(finding).lower(), **found, **detail}


def _state(finding: "Finding") -> str:
    return "ok" if not finding.problem else "PROBLEM" if finding.is_fatal else "warning"


AS_JSON = Annotated[bool, typer.Option("--json", help="Print one JSON object, for scripts.")]


def command(as_json: bool = False, **flags: str | None) -> None:
    """Check this machine and the installation on it, and say what to do.

    It takes the settings of `fairlead serve`: pass the same --config, --data or variables. Without --port, it looks for
    the server that runs on the data folder. It changes nothing, and works while the server runs and while it does not.
    It exits with 1 if there is a problem; a warning is none.
    """
    findings = examine_installation(flags)[1]
    is_working = not any(finding.problem and finding.is_fatal for finding in findings)
    if as_json:
        print(json.dumps({"ok": is_working, "findings": [encode_finding(each) for each in findings]}, indent=2))
    else:
        for finding in findings:
            for line in describe_finding(finding):
                print(escape_control(line))
    if not is_working:
        raise typer.Exit(1)


def settings_and(*parameters: inspect.Parameter) -> inspect.Signature:
    """The signature of a command with flags of its own and all settings."""
    return inspect.Signature([*parameters, *settings_signature().parameters.values()])


command.__signature__ = settings_and(  # type: ignore[attr-defined]
    inspect.Parameter("as_json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=AS_JSON)
)


def examine_installation(flags: dict[str, str | None]) -> "tuple[Settings | None, list[Finding]]":
    """The settings, if they are valid, and all findings."""
    from fairlead.core.machine.findings import Finding

    try:
        os.environ.update(load_credentials(os.environ))
        settings = load(flags, os.environ)
    except (StartError, FileProblem) as error:
        remedy = "correct it; `fairlead serve --help` describes all settings"
        return None, [Finding("settings", line, remedy) for line in str(error).splitlines()]
    from fairlead.app.doctor import with_running_address

    settings = with_running_address(settings)
    return settings, [Finding("settings"), *asyncio.run(_collect(settings))]


async def _collect(settings: Settings) -> "list[Finding]":
    from fairlead.app.doctor import examine

    return [finding async for finding in examine(settings)]


OUT = Annotated[Path, typer.Argument(help="File to write.", metavar="FILE", show_default=False)]
LOG = Annotated[
    list[Path] | None,
    typer.Option("--log", help="Log file to include, at most its last 5 MiB. Repeatable.", metavar="FILE"),
]


def support_bundle(out: Path, log: list[Path] | None = None, **flags: str | None) -> None:
    """Write versions, settings, findings, counts of objects, metrics and logs into FILE, without secrets.

    It takes the settings of `fairlead serve`: pass the same --config, --data or variables. Passwords, keys and tokens
    are removed. Names of machines, users and objects may be in metrics and logs: look into it before you hand it on.
    """
    settings, findings = examine_installation(flags)
    if settings is None:
        raise exit_with_error(StartError("\n".join(finding.problem for finding in findings)))
    from fairlead.app.support_bundle import Redactor, collect, find_secrets

    with report_start_errors():
        files = asyncio.run(collect(settings, log or ()))
        redact = Redactor(find_secrets(settings, os.environ))
        files["doctor.json"] = redact(json.dumps([encode_finding(each) for each in findings], indent=2) + "\n")
        write_file(out, pack(files), mode=0o600)
    print_note(f"wrote {out}: {', '.join(sorted(files))}. Look into it before you hand it on.")


support_bundle.__signature__ = settings_and(  # type: ignore[attr-defined]
    inspect.Parameter("out", inspect.Parameter.KEYWORD_ONLY, annotation=OUT),
    inspect.Parameter("log", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=LOG),
)


def pack(files: Mapping[str, str]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, text in sorted(files.items()):
            member = tarfile.TarInfo(f"fairlead-support/{name}")
            member.size = len(content := text.encode())
            member.mtime = int(time.time())
            member.mode = 0o600
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()
