"""Pages that answer questions: what a cluster has, who works in a project, and where a user's rights come from."""

from collections.abc import Iterator
from functools import partial

import pytest

from tests.console.browser import Page, role
from tests.console.conftest import SignIn
from tests.console.servers import ADMIN, OWNER, PROJECT, VIEWER, ConsoleServer
from tests.fake_cluster.exchange import build_json_response
from tests.fake_cluster.server import FakeCluster
from tests.harness.eventually import wait_until
from tests.harness.gateways import bind_role, cluster_rule, connect_cluster, is_online
from tests.live.discovery import build_core_discovery, build_discovery_list, serve_discovery


@pytest.fixture(scope="module")
def oslo(server: ConsoleServer) -> Iterator[FakeCluster]:
    """A cluster of two nodes, of which one is ready."""
    nodes = [
        {
            "metadata": {"name": f"node-{number}", "uid": f"uid-{number}", "resourceVersion": "1", "labels": labels},
            "status": {
                "conditions": [{"type": "Ready", "status": status}],
                "capacity": {"cpu": "8", "memory": "33554432Ki", "pods": "110"},
                "nodeInfo": {"kubeletVersion": "v1.34.1"},
            },
        }
        for number, status, labels in (
            (1, "True", {"node-role.kubernetes.io/control-plane": ""}),
            (2, "False", {}),
        )
    ]
    resource = {"name": "nodes", "singularName": "", "namespaced": False, "kind": "Node", "verbs": ["get", "list"]}
    with FakeCluster() as cluster, server.server.client() as admin:
        versions = {"kind": "APIVersions", "versions": ["v1"]}
        cluster.set_behaviour("/api", serve_discovery(versions, build_core_discovery([resource])))
        groups: dict[str, object] = {"kind": "APIGroupList", "groups": []}
        cluster.set_behaviour("/apis", serve_discovery(groups, build_discovery_list([])))
        cluster.set_response("/api/v1/nodes", build_json_response({"metadata": {}, "items": nodes}))
        connect_cluster(admin, "oslo", cluster.build_kubeconfig())
        wait_until(partial(is_online, admin, "oslo"), what="oslo is online")
        bind_role(admin, "look-at-oslo", VIEWER, [cluster_rule("oslo", "get")])
        yield cluster


def test_a_cluster_shows_its_nodes_and_their_capacity(page: Page, sign_in: SignIn, oslo: FakeCluster) -> None:
    sign_in(page, ADMIN)
    page.goto("clusters/oslo")
    page.wait_for(role("link", "node-1"))
    first, second = page.texts("table.nodes tbody tr")
    assert "Ready" in first and "control-plane" in first and "32 GiB" in first and "v1.34.1" in first
    assert "Not ready" in second
    text = page.text("main")
    assert "1 of 2" in text and "64 GiB" in text and "220" in text and "16" in text


def test_who_may_not_use_a_cluster_is_not_refused_its_nodes(page: Page, sign_in: SignIn, oslo: FakeCluster) -> None:
    sign_in(page, VIEWER)
    page.goto("clusters/oslo")
    page.wait_for_text("Nodes and capacity", "main")
    page.wait_idle()
    assert page.count(role("link", "node-1")) == 0
    assert not any("/kubernetes/cluster/" in each.path for each in page.requests)


def test_a_project_shows_who_works_in_it_and_in_which_role(page: Page, sign_in: SignIn) -> None:
    sign_in(page, OWNER)
    page.goto(f"projects/{PROJECT}")
    page.wait_for(role("link", VIEWER))
    members = "\n".join(page.texts("main .card"))
    assert f"{OWNER}\nowner" in members and f"{VIEWER}\nviewer" in members
    page.click(role("link", "All members (4)"))
    page.wait_for(role("button", "Add"))


def test_a_project_says_that_a_member_sees_only_a_part_of_what_is_in_it(page: Page, sign_in: SignIn) -> None:
    note = "Only what you may see is counted"
    sign_in(page, VIEWER)
    page.goto(f"projects/{PROJECT}")
    page.wait_for_text(note, "main")
    sign_in(page, ADMIN)
    page.goto(f"projects/{PROJECT}")
    page.wait_for(role("link", VIEWER))
    page.wait_idle()
    assert note not in page.text("main")


def test_the_nodes_of_a_cluster_with_an_agent_are_requested(page: Page, sign_in: SignIn) -> None:
    page.allow_errors("503")
    sign_in(page, ADMIN)
    page.goto("clusters/frankfurt")
    page.wait_for_text("has not joined yet", "main .error")
    assert page.texts("main .error-title code") == ["fairlead cluster add frankfurt --agent"]
    assert "has no kubeconfig" not in page.text("main")


def test_a_cluster_that_never_responded_has_no_line_of_latency(page: Page, sign_in: SignIn) -> None:
    sign_in(page, ADMIN)
    page.goto("clusters/singapore")
    page.wait_for("svg.spark-line[aria-label='no response'] circle", timeout=60)
    assert page.count(".spark-line polyline") == 0


def test_a_user_shows_its_roles_and_where_they_come_from(page: Page, sign_in: SignIn, oslo: FakeCluster) -> None:
    sign_in(page, ADMIN)
    page.goto(f"users/{VIEWER}")
    page.wait_for(role("link", "look-at-oslo"))
    page.wait_for_text("look-at-oslo\nbound to the user", "main")
    page.wait_for_text("Storefront", "main")
    sign_in(page, VIEWER)
    page.goto(f"users/{VIEWER}")
    page.wait_for_text("You may not list who has which roles.", "main")
    page.wait_idle()
    assert [each.path for each in page.requests if each.status >= 400] == []
