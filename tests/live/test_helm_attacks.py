"""Hostile charts and repositories against real Helm: what they read of the server's machine, and what users see."""

import asyncio
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml

from fairlead.controllers.helm.chart import build_kubeconfig
from fairlead.upstream.local_gateway import local_gateway
from tests.fake_cluster.chart_repository import Chart, ChartResponse, redirect_to
from tests.fake_cluster.exchange import CannedResponse
from tests.fake_cluster.helm_program import write_helm_program
from tests.fake_cluster.server import FakeCluster
from tests.harness.gateways import M, gateway_kubeconfig
from tests.harness.helm import CHARTS, DEPLOYED, SMALL, HelmFixture, open_helm
from tests.harness.server_process import MANAGEMENT, running_server
from tests.upstream.upstreams import connect_upstream

CANARY = "canary-of-the-machine"


@dataclass
class Internal:
    """A service on loopback, which nobody but this machine can reach. It answers with a schema that has the canary."""

    port: int = 0
    requests: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def internal() -> Iterator[Internal]:
    found = Internal()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found.requests.append(self.path)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps({"const": CANARY}).encode())

        def log_message(self, format: str, *args: object) -> None:
            """Requests are in `requests`."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield found
    server.shutdown()
    thread.join()
    server.server_close()


SUB = """
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}-sub}
data: {a: b}
"""


def depending_chart(name: str, port: int) -> str:
    """Chart.yaml of a chart with a dependency in another repository."""
    dependency = {"name": "sub", "version": "1.0.0", "repository": f"http://127.0.0.1:{port}"}
    return yaml.safe_dump({"apiVersion": "v2", "name": name, "version": "1.2.3", "dependencies": [dependency]})


def schema_chart(name: str, reference: str) -> Chart:
    schema = {"properties": {"size": {"$ref": reference}}}
    return Chart(name, {**SMALL, "values.schema.json": json.dumps(schema)})


@pytest.fixture(scope="module")
def helm(tmp_path_factory: pytest.TempPathFactory, internal: Internal) -> Iterator[HelmFixture]:
    folder = tmp_path_factory.mktemp("hostile-charts")
    (folder / "secret.json").write_text(json.dumps({"const": CANARY}))
    charts = (
        schema_chart("reads-file", f"file://{folder}/secret.json"),
        schema_chart("reads-address", f"http://127.0.0.1:{internal.port}/schema"),
        Chart("own-schema", {**SMALL, "values.schema.json": '{"properties": {"size": {"const": 7}}}'}),
        Chart("depends", {**SMALL, "Chart.yaml": depending_chart("depends", internal.port)}),
        Chart(
            "encloses",
            {
                **SMALL,
                "Chart.yaml": depending_chart("encloses", internal.port),
                "charts/sub/Chart.yaml": "apiVersion: v2\nname: sub\nversion: 1.0.0\n",
                "charts/sub/templates/x.yaml": SUB,
            },
        ),
        Chart("reads-files", {**SMALL, "templates/x.yaml": READS_FILES}),
        Chart("reads-env", {**SMALL, "templates/x.yaml": '{{ env "HOME" }}'}),
        Chart("resolves", {**SMALL, "templates/x.yaml": '{{ fail (printf "<%s>" (getHostByName "localhost")) }}'}),
    )
    with (
        running_server(folder / "remote") as remote,
        open_helm(folder / "server", gateway_kubeconfig(remote, MANAGEMENT, remote.key), charts=(*CHARTS, *charts)) as (
            helm,
            server,
        ),
    ):
        yield helm
        log = server.log.read_text()
        assert "Traceback" not in log and CANARY not in log


READS_FILES = """{{- range list "/etc/passwd" "../../../../etc/passwd" "kubeconfig" "../kubeconfig" "../values.yaml" }}
{{- if $.Files.Get . }}{{ fail (printf "read %s" .) }}{{ end }}
{{- end }}
{{- range $path, $_ := .Files.Glob "/etc/*" }}{{ fail $path }}{{ end }}
"""


@pytest.mark.parametrize("chart", ["reads-file", "reads-address"])
def test_a_schema_reads_neither_files_of_the_machine_nor_internal_addresses(
    helm: HelmFixture, internal: Internal, chart: str
) -> None:
    """The value would have to be the canary, and helm would say so in a message that the author of the chart reads."""
    helm.create_from_template(chart, helm.release(chart, size=1))
    helm.wait_for_condition(chart, DEPLOYED, "Deployed")
    assert "/schema" not in internal.requests
    helm.delete(chart)


def test_a_schema_without_references_is_still_enforced(helm: HelmFixture) -> None:
    helm.create_from_template("checked", helm.release("own-schema", size=1))
    assert "at '/size': value must be 7" in helm.wait_for_condition("checked", DEPLOYED, "HelmFailed")
    helm.delete("checked")


def test_templates_read_no_files_of_the_machine(helm: HelmFixture) -> None:
    helm.create_from_template("files", helm.release("reads-files"))
    helm.wait_for_condition("files", DEPLOYED, "Deployed")
    helm.delete("files")


@pytest.mark.parametrize(("chart", "said"), [("reads-env", 'function "env" not defined'), ("resolves", "<>")])
def test_templates_read_neither_the_environment_nor_names(helm: HelmFixture, chart: str, said: str) -> None:
    helm.create_from_template(chart, helm.release(chart))
    assert said in helm.wait_for_condition(chart, DEPLOYED, "HelmFailed")
    helm.delete(chart)


@pytest.mark.parametrize("name", ["kubeconfig", "values.yaml", "fetched.tgz", "index.yaml"])
def test_a_chart_is_never_a_file_of_the_run(helm: HelmFixture, name: str) -> None:
    """Helm takes an existing file for the chart. It runs in a folder with the credential of the cluster."""
    instance = f"local-{name.partition('.')[0]}"
    helm.create_from_template(instance, helm.release(name))
    message = helm.wait_for_condition(instance, DEPLOYED, "ChartNotFound")
    assert f'the repository has no chart "{name}"' in message
    helm.delete(instance)


def test_dependencies_of_a_chart_are_not_downloaded(helm: HelmFixture, internal: Internal) -> None:
    helm.create_from_template("depends", helm.release("depends"))
    message = helm.wait_for_condition("depends", DEPLOYED, "HelmFailed")
    assert "missing in charts/ directory: sub" in message
    assert not [path for path in internal.requests if "index.yaml" in path]
    helm.delete("depends")


def test_an_enclosed_dependency_is_deployed(helm: HelmFixture, internal: Internal) -> None:
    helm.create_from_template("encloses", helm.release("encloses"))
    helm.wait_for_condition("encloses", DEPLOYED, "Deployed")
    assert helm.remote_object("/api/v1/namespaces/demo-v-encloses/configmaps/encloses-sub")["data"] == {"a": "b"}
    assert not [path for path in internal.requests if "index.yaml" in path]
    helm.delete("encloses")


def test_an_index_cannot_name_a_file_of_the_machine(helm: HelmFixture, tmp_path: Path) -> None:
    (tmp_path / "chart.tgz").write_bytes(Chart("elsewhere", SMALL).pack())
    add_to_index(helm, "elsewhere", f"file://{tmp_path}/chart.tgz")
    helm.create_from_template("elsewhere", helm.release("elsewhere"))
    message = helm.wait_for_condition("elsewhere", DEPLOYED, "InvalidRepository")
    assert str(tmp_path) not in message
    helm.delete("elsewhere")


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://127.0.0.1:PORT/chart.tgz", "InvalidRepository"),
        ("https://127.0.0.1:PORT/chart.tgz", "RepositoryTlsFailed"),
        ("https://169.254.169.254/chart.tgz", "RepositoryAddressBlocked"),
    ],
)
@pytest.mark.parametrize("is_redirected", [False, True])
def test_no_url_of_a_repository_makes_the_server_request_anything_internal(
    helm: HelmFixture, internal: Internal, url: str, reason: str, is_redirected: bool
) -> None:
    """The server may connect to 127.0.0.1 here, where the repository is, but sends no request without TLS."""
    url = url.replace("PORT", str(internal.port))
    helm.repository.responses["/moved.tgz"] = redirect_to(url)
    add_to_index(helm, "redirected", "moved.tgz" if is_redirected else url)
    helm.create_from_template("redirected", helm.release("redirected"))
    message = helm.wait_for_condition("redirected", DEPLOYED, reason)
    assert not any(each in message for each in (CANARY, str(internal.port), "127.0.0.1", "169.254"))
    assert "/chart.tgz" not in internal.requests
    helm.delete("redirected")
    assert helm.admin.delete(f"{M}/virtualclustertemplates/redirected").is_success


def add_to_index(helm: HelmFixture, name: str, url: str) -> None:
    responses = helm.repository.responses
    index = yaml.safe_load(responses["/index.yaml"].body)
    index["entries"][name] = [{"apiVersion": "v2", "name": name, "version": "1.0.0", "urls": [url]}]
    responses["/index.yaml"] = ChartResponse(200, yaml.safe_dump(index).encode())


def test_an_api_server_cannot_send_helm_to_internal_addresses(internal: Internal, tmp_path: Path) -> None:
    """Helm follows redirects, and says what it got there. Users choose the API servers of virtual clusters."""
    chart = tmp_path / "chart"
    (chart / "templates").mkdir(parents=True)
    (chart / "Chart.yaml").write_text("apiVersion: v2\nname: small\nversion: 1.0.0\n")
    (chart / "templates" / "x.yaml").write_text(SUB)
    program = write_helm_program(tmp_path)
    kubeconfig = tmp_path / "kubeconfig"

    async def run(cluster: FakeCluster) -> str:
        async with connect_upstream(cluster) as upstream, local_gateway(upstream) as endpoint:
            kubeconfig.write_text(yaml.safe_dump(build_kubeconfig(endpoint, "demo")))
            options = ("--namespace", "demo", "--kubeconfig", str(kubeconfig))
            command = (str(program), "upgrade", "--install", "one", str(chart), *options)
            helm = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
            _, errors = await helm.communicate()
            return errors.decode()

    with FakeCluster() as cluster:
        location = {"location": f"http://127.0.0.1:{internal.port}/redirected"}
        cluster.set_response("/version", CannedResponse(307, headers=location))
        assert "kubernetes cluster unreachable: an error on the server" in asyncio.run(run(cluster))
        assert cluster.request_lines()[:1] == ["GET /version"]
    assert "/redirected" not in internal.requests
