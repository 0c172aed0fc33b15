"""Shared by the commands for spaces, virtual clusters, workspaces and apps: columns, creation with `--wait`, deletion.

Instances are namespaced in projects and may be created from a template with parameters.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

import typer

from fairlead.cli.resources.instance_hold import describe_hold
from fairlead.cli.ui.describe import (
    age_cell,
    build_object,
    cell,
    find_condition,
    owner_cell,
    print_created,
    print_object_data,
    text_of,
)
from fairlead.cli.ui.durations import DEFAULT_TIMEOUT_SECONDS, format_duration
from fairlead.cli.ui.field_flags import name_project, replace_fields
from fairlead.cli.ui.flags import ContextFlag, ObjectOutputFlag, TimeoutFlag, flag
from fairlead.cli.ui.output import TABLE, print_note
from fairlead.cli.ui.resource_commands import (
    COMMON_DETAILS,
    Deletion,
    NewObject,
    Resource,
    create_object,
    print_new,
)
from fairlead.cli.ui.session import Session, UsageError, exit_with_error
from fairlead.cli.ui.wait import (
    ObjectRef,
    VerboseFlag,
    changed_conditions,
    distinct_failures,
    object_ref,
    show_progress,
    watch_object,
)
from fairlead.client import ApiStatusError, Client, ClientError, DeadlineExceeded
from fairlead.core.objects import Object, get_path, name_of

COMMANDS = {
    "spaceinstances": ("space show", "space delete"),
    "virtualclusterinstances": ("vcluster show", "vcluster delete"),
    "devpodworkspaceinstances": ("workspace show", "workspace delete"),
    "appinstances": ("app status", "app uninstall"),
}
"""The commands that show and delete an instance, by plural."""
FORBIDDEN_CODE = 403
SLEEP_CAUSES = {
    "inactivitySleep": "idle",
    "scheduledSleep": "scheduled",
    "forcedSleep": "forced",
    "forcedDurationSleep": "forced",
}
FINAL_PHASES = ("Ready", "Sleeping", "Failed")

MISSING_CLUSTER_SECONDS = 5.0
"""How long to wait for a cluster that does not exist: the manifest with it may just be applied."""

ParameterFlag = Annotated[
    list[str] | None, flag("--parameter", help="Value of a template parameter. Repeatable.", metavar="K=V")
]
ClusterNamespaceFlag = Annotated[
    str | None,
    flag("--namespace", "-n", help="Its namespace in that cluster.", metavar="NS", default="chosen by the server"),
]
WaitFlag = Annotated[bool, typer.Option("--wait", help="Wait until it is ready or has failed, at most --timeout.")]

INSTANCE_DETAILS = (
    *COMMON_DETAILS,
    ("namespace", "spec.clusterRef.namespace"),
    ("parameters", "spec.parameters"),
    ("workspace", "status.lastWorkspaceStatus"),
    ("reason", "status.reason"),
    ("message", "status.message"),
)


def instance_resource(
    plural: str, kind: str, noun: str, empty_message: str, location_column: tuple[str, str]
) -> Resource:
    """A kind of instance. `location_column` is the header and the field of the column that shows where it runs."""
    header, location = location_column

    def row(instance: Object, now: datetime) -> Sequence[str]:
        return (
            name_of(instance),
            _phase_cell(instance, now),
            owner_cell(instance),
            template_cell(instance),
            cell(instance, location),
            age_cell(instance, now),
        )

    columns = ("NAME", "PHASE", "OWNER", "TEMPLATE", header, "AGE")
    return Resource(
        plural=plural,
        kind=kind,
        noun=noun,
        columns=columns,
        row=row,
        empty_message=empty_message,
        in_project=True,
        details=INSTANCE_DETAILS,
    )


def phase_of(instance: Object) -> str:
    """The phase: Deleting with a deletion timestamp, Pending if the status has none yet."""
    return (
        "Deleting"
        if get_path(instance, "metadata.deletionTimestamp")
        else str(get_path(instance, "status.phase") or "Pending")
    )


def _phase_cell(instance: Object, now: datetime) -> str:
    """The phase, with the cause of a sleep, or with how long the instance is held awake."""
    cause = SLEEP_CAUSES.get(str(get_path(instance, "status.sleepModeConfig.status.sleepType") or ""))
    phase = phase_of(instance)
    if phase == "Sleeping":
        return f"{phase} ({cause})" if cause else phase
    held = describe_hold(instance, now)
    return f"{phase} ({held})" if held and phase != "Deleting" else phase


def template_cell(instance: Object) -> str:
    return reference_cell(instance, "spec.templateRef")


def reference_cell(instance: Object, field: str) -> str:
    """The name and version in a reference."""
    version = get_path(instance, f"{field}.version")
    return cell(instance, f"{field}.name") + (f"@{version}" if version else "")


def describe_phase(instance: Object) -> str:
    """The phase with its reason and message, unless the instance is ready."""
    if phase_of(instance) == "Ready":
        return "Ready"
    reason = get_path(instance, "status.reason")
    message = get_path(instance, "status.message")
    details = ": ".join(str(each) for each in (reason, message) if each)
    return f"{phase_of(instance)} ({details})" if details else phase_of(instance)


def parse_template_ref(value: str) -> Object:
    """Parses `NAME` or `NAME@VERSION` into a reference."""
    name, _, version = value.partition("@")
    return {"name": name, "version": version} if version else {"name": name}


def encode_parameters(assignments: Sequence[str]) -> str | None:
    """Encodes `NAME=VALUE` flags as the YAML of spec.parameters."""
    return encode_values(parse_assignments(assignments))


def parse_assignments(assignments: Sequence[str]) -> Mapping[str, str]:
    """Parses `NAME=VALUE` flags. Values are strings; the template or App has their types."""
    values: dict[str, str] = {}
    for each in assignments:
        name, equals, value = each.partition("=")
        if not name or not equals:
            raise UsageError(f"{each!r} is not a parameter; use the format NAME=VALUE")
        if name in values:
            raise UsageError(f"the parameter {name} is set twice; keep one")
        values[name] = value
    return values


def encode_values(values: Mapping[str, Any]) -> str | None:
    from fairlead.core import yaml

    return yaml.encode(dict(values)).decode() if values else None


def decode_values(text: str, source: str) -> dict[str, Any]:
    """The values of a YAML text, with dotted names. `source` is for messages."""
    from fairlead.core import yaml

    try:
        value, _ = yaml.decode(text.encode())
    except yaml.Malformed as error:
        raise UsageError(f"{source} is not valid YAML: {error}") from None
    if value is not None and not isinstance(value, dict):
        raise UsageError(f"{source} must contain one `name: value` a line")
    return _flatten(value or {})


def _flatten(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, each in value.items():
        if isinstance(each, dict) and each:
            found.update(_flatten(each, f"{prefix}{name}."))
        else:
            found[f"{prefix}{name}"] = each
    return found


DEFAULT_TEMPLATE = "default"
"""Name of the templates that the first start of a server creates."""


def choose_template(
    session: Session, project: str, flag: str | None, kind: str, *, is_required: bool = False
) -> Object | None:
    """The templateRef of an instance: that of --template, else the default of the project, else the template `default`,
    else the only one. `kind` is that of the template, like SpaceTemplate.

    None if there is none of these, or the user may not list them: the server decides whether one is needed, and
    administrators need none. With `is_required`, raises UsageError instead.
    """
    if flag:
        return parse_template_ref(flag)
    response = _read_templates(session, project)
    names = sorted(name_of(each) for each in response.get(f"{kind[0].lower()}{kind[1:]}s") or ())
    if default := response.get(f"default{kind}"):
        return {"name": str(default)}
    if DEFAULT_TEMPLATE in names:
        return {"name": DEFAULT_TEMPLATE}
    if len(names) == 1:
        return {"name": names[0]}
    if not is_required:
        return None
    known = f"one of {', '.join(names)}" if names else "but the project has none: an administrator has to create one"
    raise UsageError(f"the project {project} has no default template; choose one with --template: {known}")


def _read_templates(session: Session, project: str) -> Object:
    """The templates of a project; empty if the user may not list them."""
    with name_project(session.client, project):
        try:
            return session.client.get("projects", project, "templates")
        except ApiStatusError as problem:
            if problem.code != FORBIDDEN_CODE:
                raise
            return {}


@dataclass(frozen=True, slots=True)
class WaitOptions:
    """The flags of the commands that create or change an instance, and can wait for it."""

    wait: WaitFlag = False
    timeout: TimeoutFlag = DEFAULT_TIMEOUT_SECONDS
    verbose: VerboseFlag = False
    context: ContextFlag = None
    output: ObjectOutputFlag = TABLE


def create_instance(session: Session, resource: Resource, new: NewObject, waiting: WaitOptions) -> None:
    """Creates an instance and prints it, with --wait when it is ready."""
    finish_creation(session, resource, create_object(session, resource, new), new, waiting)


def finish_creation(
    session: Session, resource: Resource, created: Object, new: NewObject, waiting: WaitOptions, obstacle: str = ""
) -> None:
    """Prints the new instance. With --wait, waits until it is ready, and exits with code 1 if it is not.

    `obstacle` is why it makes no sense to wait, if the server does not report that itself.
    """
    if not waiting.wait:
        print_new(created, new, waiting.output)
        if obstacle:
            print_note(f"warning: {obstacle}")
        return
    if obstacle:
        print_note(new.message)
        raise ClientError(f"not waiting for the {resource.noun} {name_of(created)}: {obstacle}")
    wait_for_instance(session, resource, created, new.project, waiting, new.hint)


def new_instance(resource: Resource, name: str, project: str, spec: Mapping[str, Any], hint: str = "") -> NewObject:
    message = f"created the {resource.noun} {name} in the project {project}"
    return NewObject(build_object(resource.kind, name, spec), message, project, hint)


def wait_for_instance(
    session: Session, resource: Resource, instance: Object, project: str, waiting: WaitOptions, hint: str = ""
) -> None:
    """Waits until an instance is ready and prints it in one line, with `hint`. Exits with code 1 if it has failed."""
    instance = wait_until_final(session.client, resource, instance, waiting.timeout)
    if has_failed(instance) or is_cluster_missing(instance):
        print_object_data(instance, waiting.output)
        raise _report_failed(resource, instance, project)
    message = f"the {resource.noun} {name_of(instance)} is {replace_fields(describe_phase(instance))}"
    print_created(instance, waiting.output, f"{message}; {hint}" if hint else message)


def _report_failed(resource: Resource, instance: Object, project: str) -> typer.Exit:
    """Prints what has failed and what to do, and returns the exception to raise."""
    state = "has failed" if has_failed(instance) else "cannot be deployed"
    name = name_of(instance)
    error = exit_with_error(f"the {resource.noun} {name} {state}:")
    lines = distinct_failures(instance)
    message = text_of(instance, "status.message")
    if not any(message in line for line in lines):
        lines.insert(0, describe_phase(instance))
    for line in lines:
        print_note(f"  {replace_fields(line)}")
    show, delete = COMMANDS[resource.plural]
    print_note(
        f"fix that, and the server tries again; `fairlead {show} {name} --project {project}` shows the status, "
        f"`fairlead {delete} {name} --project {project}` deletes it"
    )
    return error


def wait_until_final(client: Client, resource: Resource, obj: Object, timeout: int) -> Object:
    """Waits until an instance is ready or has failed, for at most `timeout` seconds. Shows each new condition.

    Also returns an instance whose cluster does not exist.
    """
    ref, last = object_ref(client, resource.plural, obj), obj
    try:
        with show_progress(f"waiting for {ref.name}") as update:
            for state in _watch_with_cluster(client, ref, timeout):
                if is_final(state) and has_failed(state):
                    return state  # the caller says why, so that it is said once
                for line in changed_conditions(last, state):
                    update(f"{ref.name}: {replace_fields(line)}")
                if is_final(state):
                    return state
                if describe_phase(state) != describe_phase(last) or last is obj:
                    update(f"{ref.name} is {replace_fields(describe_phase(state))}")
                last = state
    except _ClusterMissing:
        return last
    except DeadlineExceeded:
        phase = replace_fields(describe_phase(last))
        waited = format_duration(timeout)
        raise ClientError(
            f"the {resource.noun} {ref.name} is still {phase} after {waited}; the server continues; use a longer "
            "--timeout to wait longer"
        ) from None
    raise ClientError(f"the {resource.noun} {ref.name} was deleted while waiting; create it again")


class _ClusterMissing(Exception):
    """The cluster of an instance has not existed for some seconds."""


def _watch_with_cluster(client: Client, ref: ObjectRef, timeout: float) -> Iterator[Object]:
    """Yields the versions of an instance, until it is deleted. Raises _ClusterMissing or DeadlineExceeded."""
    end, is_missing = time.monotonic() + timeout, False
    while True:
        remaining = end - time.monotonic()
        seconds = min(remaining, MISSING_CLUSTER_SECONDS) if is_missing else remaining
        try:
            for state in watch_object(client, ref, seconds):
                yield state
                if is_cluster_missing(state) != is_missing:
                    is_missing = not is_missing
                    break
            else:
                return
        except DeadlineExceeded:
            if not is_missing or remaining < MISSING_CLUSTER_SECONDS:
                raise
            raise _ClusterMissing from None


def is_cluster_missing(instance: Object) -> bool:
    """Whether the server has found no cluster of the name in the spec."""
    return phase_of(instance) == "Pending" and get_path(instance, "status.reason") == "ClusterNotFound"


def is_final(instance: Object) -> bool:
    """Whether the phase is final. A status of an older generation does not count."""
    observed = get_path(instance, "status.observedGeneration")
    if observed is not None and observed < (get_path(instance, "metadata.generation") or 0):
        return False
    return phase_of(instance) in FINAL_PHASES or has_failed(instance)


def has_failed(instance: Object) -> bool:
    return phase_of(instance) == "Failed" or _is_stalled(instance) or _has_failed_attempt(instance)


def _has_failed_attempt(instance: Object) -> bool:
    """Whether Helm has failed to deploy the current generation. The server tries it again, and so may succeed without a
    change, but a command that waits tells what is wrong instead. An interrupted attempt has not failed."""
    attempt = get_path(instance, "status.lastAttempt") or {}
    is_current = attempt.get("generation") == get_path(instance, "metadata.generation")
    return is_current and attempt.get("outcome") == "Failed" and phase_of(instance) != "Ready"


def _is_stalled(instance: Object) -> bool:
    """Whether the controller waits for a change of the spec, such as a template version that exists."""
    return find_condition(instance, "Stalled").get("status") == "True"


def delete_with_namespace(resource: Resource, help: str) -> Deletion:
    """Deletes an instance with its namespace in the cluster, or leaves that behind with --abandon."""
    return Deletion(
        help,
        question=f"Delete the {resource.noun} {{name}} with everything in it?",
        describe_wait=describe_phase,
        describe_leftovers=_describe_leftovers,
        command=COMMANDS[resource.plural][1],
    )


def _describe_leftovers(instance: Object) -> str:
    namespace = get_path(instance, "spec.clusterRef.namespace")
    cluster = get_path(instance, "spec.clusterRef.cluster")
    if not namespace or not cluster:
        return "; its objects in the cluster, if any, were left behind"
    return f"; the namespace {namespace} in the cluster {cluster} was left behind, if it exists"
