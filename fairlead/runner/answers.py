"""Checks what the server sends, before anything else of the runner reads it.

Only the fields that the runner reads are checked, and the objects stay as they are: a newer server may have others. A
server that was broken into, or a proxy before it, may send anything. What has another type is an error of the server,
never one of the runner.
"""

from typing import Annotated, Any

import msgspec

from fairlead.client import ClientError
from fairlead.core.objects import Object

MAX_REVISION_DIGITS = 19

Name = Annotated[str, msgspec.Meta(pattern=r"\A[a-z0-9]([a-z0-9.-]*[a-z0-9])?\Z", max_length=253)]
"""Of an object and of a namespace: harmless in paths, labels and terminals."""


class _Answer(msgspec.Struct, rename="camel"):
    """Unknown fields are ignored."""


class _WorkspaceMetadata(_Answer):
    uid: str
    name: Name
    namespace: Name
    annotations: dict[str, str] | None = None
    resource_version: str | None = None
    generation: int | None = None
    deletion_timestamp: str | None = None


class _TemplateRef(_Answer):
    name: str | None = None


class _Owner(_Answer):
    user: str | None = None
    team: str | None = None


class _WorkspaceSpec(_Answer):
    template_ref: _TemplateRef | None = None
    owner: _Owner | None = None


class _Condition(_Answer):
    type: str
    status: str | None = None
    reason: str | None = None
    message: str | None = None
    last_transition_time: str | None = None


class _Provider(_Answer):
    name: str | None = None
    options: dict[str, Any] | None = None


class _Template(_Answer):
    provider: _Provider | None = None
    workspace_env: dict[str, Any] | None = None


class _Activity(_Answer):
    state: str | None = None
    last_activity_time: str | None = None
    start_time: str | None = None


class _SleepPolicy(_Answer):
    sleep_after: int | None = None
    delete_after: int | None = None
    max_run: int | None = None


class _SleepMode(_Answer):
    spec: _SleepPolicy | None = None


class _Usage(_Answer):
    memory: str | None = None
    disk: str | None = None


class _WorkspaceStatus(_Answer):
    phase: str | None = None
    reason: str | None = None
    message: str | None = None
    last_workspace_status: str | None = None
    template_trust: str | None = None
    conditions: list[_Condition] | None = None
    instance: _Template | None = None
    activity: _Activity | None = None
    sleep_mode_config: _SleepMode | None = None
    usage: _Usage | None = None


class _Workspace(_Answer):
    metadata: _WorkspaceMetadata
    api_version: str = ""
    kind: str = ""
    spec: _WorkspaceSpec | None = None
    status: _WorkspaceStatus | None = None


class _Metadata(_Answer):
    uid: str | None = None
    resource_version: str | None = None


class _RunnerStatus(_Answer):
    phase: str | None = None
    reason: str | None = None
    message: str | None = None


class _Runner(_Answer):
    metadata: _Metadata | None = None
    status: _RunnerStatus | None = None


class _Config(_Answer, rename={"service_instance_id": "serviceInstanceID", "token_ca_cert": "tokenCaCert"}):
    service_instance_id: str | None = None
    token_ca_cert: str | None = None


class _LeaseSpec(_Answer):
    holder_identity: str | None = None
    renew_time: str | None = None
    acquire_time: str | None = None
    lease_transitions: int | None = None


class _Lease(_Answer):
    metadata: _Metadata | None = None
    spec: _LeaseSpec | None = None


class _Problem(_Answer):
    message: str | None = None


class _GitCredentials(_Answer):
    username: str | None = None
    password: str | None = None
    ssh_private_key: str | None = None
    known_hosts: str | None = None


class _GitIdentity(_Answer):
    name: str | None = None
    email: str | None = None


class _RegistryCredentials(_Answer):
    registry: str | None = None
    username: str | None = None
    password: str | None = None


class _Credentials(_Answer):
    provider_options: dict[str, str] | None = None
    workspace_env: dict[str, str] | None = None
    git_credentials: _GitCredentials | None = None
    git_identity: _GitIdentity | None = None
    dotfiles: str | None = None
    git_path_hosts: list[str] | None = None
    registry_credentials: list[_RegistryCredentials] | None = None
    errors: list[_Problem] | None = None


def check_workspace(workspace: Object) -> Object:
    """Raises ClientError, as all functions here."""
    return _check(workspace, _Workspace, "a workspace")


def check_runner(runner: Object) -> Object:
    return _check(runner, _Runner, "the Runner")


def check_config(config: Object) -> Object:
    return _check(config, _Config, "the configuration of the runner")


def check_lease(lease: Object) -> Object:
    return _check(lease, _Lease, "the Lease of the runner")


def check_credentials(credentials: Object) -> Object:
    return _check(credentials, _Credentials, "the credentials of a workspace")


def parse_revision(version: object) -> int:
    """A resourceVersion as a number; 0 if it is none."""
    text = version if isinstance(version, str) and len(version) <= MAX_REVISION_DIGITS else ""
    return int(text) if text.isascii() and text.isdecimal() else 0


def _check(value: Object, expected: type[_Answer], name: str) -> Object:
    try:
        msgspec.convert(value, expected)
    except (msgspec.ValidationError, RecursionError) as error:
        raise ClientError(f"what the server sent as {name} is not valid: {error}; check the server") from None
    return value
