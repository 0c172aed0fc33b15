"""The systemd units of the server and of the agent. `deploy/systemd` has them with their defaults.

Both run as a user that exists only while they run (DynamicUser=), see nothing of the machine but what they need, and
get their secrets as credentials: files that no other process can read, and not in the environment.
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

UNIT_FOLDER = Path("etc/systemd/system")
CONFIG_FILE = Path("etc/fairlead/fairlead.yaml")

HARDENING = """\
DynamicUser=yes
UMask=0077
CapabilityBoundingSet=
AmbientCapabilities=
NoNewPrivileges=yes
ProtectSystem=strict
ProtectHome=yes
PrivateTmp=yes
PrivateDevices=yes
PrivateUsers=yes
PrivateIPC=yes
ProtectProc=invisible
ProtectClock=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectControlGroups=yes
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
RemoveIPC=yes
LockPersonality=yes
MemoryDenyWriteExecute=yes
KeyringMode=private
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallFilter=~@privileged
SystemCallErrorNumber=EPERM
"""


@dataclass(frozen=True, slots=True)
class Unit:
    """A service. `command` is what follows the path of fairlead; `%d`, `%S` and `%E` in it are systemd's specifiers."""

    name: str
    description: str
    command: Sequence[str]
    executable: Path
    credentials: Mapping[str, Path] = field(default_factory=dict)
    """Files with secrets, by the names of the credentials."""

    @property
    def path(self) -> Path:
        """Relative to the root of the file system."""
        return UNIT_FOLDER / f"{self.name}.service"

    def render(self) -> str:
        command = " ".join([quote_argument(str(self.executable)), *self.command])
        credentials = "".join(
            f"LoadCredential={name}:{str(path).replace('%', '%%')}\n" for name, path in self.credentials.items()
        )
        return f"""\
# Written by fairlead install; `fairlead uninstall` removes it. For changes, use `systemctl edit {self.name}`.
[Unit]
Description={self.description}
After=network-online.target
Wants=network-online.target

[Service]
Type=notify
ExecStart={command}
Restart=always
RestartSec=2
# A large store takes its time to be read, and requests in flight their time to finish.
TimeoutStartSec=600
TimeoutStopSec=90
StateDirectory={self.name}
StateDirectoryMode=0700
{credentials}LimitNOFILE=65536
{HARDENING}
[Install]
WantedBy=multi-user.target
"""


def build_server_unit(executable: Path, credentials: Mapping[str, Path]) -> Unit:
    """The credentials are named like settings: `store`, `pepper`, `encryption_keys`, `etcd_password`."""
    command = ("serve", "--config", "%E/fairlead/fairlead.yaml", "--data", "%S/fairlead")
    named = {f"fairlead.{name}": path for name, path in credentials.items()}
    return Unit("fairlead", "Fairlead server", command, executable, named)


@dataclass(frozen=True, slots=True)
class AgentUnitOptions:
    cluster: str
    server: str
    key_file: Path
    kubeconfig: Path
    ca_file: Path | None = None
    listen: str = "127.0.0.1"


def build_agent_unit(executable: Path, options: AgentUnitOptions) -> Unit:
    credentials = {"key": options.key_file, "kubeconfig": options.kubeconfig}
    command = [
        *("agent", "--cluster", quote_argument(options.cluster), "--server", quote_argument(options.server)),
        *("--key-file", "%d/key", "--kubeconfig", "%d/kubeconfig"),
        *("--listen", quote_argument(options.listen), "--state", "%S/fairlead-agent"),
    ]
    if options.ca_file is not None:
        credentials["ca"] = options.ca_file
        command += ["--ca-file", "%d/ca"]
    return Unit("fairlead-agent", "Fairlead agent: the direct endpoint of a cluster", command, executable, credentials)


def quote_argument(argument: str) -> str:
    """systemd expands `%` and `$` in commands."""
    return shlex.quote(argument).replace("%", "%%").replace("$", "$$")
