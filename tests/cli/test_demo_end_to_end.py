"""`fairlead demo` against a real server process."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlead.cli.resources.demo import CONTENT, CORE, REMOVAL_ORDER
from fairlead.cli.resources.demo_fleet import DEMO_LABEL, STUCK_PROJECT, demo_objects
from fairlead.client import ApiStatusError, Client
from fairlead.core.objects import Object, get_path, name_of
from tests.cli.end_to_end import expect_success, open_admin_client
from tests.harness.cli import CliFixture
from tests.harness.eventually import wait_until
from tests.harness.fake_server import FakeServer
from tests.harness.server_process import Server, running_server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running_server(tmp_path_factory.mktemp("server") / "data") as server:
        yield server


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with open_admin_client(server) as client:
        yield client


@pytest.fixture
def cli(server: Server, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CliFixture]:
    """The CLI, logged in as the administrator. The demo is removed after the test."""
    cli = CliFixture(tmp_path, FakeServer(server.url, server.ca_file), monkeypatch)
    cli.save_login(key=server.key)
    yield cli
    expect_success(cli.run("demo", "--remove", "--yes"))


def list_names(client: Client) -> set[str]:
    """All objects of the kinds that the demo creates, as `plural/name`."""
    names = set()
    for plural in REMOVAL_ORDER:
        path = client.core_path(plural) if plural in CORE else client.path(plural)
        names |= {f"{plural}/{name_of(each)}" for each in client.send("GET", path)["items"]}
    return names


def find_reason(client: Client, plural: str, name: str, project: str = "") -> str:
    found = client.get(plural, name, namespace=f"service-p-{project}" if project else "")
    return str(get_path(found, "status.reason") or "")


def test_the_demo_is_created_once_and_removed_without_a_trace(cli: CliFixture, client: Client) -> None:
    before = list_names(client)
    created = cli.run("demo")
    assert (created.code, len(created.out.splitlines())) == (0, len(list(demo_objects()))), created.err
    assert "warning" not in created.err
    assert {f"{each.plural}/{each.name}" for each in demo_objects()} == list_names(client) - before
    again = cli.run("demo")
    assert (again.code, again.out) == (0, "")
    assert "nothing to create" in again.err
    assert cli.run("demo", "--remove").code == 2
    expect_success(cli.run("demo", "--remove", "--yes"))
    assert list_names(client) == before
    assert "nothing to remove" in cli.run("demo", "--remove", "--yes").err


def test_the_demo_shows_some_trouble(cli: CliFixture, client: Client) -> None:
    expect_success(cli.run("demo"))
    wait_until(lambda: get_path(client.get("clusters", "singapore"), "status.online") is False, what="unreachable")
    wait_until(lambda: find_reason(client, "spaceinstances", "checkout-test", "storefront") == "ClusterOffline")
    stuck: Object = client.get("projects", STUCK_PROJECT)
    assert "deletionTimestamp" in stuck["metadata"]
    wait_until(lambda: "example.com/backup" in str(client.get("projects", STUCK_PROJECT)["status"]))
    phases = {name_of(each): get_path(each, "status.phase") for each in client.list("devpodworkspaceinstances")}
    assert phases == {"cart": "Ready", "search": "Sleeping", "ledger": "Failed"}
    assert [get_path(client.get("clusters", name), "status.phase") for name in ("frankfurt", "virginia")] == [
        "Initialized"
    ] * 2


def test_what_is_missing_is_created_again(cli: CliFixture, client: Client) -> None:
    expect_success(cli.run("demo"))
    client.delete("apps", "backup")
    assert expect_success(cli.run("demo")) == "app/backup\n"


def test_the_demo_works_beside_the_objects_of_the_readme(cli: CliFixture, client: Client) -> None:
    """README creates the user ada and the project demo first."""
    client.create("users", {"kind": "User", "metadata": {"name": "ada"}, "spec": {}})
    client.create("projects", {"kind": "Project", "metadata": {"name": "demo"}, "spec": {}})
    expect_success(cli.run("demo"))
    assert client.get("users", "ada")["metadata"].get("labels") is None
    expect_success(cli.run("demo", "--remove", "--yes"))
    client.delete("users", "ada")
    client.delete("projects", "demo")


def test_an_object_of_the_same_name_stops_the_command_before_anything_is_created(
    cli: CliFixture, client: Client
) -> None:
    client.create("ownedaccesskeys", {"kind": "OwnedAccessKey", "metadata": {"name": "barbara-laptop"}, "spec": {}})
    before = list_names(client)
    result = cli.run("demo")
    assert (result.code, result.out) == (1, "")
    assert "ownedaccesskey/barbara-laptop exists and is not part of the demo" in result.err
    expect_success(cli.run("demo", "--remove", "--yes"))
    assert list_names(client) == before
    client.delete("ownedaccesskeys", "barbara-laptop")


def test_a_project_with_objects_of_others_is_kept(cli: CliFixture, client: Client) -> None:
    expect_success(cli.run("demo"))
    path = client.core_path("configmaps", namespace="service-p-payments")
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "mine"}}
    client.send("POST", path, body)
    result = cli.run("demo", "--remove", "--yes")
    assert result.code == 1
    assert "project payments contains configmaps/mine" in result.err
    assert client.get("projects", "payments")["metadata"]["labels"] == {DEMO_LABEL: "true"}
    with pytest.raises(ApiStatusError, match="not found"):
        client.get("projects", "storefront")
    client.send("DELETE", f"{path}/mine")


def test_the_order_of_removal_covers_all_kinds() -> None:
    assert {each.plural for each in demo_objects()} == set(REMOVAL_ORDER)
    assert {each.plural for each in demo_objects() if each.project} <= set(CONTENT)
