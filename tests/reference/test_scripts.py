"""Apps with scripts, with real Helm, in a real Kubernetes with a node: what the pods of scripts may do."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.harness.apps import create_app, create_space, install_app, merge_app, read_app, uninstall_app
from tests.harness.apps import wait_until_deployed as wait_for_revision
from tests.harness.eventually import wait_until
from tests.harness.gateways import M, merge_patch
from tests.harness.helm import CLUSTER, SECONDS, HelmFixture, open_helm
from tests.reference.connected_cluster import DIALLED, IMAGE, ConnectedCluster
from tests.reference.test_permissions import print_roles, read_token

TOKEN = "/var/run/secrets/kubernetes.io/serviceaccount/token"
CONFINED = f"""#!/bin/sh
fail() {{ echo "$1"; exit 9; }}
[ "$(id -u)" = 65532 ] || fail "user $(id -u)"
[ "$(id -g)" = 65532 ] || fail "group $(id -g)"
touch /written 2>/dev/null && fail "the root file system is writable"
touch /fairlead/script 2>/dev/null && fail "the script is writable"
echo x > /tmp/written || fail "there is no room for files"
[ -e {TOKEN} ] && fail "there is a token"
grep -q '^CapEff:.0000000000000000$' /proc/self/status || fail "$(grep CapEff /proc/self/status)"
grep -q '^NoNewPrivs:.1$' /proc/self/status || fail "$(grep NoNewPrivs /proc/self/status)"
grep -q '^Seccomp:.2$' /proc/self/status || fail "$(grep Seccomp: /proc/self/status)"
[ "$PARAMETER_SIZE" = '3; exit 7' ] || fail "size is $PARAMETER_SIZE"
[ "$RELEASE" = checked ] || fail "release is $RELEASE"
"""
PARAMETERS = [{"variable": "size", "defaultValue": "3; exit 7"}]

pytestmark = pytest.mark.parametrize("connected_node", [DIALLED], indirect=True)  # the server of `open_helm` dials it


@pytest.fixture(scope="module")
def helm(connected_node: ConnectedCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HelmFixture]:
    with open_helm(tmp_path_factory.mktemp("scripts"), connected_node.plane.kubeconfig()) as (fixture, server):
        yield fixture
        assert "Traceback" not in server.log.read_text()


@pytest.fixture(scope="module")
def namespace(helm: HelmFixture) -> str:
    return create_space(helm, "scripts")


def create_script(helm: HelmFixture, name: str, script: str, **fields: Any) -> None:
    bash = {"script": script, "image": IMAGE, **fields.pop("bash", {})}
    create_app(helm, name, versions=[], parameters=PARAMETERS, config={"bash": bash}, **fields)


def wait_for_reason(helm: HelmFixture, name: str, reason: str) -> str:
    """Returns the message."""
    wait_until(lambda: (read_app(helm, name).get("status") or {}).get("reason") == reason, SECONDS, reason)
    message: str = read_app(helm, name)["status"]["message"]
    return message


def find_objects(helm: HelmFixture, namespace: str, release: str) -> set[str]:
    """What the cluster has of a script."""
    core = f"/api/v1/namespaces/{namespace}"
    paths = {
        "Job": f"/apis/batch/v1/namespaces/{namespace}/jobs/{release}-script",
        "Secret": f"{core}/secrets/{release}-script",
        "Values": f"{core}/secrets/{release}-values",
        "ServiceAccount": f"{core}/serviceaccounts/{release}-script",
        "RoleBinding": f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings/{release}-script",
    }
    return {kind for kind, path in paths.items() if helm.remote_object(path)}


def count_pods(helm: HelmFixture, namespace: str, release: str) -> int:
    selector = f"labelSelector=job-name%3D{release}-script"
    return len(helm.remote_object(f"/api/v1/namespaces/{namespace}/pods?{selector}")["items"])


def test_pods_of_scripts_are_confined_and_removed(helm: HelmFixture, namespace: str) -> None:
    create_script(helm, "confined", CONFINED)
    install_app(helm, "checked", "confined", {"spaceInstance": {"name": "scripts"}})
    wait_for_revision(helm, "checked", 1)
    assert find_objects(helm, namespace, "checked") == {"Job"}
    uninstall_app(helm, "checked")
    assert find_objects(helm, namespace, "checked") == set()
    wait_until(lambda: count_pods(helm, namespace, "checked") == 0, SECONDS)


def test_pods_of_failed_scripts_say_why_and_a_changed_one_runs(helm: HelmFixture, namespace: str) -> None:
    create_script(helm, "failing", '#!/bin/sh\necho "size is $PARAMETER_SIZE"\n[ "$PARAMETER_SIZE" = 4 ] || exit 5\n')
    install_app(helm, "broken", "failing", {"spaceInstance": {"name": "scripts"}}, parameters={"size": "3"})
    message = wait_for_reason(helm, "broken", "ScriptFailed")
    assert "the script has failed: exit code 5; the end of its output: size is 3." in message
    assert find_objects(helm, namespace, "broken") == {"Job"}
    merge_app(helm, "broken", parameters="size: '4'\n")
    wait_for_revision(helm, "broken", 2)
    uninstall_app(helm, "broken")


def test_pods_of_scripts_have_a_token_only_with_a_role_and_while_they_run(helm: HelmFixture, namespace: str) -> None:
    script = f"#!/bin/sh\n[ -s {TOKEN} ] || exit 9\n"
    create_script(helm, "roled", script, bash={"clusterRole": "view"})
    install_app(helm, "viewer", "roled", {"spaceInstance": {"name": "scripts"}})
    wait_for_revision(helm, "viewer", 1)
    assert find_objects(helm, namespace, "viewer") == {"Job"}
    merge_patch(helm.admin, f"{M}/apps/roled", {"spec": {"config": {"bash": {"clusterRole": "cluster-admin"}}}})
    assert 'the ClusterRole "cluster-admin" in' in wait_for_reason(helm, "viewer", "PermissionsMissing")
    uninstall_app(helm, "viewer")
    assert find_objects(helm, namespace, "viewer") == set()


def test_pods_of_scripts_that_do_not_end_are_stopped(helm: HelmFixture, namespace: str) -> None:
    create_script(helm, "endless", "#!/bin/sh\nsleep 1000\n", timeout="10s")
    install_app(helm, "late", "endless", {"spaceInstance": {"name": "scripts"}})
    assert "has not ended within 10 s" in wait_for_reason(helm, "late", "ScriptFailed")
    wait_until(lambda: count_pods(helm, namespace, "late") == 0, SECONDS)
    uninstall_app(helm, "late")


def test_pods_of_scripts_in_a_cluster_have_the_role_everywhere_while_they_run(helm: HelmFixture) -> None:
    create_script(helm, "wide", f"#!/bin/sh\n[ -s {TOKEN} ] || exit 9\n", bash={"clusterRole": "view"})
    install_app(helm, "wide", "wide", {"cluster": {"name": CLUSTER, "namespace": "scripted"}})
    wait_for_revision(helm, "wide", 1)
    uid = read_app(helm, "wide")["metadata"]["uid"]
    assert helm.remote_object(f"/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/service.sh:script:{uid}") == {}
    assert helm.admin.get(f"{M}/apps/wide").status_code == httpx.codes.OK
    uninstall_app(helm, "wide")


def test_pods_of_scripts_run_with_the_permissions_that_the_cli_prints(
    connected_node: ConnectedCluster, tmp_path: Path
) -> None:
    account = "script-deployer"
    direct = connected_node.direct_kubectl()
    roles = tmp_path / "roles.yaml"
    roles.write_text(yaml.safe_dump_all(print_roles(connected_node, "apps", "--account", account)))
    direct("apply", "-f", str(roles))
    wait_until(lambda: read_token(direct, account) != "", SECONDS)
    kubeconfig = connected_node.plane.kubeconfig(read_token(direct, account))
    with open_helm(tmp_path / "helm", kubeconfig) as (helm, _):
        create_script(helm, "granted", f"#!/bin/sh\n[ -s {TOKEN} ] || exit 9\n", bash={"clusterRole": "view"})
        install_app(helm, "granted", "granted", {"cluster": {"name": CLUSTER, "namespace": "granted"}})
        wait_for_revision(helm, "granted", 1)
        merge_patch(helm.admin, f"{M}/apps/granted", {"spec": {"config": {"bash": {"clusterRole": "cluster-admin"}}}})
        wait_for_reason(helm, "granted", "PermissionsMissing")
        uninstall_app(helm, "granted")
    direct("delete", "-f", str(roles), "--ignore-not-found")
