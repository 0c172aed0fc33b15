"""Stacks of a sampling profiler, drawn.

    py-spy record --format raw --output stacks.txt --pid PID
    python -m bench.flame stacks.txt docs/flame.svg

Each line of the file is a stack, its frames separated by semicolons, and how often it was seen. A frame is as wide as
its share of all samples; what it calls stands below it. Frames outside of requests are left out, as they say nothing.
"""

import sys
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

WIDTH, ROW, LEAST = 1200.0, 18, 3.0
"""Of the picture, of a row, and of the narrowest frame that is drawn, in pixels."""
FIRST = "Front.__call__"
CHARACTER = 6.2
COLORS = ("#f2b279", "#f0c987", "#e59a6b", "#f4d9a3")


@dataclass(slots=True)
class Frame:
    samples: int = 0
    calls: dict[str, "Frame"] = field(default_factory=dict)


def stacks(text: str) -> Frame:
    """Everything below the first frame of a request, as one tree."""
    root = Frame()
    for line in text.splitlines():
        stack, _, count = line.rpartition(" ")
        frames = [each.partition(" (")[0] for each in stack.split(";")]
        if FIRST not in frames:
            continue
        place = root
        place.samples += int(count)
        for name in frames[frames.index(FIRST) :]:
            place = place.calls.setdefault(name, Frame())
            place.samples += int(count)
    return root


def drawn(root: Frame) -> str:
    scale = WIDTH / max(1, root.samples)
    parts: list[str] = []
    depth = _draw(root, 0.0, 0, scale, parts)
    height = (depth + 1) * ROW
    size = f'viewBox="0 0 {WIDTH:.0f} {height}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="monospace" font-size="10">'
    return "\n".join((head, *parts, "</svg>", ""))


def _draw(frame: Frame, left: float, depth: int, scale: float, parts: list[str]) -> int:
    """Draws what a frame calls; returns how deep that goes."""
    deepest = depth
    for name, call in sorted(frame.calls.items(), key=lambda each: -each[1].samples):
        width = call.samples * scale
        if width >= LEAST:
            parts.append(_box(name, left, depth * ROW, width, call.samples * scale / WIDTH))
            deepest = max(deepest, _draw(call, left, depth + 1, scale, parts))
        left += width
    return deepest


def _box(name: str, left: float, top: int, width: float, share: float) -> str:
    color = COLORS[sum(name.encode()) % len(COLORS)]
    label = name[: int(width / CHARACTER)]
    text = f'<text x="{left + 2:.1f}" y="{top + 12}">{escape(label)}</text>' if len(label) > 2 else ""
    box = f'<rect x="{left:.1f}" y="{top}" width="{width:.1f}" height="{ROW - 1}" fill="{color}"/>'
    return f"<g><title>{escape(name)}: {share:.1%}</title>{box}{text}</g>"


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(drawn(stacks(Path(sys.argv[1]).read_text())))
