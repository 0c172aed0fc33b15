"""Runs the `sshd` of an image for one connection, inside the workspace and as the user of sessions.

It needs no root user inside, and no port: its input and output are the connection (`sshd -i`). Its files are written to
a folder in memory, never to homes. They come with the first bytes of its input, because command lines and environments
are visible to others.
"""

from collections.abc import Mapping, Sequence

from fairlead.runner.engines.contract import Engine, ExecOptions, Process, is_variable_name
from fairlead.runner.ssh.host_keys import HostKey
from fairlead.runner.ssh.inside import Inside

MAX_ENVIRONMENT_BYTES = 32 * 1024
OWN_VARIABLES = frozenset(
    {"HOME", "USER", "LOGNAME", "SHELL", "TERM", "PWD", "OLDPWD", "SHLVL", "_", "FAIRLEAD_SESSION"}
)
"""Variables that sshd sets itself, or that belong to the process that starts it."""

# dd reads byte by byte, so that nothing of the connection is taken. The shell stays: sshd overwrites its environment,
# by which the engine finds the processes of a session.
SCRIPT = r"""
set -u
umask 077
dir=
for base in /dev/shm /tmp; do
    if [ -d "$base" ] && [ -w "$base" ]; then dir=$base/.fairlead-ssh-$(id -u); break; fi
done
fail() { echo "fairlead: $1" >&2; exit 1; }
[ -n "$dir" ] || fail "SSH needs a /dev/shm or /tmp that can be written to"
is_own() { [ -d "$dir" ] && [ ! -L "$dir" ] && [ -O "$dir" ]; }
mkdir "$dir" 2>/dev/null || is_own || fail "$dir belongs to another user"
sshd=$1
for name in host_key authorities principals config; do
    shift
    dd bs=1 count="$1" 2>/dev/null >"$dir/$name.$$" && mv -f "$dir/$name.$$" "$dir/$name" || fail "cannot write to $dir"
done
pam=no
if [ "$(id -u)" = 0 ]; then
    mkdir -p /run/sshd && chmod 755 /run/sshd
    if grep -q '^root:!' /etc/shadow && [ -e /etc/pam.d/sshd ]; then pam=yes; fi
fi
"$sshd" -i -e -f "$dir/config" -o "HostKey=$dir/host_key" -o "TrustedUserCAKeys=$dir/authorities" \
    -o "AuthorizedPrincipalsFile=$dir/principals" -o "UsePAM=$pam"
exit $?
"""


def build_config(user: str, environment: Mapping[str, str]) -> str:
    """The configuration of sshd, without the paths of its files."""
    options = {
        "AllowUsers": user,
        "PermitRootLogin": "prohibit-password",
        "AuthenticationMethods": "publickey",
        "PasswordAuthentication": "no",
        "KbdInteractiveAuthentication": "no",
        "AuthorizedKeysFile": "none",
        "StrictModes": "no",  # it would reject /tmp; the script has checked the folder
        "AllowTcpForwarding": "yes",
        "AllowAgentForwarding": "yes",  # if the client asks for it
        "X11Forwarding": "no",
        "PermitTunnel": "no",
        "PermitUserEnvironment": "no",
        "PermitUserRC": "no",
        "AcceptEnv": "LANG LC_*",
        "ClientAliveInterval": "15",
        "ClientAliveCountMax": "3",
        "LoginGraceTime": "60",
        "MaxAuthTries": "6",
        "MaxSessions": "64",
        "PidFile": "none",
        "PrintLastLog": "no",
        "UseDNS": "no",
        "LogLevel": "ERROR",
        "Subsystem": "sftp internal-sftp",
        "SetEnv": " ".join(_quote_variables(environment)),
    }
    return "".join(f"{name} {value}\n" for name, value in options.items() if value)


def _quote_variables(environment: Mapping[str, str]) -> Sequence[str]:
    """Variables of the container. Older versions of sshd have no escapes, so values that need one are left out."""
    quoted: list[str] = []
    size = 0
    for name, value in environment.items():
        is_plain = value.isprintable() and not set('"\\') & set(value)
        if not is_variable_name(name) or name in OWN_VARIABLES or name.startswith("SSH_") or not is_plain:
            continue
        size += len(name) + len(value.encode())
        if size > MAX_ENVIRONMENT_BYTES:
            break
        quoted.append(f'"{name}={value}"')
    return quoted


async def start_sshd(
    engine: Engine, uid: str, inside: Inside, host_key: HostKey, authorities: Sequence[str]
) -> Process:
    """The process of a connection. Only certificates of these authorities for this uid are accepted."""
    files = (
        host_key.private,
        "".join(f"{each}\n" for each in authorities).encode(),
        f"{uid}\n".encode(),
        build_config(inside.user, inside.environment).encode(),
    )
    sizes = (str(len(each)) for each in files)
    process = await engine.exec(uid, ("/bin/sh", "-c", SCRIPT, "sh", inside.sshd, *sizes), ExecOptions())
    try:
        await process.stdin.write(b"".join(files))
    except BaseException:
        await process.kill()
        raise
    return process
