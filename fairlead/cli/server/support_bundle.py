"""`fairlead support-bundle`: writes what helps to understand an installation into one file, without secrets."""

import asyncio
import inspect
import io
import json
import os
import tarfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from fairlead.cli.server.doctor import examine_installation, settings_and
from fairlead.cli.server.event_loop import exit_with_error
from fairlead.cli.ui.findings import encode_finding
from fairlead.cli.ui.output import print_note
from fairlead.core.files import FileProblem, write_file
from fairlead.settings import StartError

OUT = Annotated[Path, typer.Argument(help="File to write.", metavar="FILE", show_default=False)]
LOG = Annotated[
    list[Path] | None,
    typer.Option("--log", help="Log file to include, at most its last 5 MiB. Repeatable.", metavar="FILE"),
]


def command(out: Path, log: list[Path] | None = None, **flags: str | None) -> None:
    """Write versions, settings, findings, counts of objects, metrics and logs into FILE, without secrets.

    It takes the settings of `fairlead serve`: pass the same --config, --data or variables. Passwords, keys and tokens
    are removed. Names of machines, users and objects may be in metrics and logs: look into it before you hand it on.
    """
    settings, findings = examine_installation(flags)
    if settings is None:
        raise exit_with_error(StartError("\n".join(finding.problem for finding in findings)))
    from fairlead.app.support_bundle import Redactor, collect, find_secrets

    try:
        files = asyncio.run(collect(settings, log or ()))
        redact = Redactor(find_secrets(settings, os.environ))
        files["doctor.json"] = redact(json.dumps([encode_finding(each) for each in findings], indent=2) + "\n")
        write_file(out, pack(files), mode=0o600)
    except FileProblem as error:
        raise exit_with_error(error) from None
    print_note(f"wrote {out}: {', '.join(sorted(files))}. Look into it before you hand it on.")


command.__signature__ = settings_and(  # type: ignore[attr-defined]
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
