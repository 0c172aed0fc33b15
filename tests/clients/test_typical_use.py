"""A typical sequence of requests with curl and kubectl.

Projects and an App are created, an access key is scoped to one project, a workspace is created from a template and
handled by a runner, a direct token is verified with the published keys, and a virtual cluster moves to another project.
Watches that were opened at the beginning must have seen all changes.
"""

import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jwt
import pytest

from tests.clients.objects import Body, build_app, build_object, build_project, build_workspace, to_yaml
from tests.clients.server import VERSION, Server
from tests.harness.eventually import wait_until
from tests.harness.kubectl import Kubectl

TIMEOUT_SECONDS = 20.0
"""How long the test waits for a change."""

WEB, LAB = "service-p-web", "service-p-lab"
WORKSPACES = "devpodworkspaceinstances"
CLUSTERS = "virtualclusterinstances"
WATCHED = ("projects", "apps", "ownedaccesskeys", WORKSPACES, "runners", CLUSTERS)
WATCH_QUERY = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
"""With a bookmark after the initial events, which shows that the watch is open."""
MERGE = "application/merge-patch+json"


@dataclass(frozen=True, slots=True)
class Curl:
    """The program, the server, and the access key that it sends."""

    program: Path
    server: Server
    key: str

    def __call__(self, method: str, path: str, body: Body | None = None, *, media: str = "application/yaml") -> Any:
        """Returns the body of a request that must succeed."""
        code, response_body = self.send(method, path, body, media=media)
        assert code in (200, 201), response_body
        return response_body

    def expect_error(self, code: int, method: str, path: str, body: Body | None = None) -> str:
        """Returns the message of a request that must fail with this code."""
        status_code, status = self.send(method, path, body)
        assert (status_code, status["kind"], status["code"]) == (code, "Status", code), status
        return str(status["message"])

    def send(self, method: str, path: str, body: Body | None = None, *, media: str = "application/yaml") -> Any:
        command = [*self.command(path), "--request", method, "--write-out", "\n%{http_code}"]
        command += ["--header", f"Content-Type: {media}", "--data-binary", "@-"] if body is not None else []
        data = "" if body is None else json.dumps(body)
        result = subprocess.run(command, input=data, capture_output=True, text=True, timeout=30, check=False)
        assert result.returncode == 0, result.stderr
        text, _, code = result.stdout.rpartition("\n")
        return int(code), json.loads(text)

    def command(self, path: str) -> list[str]:
        """A path with a leading slash is relative to the server, any other to the management group."""
        url = f"{self.server.url}{path}" if path.startswith("/") else f"{self.server.api_root}/{path}"
        command = [str(self.program), "--silent", "--show-error", "--cacert", str(self.server.ca_file), url]
        return [*command, "--header", f"Authorization: Bearer {self.key}"] if self.key else command

    def with_key(self, key: str) -> "Curl":
        return Curl(self.program, self.server, key)


@pytest.fixture
def curl(server: Server, component: Callable[[str], Path]) -> Curl:
    return Curl(component("curl"), server, server.key)


@contextmanager
def open_watches(curl: Curl, folder: Path) -> Iterator[Callable[[str], list[tuple[str, str]]]]:
    """Opens a watch of each resource with curl; yields a function that returns the events of a resource."""
    with ExitStack() as stack:
        for plural in WATCHED:
            event_file = stack.enter_context((folder / plural).open("wb"))
            watch = subprocess.Popen([*curl.command(f"{plural}?{WATCH_QUERY}"), "--no-buffer"], stdout=event_file)
            stack.callback(watch.wait)
            stack.callback(watch.kill)
        for plural in WATCHED:
            wait_until(partial(is_watch_open, folder / plural), TIMEOUT_SECONDS, f"a watch of {plural}")

        def read_events(plural: str) -> list[tuple[str, str]]:
            lines = (folder / plural).read_text().rpartition("\n")[0].splitlines()
            events = [json.loads(line) for line in lines]
            return [(each["type"], format_name(each["object"])) for each in events if each["type"] != "BOOKMARK"]

        yield read_events


def is_watch_open(event_file: Path) -> bool:
    return '"BOOKMARK"' in event_file.read_text()


def format_name(obj: Body) -> str:
    meta = obj["metadata"]
    return f"{meta['namespace']}/{meta['name']}" if "namespace" in meta else str(meta["name"])


def test_a_typical_sequence_of_requests(curl: Curl, kubectl: Kubectl, tmp_path: Path) -> None:
    with open_watches(curl, tmp_path) as read_events:
        create_projects(kubectl)
        create_shared_app(curl, kubectl)
        create_scoped_key(curl, kubectl)
        create_workspace_from_template(curl, kubectl)
        report_as_runner(curl, kubectl)
        verify_direct_token(curl)
        migrate_virtual_cluster(curl, kubectl)
        check_watch_events(read_events)


def create_projects(kubectl: Kubectl) -> None:
    members = [{"kind": "User", "name": "ada", "clusterRole": "admin"}]
    kubectl("create", "-f", "-", body=to_yaml(build_object("User", "ada", displayName="Ada")))
    projects = (build_project(name, displayName=name, members=members) for name in ("web", "lab"))
    kubectl("create", "-f", "-", body=to_yaml(*projects))
    kubectl("wait", "projects", "web", "lab", "--for=condition=Ready", "--timeout=60s")
    assert {WEB, LAB} <= set(kubectl.get_names("namespaces"))


def create_shared_app(curl: Curl, kubectl: Kubectl) -> None:
    chart = {"name": "shop", "repoURL": "https://charts.example.com"}
    shared = [{"users": ["*"], "verbs": ["get"]}]
    kubectl(
        "create", "-f", "-", body=to_yaml(build_app("shop", displayName="Shop", config={"chart": chart}, access=shared))
    )
    assert curl("GET", "apps/shop")["spec"]["config"]["chart"] == chart


def create_scoped_key(curl: Curl, kubectl: Kubectl) -> None:
    """Ada is a member of both projects; her unscoped key works in both, the scoped one in one."""
    unscoped_key = curl("POST", "ownedaccesskeys", build_object("OwnedAccessKey", "ada", user="ada"))["spec"]["key"]
    ada = curl.with_key(unscoped_key)
    assert ada("GET", "apps/shop")["spec"]["displayName"] == "Shop"
    scoped_body = build_object(
        "OwnedAccessKey", "ada-ci", user="ada", scope={"projects": [{"project": "web"}]}, ttl=3600
    )
    scoped_key = ada("POST", "ownedaccesskeys", scoped_body)["spec"]["key"]
    assert ada("GET", f"namespaces/{LAB}/{WORKSPACES}")["items"] == []
    kubectl("create", "configmap", "build", "-n", WEB, f"--token={scoped_key}")
    assert "outside the scope" in kubectl.expect_failure(
        "create", "configmap", "build", "-n", LAB, f"--token={scoped_key}"
    )
    assert "outside the scope" in curl.with_key(scoped_key).expect_error(403, "GET", f"namespaces/{LAB}/{WORKSPACES}")
    assert "ada-ci" in kubectl.get_names("ownedaccesskeys", f"--token={unscoped_key}")


def create_workspace_from_template(curl: Curl, kubectl: Kubectl) -> None:
    options = {"IMAGE": {"value": "{{ parameters.image }}"}}
    parameters = [{"variable": "image", "options": ["debian", "alpine"], "required": True}]
    template = {"provider": {"name": "docker", "options": options}}
    template_body = build_object("DevPodWorkspaceTemplate", "python", template=template, parameters=parameters)
    kubectl(
        "create",
        "-f",
        "-",
        body=to_yaml(template_body, build_object("Runner", "one", endpoint="runner.example.com:8443")),
    )
    body = build_workspace("dev", WEB, templateRef={"name": "python"}, parameters="image: windows")
    assert "image" in curl.expect_error(422, "POST", f"namespaces/{WEB}/{WORKSPACES}", body)
    body["spec"]["parameters"] = "image: alpine"
    curl("POST", f"namespaces/{WEB}/{WORKSPACES}", body)
    kubectl("wait", f"{WORKSPACES}/dev", "-n", WEB, "--for=condition=TemplateResolved", "--timeout=60s")
    kubectl("wait", f"{WORKSPACES}/dev", "-n", WEB, "--for=jsonpath={.spec.runnerRef.runner}=one", "--timeout=60s")
    found = kubectl.get_json(WORKSPACES, "dev", "-n", WEB)
    assert found["status"]["instance"]["provider"]["options"]["IMAGE"]["value"] == "alpine"


def report_as_runner(curl: Curl, kubectl: Kubectl) -> None:
    access_key = curl("GET", "runners/one/accesskey")
    assert (access_key["kind"], access_key["apiVersion"]) == ("RunnerAccessKey", VERSION)
    runner = curl.with_key(access_key["accessKey"])
    assert runner("POST", "selves", {})["status"]["subject"] == "service:runner:one"
    assert [format_name(each) for each in runner("GET", WORKSPACES)["items"]] == [f"{WEB}/dev"]
    runner("PATCH", "runners/one/status", {"status": {"phase": "Initialized"}}, media=MERGE)
    report = {"status": {"phase": "Ready", "lastWorkspaceStatus": "Running"}}
    runner("PATCH", f"namespaces/{WEB}/{WORKSPACES}/dev/status", report, media=MERGE)
    kubectl("wait", f"{WORKSPACES}/dev", "-n", WEB, "--for=condition=Ready", "--timeout=60s")
    runner.expect_error(403, "DELETE", f"namespaces/{WEB}/{WORKSPACES}/dev")
    runner.expect_error(403, "GET", "projects/web")
    row = dict(zip(*kubectl.get_rows(WORKSPACES, "dev", "-n", WEB), strict=True))
    assert (row["STATUS"], row["TEMPLATE"], row["RUNNER"]) == ("Running", "python", "one")


def verify_direct_token(curl: Curl) -> None:
    response_body = curl(
        "POST", "directclusterendpointtokens", {**build_object("DirectClusterEndpointToken", "x"), "spec": {"ttl": 600}}
    )
    token = response_body["status"]["token"]
    anonymous = curl.with_key("")
    configuration = anonymous("GET", "/.well-known/openid-configuration")
    assert configuration["jwks_uri"].startswith(curl.server.url)
    keys = jwt.PyJWKSet.from_dict(anonymous("GET", configuration["jwks_uri"].removeprefix(curl.server.url)))
    key = keys[jwt.get_unverified_header(token)["kid"]]
    checks: Any = {"audience": "service.sh/direct", "issuer": configuration["issuer"]}
    claims = jwt.decode(token, key, algorithms=["RS256"], **checks)
    assert (claims["sub"], claims["exp"] - claims["iat"]) == ("admin", 600)
    head, payload, signature = token.split(".")
    forged = f"{head}.{payload}.{signature[::-1]}"
    with pytest.raises(jwt.InvalidSignatureError):
        jwt.decode(forged, key, algorithms=["RS256"], **checks)


def migrate_virtual_cluster(curl: Curl, kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", body=to_yaml(build_object("VirtualClusterTemplate", "small", template={})))
    staging = build_object("VirtualClusterInstance", "staging", namespace=WEB, templateRef={"name": "small"})
    kubectl("create", "-f", "-", body=to_yaml(staging))
    kubectl("wait", f"{CLUSTERS}/staging", "-n", WEB, "--for=condition=TemplateResolved", "--timeout=60s")
    before = curl("GET", f"namespaces/{WEB}/{CLUSTERS}/staging")
    source = {"name": "staging", "namespace": WEB}
    request = {"apiVersion": VERSION, "kind": "ProjectMigrateVirtualClusterInstance"}
    request |= {"sourceVirtualClusterInstance": source}  # type: ignore[dict-item]
    path = "projects/lab/migratevirtualclusterinstance"
    assert curl("POST", f"{path}?dryRun=All", request)["sourceVirtualClusterInstance"] == source
    assert kubectl.get_names(CLUSTERS, "-n", WEB) == ["staging"]
    assert curl("POST", path, request)["sourceVirtualClusterInstance"] == source
    assert (kubectl.get_names(CLUSTERS, "-n", WEB), kubectl.get_names(CLUSTERS, "-n", LAB)) == ([], ["staging"])
    after = curl("GET", f"namespaces/{LAB}/{CLUSTERS}/staging")
    assert after["spec"] == before["spec"]
    assert '"staging" not found' in curl.expect_error(404, "POST", path, request)


def check_watch_events(read_events: Callable[[str], list[tuple[str, str]]]) -> None:
    moved = [("ADDED", f"{WEB}/staging"), ("DELETED", f"{WEB}/staging"), ("ADDED", f"{LAB}/staging")]
    expected = {
        "projects": [("ADDED", "web"), ("ADDED", "lab")],
        "apps": [("ADDED", "shop")],
        "ownedaccesskeys": [("ADDED", "ada"), ("ADDED", "ada-ci")],
        WORKSPACES: [("ADDED", f"{WEB}/dev"), ("MODIFIED", f"{WEB}/dev")],
        "runners": [("ADDED", "one"), ("MODIFIED", "one")],
        CLUSTERS: moved,
    }
    assert set(expected) == set(WATCHED)
    for plural, events in expected.items():
        wait_until(
            partial(contains_in_order, events, partial(read_events, plural)), TIMEOUT_SECONDS, f"{events} of {plural}"
        )


def contains_in_order(expected: list[tuple[str, str]], read_events: Callable[[], list[tuple[str, str]]]) -> bool:
    """Whether the events occurred in this order, with any others in between."""
    remaining = iter(read_events())
    return all(each in remaining for each in expected)
