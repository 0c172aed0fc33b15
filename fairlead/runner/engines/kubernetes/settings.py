"""What the operator of the runner chooses, `Settings`, and what a template chooses within these bounds, `Options`."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path

from fairlead.runner.engines.contract import Limits, invalid_configuration

GIGABYTE = 1 << 30
DEFAULT_LIMITS = Limits(memory_bytes=4 * GIGABYTE, cpus=2.0)


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Seconds for the steps of a task, and for parts of them."""

    prepare: float = 120
    clone: float = 900
    start: float = 600
    commands: float = 1800
    stop: float = 120
    delete: float = 600
    image_pull: float = 60
    """How long an image that cannot be pulled is tried again."""
    forced_deletion: float = 60
    """How long `delete` waits for a node that does not report the end of a Pod. Then the Pod is removed without it."""


@dataclass(frozen=True, slots=True)
class Folders:
    """Paths inside the containers."""

    private: str = "/run/fairlead"
    """In memory; it has the sessions and secrets of the Pod."""
    workspaces: str = "/workspaces"
    volume: str = "/volume"
    """Where the clone sees the whole claim. Containers with the image of the workspace see folders of it only."""


DEFAULT_DEADLINES = Deadlines()
DEFAULT_FOLDERS = Folders()


@dataclass(frozen=True, slots=True)
class Settings:
    state_folder: Path
    runner: str
    """The name of the Runner object: a label of everything that the engine creates."""
    kubeconfig: Path | None = None
    contexts: tuple[str, ...] = ()
    """Contexts of the kubeconfig that templates may choose, besides its current context."""
    namespaces: tuple[str, ...] = ()
    """Namespaces that templates may choose, besides that of the context."""
    clone_image: str = ""
    """Has git and a shell. It clones repositories, unless a trusted template names another image for that."""
    protocols: frozenset[str] = frozenset({"https", "ssh"})
    """What repositories may be cloned over."""
    default_limits: Limits = DEFAULT_LIMITS
    deadlines: Deadlines = DEFAULT_DEADLINES
    folders: Folders = DEFAULT_FOLDERS
    poll_seconds: float = 0.3
    """How often objects are read while a task waits for them."""
    status_seconds: float = 1.0
    """How long an observation is used again."""
    call_seconds: float = 30.0
    """How long a task repeats a request that the cluster or the gateway could not answer."""


# --- options of the provider in a template ----------------------------------------------------------------------------

PERMISSIONS = frozenset({"privileged", "capAdd", "securityOpt", "mounts", "runArgs"})
"""What a template can allow a repository."""

_QUANTITY = re.compile(r"[1-9][0-9]*(\.[0-9]+)?([kMGTP]|[KMGTP]i)?")
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_CONTEXT = re.compile(r"[^\s/]([^\s]*[^\s/])?")
_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9./_-]*=[A-Za-z0-9._-]*")
_IMAGE = re.compile(r"[A-Za-z0-9][\w.\-/:]*(@sha256:[0-9a-f]{64})?")
_USER = re.compile(r"[1-9][0-9]{0,9}")


@dataclass(frozen=True, slots=True)
class Options:
    cluster: str = ""
    """A context of the runner's kubeconfig. Empty: its current context."""
    namespace: str = ""
    """Empty: the namespace of the context."""
    image: str = ""
    """For repositories without a devcontainer.json."""
    clone_image: str = ""
    """Has git and a shell. Empty: `image`."""
    image_pull_policy: str = ""
    image_pull_secret: str = ""
    storage: str = "10Gi"
    storage_class: str = ""
    access_mode: str = "ReadWriteOnce"
    ephemeral_storage: str = "10Gi"
    """Limit of what is written outside of the work folder."""
    user: int | None = None
    """The user id of all containers; None: that of the image."""
    runtime_class: str = ""
    node_selector: Mapping[str, str] = field(default_factory=dict)
    user_namespace: bool = False
    network_policy: bool = True


def _match(pattern: re.Pattern[str], expected: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if not pattern.fullmatch(text):
            raise ValueError(expected)
        return text

    return parse


def _choose(*values: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in values:
            raise ValueError(" or ".join(values))
        return text

    return parse


def _parse_boolean(text: str) -> bool:
    return _choose("true", "false")(text) == "true"


def _parse_user(text: str) -> int:
    if not _USER.fullmatch(text) or int(text) >= 2**31:
        raise ValueError("the number of a user other than root")
    return int(text)


def _parse_selector(text: str) -> dict[str, str]:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not all(_LABEL.fullmatch(part) for part in parts):
        raise ValueError("labels such as disk=ssd,zone=a")
    return dict(part.split("=", 1) for part in parts)


_OBJECT_NAME = _match(_NAME, "a name of an object")
_SIZE = _match(_QUANTITY, "a size such as 10Gi")
PARSERS: Mapping[str, Callable[[str], object]] = {
    "cluster": _match(_CONTEXT, "a context of the runner's kubeconfig"),
    "namespace": _OBJECT_NAME,
    "image": _match(_IMAGE, "the name of an image"),
    "cloneImage": _match(_IMAGE, "the name of an image"),
    "imagePullPolicy": _choose("Always", "IfNotPresent", "Never"),
    "imagePullSecret": _OBJECT_NAME,
    "storage": _SIZE,
    "storageClass": _OBJECT_NAME,
    "accessMode": _choose("ReadWriteOnce", "ReadWriteOncePod", "ReadWriteMany"),
    "ephemeralStorage": _SIZE,
    "user": _parse_user,
    "runtimeClass": _OBJECT_NAME,
    "nodeSelector": _parse_selector,
    "userNamespace": _parse_boolean,
    "networkPolicy": _parse_boolean,
}
"""By the name of the option in the template."""


def parse_options(options: Mapping[str, str]) -> Options:
    """Empty values count as omitted. Raises EngineError."""
    found: dict[str, object] = {}
    for name, text in options.items():
        if name not in PARSERS:
            known = ", ".join(PARSERS)
            raise invalid_configuration(f"the provider `kubernetes` has no option {name}; it has {known}")
        if text:
            try:
                found[_field_name(name)] = PARSERS[name](text)
            except ValueError as error:
                raise invalid_configuration(
                    f"the option {name} of the template's provider is {text!r}; it must be {error}"
                ) from None
    return Options(**found)  # type: ignore[arg-type]


def check_permissions(permissions: frozenset[str]) -> None:
    if unknown := permissions - PERMISSIONS:
        raise invalid_configuration(
            f"the template allows {', '.join(sorted(unknown))}, which this engine does not know; "
            f"known are {', '.join(sorted(PERMISSIONS))}"
        )


def is_image(text: str) -> bool:
    return _IMAGE.fullmatch(text) is not None


def _field_name(option: str) -> str:
    return re.sub(r"[A-Z]", lambda match: f"_{match[0].lower()}", option)


assert {_field_name(name) for name in PARSERS} == {each.name for each in fields(Options)}
