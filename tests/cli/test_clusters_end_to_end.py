"""`fairlead cluster` and `fairlead space` against a real server process."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlead.client import ApiStatusError
from tests.cli.end_to_end import expect_json, expect_success, open_admin_client
from tests.fake_cluster.behaviours import never_respond
from tests.fake_cluster.server import FakeCluster
from tests.harness.cli import CliFixture
from tests.harness.fake_server import FakeServer
from tests.harness.server_process import Server, running_server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running_server(tmp_path_factory.mktemp("server") / "data") as server:
        yield server


@pytest.fixture
def cli(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CliFixture:
    """The CLI, logged in as the administrator."""
    cli = CliFixture(tmp_path, FakeServer(server.url, server.ca_file), monkeypatch)
    cli.save_login(key=server.key)
    return cli


def test_a_server_is_no_cluster_of_its_own(cli: CliFixture, server: Server) -> None:
    kubeconfig = str(Path(server.ca_file).parents[1] / "admin.kubeconfig")
    result = cli.run("cluster", "add", "itself", "--kubeconfig", kubeconfig, "--no-wait")
    assert (result.code, "is this Fairlead server itself" in result.err) == (1, True)


def test_a_cluster_is_added_listed_checked_and_removed_with_its_kubeconfig(
    cli: CliFixture, server: Server, tmp_path: Path
) -> None:
    own = (Path(server.ca_file).parents[1] / "admin.kubeconfig").read_text()
    elsewhere = tmp_path / "elsewhere.kubeconfig"
    elsewhere.write_text(own.replace(server.url, "https://127.0.0.1:1"))
    kubeconfig = str(elsewhere)
    expect_success(cli.run("cluster", "add", "distant", "--kubeconfig", kubeconfig, "--no-wait"))
    assert "the cluster distant already exists" in cli.run("cluster", "add", "distant", "--kubeconfig", kubeconfig).err
    (cluster,) = expect_json(cli.run("cluster", "list", "-o", "json"))["items"]
    assert cluster["spec"]["config"]["secretName"] == "cluster-distant"
    assert cli.run("cluster", "check", "distant").code == 1  # nothing responds there
    context = expect_success(cli.run("kubeconfig", "--cluster", "distant", "-o", "-"))
    assert f"{server.url}/kubernetes/cluster/distant" in context
    with open_admin_client(server) as client:
        path = client.core_path("secrets", "cluster-distant", namespace="service-system")
        assert list(client.send("GET", path)["data"]) == ["config"]
        assert "its kubeconfig is deleted" in cli.run("cluster", "remove", "distant", "--yes").err
        with pytest.raises(ApiStatusError, match="not found"):
            client.send("GET", path)


def test_a_space_is_created_in_a_cluster_and_deleted(cli: CliFixture) -> None:
    expect_success(cli.run("project", "create", "spacious"))
    space = expect_json(cli.run("space", "create", "dev", "--project", "spacious", "--cluster", "none", "-o", "json"))
    assert space["spec"]["clusterRef"] == {"cluster": "none"}
    assert "has no namespace" in cli.run("kubeconfig", "--space", "spacious/dev", "-o", "-").err
    expect_success(cli.run("space", "delete", "dev", "--project", "spacious", "--yes"))
    assert cli.run("space", "list", "--project", "spacious", "-o", "name").out == ""


def test_waiting_for_a_space_in_an_unresponsive_cluster_times_out(
    cli: CliFixture, server: Server, tmp_path: Path
) -> None:
    path = "/api/v1/namespaces/patient-dev"
    with FakeCluster() as cluster:
        cluster.set_behaviour(path, never_respond)
        (tmp_path / "kubeconfig").write_bytes(cluster.build_kubeconfig())
        expect_success(cli.run("cluster", "add", "mute", "--kubeconfig", str(tmp_path / "kubeconfig")))
        expect_success(cli.run("project", "create", "patient"))
        command = ("space", "create", "dev", "--project", "patient", "--cluster", "mute")
        result = cli.run(*command, "--wait", "--timeout", "3s")
        assert result.code == 1
        assert (
            "the space dev is still Pending (Progressing: its namespace is being created or updated) after 3s"
            in result.err
        )
        expect_success(cli.run("space", "delete", "dev", "--project", "patient", "--yes", "--abandon"))
        expect_success(cli.run("cluster", "remove", "mute", "--yes", "--keep"))
