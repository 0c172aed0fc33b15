"""The examples of the documentation with curl: YAML bodies, a bearer key, all methods, HTTP/1.1 and HTTP/2."""

import json
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.clients.server import VERSION, Server

NAMESPACE = "service-p-curl"

APP = """\
kind: App
apiVersion: management.service.sh/v1
metadata:
  creationTimestamp: null
  name: my-app
spec:
  access:
  - users:
    - '*'
    verbs:
    - get
  config:
    chart:
      name: my-chart
      repoURL: https://charts.example.com
  description: An app
  displayName: my-app
  icon: https://example.com/icon.svg
  recommendedApp:
  - cluster
status: {}
"""

CLUSTER = """\
kind: Cluster
apiVersion: management.service.sh/v1
metadata:
  creationTimestamp: null
  name: my-cluster
spec:
  config:
    secretName: my-cluster-config
    secretNamespace: service-system
  description: A cluster
  displayName: my-cluster
status: {}
"""

WORKSPACE = f"""\
kind: DevPodWorkspaceInstance
apiVersion: management.service.sh/v1
metadata:
  creationTimestamp: null
  name: my-workspace
  namespace: {NAMESPACE}
spec:
  displayName: my-workspace
  owner:
    user: admin
  parameters: |-
    image: debian
    size: small
  runnerRef: {{}}
  templateRef:
    name: my-template
status: {{}}
"""

PROJECT = f"kind: Project\napiVersion: {VERSION}\nmetadata:\n  name: curl\n"

EXAMPLES = {
    "apps": (APP, "apps"),
    "clusters": (CLUSTER, "clusters"),
    "workspaces": (WORKSPACE, f"namespaces/{NAMESPACE}/devpodworkspaceinstances"),
}


@dataclass(frozen=True, slots=True)
class Response:
    code: int
    http: str
    media_type: str
    text: str

    def body(self) -> Any:
        """The parsed body, which is YAML or JSON."""
        return yaml.safe_load(self.text)


@dataclass(frozen=True, slots=True)
class Curl:
    """`curl("GET", "apps/x")` sends one request to a path of the management group."""

    program: Path
    server: Server
    http: str

    def __call__(self, method: str, path: str, *headers: str, body: str = "") -> Response:
        return self.without_key(method, path, f"Authorization: Bearer {self.server.key}", *headers, body=body)

    def without_key(self, method: str, path: str, *headers: str, body: str = "") -> Response:
        command = [str(self.program), "--silent", "--show-error", "--cacert", str(self.server.ca_file)]
        command += [f"--http{self.http}", "--write-out", "\n%{http_code} %{http_version} %{content_type}"]
        command += ["--request", method, *(word for header in headers for word in ("--header", header))]
        command += ["--data-binary", "@-"] if body else []
        command += [f"{self.server.api_root}/{path}"]
        result = subprocess.run(command, input=body, capture_output=True, text=True, timeout=30, check=False)
        assert result.returncode == 0, result.stderr
        text, _, metadata = result.stdout.rpartition("\n")
        code, http, media_type = metadata.split(" ", 2)
        return Response(int(code), http, media_type, text)


YAML_BODY = "Content-Type: application/yaml"
ACCEPT_YAML = "Accept: application/yaml"
PATCH_BODY = "Content-Type: application/json-patch+json"


@pytest.fixture(scope="module", params=["1.1", "2"])
def curl(request: pytest.FixtureRequest, server: Server, component: Callable[[str], Path]) -> Curl:
    return Curl(component("curl"), server, request.param)


@pytest.fixture(scope="module")
def project(server: Server, component: Callable[[str], Path]) -> None:
    """The project whose namespace has the workspace."""
    created = Curl(component("curl"), server, "2")("POST", "projects", YAML_BODY, body=PROJECT)
    assert created.code == 201, created.text


@pytest.mark.parametrize("example", EXAMPLES)
@pytest.mark.usefixtures("project")
def test_an_object_is_created_listed_read_updated_patched_and_deleted(curl: Curl, example: str) -> None:
    text, path = EXAMPLES[example]
    example_body = yaml.safe_load(text)
    name = example_body["metadata"]["name"]

    created = curl("POST", path, YAML_BODY, body=text)
    assert (created.code, created.http, created.media_type) == (201, curl.http, "application/json"), created.text
    assert (created.body()["spec"], created.body()["status"]) == (example_body["spec"], {})

    listed = curl("GET", path).body()
    assert [each["metadata"]["name"] for each in listed["items"]] == [name]
    assert listed["kind"] == f"{example_body['kind']}List"

    read = curl("GET", f"{path}/{name}", ACCEPT_YAML)
    assert (read.code, read.media_type) == (200, "application/yaml")
    assert not read.text.startswith("{")
    edited = read.text.replace(f"displayName: {name}", "displayName: edited")
    updated = curl("PUT", f"{path}/{name}", YAML_BODY, body=edited)
    assert (updated.code, updated.body()["spec"]["displayName"]) == (200, "edited"), updated.text
    assert updated.body()["metadata"]["uid"] == created.body()["metadata"]["uid"]

    operations = [
        {"op": "add", "path": "/metadata/annotations", "value": {"first": "1"}},
        {"op": "add", "path": "/metadata/annotations/example.com~1my-annotation", "value": "my-value"},
    ]
    patched = curl("PATCH", f"{path}/{name}", PATCH_BODY, body=json.dumps(operations))
    assert patched.code == 200, patched.text
    assert patched.body()["metadata"]["annotations"] == {"first": "1", "example.com/my-annotation": "my-value"}

    deleted = curl("DELETE", f"{path}/{name}")
    assert (deleted.code, deleted.body()["status"]) == (200, "Success")
    assert deleted.body()["details"]["uid"] == created.body()["metadata"]["uid"]
    gone = curl("GET", f"{path}/{name}")
    assert (gone.code, gone.body()["reason"]) == (404, "NotFound")


def test_an_object_read_as_json_can_be_sent_as_yaml(curl: Curl) -> None:
    """GET returns JSON by default; users edit it and send it with their usual YAML header."""
    assert curl("POST", "apps", YAML_BODY, body=APP).code == 201
    read = curl("GET", "apps/my-app").text
    updated = curl("PUT", "apps/my-app", YAML_BODY, body=read.replace("An app", "Another app"))
    assert (updated.code, updated.body()["spec"]["description"]) == (200, "Another app")
    stale = curl("PUT", "apps/my-app", YAML_BODY, body=read)
    assert (stale.code, stale.body()["reason"]) == (409, "Conflict")
    assert curl("DELETE", "apps/my-app").code == 200


def test_responses_to_curl_are_indented(curl: Curl) -> None:
    assert curl("GET", "apps").text.startswith('{\n  "kind": "AppList",\n')


def test_a_name_can_be_generated(curl: Curl) -> None:
    created = curl("POST", "apps", YAML_BODY, body=APP.replace("name: my-app", "generateName: my-app-", 1))
    name = created.body()["metadata"]["name"]
    assert (created.code, name.startswith("my-app-")) == (201, True)
    assert curl("DELETE", f"apps/{name}").code == 200


@pytest.mark.parametrize("header", [None, "Authorization: Bearer wrong", "Authorization: Basic YTpi"])
def test_a_request_without_a_valid_key_gets_401(curl: Curl, header: str | None) -> None:
    response = curl.without_key("GET", "apps", *([header] if header else []))
    assert (response.code, response.media_type, response.body()["reason"]) == (401, "application/json", "Unauthorized")


def test_invalid_requests_get_a_status(curl: Curl) -> None:
    def send_invalid(*arguments: str, body: str) -> tuple[int, str]:
        response = curl(*arguments, body=body)
        assert response.body()["kind"] == "Status"
        return response.code, response.body()["message"]

    assert send_invalid("POST", "apps", YAML_BODY, body="a: [")[0] == 400
    code, message = send_invalid("POST", "apps", "Content-Type: text/html", body="<p>")
    assert (code, "application/yaml" in message) == (415, True)
    code, message = send_invalid("POST", "apps", YAML_BODY, body=CLUSTER)
    assert (code, "must be App" in message) == (422, True)
    code, message = send_invalid("PATCH", "apps/nope", PATCH_BODY, body="[]")
    assert (code, '"nope" not found' in message) == (404, True)


def test_a_watch_streams_until_its_timeout(curl: Curl) -> None:
    assert curl("POST", "apps", YAML_BODY, body=APP).code == 201
    watched = curl("GET", "apps?watch=true&timeoutSeconds=1")
    events = [json.loads(line) for line in watched.text.splitlines()]
    assert (watched.code, [event["type"] for event in events]) == (200, ["ADDED"])
    assert curl("DELETE", "apps/my-app").code == 200
