"""Addresses that open a workspace in an editor, over SSH."""

from enum import StrEnum
from urllib.parse import quote, urlencode


class Editor(StrEnum):
    VSCODE = "vscode"
    VSCODE_INSIDERS = "vscode-insiders"
    CURSOR = "cursor"
    WINDSURF = "windsurf"
    JETBRAINS = "jetbrains"
    SSH = "ssh"


def build_address(editor: Editor, host: str, folder: str, user: str) -> str:
    """The URL for an editor, or the command line for a terminal. `host` is the one in the SSH configuration."""
    if editor is Editor.SSH:
        return f"ssh {host}"
    if editor is Editor.JETBRAINS:
        fields = {"type": "ssh", "host": host, "port": "22", "user": user, "projectPath": folder, "deploy": "true"}
        return f"jetbrains-gateway://connect#{urlencode({name: each for name, each in fields.items() if each})}"
    return f"{editor.value}://vscode-remote/ssh-remote+{host}{quote(folder)}"


def ssh_host(name: str, project: str) -> str:
    """The host of a workspace in the SSH configuration."""
    return f"{name}.{project}.fairlead"
