"""Clusters in the console: connecting one, its page, and the objects in it, through the gateway.

The cluster `berlin` is another Fairlead, which serves Tables, watches and discovery like Kubernetes; `oslo` has a pod.
"""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import pytest

from fairlead.core.crypto.certificates import Certificates
from tests.console.browser import Page, role
from tests.console.conftest import SignIn
from tests.console.long_logs import LINES, check_long_log, line_of
from tests.console.servers import ADMIN, GROUP, OUTSIDER, VIEWER, ConsoleServer
from tests.fake_cluster.exchange import CannedResponse, RecordedRequest, build_json_response
from tests.fake_cluster.pods import POD_PATH, serve_pod
from tests.fake_cluster.server import ClusterOptions, FakeCluster
from tests.harness.eventually import wait_until
from tests.harness.gateways import (
    bind_role,
    cluster_rule,
    connect_cluster,
    create_resource,
    gateway_kubeconfig,
    is_online,
)
from tests.harness.server_process import MANAGEMENT, Server, configmap, running_server
from tests.live.discovery import build_discovery_list, serve_discovery

SECRETS = f"{MANAGEMENT}/api/v1/namespaces/service-system/secrets"
PODS, DEPLOYMENTS = "/api/v1/namespaces/default/pods", "/apis/apps/v1/namespaces/default/deployments"
HOSTILE = "<img src=x onerror=alert(1)>"
LOG_WITH_TIMES = b"2026-11-17T01:00:00.5Z ready to serve\n2026-11-17T01:00:01.5Z served one\n"
REJECT_CLUSTERS = """(() => {
  const send = window.fetch;
  const rejected = { kind: "Status", code: 422, reason: "Invalid", message: "the cluster is rejected" };
  window.fetch = (path, options) => options.method === "POST" && /clusters[?]/.test(path)
    ? Promise.resolve(new Response(JSON.stringify(rejected), { status: 422 })) : send(path, options);
})()"""


@dataclass(frozen=True, slots=True)
class Fleet:
    """The clusters `berlin` and `oslo` are connected; `rome` is not."""

    berlin: Server
    oslo: FakeCluster
    rome: FakeCluster


@pytest.fixture(scope="module")
def fleet(
    tmp_path_factory: pytest.TempPathFactory, server: ConsoleServer, certificates: Certificates
) -> Iterator[Fleet]:
    rome_options = ClusterOptions(uid="00000000-0000-4000-8000-00000000fa14", token="token-of-rome", nodes=3)
    with (
        running_server(tmp_path_factory.mktemp("berlin") / "data") as berlin,
        FakeCluster() as oslo,
        FakeCluster(options=rome_options) as rome,
        server.server.client() as admin,
        berlin.client() as remote,
    ):
        serve_pod(oslo)
        serve_deployment(oslo)
        oslo.set_response(f"{POD_PATH}/log", CannedResponse(200, LOG_WITH_TIMES, "text/plain"))
        created = remote.post(
            f"{MANAGEMENT}/api/v1/namespaces/default/configmaps", json=configmap("greeting", text=HOSTILE)
        )
        assert created.status_code == 201, created.text
        connect_cluster(admin, "berlin", gateway_kubeconfig(berlin, MANAGEMENT, berlin.key).encode())
        connect_cluster(admin, "oslo", oslo.build_kubeconfig())
        bind_role(admin, "use-berlin", VIEWER, [cluster_rule("berlin", "get", "use"), cluster_rule("oslo", "get")])
        for name in ("berlin", "oslo"):
            wait_until(partial(is_online, admin, name), what=f"{name} is online")
        yield Fleet(berlin, oslo, rome)


def serve_deployment(cluster: FakeCluster) -> None:
    """A deployment `web` with the pod `web-1`."""
    responses = {"resource": "deployments", "singularResource": "deployment", "scope": "Namespaced"}
    kind = {"group": "apps", "version": "v1", "kind": "Deployment"}
    resources = [{**responses, "responseKind": kind, "verbs": ["get", "list"]}]
    group = {"metadata": {"name": "apps"}, "versions": [{"version": "v1", "resources": resources}]}
    cluster.set_behaviour(
        "/apis", serve_discovery({"kind": "APIGroupList", "groups": []}, build_discovery_list([group]))
    )
    expression = {"key": "tier", "operator": "In", "values": ["a", "b"]}
    selector = {"matchLabels": {"app": "web"}, "matchExpressions": [expression]}
    metadata = {"namespace": "default", "resourceVersion": "1"}
    deployment = {"metadata": {**metadata, "name": "web", "uid": "d"}, "spec": {"selector": selector}}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**metadata, "name": "web-1", "uid": "w"},
        "spec": {"containers": [{"name": "c"}]},
        "status": {"phase": "Running"},
    }
    cluster.set_response(DEPLOYMENTS, build_json_response({"metadata": {}, "items": [deployment]}))
    cluster.set_response(f"{DEPLOYMENTS}/web", build_json_response(deployment))

    async def list_pods(request: RecordedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        items = [pod] if "labelSelector" in request.query or "web-1" in request.target else []
        content = {"metadata": {"resourceVersion": "1"}, "items": items}
        writer.write(build_json_response(content).encode(request.method))
        return True

    cluster.set_behaviour(PODS, list_pods)
    cluster.set_response(f"{PODS}/web-1", build_json_response(pod))


def paste_kubeconfig(page: Page, name: str, kubeconfig: bytes) -> None:
    page.goto("clusters/~connect")
    page.fill("Name", name)
    page.fill("Kubeconfig", kubeconfig.decode())
    page.click(role("button", "Connect"))


def test_a_pasted_kubeconfig_connects_a_cluster(
    page: Page, sign_in: SignIn, server: ConsoleServer, fleet: Fleet
) -> None:
    sign_in(page, ADMIN)
    paste_kubeconfig(page, "rome", fleet.rome.build_kubeconfig(token="wrong"))
    page.wait_for_text("The cluster cannot be used yet.")
    page.wait_for('[data-check="credential"][data-state="failed"]')

    page.click(role("button", "Try another kubeconfig"))
    page.fill("Kubeconfig", fleet.rome.build_kubeconfig(token="token-of-rome").decode())
    page.click(role("button", "Replace the kubeconfig"))

    page.wait_for_text("The cluster is connected.", timeout=20)
    page.wait_for('[data-check="impersonation"][data-state="ready"]')
    assert "token-of-rome" not in json.dumps(page.eval("[{...localStorage}, {...sessionStorage}, document.cookie]"))
    assert "token-of-rome" not in page.eval("document.body.innerHTML + document.querySelector('textarea').value")
    page.click(role("link", "Open the cluster"))
    page.wait_for_text("Online since")
    page.wait_for_text("fairlead kubeconfig --cluster rome")


def test_the_kubeconfig_of_an_existing_cluster_is_not_replaced(
    page: Page, sign_in: SignIn, server: ConsoleServer, fleet: Fleet
) -> None:
    sign_in(page, ADMIN)
    before = server.send("GET", f"{SECRETS}/cluster-berlin")["metadata"]["resourceVersion"]
    paste_kubeconfig(page, "berlin", fleet.rome.build_kubeconfig())
    page.wait_for_text("The cluster berlin exists already.")
    assert server.send("GET", f"{SECRETS}/cluster-berlin")["metadata"]["resourceVersion"] == before


def test_a_secret_is_removed_when_the_cluster_is_rejected(
    page: Page, sign_in: SignIn, server: ConsoleServer, fleet: Fleet
) -> None:
    sign_in(page, ADMIN)
    page.goto("clusters/~connect")
    page.eval(REJECT_CLUSTERS)
    page.fill("Name", "refused")
    page.fill("Kubeconfig", fleet.rome.build_kubeconfig().decode())
    page.click(role("button", "Connect"))
    page.wait_for_text("The cluster is rejected")
    assert any(each.method == "POST" and "/secrets" in each.path for each in page.requests)
    names = [each["metadata"]["name"] for each in server.send("GET", SECRETS)["items"]]
    assert "cluster-refused" not in names


def test_connecting_says_which_permissions_are_missing(page: Page, sign_in: SignIn, fleet: Fleet) -> None:
    sign_in(page, OUTSIDER)
    page.goto("clusters/~connect")
    page.wait_for_text(
        "This needs permission to create clusters and to create Secrets in the namespace service-system."
    )


def test_the_list_of_clusters_has_tiles_and_a_table(page: Page, sign_in: SignIn, fleet: Fleet) -> None:
    sign_in(page, ADMIN)
    page.goto("clusters")
    page.wait_for(".cluster-tile .spark-line")
    assert "berlin" in "\n".join(page.texts(".cluster-tile"))
    page.wait_for(role("link", "berlin"))


def test_the_page_of_a_cluster_lists_checks_and_who_may_use_it(page: Page, sign_in: SignIn, fleet: Fleet) -> None:
    sign_in(page, ADMIN)
    page.goto("clusters/berlin")
    page.wait_for('[data-check="connection"][data-state="ready"]')
    page.wait_for_text("/kubernetes/cluster/berlin")
    page.click(role("button", "List who can"))
    page.wait_for_text(VIEWER, within=".cluster")


def test_objects_of_a_cluster_can_be_browsed(page: Page, sign_in: SignIn, fleet: Fleet) -> None:
    sign_in(page, ADMIN)
    page.goto("clusters/berlin")
    page.wait_for('[data-check="connection"][data-state="ready"]')
    page.wait_idle()
    page.click(role("button", "Browse objects"))
    page.wait_until(lambda: page.path.endswith("/~browse"), "the kinds are shown")
    page.click(role("link", "Namespaces"))
    page.wait_for(role("link", "default"))
    page.goto("clusters/berlin/~browse")
    page.fill("Namespace", "default")
    page.click(role("link", "Config maps"))
    page.click(role("link", "greeting"))
    page.wait_for_text(HOSTILE)
    assert page.path.endswith("/console/clusters/berlin/~browse/configmaps/default/greeting")


def test_a_namespace_leads_to_the_objects_in_it(page: Page, sign_in: SignIn, fleet: Fleet) -> None:
    sign_in(page, ADMIN)
    page.goto("clusters/berlin/~browse/namespaces/default")
    page.click(role("button", "Browse objects"))
    page.wait_until(lambda: page.path.endswith("/clusters/berlin/~browse?ns=default"), "the kinds are shown")
    page.wait_for("a[href$='/~browse/configmaps/default']")


def test_changes_in_a_cluster_appear_by_themselves(page: Page, sign_in: SignIn, fleet: Fleet) -> None:
    sign_in(page, ADMIN)
    page.goto("clusters/berlin/~browse/configmaps/default")
    page.wait_for(role("link", "greeting"))
    with fleet.berlin.client() as remote:
        remote.post(f"{MANAGEMENT}/api/v1/namespaces/default/configmaps", json=configmap("later", a="1"))
    page.wait_for(role("link", "later"))


def test_a_user_without_rights_in_the_cluster_sees_why(page: Page, sign_in: SignIn, fleet: Fleet) -> None:
    page.allow_errors("403")
    sign_in(page, VIEWER)
    page.goto("clusters/berlin/~browse/configmaps/default")
    page.wait_for_text("fairlead:viewer")  # the message of the cluster names the user there


def test_a_user_who_may_not_use_a_cluster_sees_why(page: Page, sign_in: SignIn, fleet: Fleet) -> None:
    page.allow_errors("403")
    sign_in(page, VIEWER)
    page.goto("clusters/oslo/~browse")
    page.wait_for_text("you need the verb use")
    page.goto("clusters/oslo")
    page.wait_until(
        lambda: page.attribute(role("button", "Browse objects"), "aria-disabled") == "true", "browsing is disabled"
    )


def test_a_dead_cluster_is_explained_and_delays_nothing(page: Page, sign_in: SignIn, fleet: Fleet) -> None:
    page.allow_errors("502", "503")
    sign_in(page, ADMIN)
    fleet.oslo.stop()
    try:
        page.goto("clusters/oslo/~browse")
        page.wait_for(role("link", "Checks of the cluster"))
        page.wait_for(".error")
        page.goto("clusters/berlin/~browse")
        page.wait_for(role("link", "Config maps"))
    finally:
        fleet.oslo.start()


def test_a_pod_has_logs_and_a_terminal(page: Page, sign_in: SignIn, fleet: Fleet) -> None:
    sign_in(page, ADMIN)
    page.goto("clusters/oslo/~browse/pods/default/p?view=logs")
    page.wait_for_text("ready to serve", within=".log")
    page.wait_for_text("served one", within=".log")
    page.click(role("tab", "Terminal"))
    page.fill("Command", "cat")
    page.click(role("button", "Open a terminal"))
    page.wait_for_text("Connected", within=".terminal-status")
    page.type("hello")
    page.wait_for_text("hello", within=".terminal-lines")


def test_a_log_of_20_000_lines_stands_in_the_page_of_its_pod(page: Page, sign_in: SignIn, fleet: Fleet) -> None:
    async def send_log(request: RecordedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ntransfer-encoding: chunked\r\n\r\n")
        for first in range(0, LINES, 500):
            numbers = range(first, first + 500)
            text = "".join(
                f"2026-11-17T01:{n // 600:02}:{n % 600 / 10:06.3f}1Z {line_of(n)}\n" for n in numbers
            ).encode()
            writer.write(b"%x\r\n%s\r\n" % (len(text), text))
            await writer.drain()
        await reader.read(1)  # followed, and silent from now on
        return False

    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "talkative", "namespace": "default", "uid": "3"},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
        "status": {"phase": "Running"},
    }
    fleet.oslo.set_response(f"{PODS}/talkative", build_json_response(pod))
    fleet.oslo.set_behaviour(f"{PODS}/talkative/log", send_log)
    sign_in(page, ADMIN)
    page.goto("clusters/oslo/~browse/pods/default/talkative?view=logs")
    check_long_log(page)


def test_a_space_is_browsed_as_its_one_namespace(
    page: Page, sign_in: SignIn, server: ConsoleServer, fleet: Fleet
) -> None:
    namespace = "service-p-corners"
    spaces = f"{GROUP}/namespaces/{namespace}/spaceinstances"
    spec = {"clusterRef": {"cluster": "berlin"}, "template": {}}
    with server.server.client() as admin:
        create_resource(admin, "projects", "Project", "corners", allowedClusters=[{"name": "berlin"}])
        create_resource(admin, f"namespaces/{namespace}/spaceinstances", "SpaceInstance", "corner", **spec)
    sign_in(page, ADMIN)
    page.goto(f"spaceinstances/{namespace}/corner")
    page.wait_for_text("Ready", timeout=30)
    inside = server.send("GET", f"{spaces}/corner")["spec"]["clusterRef"]["namespace"]
    with fleet.berlin.client() as remote:
        remote.post(f"{MANAGEMENT}/api/v1/namespaces/{inside}/configmaps", json=configmap("inside", a="1"))
    page.goto(f"spaceinstances/{namespace}/corner/~browse")
    page.wait_for_text(inside, within=".browse-bar")
    page.click(role("link", "Config maps"))
    page.click(role("link", "inside"))
    page.wait_for_text("Config map", within=".facts")


def test_a_deployment_shows_its_pods(page: Page, sign_in: SignIn, fleet: Fleet) -> None:
    sign_in(page, ADMIN)
    page.goto("clusters/oslo/~browse/deployments.apps/default/web?view=pods")
    page.click(role("link", "web-1"))
    page.wait_for(role("tab", "Logs"))
    listed = [each for each in fleet.oslo.requests if each.path == PODS and "labelSelector" in each.target]
    assert listed and "app%3Dweb%2Ctier+in+%28a%2Cb%29" in listed[0].target
