"""`fairlead app install` and the other commands for deployed apps: upgrade, rollback, uninstall, instances, status."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from fairlead.cli.resources.instance import (
    COMMANDS,
    WaitOptions,
    create_instance,
    decode_values,
    describe_phase,
    encode_values,
    new_instance,
    parse_assignments,
    phase_of,
    wait_for_instance,
)
from fairlead.cli.ui.completion import complete_names
from fairlead.cli.ui.describe import (
    age_cell,
    cell,
    condition_rows,
    drop_none,
    find_condition,
    label_first,
    owner_cell,
    print_created,
    text_of,
)
from fairlead.cli.ui.field_flags import name_flags, name_project
from fairlead.cli.ui.flags import RequiredProjectFlag, flag, options_from
from fairlead.cli.ui.output import print_note
from fairlead.cli.ui.resource_commands import Deletion, Resource, add_delete_command, add_list_command, add_show_command
from fairlead.cli.ui.session import Session, UsageError, open_session, project_namespace, read_input
from fairlead.client import ClientError
from fairlead.core.objects import Object, format_scalar, get_path, name_of

COLUMNS = ("NAME", "PHASE", "APP", "VERSION", "TARGET", "REVISION", "AGE")
TARGETS = (("cluster", "cluster"), ("space", "spaceInstance"), ("vcluster", "virtualClusterInstance"))
"""The flags of the targets, and their fields in spec.target."""


def table_row(instance: Object, now: datetime) -> Sequence[str]:
    return (
        name_of(instance),
        phase_of(instance),
        cell(instance, "spec.appRef.name"),
        cell(instance, "spec.appRef.version"),
        describe_target(instance),
        cell(instance, "status.release.revision"),
        age_cell(instance, now),
    )


def describe_target(instance: Object) -> str:
    for label, target in TARGETS:
        if place := get_path(instance, f"spec.target.{target}"):
            namespace = f" ({place['namespace']})" if place.get("namespace") else ""
            return f"{label} {place.get('name')}{namespace}"
    return "-"


APP_INSTANCES = Resource(
    plural="appinstances",
    kind="AppInstance",
    noun="app instance",
    columns=COLUMNS,
    row=table_row,
    empty_message="no app instances; create one with `fairlead app install`",
    in_project=True,
)

SetFlag = Annotated[
    list[str] | None, flag("--set", "--parameter", help="Value of a parameter of the app. Repeatable.", metavar="K=V")
]
ValuesFlag = Annotated[Path | None, flag("--values", help="YAML file with values for the parameters.", metavar="FILE")]
VersionFlag = Annotated[
    str | None,
    flag("--version", help="Version of the app; x is a wildcard, as in 1.x.x.", metavar="V", default="unversioned"),
]
InstanceArgument = Annotated[
    str,
    typer.Argument(
        help="Name of the app instance.", autocompletion=complete_names(APP_INSTANCES.plural, project="project")
    ),
]


@dataclass(frozen=True, slots=True)
class TargetOptions:
    cluster: Annotated[
        str | None,
        flag(
            "--cluster",
            help="Connected cluster to install it into; needs --namespace, unless the app has a default.",
            metavar="C",
            complete="clusters",
        ),
    ] = None
    space: Annotated[
        str | None,
        flag(
            "--space",
            help="Space of the project to install it into.",
            metavar="S",
            complete=complete_names("spaceinstances", project="project"),
        ),
    ] = None
    vcluster: Annotated[
        str | None,
        flag(
            "--vcluster",
            help="Virtual cluster of the project to install it into.",
            metavar="V",
            complete=complete_names("virtualclusterinstances", project="project"),
        ),
    ] = None
    namespace: Annotated[
        str | None,
        flag(
            "--namespace",
            "-n",
            help="Namespace in the cluster or virtual cluster.",
            metavar="NS",
            default="the default of the app",
        ),
    ] = None

    def build(self) -> Object:
        """The spec.target."""
        chosen = [(field, name) for flag, field in TARGETS if (name := getattr(self, flag))]
        if len(chosen) != 1:
            raise UsageError("set where to install it: one of --cluster, --space and --vcluster")
        (target, name), *_ = chosen
        if target == "spaceInstance" and self.namespace:
            raise UsageError("a space has one namespace; leave --namespace out")
        return {target: drop_none({"name": name, "namespace": self.namespace})}


@dataclass(frozen=True, slots=True)
class InstallOptions:
    app: Annotated[str, typer.Argument(help="Name of the app.", metavar="NAME", autocompletion=complete_names("apps"))]
    project: RequiredProjectFlag
    target: TargetOptions = field(default_factory=TargetOptions)
    version: VersionFlag = None
    set_values: SetFlag = None
    values: ValuesFlag = None
    instance: Annotated[
        str | None, flag("--name", help="Name of the app instance.", metavar="NAME", default="the name of the app")
    ] = None
    waiting: WaitOptions = field(default_factory=WaitOptions)


def install(options: InstallOptions) -> None:
    """Install an app into a space, a virtual cluster or a connected cluster. The server deploys it with Helm."""
    with open_session(options.waiting.context) as session:
        values = {**read_values(options.values), **parse_assignments(options.set_values or ())}
        spec = {
            "appRef": drop_none({"name": options.app, "version": options.version}),
            "target": options.target.build(),
            "parameters": encode_values(values),
        }
        name = options.instance or options.app
        hint = f"`fairlead app status {name} --project {options.project}` shows how it is deployed"
        new = new_instance(APP_INSTANCES, name, options.project, spec, hint)
        create_instance(session, APP_INSTANCES, new, options.waiting)


@dataclass(frozen=True, slots=True)
class UpgradeOptions:
    name: InstanceArgument
    project: RequiredProjectFlag
    version: VersionFlag = None
    set_values: SetFlag = None
    values: ValuesFlag = None
    waiting: WaitOptions = field(default_factory=WaitOptions)


def upgrade(options: UpgradeOptions) -> None:
    """Upgrade an installed app to another version, or change its parameters. Other parameters stay as they are."""
    with open_session(options.waiting.context) as session:
        changed = {**read_values(options.values), **parse_assignments(options.set_values or ())}
        if not changed and not options.version:
            raise UsageError("set what to change: --version, --set or --values")
        found = _get_instance(session, options.project, options.name)
        spec: Object = {"appRef": {"version": options.version}} if options.version else {}
        if changed:
            known = decode_values(get_path(found, "spec.parameters") or "", "spec.parameters")
            spec["parameters"] = encode_values({**known, **changed})
        _change(session, options.name, options.project, spec, options.waiting)


@dataclass(frozen=True, slots=True)
class RollbackOptions:
    name: InstanceArgument
    project: RequiredProjectFlag
    revision: Annotated[
        int | None,
        flag(
            "--revision",
            help="Revision to return to; `fairlead app status` lists them.",
            metavar="N",
            default="the newest one that differs from the current spec",
        ),
    ] = None
    waiting: WaitOptions = field(default_factory=WaitOptions)


def rollback(options: RollbackOptions) -> None:
    """Return an installed app to the version and parameters of an earlier revision. Passwords stay as they are."""
    with open_session(options.waiting.context) as session:
        found = _get_instance(session, options.project, options.name)
        entry = find_revision(found, options.revision)
        spec = {
            "appRef": {"version": entry.get("appVersion") or None},
            "parameters": entry.get("parameters") or None,
        }
        note = f"returning to {describe_content(entry)}"
        _change(session, options.name, options.project, spec, options.waiting, note)


def _get_instance(session: Session, project: str, name: str) -> Object:
    with name_project(session.client, project):
        return session.client.get(APP_INSTANCES.plural, name, namespace=project_namespace(session, project))


def _change(session: Session, name: str, project: str, spec: Object, waiting: WaitOptions, note: str = "") -> None:
    namespace = project_namespace(session, project)
    with name_project(session.client, project), name_flags(session.client):
        changed = session.client.patch(APP_INSTANCES.plural, name, {"spec": spec}, namespace=namespace)
    if note:
        print_note(note)
    if waiting.wait:
        wait_for_instance(session, APP_INSTANCES, changed, project, waiting)
    else:
        print_created(changed, waiting.output, f"changed the app instance {name} in the project {project}")


def read_values(path: Path | None) -> Mapping[str, Any]:
    """The values of a YAML file, with dotted names."""
    if path is None:
        return {}
    return decode_values(read_input(path, "check the path").decode(errors="replace"), str(path))


def describe_rows(session: Session, instance: Object) -> list[tuple[str, str]]:
    release = get_path(instance, "status.release") or {}
    chart = " ".join(str(release[part]) for part in ("chart", "version") if release.get(part))
    return [
        ("name", name_of(instance)),
        ("phase", describe_phase(instance)),
        ("app", cell(instance, "spec.appRef.name")),
        ("version", cell(instance, "spec.appRef.version").strip("-")),
        ("target", describe_target(instance)),
        ("owner", owner_cell(instance).strip("-")),
        ("release", text_of(instance, "spec.releaseName")),
        ("namespace", str(release.get("namespace") or "")),
        ("revision", str(release.get("revision") or "")),
        ("chart", chart),
        ("parameters", text_of(instance, "spec.parameters").strip()),
        ("drift", text_of(instance, "status.drift.message")),
        *label_first("history", map(describe_entry, get_path(instance, "status.history") or ())),
        *condition_rows(instance),
        ("notes", text_of(instance, "status.notes").strip()),
    ]


def add_commands(group: typer.Typer) -> None:
    """Adds the commands to `fairlead app`."""
    group.command("install")(options_from(InstallOptions)(install))
    group.command("upgrade")(options_from(UpgradeOptions)(upgrade))
    group.command("rollback")(options_from(RollbackOptions)(rollback))
    question = "Uninstall the app instance {name}?"
    deletion = Deletion(
        "Uninstall an app: delete the app instance with everything that it deployed.",
        question=question,
        done="the app instance {name} is uninstalled",
        describe_wait=describe_phase,
        describe_leftovers=lambda instance: f"; the release {get_path(instance, 'spec.releaseName')} was left behind",
        command=COMMANDS[APP_INSTANCES.plural][1],
    )
    add_delete_command(group, APP_INSTANCES, deletion, name="uninstall")
    add_list_command(group, APP_INSTANCES, "List installed apps.", name="instances")
    help = "Show one installed app: its release, history, conditions and notes."
    add_show_command(group, APP_INSTANCES, help, describe_rows, name="status")


def find_revision(instance: Object, revision: int | None) -> Object:
    """The entry of the history to return to: by default the newest that differs from the spec. Raises ClientError."""
    history: list[Object] = get_path(instance, "status.history") or []
    known = ", ".join(str(each.get("revision")) for each in history) or "none"
    if revision is None:
        current = _current_content(instance, history)
        entry = next((each for each in history if _content_of(each) != current), None)
        if entry is None:
            raise ClientError(f"there is no earlier revision with another version or other parameters (known: {known})")
    else:
        entry = next((each for each in history if each.get("revision") == revision), None)
        if entry is None:
            raise ClientError(f"revision {revision} is not in the history (known: {known}); choose one of those")
    if entry.get("hasAllParameters") is False:
        raise ClientError(
            f"the parameters of revision {entry.get('revision')} were too long to be kept; set them again"
        )
    return entry


def _current_content(instance: Object, history: Sequence[Object]) -> tuple[Any, Any]:
    """What the spec requests. If that is deployed, it is the newest entry, which has the version that a pattern in the
    spec stands for."""
    deployed = find_condition(instance, "Deployed")
    is_current = deployed.get("observedGeneration") == get_path(instance, "metadata.generation")
    if history and is_current and deployed.get("status") == "True":
        return _content_of(history[0])
    return get_path(instance, "spec.appRef.version") or "", get_path(instance, "spec.parameters") or ""


def _content_of(entry: Object) -> tuple[Any, Any]:
    return entry.get("appVersion") or "", entry.get("parameters") or ""


def describe_entry(entry: Object) -> str:
    return f"{describe_content(entry)}; {entry.get('chart')}, at {entry.get('deployedAt')}"


def describe_content(entry: Object) -> str:
    """The revision with its version, and its parameters in the format of --set."""
    version = f" of version {entry['appVersion']}" if entry.get("appVersion") else ""
    return f"revision {entry.get('revision')}{version} {_describe_parameters(entry)}"


def _describe_parameters(entry: Object) -> str:
    if entry.get("hasAllParameters") is False:
        return "with parameters that were too long to be kept"
    values = decode_values(entry.get("parameters") or "", "status.history")
    texts = (f"{name}={' '.join(format_scalar(value).split())}" for name, value in values.items())
    return f"with {', '.join(texts)}" if values else "without parameters"
