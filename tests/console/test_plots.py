"""Plots: the health of a cluster in the last day, as a picture, at the pointer, and as a table."""

import time
from typing import Any

import pytest

from fairlead.domain.probe_day import QUARTER_SECONDS, ProbeQuarter, encode_day
from tests.console.browser import Page, role
from tests.console.conftest import SignIn
from tests.console.servers import ADMIN, GROUP, ConsoleServer

BOX = "(() => { const {x, y, width, height} = document.querySelector('.plot svg').getBoundingClientRect();"
LAST = f"{BOX} return [x + width - 12 - 1, y + height / 2]; }})()"


def connect(server: ConsoleServer, name: str, status: dict[str, Any]) -> None:
    """A cluster without a kubeconfig, which is not probed, with a status."""
    body = {"apiVersion": "management.service.sh/v1", "kind": "Cluster", "metadata": {"name": name}, "spec": {}}
    server.create(f"{GROUP}/clusters", body)
    server.send("PATCH", f"{GROUP}/clusters/{name}/status", {"status": status}, patch=True)


@pytest.fixture(scope="module")
def clusters(server: ConsoleServer) -> None:
    now = int(time.time())
    first = now - now % QUARTER_SECONDS - 20 * QUARTER_SECONDS
    healthy = [ProbeQuarter(first + index * QUARTER_SECONDS, 180, 0, 0, 180 * 14, 52) for index in range(18)]
    failing = ProbeQuarter(first + 19 * QUARTER_SECONDS, 200, 50, 50, 150 * 20, 95)
    silent = ProbeQuarter(first + 20 * QUARTER_SECONDS, 10, 10, 10)
    connect(server, "plotted", {"online": True, "probeDay": encode_day([*healthy, failing, silent])})
    connect(server, "young", {"online": True})


def test_the_health_of_a_day_is_a_picture_and_a_table(page: Page, sign_in: SignIn, clusters: None) -> None:
    sign_in(page, ADMIN)
    page.goto("clusters/plotted")
    page.wait_for(".plot-line")
    assert page.count(".plot-line") == 2, "a quarter without probes is a gap"
    assert page.count(".plot-failure") == 2
    summary = page.attribute(".plot svg", "aria-label")
    assert summary is not None and summary.startswith("60 of 3450 probes failed.")
    page.click("details:has(.day-table) summary")
    rows = page.eval("[...document.querySelectorAll('.day-table tbody tr')].map((row) => row.innerText.split('\\t'))")
    assert [row[1:] for row in rows[:3]] == [
        ["none", "none", "10", "10"],
        ["20 ms", "95 ms", "200", "50"],
        ["14 ms", "52 ms", "180", "0"],
    ]
    assert len(rows) == 20
    page.wait_for(role("region", "Health in the last day"))


def test_the_pointer_reads_a_quarter(page: Page, sign_in: SignIn, clusters: None) -> None:
    sign_in(page, ADMIN)
    page.goto("clusters/plotted")
    page.wait_for(".plot-line")
    x, y = page.eval(LAST)
    page.send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
    page.wait_for_text("no response; 10 of 10 probes failed.", within=".plot-readout")
    page.wait_for(".plot-cursor[visibility=visible]")
    page.send("Input.dispatchMouseEvent", type="mouseMoved", x=1, y=1)
    page.wait_for_text("Point at the picture", within=".plot-readout")


@pytest.mark.parametrize("width", [390, 1440])
def test_a_plot_is_as_wide_as_its_card(page: Page, sign_in: SignIn, clusters: None, width: int) -> None:
    sign_in(page, ADMIN)
    page.set_size(width, 900)
    page.goto("clusters/plotted")
    page.wait_for(".plot-line")
    page.wait_until(
        lambda: page.eval(
            "Math.abs(document.querySelector('.plot-frame').clientWidth"
            " - document.querySelector('.plot svg').clientWidth) < 2"
        ),
        "the picture fills its frame",
    )
    assert page.eval("document.documentElement.scrollWidth <= window.innerWidth")


def test_a_cluster_without_probes_says_so(page: Page, sign_in: SignIn, clusters: None) -> None:
    sign_in(page, ADMIN)
    page.goto("clusters/young")
    page.wait_for_text("No probes in the last day.")
