"""Draws docs/first-session.svg: what the first commands of the README print, on a server that this script starts.

Run it after a change of what `fairlead up` prints: `.venv/bin/python scripts/draw_first_session.py`. It needs kubectl
on the PATH, and port 8443.
"""

import os
import re
import subprocess
import sys
import tempfile
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs" / "first-session.svg"
COMMANDS = (
    "kubectl apply -f examples/app.yaml",
    "kubectl get apps",
    "kubectl apply -f examples/project.yaml",
    "kubectl get projects,namespaces",
)
LAST_LINE = "Ctrl-C stops the server."
PICTURE_ID = "first-session"
"""Fixed, so that the picture changes only where its text does."""


def main() -> None:
    console = Console(record=True, width=120, file=StringIO(), highlight=False, markup=False)
    with tempfile.TemporaryDirectory() as home:
        environment = os.environ | {"HOME": home, "XDG_DATA_HOME": ""}
        environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
        environment["KUBECONFIG"] = f"{home}/.local/share/fairlead/admin.kubeconfig"
        server = subprocess.Popen(
            [sys.executable, "-m", "fairlead", "up"], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
        )
        try:
            draw_command(console, "make up")
            for line in server.stdout or ():
                console.print(hide_machine(line.rstrip(), home))
                if line.startswith(LAST_LINE):
                    break
            console.print(Text("\n# in another terminal", "dim"))
            for command in COMMANDS:
                draw_command(console, command)
                shown = subprocess.run(
                    command.split(), cwd=ROOT, env=environment, capture_output=True, text=True, check=True
                ).stdout
                console.print(hide_machine(shown.rstrip(), home))
        finally:
            server.terminate()
            server.wait()
    # Without fonts from another server, which would see who looks at the page.
    picture = re.sub(
        r"<!--.*?-->|@font-face \{.*?\}", "", console.export_svg(title="fairlead", unique_id=PICTURE_ID), flags=re.S
    )
    PICTURE.write_text(re.sub(r"[ \t]+$", "", picture, flags=re.M))


def draw_command(console: Console, command: str) -> None:
    console.print(Text.assemble(("$ ", "bold green"), (command, "bold")))


def hide_machine(text: str, home: str) -> str:
    """The text without the access key, and without the folders of this machine."""
    text = re.sub(r"fairlead_\S+", f"fairlead_{'•' * 12}", text)
    return text.replace(home, "~").replace(str(ROOT), "~/fairlead")


if __name__ == "__main__":
    main()
