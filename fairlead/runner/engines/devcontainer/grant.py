"""What one workspace is granted: the bounds within which the policy and the shim let a repository choose.

The shim is a new process for every command of the CLI. This module and `command_lines.py`, `dockerfile.py` and
`images.py`, which it loads, import little, because their start counts several times in every `up`.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

UID_LABEL = "fairlead.workspace"
TASK_LABEL = "fairlead.task"
RUNNER_LABEL = "fairlead.runner"
RECOVERY_LABEL = "fairlead.recovery"
TEMPLATE_LABEL = "fairlead.template"
PRIVATE_FOLDER = "/run/fairlead"
IDS_PER_WORKSPACE = 65536

PERMISSIONS = frozenset(
    {
        "privileged",
        "capAdd",
        "securityOpt",
        "mounts",
        "runArgs",
        "gpu",
        "features",
        "entrypoints",
        "buildOptions",
        "buildMounts",
    }
)
"""What a template can allow. Everything else is either always allowed or never."""


@dataclass(frozen=True, slots=True)
class Grant:
    uid: str
    task_id: str
    runner: str
    template_hash: str
    podman: str
    podman_environment: Mapping[str, str]
    permissions: tuple[str, ...]
    environment: Mapping[str, str]
    folder: str
    """The folder of the workspace's state; `layout.py` says what is in it."""
    project: str
    """The folder below `staging` that the CLI works in, and that has its twin below `work`."""
    network: str
    first_uid: int
    memory_bytes: int
    cpus: float
    processes: int
    feature_sources: tuple[str, ...] = ()
    repository: str = ""
    """Where the sources come from, as a digest: workspaces with the same one share images. Empty: it shares none."""

    def allows(self, permission: str) -> bool:
        return permission in self.permissions

    @property
    def staging(self) -> str:
        return f"{self.folder}/staging"

    @property
    def work_folder(self) -> str:
        """The work folder as processes inside see it."""
        return f"/workspaces/{self.project}"

    @property
    def id_label(self) -> str:
        """The label by which the CLI finds the container again."""
        return f"{UID_LABEL}={self.uid}"

    @property
    def user_namespace(self) -> list[str]:
        return [f"--{kind}map=0:{self.first_uid}:{IDS_PER_WORKSPACE}" for kind in ("uid", "gid")]

    @property
    def labels(self) -> list[str]:
        values = {
            UID_LABEL: self.uid,
            TASK_LABEL: self.task_id,
            RUNNER_LABEL: self.runner,
            TEMPLATE_LABEL: self.template_hash,
            RECOVERY_LABEL: "",  # an image could bring it
        }
        return [f"--label={name}={value}" for name, value in values.items()]

    @property
    def limits(self) -> list[str]:
        """Memory without swap: a limit that swap extends is none."""
        return [
            f"--memory={self.memory_bytes}",
            f"--memory-swap={self.memory_bytes}",
            f"--cpus={self.cpus}",
            f"--pids-limit={self.processes}",
        ]

    @property
    def confinement(self) -> list[str]:
        """Options of every container of a workspace, also of the sandbox that clones."""
        return [
            *self.user_namespace,
            *self.limits,
            f"--network={self.network}",
            # Only for interfaces to come: the loopback interface keeps ::1, and eth0 gets no address that would
            # reach services of the host beside the firewall.
            "--sysctl=net.ipv6.conf.default.disable_ipv6=1",
            "--security-opt=no-new-privileges",
            "--cap-drop=NET_RAW,MKNOD,AUDIT_WRITE",
            "--log-opt=max-size=1mb",
        ]


def encode_grant(grant: Grant) -> bytes:
    return json.dumps(asdict(grant)).encode()


def load_grant(path: Path) -> Grant:
    fields = json.loads(path.read_bytes())
    fields["permissions"] = tuple(fields["permissions"])
    fields["feature_sources"] = tuple(fields["feature_sources"])
    return Grant(**fields)
