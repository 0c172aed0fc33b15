"""What was asked, what Helm says, what the cluster has, and what Fairlead says: all equal after a failed upgrade.

With the program that HELM names, or `helm` of the folder REFERENCE, or else with Helm's own library. Each failure is
followed by a rollback to what was deployed before, which is where a server that trusts its own record does nothing.
"""

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.fake_cluster.helm_program import write_helm_program
from tests.harness.apps import create_space, install_app, merge_app, read_app, wait_until_deployed
from tests.harness.eventually import wait_until
from tests.harness.gateways import M, create_resource, merge_patch
from tests.harness.helm import (
    DEPLOYED,
    NAMESPACE,
    SECONDS,
    HelmFixture,
    open_repository,
    prepare_project,
    spell_otherwise,
)
from tests.harness.server_process import Server, running_server
from tests.reference.control_plane import ControlPlane

VALUES = "size: {{ parameters.size }}\n{{ parameters.fault }}: true\n"
PARAMETERS = [{"variable": "size"}, {"variable": "fault", "defaultValue": "none"}]
FAULTS = ("refused", "stuck")
"""Values of the chart `fragile`: the cluster refuses its second object; or that never becomes ready, with `wait`."""


@dataclass
class Setup:
    """A server that can be killed and started again on the same data, and programs that look at the cluster."""

    helm_program: str
    kubectl_program: str
    kubeconfig: str
    fixture: HelmFixture
    server: Server

    def history(self, release: str, namespace: str) -> list[str]:
        """What Helm says about each revision, the oldest first."""
        answer = self._run(self.helm_program, "history", release, "--namespace", namespace, "-o", "json")
        return [each["status"] for each in json.loads(answer or "[]")]

    def objects(self, release: str, namespace: str) -> dict[str, str]:
        """What the cluster has: the size in the ConfigMap of the release, and the names of its other objects."""
        kinds = "configmaps,services,deployments.apps,secrets"
        answer = self._run(self.kubectl_program, "get", kinds, "--namespace", namespace, "-o", "json")
        found: dict[str, str] = {}
        for each in json.loads(answer)["items"]:
            meta = each["metadata"]
            if (meta.get("annotations") or {}).get("meta.helm.sh/release-name") == release:
                found[f"{each['kind']} {meta['name']}"] = str((each.get("data") or {}).get("size", ""))
        return found

    def _run(self, *command: str) -> str:
        environment = {**os.environ, "KUBECONFIG": self.kubeconfig}
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False).stdout


@pytest.fixture(scope="module")
def programs(binaries: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """`helm` and `kubectl`."""
    helm = Path(os.environ.get("HELM") or binaries / "helm")
    if not helm.exists():
        helm = write_helm_program(tmp_path_factory.mktemp("program"))
    return str(helm), str(binaries / "kubectl")


@pytest.fixture
def setup(plane: ControlPlane, programs: tuple[str, str], tmp_path: Path) -> Iterator[Callable[[], Setup]]:
    """Starts a server on the same data each time that it is called; the one before must have ended."""
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(plane.kubeconfig())
    helm, kubectl = programs
    servers: list[Server] = []
    with pytest.MonkeyPatch.context() as patched, ExitStack() as stack:
        patched.setenv("HELM", helm)
        repository = stack.enter_context(open_repository(tmp_path / "helm"))

        def start() -> Setup:
            server = stack.enter_context(running_server(tmp_path / "data", chart_repositories=repository.url))
            servers.append(server)
            admin = stack.enter_context(server.client(servers[0].key))
            if len(servers) == 1:
                prepare_project(admin, plane.kubeconfig())
            fixture = HelmFixture(admin, repository, spell_otherwise(plane.kubeconfig()))
            return Setup(helm, kubectl, str(kubeconfig), fixture, server)

        yield start
    assert "Traceback" not in servers[0].log.read_text()


def install_fragile(setup: Setup, name: str, timeout: str) -> str:
    """An app of the chart `fragile` in a space. Returns the namespace."""
    chart = {"name": "fragile", "repoURL": setup.fixture.repository.url, "version": "1.2.3"}
    config = {"chart": chart, "values": VALUES}
    create_resource(
        setup.fixture.admin, "apps", "App", name, config=config, parameters=PARAMETERS, wait=True, timeout=timeout
    )
    namespace = create_space(setup.fixture, name)
    install_app(setup.fixture, name, name, {"spaceInstance": {"name": name}}, parameters={"size": "1"})
    wait_until_deployed(setup.fixture, name, 1)
    return namespace


def outcome_of(setup: Setup, name: str) -> tuple[Any, Any]:
    status = read_app(setup.fixture, name).get("status") or {}
    return status.get("reason"), (status.get("lastAttempt") or {}).get("outcome")


def check_rolled_back(
    setup: Setup, name: str, namespace: str, fault: str, record_figure: Callable[[str], None]
) -> None:
    merge_app(setup.fixture, name, parameters="size: 1\n")
    wait_until(lambda: setup.history(name, namespace)[-1] == "deployed", 2 * SECONDS)
    wait_until(lambda: outcome_of(setup, name) == ("Deployed", "Succeeded"), SECONDS)
    expected = {f"ConfigMap {name}-settings": "1", f"Secret vc-{name}": ""}
    wait_until(lambda: setup.objects(name, namespace) == expected, SECONDS)
    status = read_app(setup.fixture, name)["status"]
    conditions = {each["type"]: each["status"] for each in status["conditions"]}
    assert (conditions["Ready"], conditions["Deployed"], conditions["Synced"]) == ("True", "True", "True")
    states = ", ".join(setup.history(name, namespace))
    record_figure(f"{fault}: asked size 1 | helm history: {states} | cluster: size 1 | we: {status['reason']}")


@pytest.mark.parametrize("fault", FAULTS)
def test_an_app_is_what_was_requested_after_a_failed_upgrade(
    setup: Callable[[], Setup], record_figure: Callable[[str], None], fault: str
) -> None:
    running = setup()
    name = f"app-{fault}"
    namespace = install_fragile(running, name, "8s")
    merge_app(running.fixture, name, parameters=f"size: 2\nfault: {fault}\n")
    wait_until(lambda: outcome_of(running, name) == ("HelmFailed", "Failed"), 2 * SECONDS)
    assert running.history(name, namespace)[-1] == "failed"
    assert running.objects(name, namespace)[f"ConfigMap {name}-settings"] == "2"  # a part of it
    check_rolled_back(running, name, namespace, fault, record_figure)


def test_an_app_is_what_was_requested_after_the_server_was_killed(
    setup: Callable[[], Setup], record_figure: Callable[[str], None]
) -> None:
    running = setup()
    namespace = install_fragile(running, "killed", "20s")
    merge_app(running.fixture, "killed", parameters="size: 2\nfault: stuck\n")
    wait_until(lambda: running.objects("killed", namespace).get("ConfigMap killed-settings") == "2", SECONDS)
    assert outcome_of(running, "killed")[1] == "Running"
    running.server.kill()
    # Helm ends with the server, through which it has reached the cluster. So the release stays pending.
    assert running.history("killed", namespace)[-1] == "pending-upgrade"
    running = setup()
    check_rolled_back(running, "killed", namespace, "kill -9", record_figure)


def test_a_virtual_cluster_and_a_chart_of_a_template_are_what_was_requested_after_a_failed_upgrade(
    setup: Callable[[], Setup], record_figure: Callable[[str], None]
) -> None:
    running = setup()
    helm = running.fixture
    chart = {"name": "fragile", "repoURL": helm.repository.url, "releaseName": "beside", "values": "size: 1\n"}

    def template(size: int, **values: Any) -> dict[str, Any]:
        lines = "".join(f"{name}: {value}\n" for name, value in {"size": size, **values}.items())
        return {
            **helm.release("fragile", size=size, **values),
            "spaceTemplate": {"charts": [{**chart, "values": lines}]},
        }

    def change(size: int, **values: Any) -> None:
        helm.update_template("fragile", template(size, **values))

    def sizes() -> list[str]:
        return [
            running.objects(release, "demo-v-fragile").get(f"ConfigMap {release}-settings", "")
            for release in ("fragile", "beside")
        ]

    def is_synced(status: str) -> bool:
        found = [helm.condition("fragile", type).get("status") for type in (DEPLOYED, "AppsSynced")]
        return found == [status, status]

    helm.create_from_template("fragile", template(1))
    wait_until(lambda: is_synced("True"), 2 * SECONDS)
    assert sizes() == ["1", "1"]
    change(2, refused="true")
    helm.wait_for_condition("fragile", DEPLOYED, "HelmFailed")
    assert sizes()[0] == "2"
    change(1)
    wait_until(lambda: sizes() == ["1", "1"] and is_synced("True"), 2 * SECONDS)
    histories = [running.history(each, "demo-v-fragile") for each in ("fragile", "beside")]
    assert [each[-1] for each in histories] == ["deployed", "deployed"]
    record_figure(
        f"virtual cluster: asked size 1 | helm history: {', '.join(histories[0])} | cluster: size 1 | we: True"
    )
    path = f"{M}/namespaces/{NAMESPACE}/virtualclusterinstances/fragile"
    assert helm.admin.get(path).json()["status"]["lastAttempt"]["outcome"] == "Succeeded"


def test_an_object_that_only_a_failed_upgrade_has_added_is_deleted(
    setup: Callable[[], Setup], record_figure: Callable[[str], None]
) -> None:
    running = setup()
    namespace = install_fragile(running, "added", "8s")
    values = f"{VALUES}added: {{{{ parameters.added }}}}\n"
    spec = {"config": {"values": values}, "parameters": [*PARAMETERS, {"variable": "added", "defaultValue": ""}]}
    merge_patch(running.fixture.admin, f"{M}/apps/added", {"spec": spec})
    merge_app(running.fixture, "added", parameters="size: 2\nfault: refused\nadded: 'true'\n")
    wait_until(lambda: "Secret added-added" in running.objects("added", namespace), 2 * SECONDS)
    check_rolled_back(running, "added", namespace, "added object", record_figure)
