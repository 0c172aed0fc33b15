"""DevPodWorkspaceInstance: a developer workspace of a project, executed by a runner.

The subresources of workspaces that its runner serves, and the kinds of their bodies.

All of them require the verb `use` on the workspace, whatever the method: a GET of `ssh` is not a read. The exceptions
are `credentials`, which the server answers for the runner of the workspace alone, and `portaccess`, which is also for
those with whom a port is shared.
"""

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from fairlead.core.clock import timestamp as format_timestamp
from fairlead.core.objects import Object, get_path
from fairlead.core.user import CONTROLLER_USER
from fairlead.core.workspaces import current_reason, workspace_status
from fairlead.domain.password_parameters import redact_instance
from fairlead.domain.sleep_mode import ACTIVE, IDLE, UNKNOWN
from fairlead.kinds.answered import create_only_kind, read_only_kind
from fairlead.kinds.fields import (
    CATEGORY,
    CLUSTER_REF,
    CONDITIONS,
    OBSERVED_GENERATION,
    PARAMETER_PASSWORDS,
    PARAMETER_VALUES,
    RENDERED_PASSWORDS,
    SLEEP_MODE,
    TEMPLATE_HASH,
    TEMPLATE_REF,
    VERSIONED_REF,
    owned_spec,
    owner_name,
    owner_problems,
    password_independent_fields,
    password_paths,
)
from fairlead.kinds.instances.templates import TRUST_LEVELS, WORKSPACE_TEMPLATE_SPEC
from fairlead.registry import limits
from fairlead.registry.kind import Action, AllowListField, Change, Column, Instance, Kind, Problem, Sensitivity
from fairlead.registry.names import dns_subdomain_errors
from fairlead.registry.schema import (
    Schema,
    array,
    boolean,
    enum,
    integer,
    mapping,
    obj,
    open_object,
    string,
    timestamp,
    with_description,
    without_effect,
)

USE = "use"
PORT_ACCESS_SUBRESOURCE = "portaccess"
_OPTIONS = string("Options as the text of a JSON object, at most 8 KiB.", max_length=8 * limits.KIB)
_TASK_ID = string("ID of the task.", max_length=128)
_TASK_FORM = {
    "spec": obj("What to start.", options=_OPTIONS, debug=boolean("Whether the log has more detail.")),
    "status": obj("What was started.", taskId=_TASK_ID),
}
_ERRORS = array(obj(message=string("What is wrong.", max_length=limits.MESSAGE)), "Problems that were found.")


def _request_kind(suffix: str, description: str, fields: dict[str, Schema], sensitive: tuple[str, ...] = ()) -> Kind:
    return create_only_kind(
        f"DevPodWorkspaceInstance{suffix}", description, fields, namespaced=True, sensitive=sensitive
    )


def _response_kind(suffix: str, description: str, fields: dict[str, Schema]) -> Kind:
    return replace(read_only_kind(f"DevPodWorkspaceInstance{suffix}", description, fields), namespaced=True)


UP = _request_kind("Up", "Starts a workspace, or joins the start under way.", _TASK_FORM, ("spec.options",))
STOP = _request_kind("Stop", "Stops a workspace.", _TASK_FORM, ("spec.options",))
STREAM = _response_kind(
    "StreamOptions", "Options of a WebSocket to a workspace, as query parameters.", {"options": _OPTIONS}
)
EXEC = _response_kind(
    "ExecOptions",
    "Options of a command in a workspace, as query parameters.",
    {
        "command": array(string(max_length=8 * limits.KIB), "The command and its arguments. Without it, the shell."),
        "tty": boolean("Whether the command gets a terminal."),
        "stdin": boolean("Whether the command gets input."),
        "stdout": boolean("Whether its output is sent. True by default."),
        "stderr": boolean("Whether its error output is sent. True by default."),
        "wake": boolean("Whether a workspace that was not used is woken up."),
    },
)
TASKS = _response_kind(
    "Tasks",
    "The tasks of a workspace that its runner remembers.",
    {
        "tasks": array(
            obj(
                id=_TASK_ID,
                type=enum("What the task does.", "up", "stop", "delete", "restore"),
                status=enum("State of the task.", "Running", "Succeeded", "Failed"),
                result=string("Result as JSON in base64.", max_length=limits.DATA),
                logs=string("Compressed log in base64.", max_length=limits.DATA),
                createdAt=string("When it was started."),
            ),
            "The tasks, the newest first.",
        )
    },
)
CANCEL = _request_kind("Cancel", "Cancels a task of a workspace.", {"taskId": _TASK_ID})
LOG = _response_kind(
    "LogOptions",
    "Options of the log of a task or a service, as query parameters.",
    {
        "taskID": _TASK_ID,
        "service": string("Service of the Compose files, for the last that it has printed instead."),
        "follow": boolean("Whether to wait for more until the task ends."),
        "offset": string("Bytes of the log to skip."),
    },
)
STATE = _request_kind(
    "State",
    "State that clients keep with a workspace.",
    {"state": string("The state. Its format is up to the client.", max_length=limits.DOCUMENT)},
    ("state",),
)
TROUBLESHOOT = _response_kind(
    "Troubleshoot",
    "What is known about a workspace, for finding out why it does not work.",
    {
        "workspace": open_object("The workspace."),
        "runner": obj("Its runner.", name=string("Name of the runner."), checkedAt=string("When it was asked.")),
        "report": open_object("What the runner reports: engine, container, volumes and tasks."),
        "errors": _ERRORS,
    },
)
SSH_CERTIFICATE = _request_kind(
    "SshCertificate",
    "Signs an SSH certificate, with which its user connects to a workspace within the next five minutes.",
    {
        "spec": obj(
            "What to sign.",
            publicKey=string("Public key of the client, one line in the format of OpenSSH.", max_length=4096),
        ),
        "status": obj(
            "What the client needs to connect.",
            certificate=string("The certificate, one line in the format of OpenSSH.", max_length=16 * limits.KIB),
            expirationTimestamp=string("When the certificate expires. Open connections are not affected."),
            hostKeys=array(string("A public key, one line.", max_length=4096), "The host keys of the workspace."),
            user=string("Name of the user to log in as. Empty if it is not known before the workspace runs."),
        ),
    },
)
PORTS = _response_kind(
    "Ports",
    "The TCP ports that processes of a workspace listen on.",
    {
        "ports": array(
            obj(
                port=integer("Number of the port."),
                address=string("Address that the process listens on."),
                process=string("Name of the process, if it is known."),
            ),
            "The ports, in ascending order.",
        )
    },
)
SNAPSHOTS = _response_kind(
    "Snapshots",
    "What replaced containers of a workspace had outside of volumes and the work folder.",
    {
        "snapshots": array(
            obj(
                id=string("ID, for `restore` and `deletesnapshot`."),
                createdAt=string("When the container was replaced."),
                bytes=integer("Size on the disk of the workspace."),
            ),
            "The snapshots, the newest first.",
        )
    },
)
_SNAPSHOT = string("ID of the snapshot.", max_length=64)
RESTORE = _request_kind(
    "Restore",
    "Copies a file or folder of a snapshot into the running container of a workspace.",
    {
        "spec": obj(
            "What to copy.",
            snapshot=_SNAPSHOT,
            path=string("Absolute path of the file or folder.", max_length=4096),
        ),
        "status": obj("What was started.", taskId=_TASK_ID),
    },
)
SNAPSHOT_DELETION = _request_kind(
    "SnapshotDeletion", "Deletes a snapshot of a workspace.", {"spec": obj("What to delete.", snapshot=_SNAPSHOT)}
)
MOVE = _request_kind(
    "Move",
    "Moves a workspace to another runner, which fetches its source again.",
    {
        "spec": obj(
            "Where to.",
            runner=string("Name of the runner to move to.", max_length=253),
            discard=boolean("Whether to move although something would be lost, or this cannot be known."),
        ),
        "status": obj(
            "What was done.",
            runner=string("Name of the runner before."),
            lost=array(string(max_length=limits.MESSAGE), "What does not move, and will be deleted."),
        ),
    },
)
PORT_ACCESS = _request_kind(
    "PortAccess",
    "Opens a port of a workspace in a browser: says where, and issues the ticket with which a browser gets access.",
    {
        "spec": obj(
            "What to open.",
            port=integer("Number of the port."),
            path=string("Path to open there. Defaults to /.", max_length=2048),
            challenge=string("What the host of the port has sent to the console. Without it, there is no ticket."),
        ),
        "status": obj(
            "Where it is.",
            url=string("Address for the browser. With a ticket, it works once, in the browser of the challenge."),
            expirationTimestamp=string("When the ticket expires."),
        ),
    },
    ("status.url",),
)
DOWNLOAD = _response_kind(
    "DownloadOptions",
    "Options of a download, as query parameters.",
    {"path": string("File or folder in the workspace.", max_length=4096)},
)
_SECRET_VALUES = mapping(string(max_length=limits.DATA, format="password"))
CREDENTIALS = replace(
    _response_kind(
        "Credentials",
        "The secrets that the runner of a workspace needs for `up`. Only this runner may read them.",
        {
            "providerOptions": with_description(_SECRET_VALUES, "Options of the provider whose values are secret."),
            "workspaceEnv": with_description(_SECRET_VALUES, "Environment variables whose values are secret."),
            "gitCredentials": obj(
                "Credentials for the host of the repository.",
                username=string("User name."),
                password=string("Password or token.", format="password", max_length=limits.DATA),
                sshPrivateKey=string("Private key for SSH.", format="password", max_length=limits.DATA),
                knownHosts=string("Host keys, as in the file known_hosts.", max_length=limits.DATA),
            ),
            "gitIdentity": obj(
                "Name and address of the owner, for commits.",
                name=string("Name of the owner."),
                email=string("Email address of the owner."),
            ),
            "dotfiles": string("URL of the owner's repository with dotfiles."),
            "gitPathHosts": array(
                string(),
                "Hosts of which some credentials are only for repositories below a path.",
                max_items=limits.SERVER_WRITTEN_ITEMS,
            ),
            "registryCredentials": array(
                obj(
                    "Credentials for a registry of images.",
                    registry=string("The registry, with the path below which images are meant."),
                    username=string("User name."),
                    password=string("Password or token.", format="password", max_length=limits.DATA),
                ),
                "Credentials for registries, with which the runner pulls images.",
                max_items=limits.SERVER_WRITTEN_ITEMS,
            ),
            "errors": _ERRORS,
        },
    ),
    sensitive=("providerOptions", "workspaceEnv", "gitCredentials", "registryCredentials"),
    sensitivity=Sensitivity.CREDENTIAL,
)

WORKSPACE_ACTIONS = (
    Action("up", ("get", "create"), UP, USE),
    Action("stop", ("get", "create"), STOP, USE),
    *(Action(name, ("get",), STREAM, USE) for name in ("ssh", "port", "delete", "getstatus", "get-status")),
    Action("exec", ("get",), EXEC, USE),
    Action("tasks", ("get",), TASKS, USE),
    Action("cancel", ("create",), CANCEL, USE),
    Action("log", ("get",), LOG, USE),
    Action("state", ("get", "create"), STATE, USE),
    Action("troubleshoot", ("get",), TROUBLESHOOT, USE),
    Action("download", ("get",), DOWNLOAD, USE),
    Action("credentials", ("get",), CREDENTIALS),
    Action("sshcertificate", ("create",), SSH_CERTIFICATE, USE),
    Action("ports", ("get",), PORTS, USE),
    Action("snapshots", ("get",), SNAPSHOTS, USE),
    Action("restore", ("create",), RESTORE, USE),
    Action("deletesnapshot", ("create",), SNAPSHOT_DELETION, USE),
    Action("move", ("create",), MOVE, USE),
    Action(PORT_ACCESS_SUBRESOURCE, ("create",), PORT_ACCESS),
)


PRESET_FIELD = AllowListField("spec.presetRef.name", "preset", "allowedTemplates", "DevPodWorkspacePreset")
ACTIVITY_STATES = (ACTIVE, IDLE, UNKNOWN)

SPEC = owned_spec(
    "Desired state of the workspace.",
    templateRef=with_description(TEMPLATE_REF, "Template of the workspace. Mutually exclusive with template."),
    template=with_description(WORKSPACE_TEMPLATE_SPEC, "Inline definition. Mutually exclusive with templateRef."),
    parameters=PARAMETER_VALUES,
    parameterSecrets=PARAMETER_PASSWORDS,
    runnerRef=obj(
        "The runner of the workspace.",
        runner=string("Name of the runner. If empty, the server schedules the workspace. Immutable once set."),
    ),
    target=without_effect(
        obj(
            "Where the workspace runs, instead of a runner.",
            cluster=obj("A connected cluster.", name=string("Name of the cluster.")),
            virtualCluster=obj("A virtual cluster of the project.", name=string("Name of the virtual cluster.")),
        ),
        "is not supported: the workspace is not scheduled; use spec.runnerRef",
    ),
    presetRef=with_description(
        VERSIONED_REF,
        "Preset that the workspace is created from: what the workspace leaves out of source, template, parameters and "
        "environment is copied from it. Has an effect at creation only.",
    ),
    environmentRef=with_description(
        VERSIONED_REF,
        "Environment template: its devcontainer.json takes the place of that of the repository. Without a version, "
        "changes of it are applied as those of the template are.",
    ),
    preventWakeUpOnConnection=boolean("Do not wake up on SSH connections. Defaults to false."),
)

STATUS = obj(
    "Observed state of the workspace. Written by the server and the runner.",
    phase=enum("Phase of the workspace. Empty means Pending.", "", "Pending", "Ready", "Sleeping", "Failed"),
    reason=string("Machine-readable reason for the phase."),
    message=string("Human-readable reason for the phase.", max_length=limits.MESSAGE),
    conditions=CONDITIONS,
    observedGeneration=OBSERVED_GENERATION,
    usage=obj(
        "Resources that the workspace uses, as its runner has measured them. Updated at most once a minute.",
        memory=string("Memory, as a quantity such as `512Mi`. Omitted if it does not run or this is unknown."),
        disk=string("Disk space of its work folder, as a quantity. Omitted if this is unknown."),
    ),
    lastWorkspaceStatus=enum("Last status that the runner reported.", "", "NotFound", "Stopped", "Busy", "Running"),
    instance=with_description(WORKSPACE_TEMPLATE_SPEC, "The rendered template of this workspace."),
    templateHash=TEMPLATE_HASH,
    templateTrust=enum(
        "Whether administrators trust the rendered template. Only if they do (Trusted), it may contain permissions and "
        "placement. Confined: an inline definition, or from a template of another user. Unmarked: from a template that "
        "predates the distinction.",
        *TRUST_LEVELS,
    ),
    renderedSecrets=RENDERED_PASSWORDS,
    environment=obj(
        "The environment of the workspace, as its runner gets it.",
        name=string("Name of the environment template."),
        version=string("Its version. Empty means its unversioned definition."),
        inline=string("Text of its devcontainer.json.", max_length=limits.DEVCONTAINER),
    ),
    clusterRef=CLUSTER_REF,
    resolvedTarget=open_object("Where the workspace actually runs."),
    kubernetes=obj(
        "State of its objects in the cluster, if it runs in one.",
        podStatus=open_object("Kubernetes PodStatus of its pod."),
        persistentVolumeClaimStatus=open_object("Kubernetes PersistentVolumeClaimStatus of its volume claim."),
        lastTransitionTime=timestamp("When either of them last changed."),
    ),
    sleepModeConfig=SLEEP_MODE,
    activity=obj(
        "Whether the workspace is in use, as measured by its runner. Written when that changes.",
        state=enum("Idle means no activity for five minutes. Empty while it does not run.", "", *ACTIVITY_STATES),
        reason=string("What the last activity was, such as `TerminalInput` or `Cpu`."),
        lastActivityTime=timestamp("When the last activity was."),
        startTime=timestamp("Since when it runs."),
    ),
    ignoreReconciliation=boolean("Controllers skip the workspace, as during a migration. Defaults to false."),
)

FIELDS = {"spec": SPEC, "status": STATUS}

REPORTED_FIELDS = frozenset(
    {"phase", "reason", "message", "lastWorkspaceStatus", "usage", "activity", "kubernetes", "conditions"}
)
"""Fields of `status` that runners report, with conditions of their own. Only the server writes all others: it acts on
them, and resolves the secrets that `instance` refers to."""
SERVER_CONDITIONS = frozenset({"Scheduled", "Ready", "Reconciling", "Stalled", "TemplateResolved", "TemplateSynced"})
"""Types of conditions that only the server writes."""


def sleep_time(workspace: Object) -> Any:
    """When the workspace falls asleep, if nothing happens before; empty if that is not known."""
    seconds = get_path(workspace, "status.sleepModeConfig.status.scheduledSleep")
    try:
        return format_timestamp(datetime.fromtimestamp(seconds, UTC)) if seconds else ""
    except (ValueError, OverflowError, OSError):  # no date; a table must not fail because of one of its rows
        return ""


def preserve_runner(change: Change) -> None:
    """Keeps the assigned runner if a PUT has an empty `runnerRef`, as manifests usually do."""
    runner = get_path(change.old, "spec.runnerRef.runner")
    if runner and not get_path(change.obj, "spec.runnerRef.runner"):
        change.obj["spec"] = {**change.spec, "runnerRef": {"runner": runner}}


def check(change: Change) -> Iterable[Problem]:
    spec = change.spec
    yield from owner_problems(spec)
    if spec.get("templateRef") and spec.get("template"):
        yield Problem.forbidden("spec.template", "spec.templateRef is set too; keep one of them")
    for reference in ("presetRef", "templateRef", "environmentRef"):
        if name := get_path(spec, f"{reference}.name"):
            yield from (Problem.invalid(f"spec.{reference}.name", name, fault) for fault in dns_subdomain_errors(name))
    if get_path(spec, "target.cluster.name") and get_path(spec, "target.virtualCluster.name"):
        yield Problem.forbidden("spec.target.virtualCluster", "spec.target.cluster is set too; keep one of them")
    runner = get_path(spec, "runnerRef.runner")
    if change.user == CONTROLLER_USER:  # it moves workspaces
        return
    if runner != (get_path(change.old, "spec.runnerRef.runner") or runner):
        why = "field is immutable once a runner has been set; `fairlead workspace move` moves it to another one"
        yield Problem.invalid("spec.runnerRef.runner", runner, why)


WORKSPACE = Kind(
    name="DevPodWorkspaceInstance",
    plural="devpodworkspaceinstances",
    namespaced=True,
    fields=FIELDS,
    description="A developer workspace in a project.",
    short_names=("ws",),
    categories=(CATEGORY, "all"),
    status_subresource=True,
    columns=(
        Column("Status", workspace_status, description="What it does: Running, Stopped, Sleeping, Failed and so on."),
        Column("Reason", current_reason, description="Why it is not ready, the task under way, or what waits for it."),
        Column("Owner", owner_name, description="Owning user or team."),
        Column("Template", "spec.templateRef.name", description="Template of the workspace."),
        Column("Runner", "spec.runnerRef.runner", description="Runner of the workspace."),
        Column("Environment", "spec.environmentRef.name", description="Environment of the workspace.", wide=True),
        Column("Phase", "status.phase", description="Pending, Ready, Sleeping or Failed.", wide=True),
        Column("Container", "status.lastWorkspaceStatus", description="NotFound, Stopped, Busy or Running.", wide=True),
        Column("Sleeps At", sleep_time, description="When it falls asleep, unless it is used.", wide=True),
        Column("Memory", "status.usage.memory", description="Memory that it uses.", wide=True),
        Column("Disk", "status.usage.disk", description="Disk space that it uses.", wide=True),
        Column("Display Name", "spec.displayName", description="Human-readable name.", wide=True),
        Column("Message", "status.message", description="The reason for the phase, in words.", wide=True),
    ),
    selectable=(
        "spec.owner.user",
        "spec.runnerRef.runner",
        "spec.templateRef.name",
        "spec.environmentRef.name",
        "spec.presetRef.name",
        "status.phase",
    ),
    sensitive=password_paths(FIELDS),
    write_only=password_paths(FIELDS),
    safe_siblings=password_independent_fields(FIELDS),
    encrypted=("spec.parameters",),
    redact_derived=redact_instance,
    redacted_paths=("status.instance",),
    has_access_entries=True,
    actions=WORKSPACE_ACTIONS,
    instance=Instance("workspace", "DevPodWorkspaceTemplate", "instance", in_cluster=False),
    allow_list_fields=(
        AllowListField("spec.templateRef.name", "template", "allowedTemplates", "DevPodWorkspaceTemplate"),
        AllowListField(
            "spec.environmentRef.name", "environment template", "allowedTemplates", "DevPodEnvironmentTemplate"
        ),
        PRESET_FIELD,
        AllowListField("spec.runnerRef.runner", "runner", "allowedRunners"),
        AllowListField("spec.target.cluster.name", "cluster", "allowedClusters"),
    ),
    is_in_cli_scope=True,
    default=preserve_runner,
    check=check,
    sensitivity=Sensitivity.NORMAL,
)
