"""`fairlead doctor`: checks this machine and the installation on it, and says what to do."""

import asyncio
import inspect
import json
import os
from typing import TYPE_CHECKING, Annotated

import typer

from fairlead.cli.server.setting_flags import settings_signature
from fairlead.cli.ui.findings import describe_finding, encode_finding
from fairlead.cli.ui.output import escape_control
from fairlead.core.files import FileProblem
from fairlead.settings import Settings, StartError, load, load_credentials

if TYPE_CHECKING:
    from fairlead.core.machine import Finding

AS_JSON = Annotated[bool, typer.Option("--json", help="Print one JSON object, for scripts.")]


def command(as_json: bool = False, **flags: str | None) -> None:
    """Check this machine and the installation on it, and say what to do.

    It takes the settings of `fairlead serve`: pass the same --config, --data or variables. It changes nothing, and
    works while the server runs and while it does not. It exits with 1 if there is a problem; a warning is none.
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
    from fairlead.core.machine import Finding

    try:
        os.environ.update(load_credentials(os.environ))
        settings = load(flags, os.environ)
    except (StartError, FileProblem) as error:
        remedy = "correct it; `fairlead serve --help` describes all settings"
        return None, [Finding("settings", line, remedy) for line in str(error).splitlines()]
    return settings, [Finding("settings"), *asyncio.run(_collect(settings))]


async def _collect(settings: Settings) -> "list[Finding]":
    from fairlead.app.doctor import examine

    return [finding async for finding in examine(settings)]
