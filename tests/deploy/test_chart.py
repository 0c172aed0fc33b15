"""The Helm chart in deploy/chart, rendered and linted by Helm itself, and the manifests that are rendered from it."""

import json
import re
import subprocess
import sys
from base64 import b64decode
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from helm_python.chart import Chart, lint
from helm_python.errors import HelmError

from fairlead import __version__
from fairlead.settings import load
from tests.harness.chart_values import (
    AGGREGATED,
    CA,
    CHART,
    EVERYTHING,
    FRONT_PROXY,
    NOT_OF_KUBERNETES,
    REPLICATED,
    ROOT,
    SCRIPT,
    VARIANTS,
)

KUBERNETES_VERSIONS = ("1.29", "1.35")
JOB = re.compile(r'job="([^"]*)"')


def render(values: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The rendered objects by kind; of kinds with several objects, the last."""
    return {each["kind"]: each for each in SCRIPT.render(values)}


def services(values: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {each["metadata"]["name"]: each for each in SCRIPT.render(values) if each["kind"] == "Service"}


def settings_of(objects: dict[str, dict[str, Any]]) -> dict[str, Any]:
    settings: dict[str, Any] = yaml.safe_load(objects["ConfigMap"]["data"]["fairlead.yaml"])
    return settings


def pod_of(objects: dict[str, dict[str, Any]]) -> dict[str, Any]:
    workload = objects.get("Deployment") or objects["StatefulSet"]
    pod: dict[str, Any] = workload["spec"]["template"]["spec"]
    return pod


@pytest.mark.parametrize("values", VARIANTS)
def test_helm_lints_the_chart_without_a_finding(values: dict[str, Any]) -> None:
    report = lint(CHART, values, strict=True)
    findings = [each for each in report["messages"] if "icon is recommended" not in each["error"]]
    assert (findings, report["errors"]) == ([], [])


@pytest.mark.parametrize("version", KUBERNETES_VERSIONS)
@pytest.mark.parametrize("values", VARIANTS)
def test_the_objects_are_valid_for_kubernetes(values: dict[str, Any], version: str) -> None:
    for each in SCRIPT.render(values):
        if each["kind"] not in NOT_OF_KUBERNETES:
            kubernetes_validate.validate(each, version, strict=True)


@pytest.mark.parametrize("values", VARIANTS)
def test_the_server_accepts_the_rendered_settings(values: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "fairlead.yaml"
    file.write_text(render(values)["ConfigMap"]["data"]["fairlead.yaml"])
    settings = load({}, {"FAIRLEAD_CONFIG": str(file)})
    assert settings.listen == "0.0.0.0"
    assert settings.public_url.startswith("https://")


def test_chart_and_image_agree_on_the_user_and_the_data_folder(tmp_path: Path) -> None:
    """Variables of the image take precedence over the settings file of the chart."""
    image = (ROOT / "Containerfile").read_text()
    variables = dict(re.findall(r"\b(FAIRLEAD_[A-Z_]+)=(\S+)", image))
    user = re.search(r"^USER (\d+):(\d+)$", image, re.MULTILINE)
    assert user is not None
    objects = render({})
    pod, file = pod_of(objects), tmp_path / "fairlead.yaml"
    file.write_text(objects["ConfigMap"]["data"]["fairlead.yaml"])
    settings = load({}, {**variables, "FAIRLEAD_CONFIG": str(file)})
    mounts = {each["name"]: each["mountPath"] for each in pod["containers"][0]["volumeMounts"]}
    assert mounts["data"] == str(settings.data)
    assert settings_of(objects)["data"] == str(settings.data)
    security = pod["securityContext"]
    assert [security["runAsUser"], security["runAsGroup"], security["fsGroup"]] == [
        *map(int, user.groups()),
        int(user[2]),
    ]


def test_rendering_twice_gives_the_same_objects() -> None:
    assert SCRIPT.render(EVERYTHING) == SCRIPT.render(EVERYTHING)


def test_sqlite_is_one_pod_with_a_volume_and_other_stores_are_equal_pods_without() -> None:
    single, replicated = render({}), render(REPLICATED)
    assert single["StatefulSet"]["spec"]["replicas"] == 1
    assert single["StatefulSet"]["spec"]["volumeClaimTemplates"][0]["metadata"]["name"] == "data"
    assert "PodDisruptionBudget" not in single
    assert replicated["Deployment"]["spec"]["replicas"] == 3
    assert replicated["PodDisruptionBudget"]["spec"]["maxUnavailable"] == 1
    variables = {each["name"] for each in pod_of(replicated)["containers"][0]["env"]}
    assert "FAIRLEAD_REPLICA_ADDRESS" in variables


@pytest.mark.parametrize("values", [{}, EVERYTHING])
def test_the_pod_meets_the_restricted_pod_security_standard(values: dict[str, Any]) -> None:
    pod = pod_of(render(values))
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {next(iter(set(volume) - {"name"})) for volume in pod["volumes"]} <= {"configMap", "emptyDir", "secret"}


def test_liveness_does_not_depend_on_the_store_and_readiness_does() -> None:
    (container,) = pod_of(render({}))["containers"]
    paths = {
        probe: container[probe]["httpGet"]["path"] for probe in ("startupProbe", "livenessProbe", "readinessProbe")
    }
    assert paths == {"startupProbe": "/livez", "livenessProbe": "/livez", "readinessProbe": "/readyz"}


def test_a_pod_has_time_to_drain_and_to_finish_requests() -> None:
    objects = render({"drainSeconds": 8, "shutdownGraceSeconds": 30})
    pod = pod_of(objects)
    assert pod["terminationGracePeriodSeconds"] > 38
    assert settings_of(objects)["shutdown_drain"] == 8
    assert settings_of(objects)["shutdown_grace"] == 30
    assert "lifecycle" not in pod["containers"][0]  # a command would need a shell, which the image does not have


def test_without_a_local_cluster_the_pod_has_no_token_and_no_role() -> None:
    objects = render({})
    assert pod_of(objects)["automountServiceAccountToken"] is False
    assert not {"ClusterRole", "ClusterRoleBinding"} & set(objects)


def test_the_roles_of_the_local_cluster_are_those_that_the_command_line_prints() -> None:
    uses = ["gateways", "spaces", "virtual-clusters"]
    command = [sys.executable, "-m", "fairlead", "cluster", "role", *uses]
    printed = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    wanted = {
        each["metadata"]["name"]: each["rules"] for each in yaml.safe_load_all(printed) if each["kind"] == "ClusterRole"
    }
    rendered = SCRIPT.render({"localCluster": {"enabled": True, "use": uses}})
    roles = {each["metadata"]["name"]: each["rules"] for each in rendered if each["kind"] == "ClusterRole"}
    assert roles == wanted
    assert all(rule["verbs"] != ["*"] for rules in roles.values() for rule in rules)


def test_the_local_cluster_is_connected_by_a_setting_and_the_token_of_the_pod() -> None:
    objects = render({"localCluster": {"enabled": True, "name": "home"}})
    assert settings_of(objects)["local_cluster"] == "home"
    assert pod_of(objects)["automountServiceAccountToken"] is True


def test_the_rules_of_the_chart_are_the_alerts_for_the_job_of_its_service() -> None:
    alerts = ROOT / "deploy" / "monitoring" / "alerts.yaml"
    assert (CHART / "files" / "alerts.yaml").read_text() == alerts.read_text(), "run `make manifests`"
    values = {"metrics": {"prometheusRule": {"enabled": True, "labels": {"release": "prometheus"}}}}
    rule = render(values)["PrometheusRule"]
    assert rule["metadata"]["labels"]["release"] == "prometheus"
    assert rule["spec"] == yaml.safe_load(alerts.read_text())
    with Chart.load(CHART) as chart:
        rendered = chart.render(values, name="plane", namespace="fairlead")
    (text,) = (text for path, text in rendered.items() if path.endswith("prometheusrule.yaml"))
    renamed = yaml.safe_load(text)
    service = next(yaml.safe_load(text) for path, text in rendered.items() if path.endswith("/service.yaml"))
    jobs = {job for group in renamed["spec"]["groups"] for each in group["rules"] for job in JOB.findall(each["expr"])}
    assert jobs == {service["metadata"]["name"]} != {"fairlead"}


def test_an_apiservice_names_the_service_and_its_certificate() -> None:
    objects = render(
        {"aggregatedAPI": {"enabled": True, "caBundle": CA}, "settings": {"api_group": "fleet.example.com"}}
    )
    service, settings = objects["APIService"], settings_of(objects)
    assert service["metadata"]["name"] == "v1.fleet.example.com"
    assert b64decode(service["spec"]["caBundle"]).decode() == CA
    reference = service["spec"]["service"]
    assert (reference["name"], reference["port"]) == ("fairlead-proxies", 8446)
    assert f"{reference['name']}.{reference['namespace']}.svc" in settings["tls_names"]
    assert (settings["aggregated_api"], settings["aggregated_api_authorization"]) == ("host", "own")
    assert pod_of(objects)["automountServiceAccountToken"] is True
    (container,) = pod_of(objects)["containers"]
    assert {"name": "front-proxy", "containerPort": 8446} in container["ports"]
    allowed = objects["NetworkPolicy"]["spec"]["ingress"][0]["ports"]
    assert {"port": "front-proxy", "protocol": "TCP"} in allowed


@pytest.mark.parametrize("values", [AGGREGATED, FRONT_PROXY])
def test_the_port_for_front_proxies_is_reachable_in_the_cluster_only(values: dict[str, Any]) -> None:
    found = services({**values, "service": {"type": "LoadBalancer", "annotations": {"x": "y"}}})
    public, internal = found["fairlead"], found["fairlead-proxies"]
    assert public["spec"]["type"] == "LoadBalancer"
    assert [each["name"] for each in public["spec"]["ports"]] == ["https"]
    assert internal["spec"]["type"] == "ClusterIP" and "annotations" not in internal["metadata"]
    assert [(each["port"], each["targetPort"]) for each in internal["spec"]["ports"]] == [(8446, "front-proxy")]
    assert internal["spec"]["selector"] == public["spec"]["selector"]
    assert list(services({})) == ["fairlead"]


def test_the_account_of_an_apiservice_has_no_rights_that_it_does_not_need() -> None:
    roles = {each["roleRef"]["name"] for each in SCRIPT.render(AGGREGATED) if each["kind"].endswith("Binding")}
    assert roles == {"extension-apiserver-authentication-reader", "system:auth-delegator"}
    own = SCRIPT.render({"aggregatedAPI": {**AGGREGATED["aggregatedAPI"], "authorization": "own"}})
    roles = {each["roleRef"]["name"] for each in own if each["kind"].endswith("Binding")}
    assert roles == {"extension-apiserver-authentication-reader"}


def test_forwarded_groups_get_nothing_but_the_group_of_the_api() -> None:
    values = {**AGGREGATED["aggregatedAPI"], "authorization": "own", "forwardedGroups": ["system:authenticated"]}
    rendered = SCRIPT.render({"aggregatedAPI": values})
    (role,) = [each for each in rendered if each["kind"] == "ClusterRole"]
    assert [rule["apiGroups"] for rule in role["rules"]] == [["management.service.sh"]]
    (binding,) = [each for each in rendered if each["kind"] == "ClusterRoleBinding"]
    assert [each["name"] for each in binding["subjects"]] == ["system:authenticated"]


@pytest.mark.parametrize(
    ("values", "setting", "port"),
    [
        ({"clientCertificates": {"existingConfigMap": "cas"}}, "client_ca", "client-certs"),
        (FRONT_PROXY, "requestheader_client_ca", "front-proxy"),
    ],
)
def test_ports_for_certificates_have_their_ca_mounted(values: dict[str, Any], setting: str, port: str) -> None:
    objects = render(values)
    targets = [each["targetPort"] for service in services(values).values() for each in service["spec"]["ports"]]
    (container,) = pod_of(objects)["containers"]
    mounted = {each["mountPath"] for each in container["volumeMounts"]}
    assert str(Path(settings_of(objects)[setting]).parent) in mounted
    assert port in {each["name"] for each in container["ports"]}
    assert targets.count(port) == 1
    assert pod_of(objects)["automountServiceAccountToken"] is False


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"replicaCount": 2}, "'replicaCount' not allowed"),
        ({"store": {"kind": "sqlite"}}, "'kind' not allowed"),
        ({"replicas": 2}, "set replicas to 1, or store.type to postgres or etcd"),
        ({"store": {"type": "mysql"}}, "store/type"),
        ({"store": {"type": "etcd"}}, "needs a Secret with FAIRLEAD_STORE"),
        ({**REPLICATED, "tls": {}}, "all pods must have the same certificate"),
        ({"ingress": {"enabled": True}}, "ingress.host"),
        ({"gateway": {"enabled": True, "host": "a.example"}}, "parentRefs"),
        ({"metrics": {"serviceMonitor": {"enabled": True}}}, "access key that may read /metrics"),
        ({"settings": {"port": 9443}}, "'port'"),
        ({"publicURL": "http://fairlead.example.com"}, "publicURL"),
        ({"localCluster": {"use": ["spaces"]}}, "localCluster/use"),
        ({"aggregatedAPI": {"enabled": True}}, "aggregatedAPI.caBundle: set the CA certificate of the server"),
        ({"aggregatedAPI": {"caBundle": "LS0tLS1CRUdJTg=="}}, "aggregatedAPI/caBundle"),
        ({"aggregatedAPI": {"authorization": "either"}}, "aggregatedAPI/authorization"),
        ({"aggregatedAPI": {"authorization": "host", "forwardedGroups": ["a"]}}, "could do everything"),
        ({"aggregatedAPI": {"versionPriority": 1001}}, "versionPriority"),
        ({**AGGREGATED, "frontProxy": {"existingConfigMap": "proxies"}}, "comes from the cluster; remove it"),
        ({"frontProxy": {"existingConfigMap": "proxies"}}, "every certificate of the CA could name any user"),
        ({"settings": {"aggregated_api": "host"}}, "'aggregated_api'"),
    ],
)
def test_wrong_values_are_refused_with_what_to_change(values: dict[str, Any], message: str) -> None:
    with Chart.load(CHART) as chart, pytest.raises(HelmError) as refusal:
        chart.validate_schema(values)
        chart.render(values, name="fairlead", namespace="fairlead")
    assert message in str(refusal.value)


def test_the_schema_describes_every_default_value() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())

    def check(values: dict[str, Any], part: dict[str, Any], path: str) -> None:
        if part.get("additionalProperties") is not False:
            return
        assert set(values) == set(part["properties"]) - {"global"}, path
        for name, value in values.items():
            if isinstance(value, dict):
                check(value, part["properties"][name], f"{path}.{name}")

    check(yaml.safe_load((CHART / "values.yaml").read_text()), schema, "values")


def test_the_chart_has_the_version_of_the_package() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)


@pytest.mark.parametrize("name", sorted(SCRIPT.VARIANTS))
def test_the_manifests_are_rendered_from_the_chart(name: str) -> None:
    assert (ROOT / "deploy" / "manifests" / name).read_text() == SCRIPT.manifest_text(*SCRIPT.VARIANTS[name]), (
        "run `make manifests`"
    )


def test_no_manifest_without_a_variant() -> None:
    assert sorted(each.name for each in (ROOT / "deploy" / "manifests").iterdir()) == sorted(SCRIPT.VARIANTS)


def test_the_tutorial_installs_three_pods_with_the_secrets_that_it_creates() -> None:
    page = (ROOT / "docs/tutorials/high-availability.md").read_text()
    values = re.search(r"cat > values.yaml <<END\n(.*?)^END$", page, re.DOTALL | re.MULTILINE)
    variables = re.search(r"cat > secrets.env <<END\n(.*?)^END$", page, re.DOTALL | re.MULTILINE)
    assert values is not None and variables is not None
    objects = render(yaml.safe_load(values[1]))
    assert objects["Deployment"]["spec"]["replicas"] == 3
    assert objects["PodDisruptionBudget"]["spec"]["maxUnavailable"] == 1
    for each in objects.values():
        kubernetes_validate.validate(each, KUBERNETES_VERSIONS[-1], strict=True)
    pod = pod_of(objects)
    (source,) = pod["containers"][0]["envFrom"]
    mounted = {each["name"]: each.get("secret", {}).get("secretName") for each in pod["volumes"]}
    assert f"create secret generic {source['secretRef']['name']} --from-env-file=secrets.env" in page
    assert f"create secret generic {mounted['tls']} --type kubernetes.io/tls" in page
    names = {line.partition("=")[0] for line in variables[1].splitlines()}
    assert names == {"FAIRLEAD_STORE", "PGPASSWORD", "FAIRLEAD_PEPPER", "FAIRLEAD_ENCRYPTION_KEYS"}
    (spread,) = pod["topologySpreadConstraints"]
    labels = objects["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert spread["labelSelector"]["matchLabels"].items() <= labels.items()
    assert settings_of(objects)["audit_path"] == "-"
