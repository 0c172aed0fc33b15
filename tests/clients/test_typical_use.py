"""A day with the server, told with curl and kubectl only: what people do with it, one thing after the other.

A project is opened, an App published, a key cut down to the project, a workspace made from a template and looked after
by a runner, a direct token verified by somebody who knows nothing but the address, and a virtual cluster moved to
another project. Watches that were opened in the morning have seen all of it in the evening.
"""

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jwt
import pytest

from tests.clients.objects import Body, app, as_yaml, of, project, workspace
from tests.clients.server import VERSION, Server
from tests.harness.kubectl import Kubectl

PATIENCE = 20.0
"""Seconds after which something that should have happened counts as not happening."""

WEB, LAB = "service-p-web", "service-p-lab"
WORKSPACES = "devpodworkspaceinstances"
CLUSTERS = "virtualclusterinstances"
WATCHED = ("projects", "apps", "ownedaccesskeys", WORKSPACES, "runners", CLUSTERS)
FROM_NOW_ON = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
"""The server says when it has told what was there already, so that one knows that the watch is open."""
MERGE = "application/merge-patch+json"


@dataclass(frozen=True, slots=True)
class Curl:
    """The program, the server, and whose key it sends."""

    program: Path
    server: Server
    key: str

    def __call__(self, method: str, path: str, body: Body | None = None, *, media: str = "application/yaml") -> Any:
        """The answer to a request that must succeed."""
        code, told = self.asked(method, path, body, media=media)
        assert code in (200, 201), told
        return told

    def refused(self, code: int, method: str, path: str, body: Body | None = None) -> str:
        """What a request is told that must fail with this code."""
        answered, told = self.asked(method, path, body)
        assert (answered, told["kind"], told["code"]) == (code, "Status", code), told
        return str(told["message"])

    def asked(self, method: str, path: str, body: Body | None = None, *, media: str = "application/yaml") -> Any:
        command = [*self.command(path), "--request", method, "--write-out", "\n%{http_code}"]
        command += ["--header", f"Content-Type: {media}", "--data-binary", "@-"] if body is not None else []
        sent = "" if body is None else json.dumps(body)
        done = subprocess.run(command, input=sent, capture_output=True, text=True, timeout=30, check=False)
        assert done.returncode == 0, done.stderr
        text, _, code = done.stdout.rpartition("\n")
        return int(code), json.loads(text)

    def command(self, path: str) -> list[str]:
        """A path with a slash in front is one of the server's, any other one of the management group's."""
        url = f"{self.server.url}{path}" if path.startswith("/") else f"{self.server.api_root}/{path}"
        command = [str(self.program), "--silent", "--show-error", "--cacert", str(self.server.ca_file), url]
        return [*command, "--header", f"Authorization: Bearer {self.key}"] if self.key else command

    def holding(self, key: str) -> "Curl":
        return Curl(self.program, self.server, key)


@pytest.fixture
def curl(server: Server, component: Callable[[str], Path]) -> Curl:
    return Curl(component("curl"), server, server.key)


@contextmanager
def watching(curl: Curl, folder: Path) -> Iterator[Callable[[str], list[tuple[str, str]]]]:
    """Watches of everything, each a curl that writes down what it hears: what happened, and to what."""
    with ExitStack() as stack:
        for plural in WATCHED:
            diary = stack.enter_context((folder / plural).open("wb"))
            watch = subprocess.Popen([*curl.command(f"{plural}?{FROM_NOW_ON}"), "--no-buffer"], stdout=diary)
            stack.callback(watch.wait)
            stack.callback(watch.kill)
        for plural in WATCHED:
            wait_until(partial(_is_open, folder / plural), f"a watch of {plural}")

        def heard(plural: str) -> list[tuple[str, str]]:
            lines = (folder / plural).read_text().rpartition("\n")[0].splitlines()
            events = [json.loads(line) for line in lines]
            return [(each["type"], _called(each["object"])) for each in events if each["type"] != "BOOKMARK"]

        yield heard


def _is_open(diary: Path) -> bool:
    return '"BOOKMARK"' in diary.read_text()


def _called(obj: Body) -> str:
    meta = obj["metadata"]
    return f"{meta['namespace']}/{meta['name']}" if "namespace" in meta else str(meta["name"])


def test_a_day_with_the_server(curl: Curl, kubectl: Kubectl, tmp_path: Path) -> None:
    with watching(curl, tmp_path) as heard:
        projects_are_opened(kubectl)
        an_app_is_published(curl, kubectl)
        a_key_is_cut_down_to_the_project(curl, kubectl)
        a_workspace_is_made_from_a_template(curl, kubectl)
        a_runner_looks_after_it(curl, kubectl)
        a_direct_token_is_verified_by_strangers(curl)
        a_virtual_cluster_moves(curl, kubectl)
        all_of_it_was_heard(heard)


def projects_are_opened(kubectl: Kubectl) -> None:
    members = [{"kind": "User", "name": "ada", "clusterRole": "admin"}]
    kubectl("create", "-f", "-", body=as_yaml(of("User", "ada", displayName="Ada")))
    projects = (project(name, displayName=name, members=members) for name in ("web", "lab"))
    kubectl("create", "-f", "-", body=as_yaml(*projects))
    kubectl("wait", "projects", "web", "lab", "--for=condition=Ready", "--timeout=20s")
    assert {WEB, LAB} <= set(kubectl.names("namespaces"))


def an_app_is_published(curl: Curl, kubectl: Kubectl) -> None:
    chart = {"name": "shop", "repoURL": "https://charts.example.com"}
    shared = [{"users": ["*"], "verbs": ["get"]}]
    kubectl("create", "-f", "-", body=as_yaml(app("shop", displayName="Shop", config={"chart": chart}, access=shared)))
    assert curl("GET", "apps/shop")["spec"]["config"]["chart"] == chart


def a_key_is_cut_down_to_the_project(curl: Curl, kubectl: Kubectl) -> None:
    """Ada is in both projects, and her whole key reaches both. The key for the pipeline reaches one."""
    whole = curl("POST", "ownedaccesskeys", of("OwnedAccessKey", "ada", user="ada"))["spec"]["key"]
    mine = curl.holding(whole)
    assert mine("GET", "apps/shop")["spec"]["displayName"] == "Shop"
    scoped = of("OwnedAccessKey", "ada-ci", user="ada", scope={"projects": [{"project": "web"}]}, ttl=3600)
    pipeline = mine("POST", "ownedaccesskeys", scoped)["spec"]["key"]
    assert mine("GET", f"namespaces/{LAB}/{WORKSPACES}")["items"] == []
    kubectl("create", "configmap", "build", "-n", WEB, f"--token={pipeline}")
    assert "outside the scope" in kubectl.refused("create", "configmap", "build", "-n", LAB, f"--token={pipeline}")
    assert "outside the scope" in curl.holding(pipeline).refused(403, "GET", f"namespaces/{LAB}/{WORKSPACES}")
    assert "ada-ci" in kubectl.names("ownedaccesskeys", f"--token={whole}")


def a_workspace_is_made_from_a_template(curl: Curl, kubectl: Kubectl) -> None:
    options = {"IMAGE": {"value": "{{ parameters.image }}"}}
    parameters = [{"variable": "image", "options": ["debian", "alpine"], "required": True}]
    template = {"provider": {"name": "docker", "options": options}}
    made = of("DevPodWorkspaceTemplate", "python", template=template, parameters=parameters)
    kubectl("create", "-f", "-", body=as_yaml(made, of("Runner", "one", endpoint="runner.example.com:8443")))
    wanted = workspace("dev", WEB, templateRef={"name": "python"}, parameters="image: windows")
    assert "image" in curl.refused(422, "POST", f"namespaces/{WEB}/{WORKSPACES}", wanted)
    wanted["spec"]["parameters"] = "image: alpine"
    curl("POST", f"namespaces/{WEB}/{WORKSPACES}", wanted)
    kubectl("wait", f"{WORKSPACES}/dev", "-n", WEB, "--for=condition=TemplateResolved", "--timeout=20s")
    kubectl("wait", f"{WORKSPACES}/dev", "-n", WEB, "--for=jsonpath={.spec.runnerRef.runner}=one", "--timeout=20s")
    found = kubectl.read(WORKSPACES, "dev", "-n", WEB)
    assert found["status"]["instance"]["provider"]["options"]["IMAGE"]["value"] == "alpine"


def a_runner_looks_after_it(curl: Curl, kubectl: Kubectl) -> None:
    told = curl("GET", "runners/one/accesskey")
    assert (told["kind"], told["apiVersion"]) == ("RunnerAccessKey", VERSION)
    runner = curl.holding(told["accessKey"])
    assert runner("POST", "selves", {})["status"]["subject"] == "service:runner:one"
    assert [_called(each) for each in runner("GET", WORKSPACES)["items"]] == [f"{WEB}/dev"]
    runner("PATCH", "runners/one/status", {"status": {"phase": "Initialized"}}, media=MERGE)
    report = {"status": {"phase": "Ready", "lastWorkspaceStatus": "Running"}}
    runner("PATCH", f"namespaces/{WEB}/{WORKSPACES}/dev/status", report, media=MERGE)
    kubectl("wait", f"{WORKSPACES}/dev", "-n", WEB, "--for=condition=Ready", "--timeout=20s")
    runner.refused(403, "DELETE", f"namespaces/{WEB}/{WORKSPACES}/dev")
    runner.refused(403, "GET", "projects/web")
    row = dict(zip(*kubectl.rows(WORKSPACES, "dev", "-n", WEB), strict=True))
    assert (row["PHASE"], row["TEMPLATE"], row["RUNNER"]) == ("Ready", "python", "one")


def a_direct_token_is_verified_by_strangers(curl: Curl) -> None:
    made = curl("POST", "directclusterendpointtokens", {**of("DirectClusterEndpointToken", "x"), "spec": {"ttl": 600}})
    token = made["status"]["token"]
    stranger = curl.holding("")
    configuration = stranger("GET", "/.well-known/openid-configuration")
    assert configuration["jwks_uri"].startswith(curl.server.url)
    keys = jwt.PyJWKSet.from_dict(stranger("GET", configuration["jwks_uri"].removeprefix(curl.server.url)))
    key = keys[jwt.get_unverified_header(token)["kid"]]
    checks: Any = {"audience": "service.sh/direct", "issuer": configuration["issuer"]}
    claims = jwt.decode(token, key, algorithms=["RS256"], **checks)
    assert (claims["sub"], claims["exp"] - claims["iat"]) == ("admin", 600)
    head, payload, signature = token.split(".")
    forged = f"{head}.{payload}.{signature[::-1]}"
    with pytest.raises(jwt.InvalidSignatureError):
        jwt.decode(forged, key, algorithms=["RS256"], **checks)


def a_virtual_cluster_moves(curl: Curl, kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", body=as_yaml(of("VirtualClusterTemplate", "small", template={})))
    staging = of("VirtualClusterInstance", "staging", namespace=WEB, templateRef={"name": "small"})
    kubectl("create", "-f", "-", body=as_yaml(staging))
    kubectl("wait", f"{CLUSTERS}/staging", "-n", WEB, "--for=condition=TemplateResolved", "--timeout=20s")
    before = curl("GET", f"namespaces/{WEB}/{CLUSTERS}/staging")
    source = {"name": "staging", "namespace": WEB}
    request = {"apiVersion": VERSION, "kind": "ProjectMigrateVirtualClusterInstance"}
    request |= {"sourceVirtualClusterInstance": source}  # type: ignore[dict-item]
    path = "projects/lab/migratevirtualclusterinstance"
    assert curl("POST", f"{path}?dryRun=All", request)["sourceVirtualClusterInstance"] == source
    assert kubectl.names(CLUSTERS, "-n", WEB) == ["staging"]
    assert curl("POST", path, request)["sourceVirtualClusterInstance"] == source
    assert (kubectl.names(CLUSTERS, "-n", WEB), kubectl.names(CLUSTERS, "-n", LAB)) == ([], ["staging"])
    after = curl("GET", f"namespaces/{LAB}/{CLUSTERS}/staging")
    assert after["spec"] == before["spec"]
    assert '"staging" not found' in curl.refused(404, "POST", path, request)


def all_of_it_was_heard(heard: Callable[[str], list[tuple[str, str]]]) -> None:
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
        wait_until(partial(_in_order, events, partial(heard, plural)), f"{events} of {plural}")


def wait_until(happened: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < deadline, f"not in time: {what}"
        time.sleep(0.02)


def _in_order(wanted: list[tuple[str, str]], heard: Callable[[], list[tuple[str, str]]]) -> bool:
    """Whether the events were heard in this order, whatever else came between."""
    ahead = iter(heard())
    return all(each in ahead for each in wanted)
