"""The shell scripts that run inside. They need a POSIX shell and the usual small tools, which BusyBox has, too.

Values get in through variables of the environment or as quoted words, never as parts of a script.
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fairlead.runner.engines.contract import EngineError, Reason, is_variable_name
from fairlead.runner.engines.kubernetes.settings import Folders

KEEP = """
end() {
    kill -TERM -1 2>/dev/null
    for second in 1 2 3 4 5 6 7 8; do
        set -- /proc/[0-9]*
        [ $# -gt 1 ] || exit 0
        sleep 1
    done
    exit 0
}
trap end TERM INT
while :; do
    sleep 2147483647 &
    wait $!
done
"""
"""The first process of a workspace: it sleeps, reaps processes without parents, and gives the others time to end."""

CLONE = """
set -eu
umask 022
work="$VOLUME/work" fetched="$VOLUME/fetched"
for each in "$work" "$fetched" "$fetched.new"; do
    if [ -L "$each" ]; then
        echo "$each on the claim is a link, which no part of Fairlead creates; delete the workspace" >&2
        exit 1
    fi
done
if [ -n "${RESET:-}" ] && [ "$(cat "$fetched" 2>/dev/null || :)" != "$TASK" ]; then
    rm -rf "$fetched" "$work"
fi
[ ! -e "$fetched" ] || exit 0
rm -rf "$work/$PROJECT"
mkdir -p "$work"
HOME=$(mktemp -d)
export HOME
if [ -n "${SSH_KEY:-}" ]; then
    (umask 077; printf '%s\\n' "$SSH_KEY" >"$HOME/key")
    printf '%s\\n' "${KNOWN_HOSTS:-}" >"$HOME/known_hosts"
    export GIT_SSH_COMMAND="ssh -F /dev/null -i $HOME/key -o BatchMode=yes -o StrictHostKeyChecking=yes \\
-o UserKnownHostsFile=$HOME/known_hosts"
fi
unset SSH_KEY
echo "Cloning $ORIGIN"
printf '[safe]\\n\\tdirectory = *\\n[core]\\n\\thooksPath = /dev/null\\n' >"$HOME/.gitconfig"
set -- -c http.followRedirects=false -c credential.helper='!f() {
    [ -z "${TOKEN:-}" ] || printf "username=%s\\npassword=%s\\n" "${GIT_USER:-git}" "$TOKEN"; }; f'
git "$@" clone --quiet --no-recurse-submodules $STRATEGY ${BRANCH:+--branch "$BRANCH"} -- "$URL" "$work/$PROJECT"
set -- -C "$work/$PROJECT" "$@"
if [ -n "${COMMIT:-}" ]; then
    git "$@" cat-file -e "$COMMIT^{commit}" 2>/dev/null || git "$@" fetch --quiet $STRATEGY origin "$COMMIT"
    git "$@" checkout --quiet --detach "$COMMIT" --
fi
# At the end: a checkout may fetch what a partial clone left out.
git "$@" remote set-url origin "$ORIGIN"
rm -rf "$HOME"
printf '%s' "$TASK" >"$fetched.new"
mv "$fetched.new" "$fetched"
"""
"""Fetches the source into the claim, once. A clone that was interrupted is begun again.

It has the credentials. So it follows no link that a workspace of an earlier version could have placed on the claim, and
never is in a folder of the repository: an image may look for programs in the current one."""

FOUND, MISSING, END = "found", "missing", "end"
PRINT_CONFIGURATION = f"""
set -eu
cd "$FOLDER"
cd "./$SUBFOLDER"
set -f
IFS='
'
for place in $PLACES; do
    if [ -f "$place" ]; then
        printf '{FOUND}\\n'
        head -c "$MAX_BYTES" "$place" | base64
        printf '{END}\\n'
        exit 0
    fi
done
printf '{MISSING}\\n{END}\\n'
"""
"""Prints the devcontainer.json. A link can lead to files of this container only, which has nothing to hide."""

IDENTIFY = """
set -eu
user=$(id -u) group=$(id -g)
if [ "$user" = 0 ] && [ -n "${SESSION_USER:-}" ] && id -u "$SESSION_USER" >/dev/null 2>&1; then
    user=$(id -u "$SESSION_USER") group=$(id -g "$SESSION_USER")
fi
printf '%s:%s' "$user" "$group" >"$PRIVATE/owner"
"""
"""Runs as the user of the image, and writes down who the owner of the files must be."""

OWN = """
set -eu
owner=$OWNER
[ ! -e "$PRIVATE/owner" ] || owner=$(cat "$PRIVATE/owner")
case "$owner" in *[!0-9:]*) exit 1 ;; esac
for folder in $OWNED; do
    [ "$(stat -c %u:%g "$folder")" = "$owner" ] || chown -R -h "$owner" "$folder"
done
"""
"""Gives the folders of the claim that the workspace mounts to their owner."""

ENTER = """
script= line=
while IFS= read -r line && [ "$line" != "$1" ]; do
    script="$script$line
"
done
eval "$script"
"""
"""Reads a script up to the line that is the argument, and runs it; what follows is the input of the script. So neither
commands nor values of variables are in the URL of the request, which servers log."""
ENTER_FILE = '. "$1"'
"""The same for terminals, where input would be echoed: the script is a file, which removes itself."""

WRITE_FILE = 'umask 077; printf "%s" "$TEXT" >"$FILE"'

DESCRIBE = """
user=$(id -u)
if [ "$user" = 0 ] && [ -n "$SESSION_USER" ] && id -u "$SESSION_USER" >/dev/null 2>&1; then
    name=$(id -un "$SESSION_USER")
else
    name=$(id -un 2>/dev/null || id -u)
fi
printf '%s %s\\n' "$user" "$name"
[ -w "$FOLDER" ] || [ "$user" = 0 ]
"""
"""Prints the number of the container's user and the name of the session's; fails if the work folder is read-only."""

KILL = """
exec 2>/dev/null
read -r root start <"$SESSIONS/$MARK" || exit 0
rm -f "$SESSIONS/$MARK"
read -r line <"/proc/$root/stat" || exit 0
set -- ${line##*) }
[ "${20}" = "$start" ] || exit 0
kill -STOP "$root"
tree=" $root " found=yes
while [ -n "$found" ]; do
    found=
    for stat in /proc/[0-9]*/stat; do
        read -r line <"$stat" || continue
        pid=${line%% *}
        set -- ${line##*) }
        case "$tree" in *" $pid "*) continue ;; esac
        case "$tree" in *" $2 "*) kill -STOP "$pid"; tree="$tree$pid " found=yes ;; esac
    done
done
kill -KILL $tree
"""
"""Ends the process of a session and all that descend from it. They are stopped first, so that none starts another one
that would be missed. The time of its start tells the process from a later one with the same number."""

KILL_STALE = f"""
for MARK in $(ls "$SESSIONS" 2>/dev/null); do
    case "$MARK" in *".$BOOT."*) continue ;; esac
    (
{KILL}
    )
done
"""
"""Ends the sessions that an earlier process of the runner left behind."""

SIGNAL = """
read -r root start <"$SESSIONS/$MARK" && kill -s "$SIGNAL" "$root"
"""
LIST_PORTS = """
exec 2>/dev/null
cat /proc/net/tcp /proc/net/tcp6
for file in /proc/[0-9]*/comm; do
    read -r name <"$file" && echo "process $file $name"
done
ls -l /proc/[0-9]*/fd
"""
"""Sockets, names of processes, and which process has which socket."""
LOGIN_SHELL = '"$(getent passwd "$(id -u)" 2>/dev/null | cut -d: -f7 | grep . || echo /bin/sh)" -l'


@dataclass(frozen=True, slots=True)
class SessionScript:
    """`user` is another one than that of the container, which is root then; its name is checked. `expressions` are
    values of variables that a shell evaluates inside. An empty command is a login shell."""

    mark: str
    command: Sequence[str]
    folder: str
    user: str = ""
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    expressions: Mapping[str, str] = field(default_factory=dict)


def build_session(session: SessionScript, folders: Folders) -> str:
    """The script that becomes the process of a session. Raises EngineError if a variable has an unsafe name."""
    sessions = f"{folders.private}/sessions"
    for name in (*session.expressions, *session.environment):
        if not is_variable_name(name):
            raise EngineError(Reason.NOT_RUNNING, f"{name[:64]!r} is not the name of a variable")
    exports = [f"export {name}={value}" for name, value in session.expressions.items()]
    exports += [f"export {name}={shlex.quote(value)}" for name, value in session.environment.items()]
    lines = [
        f"{{ for known in {sessions}/*; do",
        'read -r pid start <"$known" && [ -d "/proc/$pid" ] || rm -f "$known"',
        "done; } 2>/dev/null",
        f"mkdir -p -m 700 {sessions}",
        "read -r line </proc/$$/stat",
        "set -- ${line##*) }",
        f'echo "$$ ${{20}}" >{sessions}/{session.mark}',
        "unset script line known pid start",
        *_enter_user(session.user),
        *exports,
        f"cd {shlex.quote(session.folder)} 2>/dev/null || cd /",
        *_execute(session),
    ]
    return "\n".join(lines) + "\n"


def _enter_user(user: str) -> list[str]:
    """Variables that a login would set."""
    if not user:
        return []
    return [
        f"entry=$(grep '^{user}:' /etc/passwd)",
        "home=${entry%:*} SHELL=${entry##*:} group=$(id -g " + user + ")",
        f'export USER={user} LOGNAME={user} HOME="${{home##*:}}" SHELL="${{SHELL:-/bin/sh}}"',
    ]


def _execute(session: SessionScript) -> list[str]:
    """Another user is entered with Linux's own tool if possible: `su` may need PAM, and PAM a capability that
    workspaces do not have."""
    user, words = session.user, shlex.join(session.command)
    if not user:
        return [f"exec {words or LOGIN_SHELL}"]
    words = words or '"$SHELL" -l'
    setpriv = f'setpriv --reuid {user} --regid "$group" --init-groups'
    return [
        f"if {setpriv} true 2>/dev/null; then",
        f"exec {setpriv} {words}",
        "fi",
        f"exec su -s /bin/sh {user} -c {shlex.quote(f'exec {words}')}",
    ]


def build_header(script: str, mark: str) -> bytes:
    """What `ENTER` reads."""
    return f"{script}\n{mark}\n".encode(errors="surrogateescape")


def with_variables(script: str, variables: Mapping[str, str]) -> str:
    """A script that is not a session, with variables of its own."""
    return "".join(f"{name}={shlex.quote(value)}\n" for name, value in variables.items()) + script
