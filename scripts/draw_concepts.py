"""Draws the pictures of docs/concepts: `python scripts/draw_concepts.py`.

Each has a background of its own, so it can be read on a light and on a dark page, and follows the theme of the system.
"""

import html
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "concepts"
STYLE = """
text { font: 13px system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; fill: #1f2933; }
.page { fill: #fbfcfe; }
.box { fill: #ffffff; stroke: #5b6b82; stroke-width: 1.2; }
.group { fill: #eef3fa; stroke: #a9b7ca; stroke-width: 1.2; }
.accent { fill: #e3ecff; stroke: #2f5fc4; stroke-width: 1.4; }
.title { font-weight: 600; }
.note { font-size: 12px; fill: #52606d; }
.line { stroke: #46566b; stroke-width: 1.5; fill: none; marker-end: url(#tip); }
.tip { fill: #46566b; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6ebf2; }
  .page { fill: #171c24; }
  .box { fill: #212936; stroke: #8593a8; }
  .group { fill: #1c2430; stroke: #4a586c; }
  .accent { fill: #22345c; stroke: #7aa2ff; }
  .note { fill: #aab6c6; }
  .line { stroke: #a3b1c6; }
  .tip { fill: #a3b1c6; }
}
"""
TITLE_WIDTH, TEXT_WIDTH = 7.4, 6.6
"""Pixels that a character takes on average, rounded up."""


@dataclass(slots=True)
class Drawing:
    """A picture of boxes and arrows. `title` is what screen readers say."""

    title: str
    width: int
    height: int
    parts: list[str] = field(default_factory=list)

    def box(self, area: tuple[int, int, int, int], title: str, *lines: str, style: str = "box") -> None:
        """A box with a title and lines of text. The text of a group is at its top, that of others in the middle."""
        x, y, width, height = area
        for text, size in ((title, TITLE_WIDTH), *((line, TEXT_WIDTH) for line in lines)):
            if len(text) * size > width - 12:
                raise SystemExit(f"{self.title}: {text!r} is too long for its box")
        self.parts.append(f'<rect class="{style}" x="{x}" y="{y}" width="{width}" height="{height}" rx="7"/>')
        block = 18 * (1 + len(lines))
        top = y + 20 if style == "group" else y + (height - block) // 2 + 14
        for number, text in enumerate((title, *lines)):
            kind = "title" if number == 0 else "note"
            self._text(x + width // 2, top + 18 * number, text, kind, "middle")

    def arrow(self, *points: tuple[int, int]) -> None:
        path = " ".join(f"{'L' if number else 'M'}{x} {y}" for number, (x, y) in enumerate(points))
        self.parts.append(f'<path class="line" d="{path}"/>')

    def note(self, x: int, y: int, text: str, anchor: str = "start") -> None:
        self._text(x, y, text, "note", anchor)

    def _text(self, x: int, y: int, text: str, kind: str, anchor: str) -> None:
        self.parts.append(f'<text class="{kind}" x="{x}" y="{y}" text-anchor="{anchor}">{html.escape(text)}</text>')

    def render(self) -> str:
        head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" role="img">'
        tip = '<marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        return "\n".join(
            (
                head,
                f"<title>{html.escape(self.title)}</title>",
                f"<style>{STYLE}</style>",
                f'<defs>{tip}<path class="tip" d="M0 0L8 4L0 8z"/></marker></defs>',
                f'<rect class="page" width="{self.width}" height="{self.height}" rx="10"/>',
                *self.parts,
                "</svg>\n",
            )
        )


def draw_architecture() -> Drawing:
    drawing = Drawing("The parts of Fairlead and what connects to it", 900, 520)
    clients = ("kubectl, API clients", "fairlead", "web console", "Argo CD, Flux, CI")
    for number, name in enumerate(clients):
        drawing.box((30 + 215 * number, 24, 195, 40), name)
        drawing.arrow((127 + 215 * number, 64), (127 + 215 * number, 110))
    drawing.note(450, 94, "HTTPS, with an access key", "middle")
    drawing.box((30, 112, 840, 180), "Fairlead: one process, or several replicas on one store", style="group")
    drawing.box(
        (50, 146, 185, 126),
        "API server",
        "authentication",
        "flow control",
        "authorization",
        "audit log",
        style="accent",
    )
    drawing.box((255, 146, 185, 126), "Registry", "kinds and schemas", "validation, admission", "reads from memory")
    drawing.box((460, 146, 185, 126), "Controllers", "projects, clusters", "spaces, apps", "workspaces, keys")
    drawing.box((665, 146, 185, 126), "Gateways and links", "to clusters, as the user", "to runners")
    drawing.arrow((235, 209), (253, 209))
    drawing.arrow((460, 209), (442, 209))
    drawing.arrow((347, 272), (347, 338))
    drawing.box((240, 340, 215, 66), "Store", "SQLite, PostgreSQL or etcd", "credentials encrypted")
    drawing.box((30, 340, 190, 66), "Data folder", "keys, certificates", "audit log")
    drawing.arrow((127, 272), (127, 338))
    drawing.arrow((712, 272), (590, 338))
    drawing.arrow((795, 380), (795, 274))
    drawing.box(
        (480, 340, 220, 150),
        "Connected clusters",
        "spaces: namespaces",
        "virtual clusters",
        "apps: Helm charts",
        style="group",
    )
    drawing.box((496, 432, 188, 44), "agent (optional)", "direct endpoint")
    drawing.box((720, 382, 150, 108), "Runners", "open the connection;", "workspaces:", "dev containers")
    return drawing


def draw_permissions() -> Drawing:
    steps = (
        ("Scope of the access key", "denies what is outside of the scope"),
        ("Gateway", "allows users who may use the target, denies others"),
        ("Administrators", "allows system:masters and service:admins everything"),
        ("RBAC", "allows what bound Roles and ClusterRoles allow"),
        ("Project member", "allows what the role in the project allows"),
        ("The user itself", "allows the own profile, keys and tokens"),
        ("Runner, agent", "allows each its own objects"),
        ("Owner and access entries", "allows what the object itself grants"),
    )
    drawing = Drawing("The authorizers in their order; the first one with an opinion decides", 760, 620)
    drawing.box((40, 20, 240, 44), "Request", "who, verb, object", style="accent")
    top = 92
    for number, (name, about) in enumerate(steps):
        y = top + 58 * number
        drawing.arrow((160, y - 14 if number else 64), (160, y - 2))
        drawing.box((40, y, 240, 42), name)
        drawing.note(300, y + 26, about)
    last = top + 58 * len(steps)
    drawing.arrow((160, last - 14), (160, last - 2))
    drawing.box((40, last, 240, 42), "Denied", style="accent")
    drawing.note(300, last + 26, "no authorizer has an opinion")
    drawing.note(300, 46, "each step: allow, deny, or no opinion and on to the next")
    return drawing


def draw_request() -> Drawing:
    drawing = Drawing("The way of a request through the server", 900, 470)
    stages = ("TLS, HTTP", "routing", "authentication", "flow control", "authorization", "dispatch")
    for number, name in enumerate(stages):
        x = 20 + 147 * number
        drawing.box((x, 30, 127, 44), name, style="accent" if name in ("authentication", "authorization") else "box")
        if number:
            drawing.arrow((x - 20, 52), (x - 2, 52))
    drawing.note(
        20,
        100,
        "A request that fails at a stage ends there, and the Status says why. Each response is audited and counted.",
    )
    drawing.arrow((818, 74), (818, 122), (140, 122), (140, 148))
    drawing.arrow((818, 122), (450, 122), (450, 148))
    drawing.arrow((818, 122), (760, 122), (760, 148))
    drawing.box((30, 150, 220, 50), "Read", "get, list, watch")
    drawing.box((340, 150, 220, 50), "Write", "create, update, patch, delete")
    drawing.box((650, 150, 220, 50), "Gateway or link", "to a cluster or a runner")
    drawing.arrow((450, 200), (450, 228))
    drawing.box((340, 230, 220, 68), "Validation, admission", "schema, defaults, rules", "quotas, allow lists")
    drawing.arrow((450, 298), (450, 326))
    drawing.box((340, 328, 220, 50), "Store", "durable before the response", style="accent")
    drawing.arrow((340, 353), (252, 353))
    drawing.box((30, 328, 220, 50), "View in memory", "follows the store")
    drawing.arrow((140, 328), (140, 202))
    drawing.note(150, 268, "encoded objects")
    drawing.arrow((140, 378), (140, 408))
    drawing.box((30, 410, 220, 40), "Watches of clients")
    drawing.arrow((200, 378), (200, 394), (450, 394), (450, 408))
    drawing.box((340, 410, 220, 40), "Controllers")
    drawing.arrow((560, 430), (610, 430), (610, 175), (562, 175))
    drawing.note(620, 320, "controllers write the status")
    drawing.note(620, 338, "through the same rules")
    return drawing


def draw_gateways() -> Drawing:
    drawing = Drawing("How a user reaches a connected cluster", 900, 400)
    drawing.box((20, 90, 170, 92), "kubectl of Ada", "kubeconfig of Fairlead", "her own access key")
    drawing.arrow((190, 136), (258, 136))
    drawing.box((260, 30, 340, 212), "Fairlead", style="group")
    drawing.box((280, 62, 300, 44), "1. Does the scope of the key allow it?")
    drawing.arrow((430, 106), (430, 120))
    drawing.box((280, 122, 300, 44), "2. May Ada use this cluster or space?")
    drawing.arrow((430, 166), (430, 180))
    drawing.box(
        (280, 182, 300, 48), "3. Replace her key by the credential", "Impersonate-User: fairlead:ada", style="accent"
    )
    drawing.arrow((600, 206), (668, 206))
    drawing.box((670, 60, 210, 182), "Cluster", style="group")
    drawing.box((686, 182, 178, 48), "kube-apiserver", "sees fairlead:ada")
    drawing.arrow((775, 182), (775, 142))
    drawing.box((686, 92, 178, 48), "RBAC of the cluster", "decides about pods")
    drawing.box((20, 296, 170, 74), "kubectl of Ada", "direct token,", "minutes to hours")
    drawing.arrow((190, 333), (668, 333))
    drawing.note(430, 322, "past the server, also while it is down", "middle")
    drawing.box((670, 296, 210, 74), "Agent", "verifies the token,", "impersonates in the same way")
    drawing.arrow((775, 296), (775, 244))
    return drawing


def draw_workspaces() -> Drawing:
    drawing = Drawing("Workspaces, the server and runners", 900, 430)
    drawing.box((20, 40, 180, 74), "Member of a project", "fairlead workspace create", "editor, ssh, console")
    drawing.arrow((200, 77), (268, 77))
    drawing.box((270, 20, 340, 250), "Fairlead", style="group")
    drawing.box((290, 52, 300, 50), "Workspace", "template, source, parameters", style="accent")
    drawing.arrow((440, 102), (440, 122))
    drawing.box((290, 124, 300, 50), "Scheduling", "a runner that the project allows")
    drawing.arrow((440, 174), (440, 194))
    drawing.box((290, 196, 300, 56), "Tasks and streams", "up, stop, logs, shell, ports")
    drawing.arrow((670, 224), (592, 224))
    drawing.note(640, 290, "the runner opens the connection,", "middle")
    drawing.note(640, 308, "so it needs no open port", "middle")
    drawing.arrow((640, 278), (640, 232))
    drawing.box((670, 20, 210, 250), "Machine or cluster", style="group")
    drawing.box((686, 196, 178, 56), "Runner", "key of its own")
    drawing.arrow((775, 196), (775, 166))
    drawing.box((686, 114, 178, 50), "Engine", "devcontainer, kubernetes")
    drawing.arrow((775, 114), (775, 96))
    drawing.box((686, 50, 178, 44), "Dev container", "sources and tools")
    drawing.box(
        (20, 340, 860, 66),
        "Status",
        "phase, conditions and progress are in the workspace object: kubectl, console and CLI show the same",
        "the runner reports them with its key, and can write to its own workspaces only",
    )
    drawing.arrow((360, 252), (360, 338))
    return drawing


DRAWINGS: dict[str, Callable[[], Drawing]] = {
    "architecture.svg": draw_architecture,
    "permissions.svg": draw_permissions,
    "request.svg": draw_request,
    "gateways.svg": draw_gateways,
    "workspaces.svg": draw_workspaces,
}


def main() -> None:
    for name, draw in DRAWINGS.items():
        (FOLDER / name).write_text(draw().render())


if __name__ == "__main__":
    main()
