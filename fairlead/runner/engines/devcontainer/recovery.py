"""The container of a workspace whose image cannot be built: the sources, and a shell with the programs of the machine.

Its root file system is new each time, and nothing else uses it.
"""

from fairlead.runner.engines.devcontainer.grant import RECOVERY_LABEL, Grant
from fairlead.runner.engines.devcontainer.isolation.holder import Holder
from fairlead.runner.engines.devcontainer.programs import Result

MACHINE_FOLDERS = ("/usr", "/etc/ssl/certs", "/etc/alternatives")
BUILD_ROOT = """
set -e
podman rm --all --force --time=0 >/dev/null
rm -rf /ws/recovery
mkdir -p /ws/recovery && cd /ws/recovery
mkdir -p proc sys dev tmp var/tmp root home run/fairlead usr etc/ssl/certs etc/alternatives "./$1"
chmod 1777 tmp var/tmp
for link in /bin /sbin /lib /lib32 /lib64 /libx32; do if [ -L $link ]; then cp -P $link .; fi; done
cp /etc/passwd /etc/group etc/
touch etc/resolv.conf etc/hosts etc/hostname
sed -i 's,^root:.*,root:x:0:0:root:/root:/bin/bash,' etc/passwd
"""
KEEP_RUNNING = "trap 'exit 0' TERM; while :; do sleep 3600 & wait $!; done"


async def start_recovery(holder: Holder, grant: Grant) -> Result:
    built = await holder.run("/bin/sh", "-c", BUILD_ROOT, "build", grant.work_folder)
    if built.code != 0:
        return built
    return await holder.run(
        grant.podman,
        "run",
        "--detach",
        "--replace",
        *grant.confinement,
        *grant.labels,
        f"--label={RECOVERY_LABEL}=true",
        *(f"--volume={each}:{each}:ro" for each in MACHINE_FOLDERS),
        f"--volume={grant.work_folder}:{grant.work_folder}",
        "--rootfs",
        "/ws/recovery",
        "/bin/sh",
        "-c",
        KEEP_RUNNING,
    )
