"""What one workspace is granted: the bounds within which the policy and the shim let a repository choose."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from fairlead.runner.engines.devcontainer.inside import run_options

UID_LABEL = run_options.UID_LABEL
TASK_LABEL = "fairlead.task"
RUNNER_LABEL = "fairlead.runner"
RECOVERY_LABEL = "fairlead.recovery"
TEMPLATE_LABEL = "fairlead.template"
PRIVATE_FOLDER = "/run/fairlead"
IDS_PER_WORKSPACE = 65536
BOX = "box"
"""The control group with the limits of the workspace, as the holder sees it."""
CONTAINER = "workspace"
"""The name of the container in the store of its workspace, which has no other."""

CONFINEMENT = (
    "--network=host",
    f"--cgroup-parent=/{BOX}",
    "--security-opt=no-new-privileges",
    "--cap-drop=NET_RAW,MKNOD,AUDIT_WRITE",
    "--log-opt=max-size=1mb",
)
"""Options of every container in a holder, also of services of Compose files, which get neither secrets nor variables of
the template."""

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
    }
)
"""What a template can allow. Everything else is either always allowed or never."""
FORMER_PERMISSIONS = frozenset({"buildMounts"})
"""What templates could allow before, and needs no permission any more."""


@dataclass(frozen=True, slots=True)
class Grant:
    uid: str
    task_id: str
    runner: str
    template_hash: str
    podman: str
    permissions: tuple[str, ...]
    environment: Mapping[str, str]
    project: str
    """The last part of the path of the work folder."""
    first_uid: int
    memory_bytes: int
    cpus: float
    processes: int
    disk_bytes: int = 0
    """The size of its disk; 0 if it has no limit."""
    feature_sources: tuple[str, ...] = ()
    feature_pins: Mapping[str, str] = field(default_factory=dict)
    """The digest of each feature that the operator has pinned, by its name without a version."""
    pulls_always: bool = False
    """Whether images are pulled again that are there."""
    keeps_home: bool = False
    """The home folder of the user is in a volume."""
    repository: str = ""
    """Where the sources come from, as a digest: workspaces with the same one share images. Empty: it shares none."""

    def allows(self, permission: str) -> bool:
        return permission in self.permissions

    @property
    def work_folder(self) -> str:
        """The work folder, in the holder and in the container."""
        return f"/workspaces/{self.project}"

    @property
    def id_label(self) -> str:
        """The label by which the CLI finds the container again."""
        return f"{UID_LABEL}={self.uid}"

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
    def confinement(self) -> list[str]:
        """Options of the container of a workspace. Its limits and its network are those of the holder."""
        return [*CONFINEMENT, f"--name={CONTAINER}", f"--volume=/private:{PRIVATE_FOLDER}:ro,nosuid,nodev"]

    def describe_to_shim(self) -> str:
        return json.dumps(
            {
                "podman": self.podman,
                "permissions": self.permissions,
                "work_folder": self.work_folder,
                "is_shared": bool(self.repository),
                "keeps_home": self.keeps_home,
                # A group of its own, because the runtime removes the one in which a step of a build has run.
                "build": ["--network=host", f"--cgroup-parent=/{BOX}/build", "--force-rm"],
                "service": CONFINEMENT,
                "run": [
                    *self.confinement,
                    *self.labels,
                    "--cidfile=/ws/container.id",
                    *(f"--env={name}={value}" for name, value in self.environment.items()),
                ],
            }
        )
