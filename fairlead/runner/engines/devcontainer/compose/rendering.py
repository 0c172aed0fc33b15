"""From the services of Compose files to one devcontainer.json, and a plan for the services beside it. Pure.

Both are made of the same properties, which the adaptation and the policy for every repository then go through: a
service of a database has no more than the workspace itself.
"""

import hashlib
import json
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

from fairlead.runner.engines.contract import invalid_configuration, policy_violation
from fairlead.runner.engines.devcontainer.adaptation import (
    BIND,
    LOCAL_FOLDER,
    OWN_NETWORK,
    VOLUME,
    WHY_LEFT_OUT,
    Volume,
    adapt_properties,
    parse_port,
)
from fairlead.runner.engines.devcontainer.compose.loading import Compose
from fairlead.runner.engines.devcontainer.compose.model import Service, is_on, list_dependencies
from fairlead.runner.engines.devcontainer.grant import Grant
from fairlead.runner.engines.devcontainer.image_names import is_name
from fairlead.runner.engines.devcontainer.inside.services import COMPLETED, HEALTHY, read_test
from fairlead.runner.engines.devcontainer.policy import COMPOSE

MAX_HOSTS = 64
MAX_PORTS = 64
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}", re.A)
DURATION = re.compile(
    r"(?:(?P<hours>\d{1,4})h)?(?:(?P<minutes>\d{1,4})m)?(?:(?P<seconds>\d{1,5}(?:\.\d{1,9})?)s)?(?:\d+ms)?", re.A
)
MAX_WAIT_SECONDS = 240
DEFAULT_INTERVAL, DEFAULT_RETRIES = 30.0, 3
RESTARTS = ("no", "always", "on-failure", "unless-stopped")
READ = frozenset(
    {
        *("image", "build", "command", "entrypoint", "environment", "env_file", "volumes", "tmpfs", "ports"),
        *("user", "init", "privileged", "cap_add", "security_opt", "shm_size", "ulimits", "depends_on"),
        *("links", "healthcheck", "restart", "profiles", "extends", "network_mode", "networks", "hostname"),
        *("container_name", "working_dir", "tty", "stdin_open"),
    }
)
WITHOUT_MEANING = frozenset(
    {
        *("expose", "labels", "label_file", "annotations", "logging", "stop_signal", "stop_grace_period", "platform"),
        *("pull_policy", "scale", "attach", "develop"),
    }
)
"""They change nothing that a workspace could miss."""
LIMITS = frozenset(
    {
        "deploy",
        "mem_limit",
        "mem_reservation",
        "memswap_limit",
        "cpus",
        "cpu_shares",
        "cpu_quota",
        "cpuset",
        "pids_limit",
    }
)
OPTIONS = {"pid": "--pid", "ipc": "--ipc", "userns_mode": "--userns", "devices": "--device", "gpus": "--gpus"}
"""Properties that are options of `docker run`, and left out for the same reason."""


@dataclass(frozen=True, slots=True)
class Composed:
    """What Compose files come to."""

    configuration: Mapping[str, Any]
    """A devcontainer.json of one container."""
    plan: Mapping[str, Any]
    """What is started beside it, for the shim."""
    warnings: Sequence[str]


@dataclass(slots=True)
class _Rendering:
    grant: Grant
    warnings: list[str] = field(default_factory=list)

    def leave_out(self, service: str, what: str, why: str) -> None:
        self.warnings.append(f"service {service}: {what[:200]} is left out: {why}")


def render_compose(configuration: Mapping[str, Any], compose: Compose, folder: str, grant: Grant) -> Composed:
    """`folder` is that of the devcontainer.json. Raises EngineError."""
    name = str(configuration.get("service") or "")
    if name not in compose.services:
        raise invalid_configuration(
            f"the Compose files have no service {name!r}; set `service` of the devcontainer.json to one of "
            f"{', '.join(sorted(compose.services))}"
        )
    chosen = _select_services(compose.services, name, configuration.get("runServices"))
    if wrong := next((each for each in chosen if not NAME.fullmatch(each)), None):
        raise invalid_configuration(f"{wrong!r} is no name for a service")
    rendering = _Rendering(grant)
    for variable in compose.missing:
        rendering.warnings.append(f"the variable {variable[:100]} of the Compose files has no value")
    main = chosen[name]
    plan = {
        "hosts": list(_list_hosts(chosen))[:MAX_HOSTS],
        "main": {"name": name, **_describe_main_command(main, configuration), "waits": _list_waits(main, chosen)},
        "services": [
            _plan_service(rendering, each, service, chosen, name) for each, service in chosen.items() if each != name
        ],
    }
    properties = _describe_main(rendering, name, main, configuration, folder)
    properties["forwardPorts"] = [
        *_read_list(configuration.get("forwardPorts")),
        *_list_ports(rendering, chosen, frozenset(map(str, _read_list(configuration.get("forwardPorts"))))),
    ]
    return Composed(properties, plan, tuple(dict.fromkeys(rendering.warnings)))


def list_images(plan: Mapping[str, Any]) -> list[str]:
    return [each["image"] for each in plan["services"] if not each["build"]]


def list_dockerfiles(plan: Mapping[str, Any]) -> list[str]:
    return [each["build"]["dockerfile"] for each in plan["services"] if each["build"]]


# --- selection --------------------------------------------------------------------------------------------------------


def _select_services(services: Mapping[str, Service], main: str, run_services: Any) -> dict[str, Service]:
    """Those that run, each after those that it depends on. The workspace itself is started last."""
    listed = [str(each) for each in run_services] if isinstance(run_services, list) else []
    wanted = listed or [name for name, each in services.items() if not each.get("profiles")]
    ordered: dict[str, Service] = {}
    for name in [*wanted, main]:
        _add_service(services, name, main, ordered, ())
    ordered[main] = ordered.pop(main)
    return ordered


def _add_service(
    services: Mapping[str, Service], name: str, main: str, ordered: dict[str, Service], above: tuple[str, ...]
) -> None:
    if name in ordered:
        return
    if name in above:
        raise invalid_configuration(f"services depend on each other: {' -> '.join([*above, name])}")
    if name not in services:
        raise invalid_configuration(
            f"the Compose files have no service {name!r}, which {(above or ('runServices',))[-1]} names"
        )
    for dependency, _ in list_dependencies(services[name]):
        is_needed = services[name].get("depends_on", {}).get(dependency, {}).get("required") is not False
        if dependency != main and (dependency in services or is_needed):
            _add_service(services, dependency, main, ordered, (*above, name))
    ordered[name] = services[name]


def _list_hosts(services: Mapping[str, Service]) -> Iterator[str]:
    """The names under which services reach each other: all are on the same loopback."""
    names: dict[str, None] = {}
    for name, service in services.items():
        names[name] = None
        aliases = service.get("networks")
        networks = aliases.values() if isinstance(aliases, Mapping) else ()
        listed = [each for network in networks for each in _read_list(_read_mapping(network).get("aliases"))]
        linked = [link.partition(":")[2] for link in service.get("links", ())]
        for each in (service.get("container_name"), service.get("hostname"), *listed, *linked):
            if each:
                names[str(each)] = None
    return (each for each in names if NAME.fullmatch(each) and each != "localhost")


def _list_waits(service: Service, chosen: Mapping[str, Service]) -> list[dict[str, Any]]:
    """What has to be so before a service starts."""
    waits = []
    for name, condition in list_dependencies(service):
        if name in chosen and condition in (HEALTHY, COMPLETED):
            waits.append({"service": name, "condition": condition, **_describe_health(chosen[name])})
    return waits


def _describe_health(service: Service) -> dict[str, Any]:
    """How it is seen that a service is healthy, and for how long at most that is waited for."""
    check = service.get("healthcheck")
    fields: Mapping[str, Any] = check if isinstance(check, Mapping) else {}
    test = fields.get("test")
    words = ["CMD-SHELL", test] if isinstance(test, str) and test else [str(each) for each in _read_list(test)]
    interval = _read_seconds(fields.get("interval"), DEFAULT_INTERVAL)
    retries = fields.get("retries")
    count = retries if isinstance(retries, int) and not isinstance(retries, bool) and retries > 0 else DEFAULT_RETRIES
    seconds = _read_seconds(fields.get("start_period"), 0.0) + interval * count
    is_off = is_on(fields.get("disable")) or words[:1] == ["NONE"]
    return {"command": read_test(words), "seconds": min(max(seconds, 30.0), MAX_WAIT_SECONDS), "is_off": is_off}


def _read_seconds(value: Any, default: float) -> float:
    found = DURATION.fullmatch(value.strip()) if isinstance(value, str) and len(value) < 32 else None
    if found is None:
        return default
    return int(found["hours"] or 0) * 3600 + int(found["minutes"] or 0) * 60 + float(found["seconds"] or 0)


# --- properties of any service ----------------------------------------------------------------------------------------


def _describe_service(rendering: _Rendering, name: str, service: Service) -> dict[str, Any]:
    """A service as properties of a devcontainer.json."""
    _leave_out(rendering, name, service)
    properties: dict[str, Any] = {
        "containerEnv": _select_set(service.get("environment", {})),
        "mounts": list(_list_mounts(rendering, name, service)),
        "capAdd": list(dict.fromkeys(service.get("cap_add", ()))),
        "securityOpt": list(dict.fromkeys(service.get("security_opt", ()))),
        "privileged": is_on(service.get("privileged")),
        "init": is_on(service.get("init")),
        "runArgs": list(_list_run_arguments(service)),
    }
    if service.get("user"):
        properties["containerUser"] = str(service["user"])
    return {key: value for key, value in properties.items() if value}


def _leave_out(rendering: _Rendering, name: str, service: Service) -> None:
    for key in service:
        if key in OPTIONS:
            rendering.leave_out(name, f"{key} {service[key]}", WHY_LEFT_OUT[OPTIONS[key]])
        elif key in LIMITS:
            rendering.leave_out(name, key, "the template has the limits")
        elif key in ("secrets", "configs"):
            rendering.leave_out(name, key, "mount a file of the repository with `volumes`")
        elif key not in READ and key not in WITHOUT_MEANING and not key.startswith("x-"):
            rendering.leave_out(name, key, "this runner does not know it")
    if service.get("network_mode") == "host":
        rendering.leave_out(name, "network_mode host", OWN_NETWORK)


def _list_mounts(rendering: _Rendering, name: str, service: Service) -> Iterator[str]:
    for target, volume in service.get("volumes", {}).items():
        source, kind = volume["source"], volume["type"]
        if kind == BIND and source == posixpath.dirname(rendering.grant.work_folder):
            target = posixpath.join(target, posixpath.basename(rendering.grant.work_folder))
            source = rendering.grant.work_folder
        elif kind == VOLUME and not source:  # one without a name is of this service alone
            source = re.sub(r"[^A-Za-z0-9]+", "-", f"{name}{target}")
        yield Volume(kind, source, target, volume["is_read_only"]).describe()
    for entry in service.get("tmpfs", ()):
        yield f"type=tmpfs,target={entry.partition(':')[0]}"


def _list_run_arguments(service: Service) -> Iterator[str]:
    if service.get("shm_size"):
        yield f"--shm-size={service['shm_size']}"
    ulimits = service.get("ulimits")
    for name, value in ulimits.items() if isinstance(ulimits, Mapping) else ():
        numbers = [value.get("soft"), value.get("hard")] if isinstance(value, Mapping) else [value]
        yield f"--ulimit={name}={':'.join(str(each) for each in numbers)}"


def _list_ports(rendering: _Rendering, chosen: Mapping[str, Service], known: Set[str]) -> list[int]:
    """The ports that services open on the machine in Compose: here they are offered as ports of the workspace."""
    found: dict[int, None] = {}
    for name, service in chosen.items():
        listed = service.get("ports")
        for entry in listed if isinstance(listed, list) else [listed] if listed else []:
            inner, outer = _read_port(entry)
            if inner is None:
                rendering.leave_out(name, f"port {entry}", "it is no single TCP port")
                continue
            if outer not in (None, inner):
                rendering.warnings.append(f"service {name}: port {outer} of the machine is not opened; use {inner}")
            if str(inner) not in known:
                found[inner] = None
    return list(found)[:MAX_PORTS]


def _read_port(entry: Any) -> tuple[int | None, int | None]:
    """The port in the container and, if it is named, that of the machine."""
    if isinstance(entry, Mapping):
        texts = [str(entry.get("target") or ""), str(entry.get("published") or "")]
        is_tcp = entry.get("protocol") in (None, "tcp")
    else:
        parts = str(entry).removesuffix("/tcp").split(":")
        texts = [parts[-1], parts[-2] if len(parts) > 1 else ""]
        is_tcp = True
    inner, outer = map(parse_port, texts)
    return (inner if is_tcp else None), outer


# --- the workspace ----------------------------------------------------------------------------------------------------


def _describe_main(
    rendering: _Rendering, name: str, service: Service, configuration: Mapping[str, Any], folder: str
) -> dict[str, Any]:
    """The devcontainer.json of the service that is the workspace. What that file itself says takes precedence."""
    own = {key: value for key, value in configuration.items() if key not in COMPOSE}
    described = _describe_service(rendering, name, service)
    merged = {**described, **own}
    for key in ("mounts", "capAdd", "securityOpt", "runArgs"):
        merged[key] = [*_read_list(described.get(key)), *_read_list(own.get(key))]
    merged["containerEnv"] = {**described.get("containerEnv", {}), **_read_mapping(own.get("containerEnv"))}
    merged.update(_describe_image(name, service, folder))
    _place_work_folder(merged, rendering.grant, configuration)
    has_command = "command" in service or "entrypoint" in service
    has_terminal = is_on(service.get("tty")) or is_on(service.get("stdin_open"))
    if own.get("overrideCommand") is not True and not has_command:
        merged["overrideCommand"] = "overrideCommand" not in own and has_terminal
    elif own.get("overrideCommand") is False:  # the shim adds the command to the one that keeps it running
        del merged["overrideCommand"]
    return merged


def _place_work_folder(merged: dict[str, Any], grant: Grant, configuration: Mapping[str, Any]) -> None:
    """A mount of the whole work folder is the one of the workspace."""
    prefix = f"type=bind,source={grant.work_folder},target="
    targets = [each.removeprefix(prefix).partition(",")[0] for each in merged["mounts"] if str(each).startswith(prefix)]
    if not targets:
        return
    target = targets[0]
    merged["mounts"] = [each for each in merged["mounts"] if not str(each).startswith(f"{prefix}{target}")]
    merged["workspaceMount"] = f"type=bind,source={LOCAL_FOLDER},target={target}"
    merged.setdefault("workspaceFolder", target)


def _describe_main_command(service: Service, configuration: Mapping[str, Any]) -> dict[str, Any]:
    if configuration.get("overrideCommand") is True:
        return {"entrypoint": None, "command": None}
    return {"entrypoint": service.get("entrypoint"), "command": service.get("command")}


def _describe_image(name: str, service: Service, folder: str) -> dict[str, Any]:
    build = service.get("build")
    if not build:
        return {"image": _read_image(name, service)}
    context, dockerfile = _read_build(name, build)
    described: dict[str, Any] = {
        "context": posixpath.relpath(context, folder),
        "dockerfile": posixpath.relpath(dockerfile, folder),
        "args": _select_set(build.get("args", {})),
        "target": build.get("target"),
        "cacheFrom": build.get("cache_from"),
    }
    return {"build": {key: value for key, value in described.items() if value}}


def _read_image(name: str, service: Service) -> str:
    image = service.get("image")
    if not isinstance(image, str) or not image or image.startswith("-"):
        raise invalid_configuration(f"the service {name} in the Compose files has neither an image nor a build")
    if not is_name(image):
        raise policy_violation(f"the image {image[:200]!r} of the service {name} is refused: it is no name of an image")
    return image


def _read_build(name: str, build: Mapping[str, Any]) -> tuple[str, str]:
    """The context and the Dockerfile."""
    context = build["context"]
    if not context.startswith("/"):
        raise invalid_configuration(f"the build of the service {name} has no folder of the repository as its context")
    if "dockerfile_inline" in build:
        raise invalid_configuration(f"the build of the service {name} has a dockerfile_inline; write it to a file")
    return context, posixpath.normpath(posixpath.join(context, str(build.get("dockerfile") or "Dockerfile")))


# --- the others -------------------------------------------------------------------------------------------------------


def _plan_service(
    rendering: _Rendering, name: str, service: Service, chosen: Mapping[str, Service], main: str
) -> dict[str, Any]:
    """A service for the shim, with the options of `podman run` as the CLI writes them."""
    adapted = adapt_properties(_describe_service(rendering, name, service), rendering.grant)
    rendering.warnings += [f"service {name}: {each}" for each in adapted.warnings]
    build = service.get("build")
    context, dockerfile = _read_build(name, build) if build else ("", "")
    restart = str(service.get("restart") or "no")
    planned: dict[str, Any] = {
        "name": name,
        "image": "" if build else _read_image(name, service),
        "build": {
            "context": context,
            "dockerfile": dockerfile,
            "target": str(build.get("target") or ""),
            "args": _select_set(build.get("args", {})),
        }
        if build
        else None,
        "options": list(_list_options(adapted.configuration)),
        "folder": str(service.get("working_dir") or ""),
        "entrypoint": service.get("entrypoint"),
        "command": service.get("command"),
        "restart": restart if restart.partition(":")[0] in RESTARTS else "no",
        "waits": [each for each in _list_waits(service, chosen) if each["service"] != main],
    }
    planned["digest"] = hashlib.sha256(json.dumps(planned, sort_keys=True).encode()).hexdigest()
    return planned


def _list_options(properties: Mapping[str, Any]) -> Iterator[str]:
    for key, text in properties.get("containerEnv", {}).items():
        yield from ("-e", f"{key}={text}")
    for mount in properties.get("mounts", ()):
        yield from ("--mount", mount)
    for capability in properties.get("capAdd", ()):
        yield from ("--cap-add", capability)
    for option in properties.get("securityOpt", ()):
        yield from ("--security-opt", option)
    if properties.get("containerUser"):
        yield from ("-u", properties["containerUser"])
    yield from (["--privileged"] if properties.get("privileged") else [])
    yield from (["--init"] if properties.get("init") else [])
    yield from properties.get("runArgs", ())


def _select_set(variables: Mapping[str, str | None]) -> dict[str, str]:
    """Those with a value: others would have that of the machine."""
    return {name: text for name, text in variables.items() if text is not None}


def _read_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _read_mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
