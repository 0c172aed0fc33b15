"""`fairlead workspace hold`: keeps a workspace awake for a while, although nothing happens in it."""

from datetime import UTC, datetime
from typing import Annotated

import typer

from fairlead.cli.ui.completion import complete_names
from fairlead.cli.ui.durations import format_duration, parse_duration
from fairlead.cli.ui.field_flags import name_project
from fairlead.cli.ui.flags import ContextFlag, RequiredProjectFlag
from fairlead.cli.ui.output import print_note
from fairlead.cli.ui.session import open_session, project_namespace
from fairlead.core.clock import timestamp

WORKSPACES = "devpodworkspaceinstances"
HOLD_ANNOTATION = "sleepmode.service.sh/hold-until"
MAX_HOLD_SECONDS = 24 * 3600
"""A workspace that is needed for longer is held again, and so is not forgotten."""


def hold(
    name: Annotated[str, typer.Argument(help="Name of the workspace.", autocompletion=complete_names(WORKSPACES))],
    project: RequiredProjectFlag,
    duration: Annotated[
        int | None,
        typer.Argument(
            help="How long from now, like 2h. At most 24h.", metavar="[TIME]", parser=parse_duration, show_default=False
        ),
    ] = None,
    release: Annotated[bool, typer.Option("--release", help="End the hold.")] = False,
    context: ContextFlag = None,
) -> None:
    """Keep a workspace awake for some time, or end that with --release.

    Until then it counts as in use. The longest run that its template allows still applies.
    """
    if release == (duration is not None):
        raise typer.BadParameter("say for how long, as in `hold desk 2h`, or use --release; not both")
    if duration is not None and duration > MAX_HOLD_SECONDS:
        raise typer.BadParameter(
            f"a hold lasts at most {format_duration(MAX_HOLD_SECONDS)}; hold it again when that is over"
        )
    now = int(datetime.now(UTC).timestamp())
    until = None if duration is None else now + duration
    change = {"metadata": {"annotations": {HOLD_ANNOTATION: None if until is None else str(until)}}}
    with open_session(context) as session, name_project(session.client, project):
        session.client.patch(WORKSPACES, name, change, namespace=project_namespace(session, project))
    if until is None:
        print_note(f"the workspace {name} is no longer held")
    else:
        print_note(f"the workspace {name} is held until {timestamp(datetime.fromtimestamp(until, UTC))}")
