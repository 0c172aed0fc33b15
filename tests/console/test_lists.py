"""Lists in a real browser: live rows, filters in the URL, the keyboard, long lists, empty pages, small screens, CSV."""

import csv
import io
from pathlib import Path
from typing import Any

import pytest

from tests.console.browser import Page
from tests.console.conftest import SignIn
from tests.console.scrolling import MAX_FRAME_SECONDS, measure_scrolling
from tests.console.servers import ADMIN, AUDITOR, GROUP, OUTSIDER, OWNER, ConsoleServer
from tests.harness.server_process import MANAGEMENT

ROW = ".vtable-body .vtable-row"
NAME = f"{ROW} [data-kind=name]"
COUNT = ".list-count"
LONG_LIST = Path(__file__).with_name("long_list.js").read_text()
HOSTILE = "<img src=x onerror=alert(1)>"
CONFIG_MAPS = f"{MANAGEMENT}/api/v1/namespaces/default/configmaps"


@pytest.fixture
def admin(page: Page, sign_in: SignIn) -> Page:
    sign_in(page, ADMIN)
    return page


@pytest.fixture
def long_list(admin: Page) -> Page:
    """A list with 10,000 rows."""
    admin.send("Page.addScriptToEvaluateOnNewDocument", source=LONG_LIST)
    admin.goto("configmaps")
    admin.wait_for_text("10,000 config maps", COUNT)
    return admin


def create_team(server: ConsoleServer, name: str, **more: Any) -> None:
    labels, finalizers = more.pop("labels", {}), more.pop("finalizers", [])
    metadata = {"name": name, "labels": labels, "finalizers": finalizers}
    body = {"apiVersion": "management.service.sh/v1", "kind": "Team", "metadata": metadata, "spec": more}
    server.create(f"{GROUP}/teams", body)


def open_list(page: Page, path: str) -> None:
    page.goto(path)
    page.wait_for(".vtable[style*=max-height], .empty, .error")


def shown_names(page: Page) -> list[str]:
    return page.texts(NAME)


# --- live


def test_rows_appear_and_vanish_without_a_reload(admin: Page, server: ConsoleServer) -> None:
    open_list(admin, "teams")
    create_team(server, "live-team", displayName="Before")
    admin.wait_for_text("Before", ROW)
    server.send("PATCH", f"{GROUP}/teams/live-team", {"spec": {"displayName": "After"}}, patch=True)
    admin.wait_for_text("After", ROW)
    server.send("DELETE", f"{GROUP}/teams/live-team")
    admin.wait_until(lambda: "live-team" not in shown_names(admin), "the row is gone")


def test_an_object_that_waits_for_a_finalizer_looks_deleted(admin: Page, server: ConsoleServer) -> None:
    create_team(server, "held", finalizers=["example.com/hold"])
    open_list(admin, "teams?q=held")
    server.send("DELETE", f"{GROUP}/teams/held")
    admin.wait_for(f"{ROW}.is-deleting")
    assert "deleting" in admin.text(f"{ROW}.is-deleting")
    server.send("PATCH", f"{GROUP}/teams/held", {"metadata": {"finalizers": None}}, patch=True)
    admin.wait_for_text("No teams match the filter")


def test_states_are_counted_by_word_and_filter_the_list(admin: Page) -> None:
    open_list(admin, "clusters")
    admin.wait_for(".cluster-tile")  # the cards above the table move it
    admin.wait_for_text("Offline", ".state-filter")
    admin.click(".state-filter[data-word=Offline]")
    admin.wait_until(lambda: len(shown_names(admin)) == 1, "one cluster is offline")
    assert "state=Offline" in admin.path
    assert admin.attribute(".state-filter[data-word=Offline]", "aria-pressed") == "true"
    assert admin.count(f"{ROW} .state-attention svg") == 1


# --- filter, sort, columns


def test_filter_sort_and_columns_are_in_the_url_and_survive_a_reload(admin: Page) -> None:
    open_list(admin, "users")
    admin.press("/")
    admin.type("a")
    admin.click("[data-column=name] button")
    admin.wait_until(lambda: "sort=-name" in admin.path, "the order is in the URL")
    expected = sorted((name for name in shown_names(admin)), reverse=True)
    assert len(expected) > 1 and shown_names(admin) == expected
    admin.goto(f"{admin.path}&columns=name,email")
    admin.wait_until(lambda: shown_names(admin) == expected, "the same rows in the same order")
    assert admin.value("Filter users") == "a"
    assert admin.texts("[role=columnheader] button span:first-child") == ["Name", "Email"]
    assert admin.attribute("[data-column=name]", "aria-sort") == "descending"


def test_going_back_from_an_object_shows_the_same_filter(admin: Page) -> None:
    open_list(admin, "clusters")
    admin.press("/")
    admin.type("frank")
    admin.wait_until(lambda: shown_names(admin) == ["frankfurt"], "one cluster matches")
    admin.click(f"{NAME} a")
    admin.wait_until(lambda: admin.path.endswith("/clusters/frankfurt"), "the cluster is shown")
    admin.eval("history.back()")
    admin.wait_until(lambda: shown_names(admin) == ["frankfurt"], "the list is filtered again")
    assert admin.value("Filter clusters") == "frank"


def test_selectors_run_on_the_server(admin: Page, server: ConsoleServer) -> None:
    create_team(server, "tiered", labels={"tier": "gold"})
    open_list(admin, "teams")
    admin.press("/")
    admin.type("tier=gold")
    admin.wait_until(lambda: shown_names(admin) == ["tiered"], "one team has the label")
    assert any(
        "labelSelector=tier%3Dgold" in request.path and "watch=true" in request.path for request in admin.requests
    )
    assert "labels=tier%3Dgold" in admin.path
    open_list(admin, "teams?fields=metadata.name%3Dtiered")
    admin.wait_until(lambda: shown_names(admin) == ["tiered"], "one team has the name")
    assert admin.value("Filter teams") == "field:metadata.name=tiered"


def test_a_project_limits_the_list_and_is_shown_instead_of_its_namespace(admin: Page) -> None:
    open_list(admin, "devpodworkspaceinstances")
    assert "payments" in admin.text(ROW + ":has([href$='/ledger'])")
    admin.fill("Project", "payments")
    admin.wait_until(lambda: shown_names(admin) == ["ledger"], "one workspace is in the project")
    assert admin.path.endswith("?project=payments")
    admin.reload()
    admin.wait_until(lambda: shown_names(admin) == ["ledger"], "the project is in the URL")


# --- keyboard


def test_a_list_can_be_used_by_keyboard_alone(admin: Page, server: ConsoleServer) -> None:
    for number in range(4):
        create_team(server, f"key-{number}")
    open_list(admin, "teams")
    admin.press("/")
    admin.type("key-")
    admin.wait_until(lambda: len(shown_names(admin)) == 4, "the filter matches")
    admin.press("Enter", "j", "x", "Shift+ArrowDown")
    admin.wait_for_text("2 selected", ".selection")
    admin.press("Control+a")
    admin.wait_for_text("4 selected", ".selection")
    admin.press("Escape", "End")
    admin.wait_gone(".selection:not([hidden])")
    assert "key-3" in admin.eval("document.activeElement.innerText")
    admin.press("Home", "ArrowUp", "Enter")
    assert admin.attribute("[data-column=name]", "aria-sort") == "descending"
    admin.press("ArrowDown", "Home", "Enter")
    admin.wait_until(lambda: admin.path.endswith("/teams/key-3"), "Enter opens the row")


def test_the_row_under_the_keyboard_stays_when_rows_appear_above_it(long_list: Page) -> None:
    long_list.press("j", "PageDown", "PageDown", "PageDown")
    place = "[document.activeElement.dataset.id, Math.round(document.activeElement.getBoundingClientRect().top)].join()"
    before = long_list.eval(place)
    long_list.eval("[...Array(5).keys()].forEach((each) => sendEvent('ADDED', -1 - each, '1'))")
    long_list.wait_for_text("10,005 config maps", COUNT)
    assert long_list.eval(place) == before


def test_the_table_is_one_tab_stop_wherever_it_is_scrolled_to(long_list: Page) -> None:
    long_list.press("j", "j")
    focused = long_list.eval("document.activeElement.dataset.id")
    long_list.eval("document.querySelector('.vtable').scrollTop = 200000")
    long_list.wait_for(f"{ROW}[aria-rowindex='6252']")
    assert long_list.eval("document.activeElement.dataset.id") == focused
    assert long_list.count(".vtable [tabindex='0']") == 1
    long_list.press("Tab")
    assert not long_list.eval("Boolean(document.activeElement.closest('.vtable'))")


# --- long lists


def test_ten_thousand_rows_scroll_with_less_than_a_fiftieth_of_a_second_for_a_frame(long_list: Page) -> None:
    assert measure_scrolling(long_list, ".vtable", 200) <= MAX_FRAME_SECONDS


def test_ten_thousand_rows_need_at_most_a_hundred_elements(long_list: Page) -> None:
    assert long_list.attribute(".vtable", "aria-rowcount") == "10001"
    assert 0 < long_list.count(ROW) <= 100
    long_list.eval("document.querySelector('.vtable').scrollTop = 9000 * 32")
    long_list.wait_for_text("row-09000", NAME)
    assert long_list.attribute(f"{ROW}[data-id=uid-9000]", "aria-rowindex") == "9002"
    assert long_list.count(ROW) <= 100
    long_list.press("/")
    long_list.type("row-09000")
    long_list.wait_until(lambda: shown_names(long_list) == ["row-09000"], "the filter finds one row")
    assert long_list.text(COUNT) == "1 of 10,000 config maps"


def test_scrolling_moves_only_the_rows_that_come_into_view(long_list: Page) -> None:
    scroll = """(async (top) => {
      const frame = () => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)));
      let moved = 0;
      const count = (list) => { for (const each of list) moved += each.addedNodes.length; };
      const observer = new MutationObserver(count);
      observer.observe(document.querySelector(".vtable-body"), { childList: true });
      document.querySelector(".vtable").scrollTop = top;
      await frame();
      count(observer.takeRecords());
      observer.disconnect();
      return moved;
    })"""
    long_list.eval(f"{scroll}(32000)")
    for top in (32000 + 3 * 32, 32000 - 2 * 32):
        assert 0 < long_list.eval(f"{scroll}({top})") <= 6


def test_columns_are_sorted_by_value_not_by_text(long_list: Page) -> None:
    long_list.click("[data-column=data] button")
    long_list.click("[data-column=data] button")
    long_list.wait_for_text("row-00012", NAME)
    assert long_list.texts(f"{ROW} [data-title=Data]")[:3] == ["12", "12", "12"]
    long_list.click("[data-column=age] button")
    long_list.wait_until(lambda: shown_names(long_list)[0] == "row-09999", "the newest is first")


def test_a_flood_of_events_leaves_the_page_responsive(long_list: Page) -> None:
    long_list.eval("sendEvents(500)")
    delays = long_list.eval(
        """(async () => {
          const delays = [];
          for (let last = performance.now(), end = last + 2000; last < end; ) {
            await new Promise((resolve) => setTimeout(resolve, 10));
            const now = performance.now();
            delays.push(now - last);
            last = now;
          }
          return delays.sort((a, b) => a - b);
        })()"""
    )
    long_list.eval("sendEvents(0)")
    assert len(delays) > 40 and delays[len(delays) // 2] < 50, delays[-5:]
    long_list.wait_for_text("99", f"{ROW} [data-title=Data]")
    assert long_list.count(ROW) <= 100


# --- empty pages


def test_none_exist_none_match_and_none_permitted_are_different_pages(
    admin: Page, server: ConsoleServer, sign_in: SignIn
) -> None:
    open_list(admin, "sharedsecrets")
    assert "There are no shared secrets yet" in admin.text("main")
    open_list(admin, "users?q=nobody-has-this-name")
    assert "No users match the filter" in admin.text("main")
    admin.click(".empty button")
    admin.wait_for(ROW)
    assert admin.path.endswith("/users")
    sign_in(admin, OUTSIDER)
    open_list(admin, "runners")
    assert "You may not list runners" in admin.text("main") and "cannot list" in admin.text("main")


def test_creating_is_offered_if_one_project_permits_it_and_refused_with_the_reason(page: Page, sign_in: SignIn) -> None:
    new = ".list-tools a.primary"
    sign_in(page, OWNER)
    open_list(page, "spaceinstances")
    page.wait_gone(f"{new}[aria-disabled]")
    sign_in(page, AUDITOR)
    open_list(page, "clusters")
    page.wait_for(f"{new}[aria-disabled][title]")
    assert "may not create clusters" in (page.attribute(new, "title") or "")
    page.click(new)
    assert page.path == "/console/clusters"


def test_an_invalid_selector_shows_the_servers_error_beside_the_filter(admin: Page) -> None:
    open_list(admin, "teams?fields=spec.nonsense%3Dx")
    assert "nonsense" in admin.text(".error")
    assert admin.value("Filter teams") == "field:spec.nonsense=x"


# --- what others write, small screens, files


def test_strings_of_others_stay_text(admin: Page, server: ConsoleServer) -> None:
    create_team(server, "hostile", displayName=HOSTILE, labels={"note": "x"})
    open_list(admin, "teams?q=hostile&columns=name,display-name,label:note")
    assert HOSTILE in admin.text(ROW)
    assert admin.count(f"{ROW} img") == 0 and admin.dialogs == []


@pytest.mark.parametrize("path", ["devpodworkspaceinstances", "clusters", "events", "configmaps"])
def test_a_phone_shows_cards_without_sideways_scrolling(admin: Page, server: ConsoleServer, path: str) -> None:
    name = "n" * 63
    if path == "configmaps":
        server.create(CONFIG_MAPS, {"metadata": {"name": name}})
    admin.set_size(360, 740, mobile=True)
    open_list(admin, path)
    assert admin.eval("document.documentElement.scrollWidth") == 360
    assert admin.eval("document.querySelector('.vtable').scrollWidth <= 360")
    if path == "configmaps":
        cell = f"[...document.querySelectorAll('{NAME}')].find((each) => each.innerText === '{name}')"
        assert admin.eval(f"(() => {{ const it = {cell}; return it.scrollWidth <= it.clientWidth; }})()")


def test_nine_columns_fit_beside_the_navigation_of_a_small_window(admin: Page) -> None:
    admin.set_size(1024, 768)
    open_list(admin, "ownedaccesskeys")
    admin.wait_for(ROW)
    assert admin.count(".vtable-head [data-column]") == 9
    assert (
        admin.eval(
            "(() => { const it = document.querySelector('.vtable'); return it.scrollWidth - it.clientWidth; })()"
        )
        <= 0
    )
    words = "[...document.querySelectorAll('.vtable-body .state-word')]"
    assert (
        admin.eval(f"{words}.filter((each) => each.scrollWidth > each.clientWidth).map((each) => each.innerText)") == []
    )


def test_a_phone_shows_the_state_of_each_row(admin: Page) -> None:
    admin.set_size(390, 844, mobile=True)
    open_list(admin, "ownedaccesskeys")
    admin.wait_for(ROW)
    hidden = """[...document.querySelectorAll('.vtable-body .vtable-row')].filter((row) =>
      row.querySelector('.state').getBoundingClientRect().bottom > row.getBoundingClientRect().bottom).length"""
    assert admin.eval(hidden) == 0


def test_the_csv_file_has_the_rows_that_match_in_their_order(admin: Page, server: ConsoleServer) -> None:
    create_team(server, "csv-1", displayName='with "quotes", and a comma')
    create_team(server, "csv-2", displayName="=1+2")
    open_list(admin, "teams?q=csv-&sort=-name&columns=name,display-name")
    admin.eval(
        "(() => { const make = URL.createObjectURL; URL.createObjectURL = (it) => make((window.file = it)); })()"
    )
    admin.send("Page.setDownloadBehavior", behavior="deny")
    admin.click("[aria-label='Export CSV']")
    rows = list(csv.reader(io.StringIO(admin.eval("window.file.text()"), newline="")))
    # A spreadsheet would run a cell that begins with "=".
    assert rows == [["Name", "Display Name"], ["csv-2", "'=1+2"], ["csv-1", 'with "quotes", and a comma']]


def test_the_width_of_a_column_is_remembered(admin: Page) -> None:
    width = "document.querySelector('[data-column=email]').offsetWidth"
    open_list(admin, "users")
    before = admin.eval(width)
    admin.press("j", "Home", "ArrowUp", "ArrowRight", "ArrowRight", "Shift+ArrowRight", "Shift+ArrowRight")
    admin.wait_until(lambda: admin.eval(width) == before + 32, "the column is wider")
    open_list(admin, "users?columns=")
    assert admin.eval(width) == before + 32
