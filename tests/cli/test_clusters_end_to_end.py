"""The commands about clusters and spaces against a real server, which keeps what they store."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlead.client import ApiStatusError
from tests.cli.test_commands_end_to_end import administrator, as_json, done
from tests.fake_cluster.behaviours import never
from tests.fake_cluster.server import FakeCluster
from tests.harness.cli import CliFixture
from tests.harness.fake_server import FakeServer
from tests.harness.server_process import Server, running


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(tmp_path_factory.mktemp("server") / "data") as started:
        yield started


@pytest.fixture
def cli(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CliFixture:
    """The administrator."""
    cli = CliFixture(tmp_path, FakeServer(server.url, server.ca_file), monkeypatch)
    cli.keep(key=server.key)
    return cli


def test_a_cluster_is_added_listed_checked_and_removed_with_its_kubeconfig(cli: CliFixture, server: Server) -> None:
    kubeconfig = str(Path(server.ca_file).parents[1] / "admin.kubeconfig")
    done(cli.type("cluster", "add", "itself", "--kubeconfig", kubeconfig, "--no-wait"))
    assert "the cluster itself already exists" in cli.type("cluster", "add", "itself", "--kubeconfig", kubeconfig).err
    (listed,) = as_json(cli.type("cluster", "list", "-o", "json"))["items"]
    assert listed["spec"]["config"]["secretName"] == "cluster-itself"
    assert cli.type("cluster", "check", "itself").code == 1  # no server connects to itself
    context = done(cli.type("kubeconfig", "--cluster", "itself", "-o", "-"))
    assert f"{server.url}/kubernetes/cluster/itself" in context
    with administrator(server) as client:
        path = client.core_path("secrets", "cluster-itself", namespace="service-system")
        assert list(client.send("GET", path)["data"]) == ["config"]
        assert "its kubeconfig is deleted" in cli.type("cluster", "remove", "itself", "--yes").err
        with pytest.raises(ApiStatusError, match="not found"):
            client.send("GET", path)


def test_a_space_is_made_in_a_cluster_and_deleted(cli: CliFixture) -> None:
    done(cli.type("project", "create", "spacious"))
    made = as_json(cli.type("space", "create", "dev", "--project", "spacious", "--cluster", "none", "-o", "json"))
    assert made["spec"]["clusterRef"] == {"cluster": "none"}
    assert "has no namespace" in cli.type("kubeconfig", "--space", "spacious/dev", "-o", "-").err
    done(cli.type("space", "delete", "dev", "--project", "spacious", "--yes"))
    assert cli.type("space", "list", "--project", "spacious", "-o", "name").out == ""


def test_waiting_for_a_space_in_a_cluster_that_does_not_answer_ends_in_time(
    cli: CliFixture, server: Server, tmp_path: Path
) -> None:
    place = "/api/v1/namespaces/patient-dev"
    with FakeCluster() as far:
        far.behave(place, never)
        (tmp_path / "kubeconfig").write_bytes(far.kubeconfig())
        done(cli.type("cluster", "add", "mute", "--kubeconfig", str(tmp_path / "kubeconfig")))
        done(cli.type("project", "create", "patient"))
        wanted = ("space", "create", "dev", "--project", "patient", "--cluster", "mute")
        ended = cli.type(*wanted, "--wait", "--timeout", "3s")
        assert ended.code == 1
        assert (
            "the space dev is still Pending (Progressing: its namespace is being created or updated) after 3s"
            in ended.err
        )
        done(cli.type("space", "delete", "dev", "--project", "patient", "--yes", "--abandon"))
        done(cli.type("cluster", "remove", "mute", "--yes", "--keep"))
