"""docs/metrics.md has a row for every metric that a server serves, with its type, and no others."""

import re
from pathlib import Path

from tests.harness.server_process import Server

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "metrics.md").read_text()
PREFIX = "apiserver_flowcontrol_"
"""One table leaves it out."""


def read_rows() -> dict[str, str]:
    """The types on the page, by metric. A row may have several metrics."""
    rows = re.findall(r"^\| ((?:`[a-z_]+`(?:, )?)+) \| (\w+) \|", PAGE, re.MULTILINE)
    return {name: kind for names, kind in rows for name in re.findall(r"[a-z_]+", names)}


def test_every_served_metric_has_a_row_with_its_type(server: Server) -> None:
    with server.client() as client:
        text = client.get("/metrics").text
    rows, served = read_rows(), dict(re.findall(r"^# TYPE (\w+) (\w+)$", text, re.MULTILINE))
    assert len(served) > 30
    assert {name: rows.get(name, rows.get(name.removeprefix(PREFIX))) for name in served} == served
    assert rows.keys() - {*served, *(name.removeprefix(PREFIX) for name in served)} == set()
