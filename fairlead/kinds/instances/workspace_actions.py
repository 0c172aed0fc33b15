"""The subresources of workspaces that its runner serves, and the kinds of their bodies.

All of them require the verb `use` on the workspace, whatever the method: a GET of `ssh` is not a read. The exception is
`credentials`, which the server answers for the runner of the workspace alone.
"""

from dataclasses import replace

from fairlead.kinds.answered import create_only_kind, read_only_kind
from fairlead.registry import limits
from fairlead.registry.kind import Action, Kind, Sensitivity
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
    with_description,
)

USE = "use"
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
                type=enum("What the task does.", "up", "stop", "delete"),
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
    "Options of the log of a task, as query parameters.",
    {
        "taskID": _TASK_ID,
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
            "errors": _ERRORS,
        },
    ),
    sensitive=("providerOptions", "workspaceEnv", "gitCredentials"),
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
)
