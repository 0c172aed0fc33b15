"""The holders of one workspace: the one that its container lives in, and those that fetch and delete its files."""

import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fairlead.runner.engines.contract import EngineError, Reason
from fairlead.runner.engines.devcontainer.grant import Grant
from fairlead.runner.engines.devcontainer.isolation.cgroups import is_unified, renew_cgroups
from fairlead.runner.engines.devcontainer.isolation.holder import (
    INSIDE_TARGET,
    PYTHON,
    Bind,
    Holder,
    HolderPlan,
    ImageStore,
    is_outside_usr,
    start_holder,
)
from fairlead.runner.engines.devcontainer.isolation.network import find_name_servers
from fairlead.runner.engines.devcontainer.layout import SHARED_IMAGES, WorkspaceFolder
from fairlead.runner.engines.devcontainer.programs import PATH, Result
from fairlead.runner.engines.devcontainer.settings import Settings
from fairlead.runner.engines.devcontainer.snapshot_list import read_snapshots

SHIM = "/opt/fairlead/podman"
CLI_TARGET = "/opt/cli"
DEFAULT_CONFIGURATION = "/etc/fairlead/devcontainer.json"
MIRRORS = "/etc/containers/registries.conf.d/zz-fairlead-mirrors.conf"
CONTROL_MANIFEST = "/var/tmp/devcontainercli-root/control-manifest.json"
SHIM_SCRIPT = """#!{python} -IS
import sys
sys.path.insert(0, {folder!r})
from inside.shim import main
sys.exit(main(sys.argv[1:]))
"""
FILES = {
    "/etc/passwd": "root:x:0:0:root:/ws/home:/bin/sh\nnobody:x:65534:65534::/:/usr/sbin/nologin\n",
    "/etc/group": "root:x:0:\ntty:x:5:\nnogroup:x:65534:\n",
    "/etc/hosts": "127.0.0.1 localhost\n::1 localhost\n",
    "/etc/containers/policy.json": '{"default": [{"type": "insecureAcceptAnything"}]}\n',
}
CONTAINERS_CONF = """[containers]
log_driver = "k8s-file"
netns = "host"
[engine]
runtime = "{runtime}"
cgroup_manager = "cgroupfs"
events_logger = "file"
image_copy_tmp_dir = "/var/tmp"
"""
STORAGE_CONF = """[storage]
driver = "overlay"
graphroot = "/ws/store"
runroot = "/run/containers"
[storage.options]
additionalimagestores = {stores}
"""
SNAPSHOTS = "/ws/snapshots"
"""The folder with snapshots of containers (`snapshots.py`)."""
PRUNE_SNAPSHOTS = f"""
for archive in {SNAPSHOTS}/*; do
    name=${{archive##*/}}
    case " $* " in *" ${{name%.tar}} "*) ;; *) rm -f "$archive" ;; esac
done
"""
"""The arguments are the snapshots that are kept. Those that are too old, or were cut off, are not among them."""
PREPARE = f"""
if touch /ws/probe; then
    mkdir -p /ws/reserve && seq -f /ws/reserve/%g 64 | xargs touch
else
    rm -rf /ws/reserve
fi
{PRUNE_SNAPSHOTS}
mkdir -p /ws/home /var/tmp/devcontainercli-root /var/cache /var/lib /run/user
rm -f /ws/refused /ws/probe
printf '{{"disallowedFeatures":[],"featureAdvisories":[]}}' >{CONTROL_MANIFEST}
touch -d 2100-01-01 {CONTROL_MANIFEST}
"""
"""The files in reserve make room on a disk that has as many files as it can have: podman needs some to start the
container, and for the session in which a user deletes others.

The last lines keep the CLI from asking a server of its authors, at each start, which features it should warn of:
where that cannot be reached, each start would take ten seconds longer."""
LIMIT_ERRORS = """
{ { "$@" 3>&-; echo $? >/tmp/code; } 2>&1 >&3 | tail -c 65536 >&2; } 3>&1
read -r code </tmp/code && exit "$code"
exit 1
"""
"""Passes on the last of the messages of a command, and its exit code. Servers of repositories send messages, too, which
may have no end."""
BLOCKING_OUTPUT = "/etc/fairlead/blocking-output.js"
BLOCKING_SCRIPT = """
for (const stream of [process.stdout, process.stderr]) {
    if (stream._handle && stream._handle.setBlocking) stream._handle.setBlocking(true);
}
"""
"""For the dev container CLI. Node.js writes to pipes in the background, and forgets what is not written when it ends:
without this, the end of long output is lost, and what waits for a reader is in memory."""
PRIVILEGED_NETWORKS = 32
"""Which a template with the permission `privileged` can make, for containers in the container."""
OWN_IMAGES, OWN_IMAGES_WORK = "images", "images-var"
"""Folders of the workspace's disk, for images that were pulled with credentials."""
GPU_DEVICES = ("nvidia0", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset")
GPU_FOLDERS = ("/etc/cdi", "/run/cdi")


@dataclass(frozen=True, slots=True)
class HolderFactory:
    """Plans the holders of a workspace."""

    settings: Settings
    folder: WorkspaceFolder
    grant: Grant
    network: str
    """The file of its network namespace."""
    pulled: Sequence[ImageStore] = ()

    async def start(self, configuration: str, binds: Sequence[Bind] = ()) -> Holder:
        """The holder for the container. `configuration` is a devcontainer.json from outside of the repository."""
        files = {
            **describe_podman(self.settings, self._image_stores()),
            "/etc/fairlead/shim.json": self.grant.describe_to_shim(),
            DEFAULT_CONFIGURATION: configuration,
            BLOCKING_OUTPUT: BLOCKING_SCRIPT,
            SHIM: SHIM_SCRIPT.format(python=PYTHON, folder=os.path.dirname(INSIDE_TARGET)),
        }
        binds = [
            *binds,
            self.bind_work_folder(self.grant.work_folder),
            bind_own(self.folder, "ws", "/ws"),
            bind_own(self.folder, "var", "/var"),
            bind_own(self.folder, "private", "/private"),
            *bind_cli(self.settings.cli),
            *(Bind(each, each) for each in self._gpu_folders()),
        ]
        if cache := self._cache_folder():
            binds.append(Bind(str(cache), "/cache"))
        holder = await start_holder(await self._plan(binds, files, self._image_stores(), self._gpu_devices()))
        snapshots = [each.id for each in read_snapshots(self.folder)]
        await holder.expect("/bin/sh", "-c", PREPARE, "prepare", *snapshots)
        return holder

    def bind_work_folder(self, target: str) -> Bind:
        return replace(bind_own(self.folder, f"work/{self.grant.project}", target), mode=0o755)

    async def run_alone(self, command: Sequence[str], binds: Sequence[Bind], stdin: bytes = b"") -> Result:
        """Runs a program to its end in a holder that has only these folders, and ends with it."""
        files = {**FILES, "/etc/resolv.conf": describe_resolver(self.settings)}
        holder = await start_holder(await self._plan(binds, files))
        try:
            return await holder.run("/bin/sh", "-c", LIMIT_ERRORS, "sh", *command, stdin=stdin)
        finally:
            await holder.kill()

    async def pull_alone(self, command: Sequence[str], stdin: bytes) -> Result:
        """Runs podman in a holder that has nothing of the workspace but the store of images that were pulled for it
        alone, to which no other holder writes."""
        files = describe_podman(self.settings, ())
        binds = (bind_own(self.folder, OWN_IMAGES, "/ws"), bind_own(self.folder, OWN_IMAGES_WORK, "/var"))
        holder = await start_holder(await self._plan(binds, files))
        try:
            await holder.expect("/bin/mkdir", "-p", "/ws/home", "/var/tmp", "/var/cache", "/var/lib", "/run/user")
            return await holder.run(*command, stdin=stdin)
        finally:
            await holder.kill()

    async def _plan(
        self,
        binds: Sequence[Bind],
        files: dict[str, str],
        image_stores: Sequence[ImageStore] = (),
        devices: Sequence[str] = (),
    ) -> HolderPlan:
        return HolderPlan(
            first_uid=self.grant.first_uid,
            network=self.network,
            cgroups=await renew_cgroups(self.folder, self.grant),
            root=str(self.folder.mount_point),
            hostname=self.grant.project[:63],
            binds=binds,
            files=files,
            image_stores=image_stores,
            devices=devices,
            disk_limits=self.settings.disk_limits,
            max_networks=PRIVILEGED_NETWORKS if self.grant.allows("privileged") else 0,
        )

    def _image_stores(self) -> list[ImageStore]:
        own = [ImageStore(str(path), f"/images/{number}", 0) for number, path in enumerate(self.settings.image_stores)]
        return [*own, *self.pulled]

    def _cache_folder(self) -> Path | None:
        if not self.grant.repository:
            return None
        folder = self.settings.state_folder / SHARED_IMAGES / self.grant.repository
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        return folder

    def _gpu_devices(self) -> list[str]:
        names = [f"/dev/{each}" for each in GPU_DEVICES] if self.grant.allows("gpu") else []
        return [name for name in names if os.path.exists(name)]

    def _gpu_folders(self) -> list[str]:
        return [each for each in GPU_FOLDERS if self.grant.allows("gpu") and os.path.isdir(each)]


def bind_own(folder: WorkspaceFolder, path: str, target: str) -> Bind:
    """A folder of the workspace, which it writes to: on its disk, if it has one."""
    if folder.disk.exists():
        return Bind(path, target, read_only=False, disk=str(folder.disk))
    return Bind(str(folder.root / path), target, read_only=False)


def describe_podman(settings: Settings, stores: Sequence[ImageStore]) -> dict[str, str]:
    """The files that podman needs in a holder."""
    return {
        **FILES,
        "/etc/resolv.conf": describe_resolver(settings),
        **_describe_registries(settings),
        MIRRORS: describe_mirrors(settings),
        "/etc/containers/containers.conf": CONTAINERS_CONF.format(runtime=choose_runtime()),
        "/etc/containers/storage.conf": STORAGE_CONF.format(stores=json.dumps([each.target for each in stores])),
    }


def describe_resolver(settings: Settings) -> str:
    return "".join(f"nameserver {each}\n" for each in find_name_servers(settings))


def resolve_cli(cli: Sequence[str]) -> list[str]:
    """The command of the dev container CLI, with the paths that its parts have in the holder."""
    targets = {each.source: each.target for each in bind_cli(cli)}
    parts = [os.path.split(each) for each in _find_cli(cli)]
    return [os.path.join(targets.get(folder, folder), name) for folder, name in parts]


def bind_cli(cli: Sequence[str]) -> list[Bind]:
    """The folders of its parts that are not below /usr. Their own paths may be below folders that the workspace has of
    its own, or private ones."""
    folders = dict.fromkeys(os.path.dirname(each) for each in _find_cli(cli))
    return [Bind(each, f"{CLI_TARGET}/{number}") for number, each in enumerate(filter(is_outside_usr, folders))]


def _find_cli(cli: Sequence[str]) -> list[str]:
    """The paths that its parts really have: links may not be visible in the holder."""
    found = [shutil.which(each, path=PATH) or each for each in cli]
    missing = next((each for each in found if not os.path.exists(each)), "")
    if missing:
        raise EngineError(Reason.ENGINE_UNAVAILABLE, f"there is no {missing}; install the dev container CLI")
    return [os.path.realpath(each) for each in found]


def choose_runtime() -> str:
    """crun is the better one where it works: it refuses machines with both versions of cgroups."""
    names = ("crun", "runc") if is_unified() else ("runc", "crun")
    return next((each for each in names if shutil.which(each, path=PATH)), names[0])


def describe_mirrors(settings: Settings) -> str:
    """A file that podman reads after those of the machine."""
    entries = []
    for registry, mirror in settings.registry_mirrors:
        scheme, has_scheme, rest = mirror.partition("://")
        is_insecure = bool(has_scheme) and scheme == "http"
        entries += [
            f"[[registry]]\nprefix = {json.dumps(registry)}\nlocation = {json.dumps(registry)}",
            f"[[registry.mirror]]\nlocation = {json.dumps(rest if has_scheme else mirror)}",
            f"insecure = {json.dumps(is_insecure)}\n",
        ]
    return "\n".join(entries)


def _describe_registries(settings: Settings) -> dict[str, str]:
    """What podman on this machine reads: the list, and its further files in the order of their names."""
    further = sorted(settings.registries_folder.glob("*.conf"))
    files = {f"/etc/containers/registries.conf.d/{each.name}": _read_registries(each) for each in further}
    return {"/etc/containers/registries.conf": _read_registries(settings.registries), **files}


def _read_registries(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
