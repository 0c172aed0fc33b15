"""`sleep` and `wake` of `fairlead space` and `fairlead vcluster`. The server does it: they set annotations."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated

import typer

from fairlead.cli.resources.instance import describe_phase, has_failed, phase_of
from fairlead.cli.ui.completion import complete_names
from fairlead.cli.ui.describe import find_condition
from fairlead.cli.ui.durations import DEFAULT_TIMEOUT_SECONDS, format_duration, parse_duration
from fairlead.cli.ui.field_flags import name_project, replace_fields
from fairlead.cli.ui.flags import ContextFlag, RequiredProjectFlag, TimeoutFlag
from fairlead.cli.ui.output import print_note
from fairlead.cli.ui.resource_commands import Resource
from fairlead.cli.ui.session import exit_with_error, open_session, project_namespace
from fairlead.cli.ui.wait import object_ref, show_progress, watch_object
from fairlead.client import Client, ClientError, DeadlineExceeded
from fairlead.core.objects import Object, annotations_of, get_path

PREFIX = "sleepmode.service.sh/"
REFUSALS = ("SleepRefused", "SleepForbidden")
SLEEPING, WAKE_FAILED = "Sleeping", "WakeFailed"
WaitFlag = Annotated[bool, typer.Option("--wait", help="Wait until that is done, at most --timeout.")]


@dataclass(frozen=True, slots=True)
class SleepRequest:
    """A change of annotations of one instance, and what to wait for."""

    resource: Resource
    name: str
    project: str
    annotations: dict[str, str | None]
    is_done: Callable[[Object], bool]


def add_sleep_commands(group: typer.Typer, resource: Resource) -> None:
    complete = complete_names(resource.plural, project="project")
    name_argument = typer.Argument(help=f"Name of the {resource.noun}.", autocompletion=complete)

    def sleep(
        name: Annotated[str, name_argument],
        project: RequiredProjectFlag,
        duration: Annotated[
            int | None,
            typer.Option("--for", help="Wake it up after that time, like 2h.", metavar="TIME", parser=parse_duration),
        ] = None,
        wait: WaitFlag = False,
        timeout: TimeoutFlag = DEFAULT_TIMEOUT_SECONDS,
        context: ContextFlag = None,
    ) -> None:
        annotations = {f"{PREFIX}force": "true", f"{PREFIX}force-duration": str(duration) if duration else None}
        request = SleepRequest(resource, name, project, annotations, _is_asleep)
        with open_session(context) as session:
            instance = _send(session.client, request, project_namespace(session, project))
            if not wait:
                until = f" for {format_duration(duration)}" if duration else "; only a person wakes it"
                print_note(f"the {resource.noun} {name} falls asleep{until}")
                return
            instance = _wait(session.client, request, instance, timeout)
        if not _is_sleeping(instance):
            message = find_condition(instance, "Asleep").get("message") or describe_phase(instance)
            raise exit_with_error(f"the {resource.noun} {name} stays awake: {replace_fields(str(message))}")
        print_note(f"the {resource.noun} {name} is asleep")

    def wake(
        name: Annotated[str, name_argument],
        project: RequiredProjectFlag,
        wait: WaitFlag = False,
        timeout: TimeoutFlag = DEFAULT_TIMEOUT_SECONDS,
        context: ContextFlag = None,
    ) -> None:
        with open_session(context) as session, name_project(session.client, project):
            namespace = project_namespace(session, project)
            current = session.client.get(resource.plural, name, namespace=namespace)
            is_wanted = not annotations_of(current).get(f"{PREFIX}sleep-type")
            if is_wanted and not _is_sleeping(current) and not get_path(current, "status.sleep.stage"):
                print_note(f"the {resource.noun} {name} is awake already")
                return
            request = SleepRequest(resource, name, project, _wake_annotations(current), _is_awake)
            instance = _send(session.client, request, namespace)
            if wait:
                instance = _wait(session.client, request, instance, timeout)
        if wait and (has_failed(instance) or _has_failed_to_wake(instance)):
            raise exit_with_error(f"the {resource.noun} {name} is {replace_fields(describe_phase(instance))}")
        print_note(f"the {resource.noun} {name} {'is awake' if wait else 'wakes up'}")

    sleep.__doc__ = f"""Put a {resource.noun} to sleep: its pods end, everything else stays.

    Requests do not wake it from that sleep, only `wake` does, or the end of the time in --for.
    """
    wake.__doc__ = f"""Wake a {resource.noun} up, whatever it sleeps for."""
    group.command("sleep")(sleep)
    group.command("wake")(wake)


def _send(client: Client, request: SleepRequest, namespace: str) -> Object:
    with name_project(client, request.project):
        change = {"metadata": {"annotations": request.annotations}}
        return client.patch(request.resource.plural, request.name, change, namespace=namespace)


def _wake_annotations(instance: Object) -> dict[str, str | None]:
    """Activity that is later than the beginning of the sleep, also if the clock here is behind that of the server."""
    since = annotations_of(instance).get(f"{PREFIX}sleeping-since") or "0"
    now = int(datetime.now(UTC).timestamp())
    later = int(since) + 1 if since.isdecimal() else 0
    return {
        f"{PREFIX}force": None,
        f"{PREFIX}force-duration": None,
        f"{PREFIX}last-activity": str(max(now, later)),
    }


def _wait(client: Client, request: SleepRequest, instance: Object, timeout: int) -> Object:
    ref = object_ref(client, request.resource.plural, instance)
    last = instance
    try:
        with show_progress(f"waiting for {ref.name}") as update:
            for state in watch_object(client, ref, timeout):
                if request.is_done(state):
                    return state
                if describe_phase(state) != describe_phase(last):
                    update(f"{ref.name} is {replace_fields(describe_phase(state))}")
                last = state
    except DeadlineExceeded:
        phase = replace_fields(describe_phase(last))
        raise ClientError(
            f"the {request.resource.noun} {ref.name} is still {phase} after {format_duration(timeout)}; the server "
            "continues; use a longer --timeout to wait longer"
        ) from None
    raise ClientError(f"the {request.resource.noun} {ref.name} was deleted while waiting")


def _is_asleep(instance: Object) -> bool:
    """Whether it sleeps, or was refused to."""
    refusal = find_condition(instance, "Asleep").get("reason") in REFUSALS
    is_withdrawn = annotations_of(instance).get(f"{PREFIX}force") != "true"
    return _is_sleeping(instance) or (refusal and is_withdrawn)


def _is_awake(instance: Object) -> bool:
    """Whether it is awake, or could not be woken up."""
    is_wanted = not annotations_of(instance).get(f"{PREFIX}sleep-type")
    return is_wanted and (phase_of(instance) == "Ready" or has_failed(instance) or _has_failed_to_wake(instance))


def _has_failed_to_wake(instance: Object) -> bool:
    """The server retries it, but mostly a person has to repair something before."""
    return bool(get_path(instance, "status.reason") == WAKE_FAILED)


def _is_sleeping(instance: Object) -> bool:
    return phase_of(instance) == SLEEPING
