"""Draws the stacks of a sampling profiler as a flame graph.

    py-spy record --format raw --output stacks.txt --pid PID
    python -m bench.flame stacks.txt docs/flame.svg

Each line of the file is a stack, its frames separated by semicolons, and how often it was seen. A frame is as wide as
its share of all samples; its calls are below it. Frames outside of requests are omitted.
"""

import sys
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

WIDTH, ROW, MIN_WIDTH = 1200.0, 18, 3.0
"""The width of the picture, the height of a row, and the width of the narrowest frame that is drawn, in pixels."""
FIRST_FRAME = "Front.__call__"
CHARACTER = 6.2
COLORS = ("#f2b279", "#f0c987", "#e59a6b", "#f4d9a3")


@dataclass(slots=True)
class Frame:
    samples: int = 0
    calls: dict[str, "Frame"] = field(default_factory=dict)


def parse_stacks(text: str) -> Frame:
    """Parses the stacks below the first frame of a request into one tree."""
    root = Frame()
    for line in text.splitlines():
        stack, _, count = line.rpartition(" ")
        frames = [each.partition(" (")[0] for each in stack.split(";")]
        if FIRST_FRAME not in frames:
            continue
        frame = root
        frame.samples += int(count)
        for name in frames[frames.index(FIRST_FRAME) :]:
            frame = frame.calls.setdefault(name, Frame())
            frame.samples += int(count)
    return root


def draw_stacks(root: Frame) -> str:
    scale = WIDTH / max(1, root.samples)
    parts: list[str] = []
    depth = _draw(root, 0.0, 0, scale, parts)
    height = (depth + 1) * ROW
    size = f'viewBox="0 0 {WIDTH:.0f} {height}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="monospace" font-size="10">'
    return "\n".join((head, *parts, "</svg>", ""))


def _draw(frame: Frame, left: float, depth: int, scale: float, parts: list[str]) -> int:
    """Draws the calls of a frame and returns their depth."""
    deepest = depth
    for name, call in sorted(frame.calls.items(), key=lambda each: -each[1].samples):
        width = call.samples * scale
        if width >= MIN_WIDTH:
            parts.append(_draw_box(name, left, depth * ROW, width, call.samples * scale / WIDTH))
            deepest = max(deepest, _draw(call, left, depth + 1, scale, parts))
        left += width
    return deepest


def _draw_box(name: str, left: float, top: int, width: float, share: float) -> str:
    color = COLORS[sum(name.encode()) % len(COLORS)]
    label = name[: int(width / CHARACTER)]
    text = f'<text x="{left + 2:.1f}" y="{top + 12}">{escape(label)}</text>' if len(label) > 2 else ""
    box = f'<rect x="{left:.1f}" y="{top}" width="{width:.1f}" height="{ROW - 1}" fill="{color}"/>'
    return f"<g><title>{escape(name)}: {share:.1%}</title>{box}{text}</g>"


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(draw_stacks(parse_stacks(Path(sys.argv[1]).read_text())))
