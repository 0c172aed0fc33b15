"""From the object of the API to what an engine is called with. Pure.

The rendered template is `status.instance`. Its provider selects the engine. The options `memory`, `cpus`, `processes`
and `allow` of the provider are limits and permissions; the others are passed on to the engine. The environment is
`status.environment`. Both are read when `up` starts, so that changes apply at the next `up`.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from fairlead.core.objects import Object, annotations_of, get_path, metadata
from fairlead.core.validators import parse_size
from fairlead.core.workspaces import (
    ALLOW,
    PLACEMENT_OPTIONS,
    RUNNER_SELECTOR,
    SIZE_OPTIONS,
    SNAPSHOT,
    SOURCE_ANNOTATION,
    UP_ANNOTATION,
    WEB_IDE,
    is_prebuild,
)
from fairlead.runner.credentials import NO_CREDENTIALS, SECRETS_UNAVAILABLE, Credentials
from fairlead.runner.decisions import Wanted, sleep_type_of
from fairlead.runner.engines.contract import (
    EngineError,
    FolderSource,
    GitSource,
    ImageSource,
    Limits,
    Reason,
    Source,
    WorkspaceSpec,
)
from fairlead.runner.journal import WorkspaceRecord
from fairlead.runner.status import find_condition

TEMPLATE_RESOLVED = "TemplateResolved"
"""The condition of the server about the template."""
CONTAINER_FIELDS = ("provider", "workspaceEnv", "initEnv")
"""Fields of a template that need a new container."""
LIMIT_OPTIONS = ("memory", "cpus", "processes", ALLOW, RUNNER_SELECTOR, WEB_IDE)
"""Options that are not for the engine: limits and permissions, what the server has decided on already, and the editor
that every engine can run."""
DECIDED_OPTIONS = PLACEMENT_OPTIONS | SIZE_OPTIONS

_CPUS = re.compile(r"(\d+(?:\.\d+)?)(m?)")


def read_wanted(workspace: Object) -> Wanted:
    meta = metadata(workspace)
    spec = workspace.get("spec") or {}
    sleep_type = sleep_type_of(workspace)
    has_template = bool(get_path(spec, "templateRef.name") or spec.get("template"))
    has_environment = bool(get_path(spec, "environmentRef.name"))
    is_resolved = not has_template or get_path(workspace, "status.instance") is not None
    resolved = find_condition(workspace, TEMPLATE_RESOLVED)
    problem = str(resolved.get("message") or resolved.get("reason") or TEMPLATE_RESOLVED)
    return Wanted(
        is_deleting="deletionTimestamp" in meta,
        is_asleep=bool(sleep_type),
        sleep_type=sleep_type,
        is_template_resolved=is_resolved and (not has_environment or bool(read_environment(workspace))),
        template_problem=problem if resolved.get("status") == "False" else "",
        template_hash=hash_template(workspace),
        owner=_describe_owner(workspace),
    )


def requested_up(workspace: Object) -> str:
    """The value of the annotation that requests an `up`."""
    return _annotation(workspace, UP_ANNOTATION)


def provider_name(workspace: Object) -> str:
    """The provider of the template; empty if there is none."""
    return str(get_path(workspace, "status.instance.provider.name") or "")


def template_options(workspace: Object) -> Mapping[str, Any]:
    """The options of the provider, as in the rendered template."""
    found = get_path(workspace, "status.instance.provider.options")
    return found if isinstance(found, Mapping) else {}


def read_environment(workspace: Object) -> str:
    """The devcontainer.json of the environment of the workspace; empty if it has none, or the server has not resolved
    it yet."""
    name = get_path(workspace, "spec.environmentRef.name")
    is_resolved = bool(name) and get_path(workspace, "status.environment.name") == name
    return str(get_path(workspace, "status.environment.inline") or "") if is_resolved else ""


def is_trusted(workspace: Object) -> bool:
    """Whether administrators trust the template, as the server says. A server that does not say it is older."""
    return bool(get_path(workspace, "status.templateTrust") == "Trusted")


def choose_source(workspace: Object, record: WorkspaceRecord) -> str:
    """The source of the next `up`. It stays what it was at the first one, unless the work folder is reset."""
    requested = str(record.options.get("source") or "") or _annotation(workspace, SOURCE_ANNOTATION)
    return requested if requested and (record.options.get("reset") or not record.source) else record.source


def build_spec(
    workspace: Object, record: WorkspaceRecord, source: Source, credentials: Credentials = NO_CREDENTIALS
) -> WorkspaceSpec:
    """Raises EngineError if the template or the options make no sense. Limits, permissions and placement are never
    secret (`template_policy.py`): those of the template count, whatever the server sends."""
    meta, options = metadata(workspace), record.options
    template = get_path(workspace, "status.instance") or {}
    secret_options = {name: value for name, value in credentials.options.items() if name not in DECIDED_OPTIONS}
    provider = _read_values(template_options(workspace), secret_options)
    environment = _read_values(template.get("workspaceEnv"), credentials.environment)
    requested = _parse_assignments(options.get("workspaceEnv"))
    own_options = {name: value for name, value in provider.items() if name not in LIMIT_OPTIONS}
    is_for_others = is_prebuild(workspace)
    secrets = {} if is_for_others else _without(credentials.environment, requested)
    return WorkspaceSpec(
        uid=str(meta["uid"]),
        namespace=str(meta["namespace"]),
        name=str(meta["name"]),
        owner=_describe_owner(workspace),
        source=source,
        clone_strategy=str(template.get("gitCloneStrategy") or ""),
        dev_container=read_environment(workspace),
        dev_container_path=str(options.get("devContainerPath") or ""),
        environment=_without(environment, credentials.environment) | requested,
        secrets={**secrets, **credentials.git},
        commit_name="" if is_for_others else credentials.commit_name,
        commit_email="" if is_for_others else credentials.commit_email,
        dotfiles="" if is_for_others else credentials.dotfiles,
        is_prebuild=is_for_others,
        git_path_hosts=credentials.git_path_hosts,
        registries=credentials.registries,
        limits=read_limits(provider),
        permissions=read_permissions(provider),
        options=_without(own_options, secret_options),
        secret_options={name: value for name, value in own_options.items() if name in secret_options},
        is_trusted=is_trusted(workspace),
        template_hash=hash_template(workspace),
        keeps_container=not record.is_template_requested,
        recreate=bool(options.get("recreate")) or record.is_for_other_owner,
        reset=bool(options.get("reset")),
        takes_snapshot=bool(options.get(SNAPSHOT)),
        discards_home=record.is_for_other_owner,
    )


def hash_template(workspace: Object) -> str:
    """Changes with everything in the rendered template that needs a new container: also with parameters, which the hash
    of the server does not cover, and with the environment. References to secrets count, their values do not."""
    template = get_path(workspace, "status.instance") or {}
    relevant = {name: template.get(name) for name in CONTAINER_FIELDS}
    if environment := read_environment(workspace):
        relevant["environment"] = environment
    return hashlib.sha256(json.dumps(relevant, sort_keys=True).encode()).hexdigest()[:24]


def parse_source(text: str) -> Source:
    """Parses `git:URL`, with `@BRANCH`, `@sha256:COMMIT` and `@subpath:FOLDER` after it; `local:FOLDER`; `image:NAME`.

    A URL without a prefix is a repository.
    """
    kind, _, rest = text.partition(":")
    if kind == "local" and rest:
        return FolderSource(rest)
    if kind == "image" and rest:
        return ImageSource(rest)
    if kind == "git" and rest:
        return _parse_repository(rest)
    if "://" in text or re.match(r"[\w.-]+@[\w.-]+:", text):
        return _parse_repository(text)
    advice = f"set the annotation {SOURCE_ANNOTATION}, for example to git:https://example.com/repository.git"
    problem = f"{text!r} is not a source of a workspace" if text else "the workspace has no source"
    raise EngineError(Reason.SOURCE_REFUSED, f"{problem}; {advice}")


def _parse_repository(text: str) -> GitSource:
    # The first @ of an address belongs to its user: https://user@host/path, git@host:path.
    address = re.match(r"(\w[\w+.-]*://[^/]*|[\w.-]+@[\w.-]+:)?", text)
    start = address.end() if address else 0
    path, *suffixes = text[start:].split("@")
    found = {"branch": "", "commit": "", "subfolder": ""}
    for suffix in suffixes:
        kind, _, value = suffix.partition(":")
        name = {"sha256": "commit", "subpath": "subfolder"}.get(kind, "branch")
        found[name] = value if name != "branch" else suffix
    url = text[:start] + path
    if "://" in url and urlsplit(url).password:
        raise EngineError(Reason.SOURCE_REFUSED, "the source contains a password; use the credentials of the project")
    return GitSource(url, found["branch"], found["commit"], found["subfolder"])


def _describe_owner(workspace: Object) -> str:
    team = get_path(workspace, "spec.owner.team")
    return str(get_path(workspace, "spec.owner.user") or (f"team/{team}" if team else ""))


def _annotation(workspace: Object, name: str) -> str:
    return str(annotations_of(workspace).get(name) or "")


def _read_values(values: Any, secrets: Mapping[str, str]) -> dict[str, str]:
    """The values of a map of the template. Those that are secret come from the server."""
    found = {}
    for name, each in (values or {}).items():
        if isinstance(each, Mapping) and each.get("valueFrom") and name not in secrets:
            raise EngineError(SECRETS_UNAVAILABLE, f"the server has not sent the secret value of {name}")
        found[name] = secrets[name] if name in secrets else _read_value(each)
    return found


def _read_value(value: Any) -> str:
    return str((value.get("value") if isinstance(value, Mapping) else value) or "")


def _without(values: Mapping[str, str], names: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in values.items() if name not in names}


def _parse_assignments(assignments: Any) -> dict[str, str]:
    """`NAME=VALUE` from a list of options."""
    pairs = (str(each).partition("=") for each in assignments or ())
    return {name: value for name, _, value in pairs if name}


def read_permissions(options: Mapping[str, Any]) -> frozenset[str]:
    """What the template allows repositories."""
    return frozenset(each.strip() for each in _read_value(options.get(ALLOW)).split(",") if each.strip())


def read_limits(options: Mapping[str, Any]) -> Limits:
    """Raises EngineError if one makes no sense."""
    memory, cpus, processes = (_read_value(options.get(name)) for name in ("memory", "cpus", "processes"))
    return Limits(
        memory_bytes=_parse_bytes(memory) if memory else None,
        cpus=_parse_cpus(cpus) if cpus else None,
        processes=_parse_count(processes) if processes else None,
    )


def _parse_bytes(text: str) -> int:
    size = parse_size(text)
    return size if size is not None else _reject("memory", text, "a size such as 4Gi")


def _parse_cpus(text: str) -> float:
    match = _CPUS.fullmatch(text)
    return float(match[1]) / (1000 if match[2] else 1) if match else _reject("cpus", text, "a number such as 2 or 500m")


def _parse_count(text: str) -> int:
    return int(text) if text.isdecimal() and text.isascii() and int(text) else _reject("processes", text, "a number")


def _reject(name: str, value: str, expected: str) -> Any:
    message = f"the option {name} of the template's provider is {value!r}; it must be {expected}"
    raise EngineError(Reason.CONFIGURATION_INVALID, message)
