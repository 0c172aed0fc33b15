"""The page of a space: its pods, usage against quota, events, and ways into it, through its gateway; and of a pod."""

from collections.abc import Iterator

import pytest

from tests.console.browser import Page, role
from tests.console.conftest import SignIn
from tests.console.servers import ADMIN, GROUP, VIEWER, ConsoleServer
from tests.console.space_cluster import INSIDE, POD, SpaceCluster, running_space_cluster
from tests.console.space_cluster import SPACE_PAGE as PAGE
from tests.harness.eventually import wait_until


@pytest.fixture(scope="module")
def cluster(server: ConsoleServer) -> Iterator[SpaceCluster]:
    with running_space_cluster(server) as cluster:
        yield cluster


def test_a_space_opens_with_its_pods_usage_and_events(page: Page, sign_in: SignIn, cluster: SpaceCluster) -> None:
    sign_in(page, ADMIN)
    page.goto(PAGE)
    page.wait_for(role("link", POD))
    rows = page.texts("table.labelled tbody tr")
    assert "Running" in rows[0] or "Ready" in rows[0]
    assert "1 of 2" in rows[0] and "node-1" in rows[0] and "Open terminal" in rows[0]
    assert "ImagePullBackOff" in rows[1] and "7" in rows[1] and "Open terminal" not in rows[1]
    page.wait_for_text("3500m of 4", "main")
    assert page.attribute(".meter[data-state=high]", "data-state") == "high"  # 3.5 of 4, not 3500 of 4
    page.wait_for_text("CPU requested", "main")
    page.wait_for_text("pulled in vain, 1", "main")
    text = page.text("main")
    assert text.index("pulled in vain, 2") < text.index("pulled in vain, 1")
    assert "fairlead kubeconfig --space corners/corner" in text
    page.wait_for_text("0.75 cores", ".usage")  # of two pods with two containers each
    page.wait_for_text("512 MiB", ".usage")
    assert page.count(".usage .plot-dot") == 2
    page.click(role("link", "Logs"))
    page.wait_until(lambda: page.path.endswith(f"/~browse/pods/corner/{POD}?view=logs"), "the logs are shown")


def test_the_page_of_kinds_counts_objects_and_says_how_workloads_are(
    page: Page, sign_in: SignIn, cluster: SpaceCluster
) -> None:
    sign_in(page, ADMIN)
    page.goto(f"{PAGE}/~browse")
    page.wait_for_text("2", ".counted li")
    line = next(line for line in page.texts(".counted li") if line.startswith("Pods"))
    assert line.split() == ["Pods", "2", "1", "1"]
    assert {"1 failed"} <= set(page.eval("[...document.querySelectorAll('.counts svg')].map((e) => e.ariaLabel)"))


def test_usage_is_kept_while_the_tab_is_open(page: Page, sign_in: SignIn, cluster: SpaceCluster) -> None:
    sign_in(page, ADMIN)
    page.goto("clusters/oslo")
    page.wait_for_text("1.50 of 4 cores", ".usage")
    assert "6.0 of 16.0 GiB" in page.text(".usage")
    page.goto(f"{PAGE}/~browse/pods/corner/{POD}")
    page.wait_for_text("0.38 cores", ".usage")
    page.eval("history.back()")
    page.wait_for_text("1.50", ".usage")
    page.click(".usage summary")
    page.wait_for(role("region", "CPU and memory in use"))


def test_what_the_cluster_denies_is_not_requested(page: Page, sign_in: SignIn, cluster: SpaceCluster) -> None:
    cluster.denied.add("events")
    try:
        sign_in(page, ADMIN)
        page.goto(PAGE)
        page.wait_for_text("You may not list events there.", "main")
        page.wait_for(role("link", POD))
        assert not any(f"{INSIDE}/events" in each.path for each in page.requests)
    finally:
        cluster.denied.clear()


def test_nothing_is_requested_of_a_space_that_sleeps(
    page: Page, server: ConsoleServer, sign_in: SignIn, cluster: SpaceCluster
) -> None:
    path = f"{GROUP}/namespaces/service-p-corners/spaceinstances/corner"
    force = "sleepmode.service.sh/force"
    server.send("PATCH", path, {"metadata": {"annotations": {force: "true"}}}, patch=True)
    wait_until(lambda: server.send("GET", path)["status"].get("phase") == "Sleeping", what="it sleeps")
    try:
        sign_in(page, ADMIN)
        page.goto(PAGE)
        page.wait_for_text("It sleeps, and no pods run.", "main")
        page.wait_idle()
        assert not any("/kubernetes/project/" in each.path for each in page.requests)
    finally:
        activity = {force: None, "sleepmode.service.sh/last-activity": "4000000000"}
        server.send("PATCH", path, {"metadata": {"annotations": activity}}, patch=True)
    page.wait_for(role("link", POD))


def test_who_may_not_use_a_space_learns_it_without_a_refused_request(
    page: Page, server: ConsoleServer, sign_in: SignIn, cluster: SpaceCluster
) -> None:
    members = [{"kind": "User", "name": VIEWER, "clusterRole": "viewer"}]
    server.send("PATCH", f"{GROUP}/projects/corners", {"spec": {"members": members}}, patch=True)
    rule = {"name": "look", "verbs": ["get"], "users": [VIEWER]}
    path = f"{GROUP}/namespaces/service-p-corners/spaceinstances/corner"
    server.send("PATCH", path, {"spec": {"access": [rule]}}, patch=True)
    sign_in(page, VIEWER)
    page.goto(PAGE)
    page.wait_for_text("Not known now.", "main")
    page.wait_idle()
    assert page.count(role("link", POD)) == 0
    assert [each.path for each in page.requests if each.status >= 400] == []


def test_a_pod_shows_its_containers_and_where_it_runs(page: Page, sign_in: SignIn, cluster: SpaceCluster) -> None:
    sign_in(page, ADMIN)
    page.goto(f"{PAGE}/~browse/pods/corner/{POD}")
    page.wait_for_text("10.0.3.17", "main")
    migrate, web, resolver = page.texts(".tab-panel .card:first-child tbody tr")
    assert "Completed" in migrate and "before the others" in migrate
    assert "Running" in web and "example/web:1.4.2" in web and "8080 (http)" in web and "2" in web
    assert "Ended (3)" in resolver and "53/UDP" in resolver
    assert "node-1" in page.text("main")


def test_objects_are_created_from_yaml(page: Page, sign_in: SignIn, cluster: SpaceCluster) -> None:
    sign_in(page, ADMIN)
    page.goto(PAGE)
    page.wait_for(role("link", POD))
    page.wait_idle()
    page.click(role("button", "Create from YAML"))
    page.wait_for_text("Create from YAML", "h1")
    page.fill("YAML of the objects", "kind: ConfigMap\n")
    page.click(role("button", "Create"))
    page.wait_for_text("Object 1 has no apiVersion or no kind", "main")
    page.fill("YAML of the objects", "apiVersion: v1\nkind: Ship\nmetadata:\n  name: a\n")
    page.click(role("button", "Create"))
    page.wait_for_text("Object 1 is of the kind Ship in v1, which the cluster does not serve.", "main")
    text = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: made-here\ndata:\n  namespace: other\n"
    page.fill("YAML of the objects", f"# two\n---\n{text}---\n{text}")
    page.click(role("button", "Check"))
    page.wait_for_text("Nothing has been created yet", "main")
    page.click(role("button", "Create"))
    page.wait_for(role("link", "made-here"))
    sent = [each for each in cluster.fake.requests if each.method == "POST" and each.path == f"{INSIDE}/configmaps"]
    assert ["dryRun=All" in each.target for each in sent] == [True, True, False, False]
    assert {each.body.strip() for each in sent} == {text.strip().encode()}


def test_the_map_has_clusters_their_spaces_and_the_pods_in_these_and_follows_them(
    page: Page, server: ConsoleServer, sign_in: SignIn, cluster: SpaceCluster
) -> None:
    sign_in(page, ADMIN)
    page.goto("map")
    page.wait_for(role("link", "corner"))
    assert "1 space" in next(line for line in page.texts(".map > li") if line.startswith("oslo"))
    assert page.count(role("link", POD)) == 0
    page.eval("[...document.querySelectorAll('.map-line a')].find((e) => e.innerText === 'corner').focus()")
    page.click(role("button", "What is in corner"))
    page.wait_for(role("link", POD))
    assert "ImagePullBackOff" in page.text(".map")
    path = f"{GROUP}/namespaces/service-p-corners/spaceinstances/corner"
    server.send("PATCH", path, {"spec": {"displayName": "Round the corner"}}, patch=True)
    page.wait_for(role("link", "Round the corner"))
    page.wait_for(role("link", POD))  # its branch is still open
    page.fill("Arrange by", "Projects, and what is in them")
    page.wait_for(role("link", "corners"))
    lines = page.texts(".map > li")
    assert "2 workspaces, 2 spaces" in next(line for line in lines if line.startswith("Storefront"))
    assert not any("In no project" in line for line in lines)
    page.fill("Filter by name", "round")
    page.wait_until(lambda: len(page.texts(".map > li")) == 1, "other branches are hidden")
