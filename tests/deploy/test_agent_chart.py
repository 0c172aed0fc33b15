"""The Helm chart in deploy/agent-chart: it renders what `fairlead cluster add NAME --agent` prints."""

import json
from base64 import b64decode
from typing import Any

import kubernetes_validate
import pytest
import yaml
from helm_python.chart import Chart, lint
from helm_python.errors import HelmError

from fairlead import __version__
from fairlead.cli.resources.cluster_agent import NAME, NAMESPACE, AgentManifest, build_manifest
from fairlead.cli.resources.cluster_role import AGENT_PARTS, DEFAULT_CLUSTER_ROLES, RolePart
from tests.harness.chart_values import CA, ROOT, SCRIPT

CHART = ROOT / "deploy" / "agent-chart"
SERVER, TOKEN = "https://fairlead.example.com", "fljoin_eyJjbHVzdGVyIjoiYmVybGluIn0"
MINIMAL: dict[str, Any] = {"server": SERVER, "join": {"token": TOKEN}}
PINNED: dict[str, Any] = {"server": SERVER, "join": {"token": TOKEN, "ca": CA}}
EXISTING: dict[str, Any] = {"server": SERVER, "join": {"existingSecret": "berlin", "existingCA": True}}
EVERYTHING: dict[str, Any] = {
    **PINNED,
    "use": [each.value for each in AGENT_PARTS],
    "replicas": 3,
    "image": {
        "repository": "registry.example.com/fairlead",
        "digest": "sha256:" + "0" * 64,
        "pullSecrets": [{"name": "pull"}],
    },
    "env": {"HTTPS_PROXY": "http://proxy.example.com:3128", "NO_PROXY": "10.0.0.0/8"},
    "nodeSelector": {"kubernetes.io/arch": "arm64"},
    "tolerations": [{"operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
    "priorityClassName": "system-cluster-critical",
}
VARIANTS = [MINIMAL, PINNED, EXISTING, EVERYTHING]


def render(values: dict[str, Any], name: str = NAME, namespace: str = NAMESPACE) -> list[dict[str, Any]]:
    with Chart.load(CHART) as chart:
        rendered = chart.render(values, name=name, namespace=namespace)
    texts = [text for path, text in sorted(rendered.items()) if not path.endswith("NOTES.txt")]
    return [each for text in texts for each in yaml.safe_load_all(text) if each]


def deployment(objects: list[dict[str, Any]]) -> dict[str, Any]:
    (found,) = [each for each in objects if each["kind"] == "Deployment"]
    return found


def without_labels(value: Any) -> Any:
    """Labels of Helm, and what the API server would fill in."""
    if isinstance(value, dict):
        dropped = ("labels", "matchLabels", "imagePullPolicy")
        return {key: without_labels(each) for key, each in value.items() if key not in dropped}
    return [without_labels(each) for each in value] if isinstance(value, list) else value


@pytest.mark.parametrize("parts", [(RolePart.SPACES,), AGENT_PARTS])
@pytest.mark.parametrize("authority", ["", CA])
def test_the_chart_renders_what_the_command_line_prints(parts: tuple[RolePart, ...], authority: str) -> None:
    printed = build_manifest(
        AgentManifest(
            server=SERVER,
            token=TOKEN,
            authority=authority,
            image=f"fairlead:{__version__}",
            parts=parts,
            cluster_roles=DEFAULT_CLUSTER_ROLES,
        )
    )
    values = {"server": SERVER, "join": {"token": TOKEN, "ca": authority}, "use": [each.value for each in parts]}

    def by_name(objects: list[dict[str, Any]]) -> dict[tuple[str, str], Any]:
        return {(each["kind"], each["metadata"]["name"]): without_labels(each) for each in objects}

    wanted = by_name([each for each in printed if each["kind"] != "Namespace"])
    assert by_name(render(values)) == wanted


@pytest.mark.parametrize("values", VARIANTS)
def test_helm_lints_the_chart_without_a_finding(values: dict[str, Any]) -> None:
    report = lint(CHART, values, strict=True)
    findings = [each for each in report["messages"] if "icon is recommended" not in each["error"]]
    assert (findings, report["errors"]) == ([], [])


@pytest.mark.parametrize("version", ["1.29", "1.35"])
@pytest.mark.parametrize("values", VARIANTS)
def test_the_objects_are_valid_for_kubernetes(values: dict[str, Any], version: str) -> None:
    for each in render(values):
        kubernetes_validate.validate(each, version, strict=True)


def test_an_existing_secret_has_the_token_and_the_ca() -> None:
    objects = render(EXISTING)
    assert [each["metadata"]["name"] for each in objects if each["kind"] == "Secret"] == ["fairlead-agent-identity"]
    pod = deployment(objects)["spec"]["template"]["spec"]
    assert {"name": "join", "secret": {"secretName": "berlin"}} in pod["volumes"]
    assert "/etc/fairlead/ca.crt" in pod["containers"][0]["args"]


def test_only_the_secret_has_the_token_and_an_upgrade_keeps_the_key() -> None:
    secrets = {each["metadata"]["name"]: each for each in render(PINNED) if each["kind"] == "Secret"}
    data = secrets["fairlead-agent-join"]["data"]
    assert {key: b64decode(value).decode() for key, value in data.items()} == {"token": TOKEN, "ca.crt": CA}
    assert "data" not in secrets["fairlead-agent-identity"]
    assert TOKEN not in yaml.safe_dump(deployment(render(PINNED)))


def test_a_new_token_starts_new_pods() -> None:
    other = {**PINNED, "join": {"token": TOKEN + "x"}}
    templates = [deployment(render(values))["spec"]["template"]["metadata"] for values in (PINNED, other)]
    assert templates[0] != templates[1]


def test_two_releases_in_a_cluster_share_no_names() -> None:
    names = [
        {(each["kind"], each["metadata"]["name"]) for each in render(MINIMAL, name, name)} for name in ("east", "west")
    ]
    assert not names[0] & names[1]


def test_agents_get_the_variables_of_a_proxy() -> None:
    (container,) = deployment(render(EVERYTHING))["spec"]["template"]["spec"]["containers"]
    assert {each["name"]: each["value"] for each in container["env"]} == EVERYTHING["env"]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"join": {"token": TOKEN}}, "server: set the URL of the server"),
        ({"server": "http://fairlead.example.com", "join": {"token": TOKEN}}, "server"),
        ({"server": SERVER}, "join.token: set what"),
        ({"server": SERVER, "join": {"token": "secret"}}, "join/token"),
        ({**MINIMAL, "join": {"token": TOKEN, "existingSecret": "x"}}, "come from that Secret; remove join.token"),
        ({**MINIMAL, "join": {"token": TOKEN, "existingCA": True}}, "set join.ca to the certificate"),
        ({**MINIMAL, "join": {"token": TOKEN, "ca": "AAAA"}}, "join/ca"),
        ({**MINIMAL, "use": ["everything"]}, "use/0"),
        ({**MINIMAL, "replicaCount": 3}, "'replicaCount' not allowed"),
    ],
)
def test_wrong_values_are_refused_with_what_to_change(values: dict[str, Any], message: str) -> None:
    with Chart.load(CHART) as chart, pytest.raises(HelmError) as refusal:
        chart.validate_schema(values)
        chart.render(values, name=NAME, namespace=NAMESPACE)
    assert message in str(refusal.value)


def test_the_schema_describes_every_default_value() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    assert set(defaults) == set(schema["properties"]) - {"global"}
    for name in ("join", "image"):
        assert set(defaults[name]) == set(schema["properties"][name]["properties"])
    assert schema["properties"]["use"]["items"]["enum"] == [each.value for each in AGENT_PARTS]


def test_the_chart_has_the_version_of_the_package_and_the_roles_of_the_command_line() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)
    assert SCRIPT.AGENT_ROLES.read_text() == SCRIPT.role_text(), "run `make manifests`"


def test_the_entry_point_of_the_image_takes_the_arguments_of_the_agent() -> None:
    image = (ROOT / "Containerfile").read_text()
    assert 'ENTRYPOINT ["fairlead"]' in image
    assert deployment(render(MINIMAL))["spec"]["template"]["spec"]["containers"][0]["args"][0] == "agent"
