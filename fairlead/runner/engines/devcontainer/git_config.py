"""The configuration of git in a workspace: as whom its owner commits, and where credentials come from. Pure.

It takes the place of the configuration of the system, which it includes: what the user or the repository sets takes
precedence. It is a file in the private folder, without anything secret, and `GIT_CONFIG_SYSTEM` names it (git 2.32).
"""

from fairlead.runner.engines.contract import GIT_SOCKET, WorkspaceSpec
from fairlead.runner.engines.devcontainer.grant import PRIVATE_FOLDER

VARIABLE = "GIT_CONFIG_SYSTEM"
PATH = f"{PRIVATE_FOLDER}/git/config"
SYSTEM = "/etc/gitconfig"
HELPER = f'!f() {{ test "$1" != get || git credential-cache --socket={PRIVATE_FOLDER}/sockets/{GIT_SOCKET} get; }}; f'
"""Of all that git has for helpers, it passes on requests alone: nothing is to be stored, and without a listener,
`git credential-cache` would start one of its own for that."""


def build_git_config(spec: WorkspaceSpec) -> str:
    lines = ["[include]", f"\tpath = {SYSTEM}"]
    if spec.commit_name and spec.commit_email:
        lines += ["[user]", f"\tname = {_quote(spec.commit_name)}", f"\temail = {_quote(spec.commit_email)}"]
    lines += ["[credential]", f"\thelper = {_quote(HELPER)}"]
    for host in spec.git_path_hosts:
        lines += [f'[credential "{_escape("https://" + host)}"]', "\tuseHttpPath = true"]
    return "\n".join(lines) + "\n"


def _quote(value: str) -> str:
    return f'"{_escape(value)}"'


def _escape(value: str) -> str:
    """Without characters that could begin another line."""
    printable = "".join(each for each in value if each.isprintable())
    return printable.replace("\\", "\\\\").replace('"', '\\"')
