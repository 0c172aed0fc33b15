"""Shared by the commands for spaces, virtual clusters and workspaces: list, create, wait and delete.

Instances are namespaced in projects and may be created from a template with parameters. Deleting one with `--abandon`
skips the cleanup in its cluster.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Annotated

import typer

from fairlead.cli.ui import prompts
from fairlead.cli.ui.describe import cell, find_condition, owner_cell, print_created
from fairlead.cli.ui.durations import age, format_duration, parse_duration
from fairlead.cli.ui.flags import ContextFlag, NoWaitFlag, ProjectFilterFlag, YesFlag
from fairlead.cli.ui.list import Listing, ListOptions, print_objects
from fairlead.cli.ui.output import NamedOutput, print_note
from fairlead.cli.ui.session import Session, UsageError, open_session, project_namespace, project_namespace_prefix
from fairlead.cli.ui.wait import object_ref, show_progress, wait_deleted, watch_object
from fairlead.client import Client, ClientError, DeadlineExceeded
from fairlead.core import yaml
from fairlead.core.objects import Object, get_path, name_of

FINAL_PHASES = ("Ready", "Sleeping", "Failed")

ParameterFlag = Annotated[
    list[str] | None,
    typer.Option("--parameter", help="Value of a template parameter. Repeatable.", metavar="K=V", show_default=False),
]
WaitFlag = Annotated[bool, typer.Option("--wait", help="Wait until it is ready or has failed.")]
TimeoutFlag = Annotated[str, typer.Option("--timeout", help="Timeout of --wait, like 90s or 10m.", metavar="TIME")]
DEFAULT_TIMEOUT = "10m"


@dataclass(frozen=True, slots=True)
class InstanceListOptions:
    project: ProjectFilterFlag = None
    list_options: ListOptions = field(default_factory=ListOptions)


@dataclass(frozen=True, slots=True)
class InstanceType:
    """A kind of instance. `location_column` is the header and the field of the column that shows where it runs."""

    plural: str
    kind: str
    location_column: tuple[str, str]
    empty_message: str
    singular: str


def print_instances(instance_type: InstanceType, options: InstanceListOptions) -> None:
    with open_session(options.list_options.context) as session:
        prefix = project_namespace_prefix(session.client)
        listing = build_listing(instance_type, prefix)
        if options.project:
            listing = replace(
                listing,
                namespace=prefix + options.project,
                empty_message=f"{instance_type.empty_message} in {options.project}",
            )
        print_objects(session.client, listing, options.list_options)


def build_listing(instance_type: InstanceType, prefix: str) -> Listing:
    """Builds the listing. `prefix` is the prefix of project namespaces."""
    header, at = instance_type.location_column

    def row(instance: Object, now: datetime) -> Sequence[str]:
        return (
            name_of(instance),
            cell(instance, "metadata.namespace").removeprefix(prefix),
            phase_of(instance),
            owner_cell(instance),
            template_cell(instance),
            cell(instance, at),
            age(get_path(instance, "metadata.creationTimestamp"), now),
        )

    columns = ("NAME", "PROJECT", "PHASE", "OWNER", "TEMPLATE", header, "AGE")
    return Listing(instance_type.plural, instance_type.kind, columns, row, instance_type.empty_message)


def phase_of(instance: Object) -> str:
    """The phase: Deleting with a deletion timestamp, Pending if the status has none yet."""
    return (
        "Deleting"
        if get_path(instance, "metadata.deletionTimestamp")
        else str(get_path(instance, "status.phase") or "Pending")
    )


def template_cell(instance: Object) -> str:
    version = get_path(instance, "spec.templateRef.version")
    return cell(instance, "spec.templateRef.name") + (f"@{version}" if version else "")


def describe_phase(instance: Object) -> str:
    """The phase with its reason and message, unless the instance is ready."""
    if phase_of(instance) == "Ready":
        return "Ready"
    reason, message = get_path(instance, "status.reason"), get_path(instance, "status.message")
    details = ": ".join(str(each) for each in (reason, message) if each)
    return f"{phase_of(instance)} ({details})" if details else phase_of(instance)


def parse_template_ref(value: str) -> Object:
    """Parses `NAME` or `NAME@VERSION` into a templateRef."""
    name, _, version = value.partition("@")
    return {"name": name, "version": version} if version else {"name": name}


def encode_parameters(assignments: Sequence[str]) -> str | None:
    """Encodes `NAME=VALUE` flags as the YAML of spec.parameters. Values are strings; the template has their types."""
    values: dict[str, str] = {}
    for each in assignments:
        name, equals, value = each.partition("=")
        if not name or not equals:
            raise UsageError(f"{each!r} is not a parameter; use the format NAME=VALUE")
        if name in values:
            raise UsageError(f"the parameter {name} is set twice; keep one")
        values[name] = value
    return yaml.encode(values).decode() if values else None


@dataclass(frozen=True, slots=True)
class WaitOptions:
    """Whether a create command waits, for how long, and its output format."""

    wait: bool
    timeout: str
    output: NamedOutput


def create_instance(
    session: Session, instance_type: InstanceType, body: Object, project: str, wait_options: WaitOptions
) -> None:
    """Creates an instance and prints it. With --wait, exits with code 1 if it has failed."""
    timeout = parse_duration(wait_options.timeout)
    name = body["metadata"]["name"]
    created = session.client.create(instance_type.plural, body, namespace=project_namespace(session, project))
    message = f"created the {instance_type.singular} {name} in the project {project}"
    if wait_options.wait:
        print_note(message)
        created = wait_until_final(session.client, instance_type, created, timeout)
        message = f"the {instance_type.singular} {name} is {describe_phase(created)}"
    print_created(created, wait_options.output, message)
    if wait_options.wait and has_failed(created):
        raise typer.Exit(1)


def wait_until_final(client: Client, instance_type: InstanceType, obj: Object, timeout: int) -> Object:
    """Waits until an instance is ready or has failed, for at most `timeout` seconds."""
    ref, last = object_ref(instance_type.plural, obj), obj
    try:
        with show_progress(f"waiting for {ref.name}") as update:
            for state in watch_object(client, ref, timeout):
                if is_final(state):
                    return state
                last = state
                update(f"{ref.name} is {describe_phase(state)}")
    except DeadlineExceeded:
        message = (
            f"the {instance_type.singular} {ref.name} is still {describe_phase(last)} after {format_duration(timeout)}"
        )
        raise ClientError(f"{message}; the server continues; use a longer --timeout to wait longer") from None
    raise ClientError(f"the {instance_type.singular} {ref.name} was deleted while waiting; create it again")


def is_final(instance: Object) -> bool:
    """Whether the phase is final. A status of an older generation does not count."""
    observed = get_path(instance, "status.observedGeneration")
    if observed is not None and observed < (get_path(instance, "metadata.generation") or 0):
        return False
    return phase_of(instance) in FINAL_PHASES or _is_stalled(instance)


def has_failed(instance: Object) -> bool:
    return phase_of(instance) == "Failed" or _is_stalled(instance)


def _is_stalled(instance: Object) -> bool:
    """Whether the controller waits for a change of the spec, such as a template version that exists."""
    return find_condition(instance, "Stalled").get("status") == "True"


ABANDON_ANNOTATION = "service.sh/abandon"
"""Annotation that makes the server delete an instance without cleaning up in its cluster."""

AbandonFlag = Annotated[
    bool,
    typer.Option(
        "--abandon", help="Leave its objects in the cluster behind, for example if the cluster no longer exists."
    ),
]


@dataclass(frozen=True, slots=True)
class RemovalOptions:
    yes: YesFlag = False
    no_wait: NoWaitFlag = False
    abandon: AbandonFlag = False
    context: ContextFlag = None


def delete_instance(instance_type: InstanceType, name: str, project: str, options: RemovalOptions) -> None:
    with open_session(options.context) as session:
        namespace = project_namespace(session, project)
        instance = session.client.get(instance_type.plural, name, namespace=namespace)
        if not options.yes:
            prompts.confirm(_confirmation_question(instance_type, name, options.abandon))
        if options.abandon:
            change = {"metadata": {"annotations": {ABANDON_ANNOTATION: "true"}}}
            session.client.patch(instance_type.plural, name, change, namespace=namespace)
        session.client.delete(instance_type.plural, name, namespace=namespace)
        if options.no_wait:
            print_note(f"the {instance_type.singular} {name} is being deleted")
            return
        wait_deleted(session.client, object_ref(instance_type.plural, instance), describe_phase)
        print_note(
            f"the {instance_type.singular} {name} is deleted{_describe_leftovers(instance) if options.abandon else ''}"
        )


def _confirmation_question(instance_type: InstanceType, name: str, abandon: bool) -> str:
    if abandon:
        return f"Delete the {instance_type.singular} {name}, and leave its objects in the cluster behind?"
    return f"Delete the {instance_type.singular} {name} with everything in it?"


def _describe_leftovers(instance: Object) -> str:
    namespace, cluster = get_path(instance, "spec.clusterRef.namespace"), get_path(instance, "spec.clusterRef.cluster")
    if not namespace or not cluster:
        return "; its objects in the cluster, if any, were left behind"
    return f"; the namespace {namespace} in the cluster {cluster} was left behind, if it exists"
