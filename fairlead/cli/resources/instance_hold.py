"""`hold` of `fairlead space`, `vcluster` and `workspace`: keeps one of them awake for some time, at most a day."""

from datetime import UTC, datetime
from typing import Annotated

import typer

from fairlead.cli.ui.completion import complete_names
from fairlead.cli.ui.durations import format_duration, parse_duration
from fairlead.cli.ui.field_flags import name_project
from fairlead.cli.ui.flags import ContextFlag, RequiredProjectFlag
from fairlead.cli.ui.output import print_note
from fairlead.cli.ui.resource_commands import Resource
from fairlead.cli.ui.session import open_session, project_namespace
from fairlead.core.clock import timestamp
from fairlead.core.objects import Object, annotations_of, get_path

HOLD_ANNOTATION = "sleepmode.service.sh/hold-until"
SLEEP_TYPE_ANNOTATION = "sleepmode.service.sh/sleep-type"
MAX_HOLD_SECONDS = 24 * 3600
"""What is needed for longer is held again, and so is not forgotten."""


def add_hold_command(group: typer.Typer, resource: Resource, wake_command: str, limits: str) -> None:
    """Adds `hold`. `wake_command` is the command that wakes it, and `limits` says what a hold does not prevent."""
    noun = resource.noun
    complete = complete_names(resource.plural, project="project")

    def hold(
        name: Annotated[str, typer.Argument(help=f"Name of the {noun}.", autocompletion=complete)],
        project: RequiredProjectFlag,
        time: Annotated[
            int | None,
            typer.Argument(help="The same as --for.", metavar="[TIME]", parser=parse_duration, show_default=False),
        ] = None,
        duration: Annotated[
            int | None,
            typer.Option(
                "--for", help="How long from now, like 2h. At most 24h.", metavar="TIME", parser=parse_duration
            ),
        ] = None,
        release: Annotated[bool, typer.Option("--release", help="End the hold.")] = False,
        context: ContextFlag = None,
    ) -> None:
        if [time is not None, duration is not None, release].count(True) != 1:
            raise typer.BadParameter(f"say for how long, as in `hold {name} --for 2h`, or use --release; not both")
        seconds = time or duration
        if seconds is not None and seconds > MAX_HOLD_SECONDS:
            raise typer.BadParameter(
                f"a hold lasts at most {format_duration(MAX_HOLD_SECONDS)}; hold it again when that is over"
            )
        until = int(datetime.now(UTC).timestamp()) + seconds if seconds is not None else None
        change = {"metadata": {"annotations": {HOLD_ANNOTATION: None if until is None else str(until)}}}
        with open_session(context) as session, name_project(session.client, project):
            namespace = project_namespace(session, project)
            instance = session.client.patch(resource.plural, name, change, namespace=namespace)
        if until is None:
            print_note(f"the {noun} {name} is no longer held")
            return
        print_note(f"the {noun} {name} is held until {timestamp(datetime.fromtimestamp(until, UTC))}")
        if _is_asleep(instance):
            wake = f"fairlead {wake_command} {name} --project {project}"
            print_note(f"it is asleep, and a hold does not wake it; `{wake}` does")

    hold.__doc__ = f"""Keep a {noun} awake for some time, or end that with --release.

    Until then it counts as in use. {limits}
    """
    group.command("hold")(hold)


def describe_hold(instance: Object, now: datetime) -> str:
    """For how long an instance is held, such as `held for 2h`; empty if it is not, or the server ignores the hold."""
    until = get_path(instance, "status.sleepModeConfig.spec.holdUntil")
    remaining = int(until - now.timestamp()) if isinstance(until, int) else 0
    return f"held for {format_duration(remaining)}" if remaining > 0 else ""


def _is_asleep(instance: Object) -> bool:
    annotations = annotations_of(instance)
    return bool(annotations.get(SLEEP_TYPE_ANNOTATION))
