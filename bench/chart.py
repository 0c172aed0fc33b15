"""Draws the result as an SVG for the README, readable on light and on dark pages.

Each row is drawn against its own ceiling, which is the full width: a bar for us, thin ones for the peers, a mark at the
aim. Only figures that are better when larger are drawn; the table has the others.
"""

from collections.abc import Iterator, Sequence
from html import escape

from bench.lines import Line, format_number, format_percent
from bench.run import Result

LABELS, BARS, FIGURES = 210, 440, 210
WIDTH = LABELS + BARS + FIGURES
TOP, BOTTOM, ROW, PEER, BAR = 64, 44, 40, 13, 16

STYLE = """
  text { font: 13px system-ui, sans-serif; fill: #1f2328 }
  .small { font-size: 11px; fill: #59636e }
  .track { fill: #d1d9e0 }
  .ours { fill: #0969da }
  .peer { fill: #9a6700 }
  .aim { stroke: #cf222e; stroke-width: 2 }
  @media (prefers-color-scheme: dark) {
    text { fill: #f0f6fc }
    .small { fill: #9198a1 }
    .track { fill: #3d444d }
    .ours { fill: #4493f8 }
    .peer { fill: #d29922 }
    .aim { stroke: #f85149 }
  }
"""


def draw_chart(result: Result, lines: Sequence[Line]) -> str:
    drawn_lines = [
        line for line in lines if line.bare and line.ceiling and line.target is not None and not line.falling
    ]
    peers = list(dict.fromkeys(name for line in drawn_lines for name in line.peers))
    height = TOP + sum(map(_compute_height, drawn_lines)) + BOTTOM
    title = "Fairlead beside the ceiling of a bare handler, measured in the same run"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
            f' role="img" aria-label="{title}">',
            f"<title>{title}</title>",
            f"<style>{STYLE}</style>",
            *_draw_legend(peers),
            *_draw_rows(drawn_lines),
            _draw_text(0, height - 24, result.machine, "small"),
            _draw_text(0, height - 8, f"{result.when:%Y-%m-%d}; TLS, every check on, writes durable", "small"),
            "</svg>",
            "",
        ]
    )


def _draw_legend(peers: Sequence[str]) -> Iterator[str]:
    names = [("ours", "Fairlead"), ("track", "ceiling: a bare handler"), *(("peer", name) for name in peers)]
    x = 0
    for style, name in names:
        yield _draw_box(x, 8, 12, 12, style)
        yield _draw_text(x + 18, 19, name)
        x += 40 + 8 * len(name)
    yield _draw_mark(x + 6, 6, 16)
    yield _draw_text(x + 18, 19, "aim")


def _draw_rows(drawn_lines: Sequence[Line]) -> Iterator[str]:
    y = TOP - 16
    for line in drawn_lines:
        yield from _draw_row(line, y)
        y += _compute_height(line)


def _draw_row(line: Line, y: int) -> Iterator[str]:
    ceiling, target = line.ceiling or 1.0, line.target or 0.0
    yield _draw_text(0, y + 13, line.name.partition(", of")[0])
    yield _draw_box(LABELS, y, BARS, BAR, "track")
    yield _draw_box(LABELS, y, _compute_length(line.figure, ceiling), BAR, "ours")
    share = "" if line.share is None else f" · {format_percent(line.share)}"
    yield _draw_text(LABELS + BARS + 10, y + 13, f"{format_number(line.figure)} {line.unit}{share}")
    for number_of_peer, (name, peer) in enumerate(line.peers.items(), 1):
        top = y + BAR + 2 + (number_of_peer - 1) * PEER
        yield _draw_box(LABELS, top, max(1, _compute_length(peer.figure, ceiling)), PEER - 4, "peer")
        yield _draw_text(LABELS + BARS + 10, top + 9, f"{name}: {format_number(peer.figure)}", "small")
    yield _draw_mark(LABELS + _compute_length(target, ceiling), y - 4, BAR + 8)


def _compute_height(line: Line) -> int:
    return ROW + PEER * max(0, len(line.peers) - 1)


def _compute_length(figure: float, ceiling: float) -> int:
    return round(min(1.0, figure / ceiling) * BARS)


def _draw_text(x: int, y: int, text: str, style: str = "") -> str:
    class_attribute = f' class="{style}"' if style else ""
    return f'<text x="{x}" y="{y}"{class_attribute}>{escape(text)}</text>'


def _draw_box(x: int, y: int, width: int, height: int, style: str) -> str:
    return f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="2" class="{style}"/>'


def _draw_mark(x: int, y: int, height: int) -> str:
    return f'<line x1="{x}" y1="{y}" x2="{x}" y2="{y + height}" class="aim"/>'
