"""`fairlead team`, `vcluster`, `app`, `context`, and the names that Tab completes."""

import json
from collections.abc import Callable

import pytest
import typer
from typer.main import get_command

from fairlead.cli import make_app
from fairlead.cli.ui.completion import complete_logins, complete_names
from tests.client.test_watch import END, lines
from tests.harness.cli import CliFixture
from tests.harness.fake_server import M, failure, items, named

TEAM = f"{M}/teams/ops"
MOVE = f"{M}/projects/there/migratevirtualclusterinstance"


def team(*users: str) -> tuple[int, dict[str, object]]:
    made = named("ops", kind="Team", spec={"users": list(users)})
    made["metadata"]["resourceVersion"] = "5"
    return 200, made


def test_a_team_is_changed_as_it_is_at_that_moment(user: CliFixture) -> None:
    user.fake.on("GET", f"{M}/users/bob", (200, named("bob")))
    user.fake.on("GET", TEAM, team("ada"))
    user.fake.on("PATCH", TEAM, (409, failure(409, "Conflict", "changed")), team())
    assert "bob is now a member of the team ops" in user.type("team", "add", "ops", "bob").err
    change = {"metadata": {"resourceVersion": "5"}, "spec": {"users": ["ada", "bob"]}}
    assert [each.body for each in user.fake.asked("PATCH", TEAM)] == [change, change]
    assert user.type("team", "remove", "ops", "ada").code == 0
    assert user.fake.asked("PATCH", TEAM)[-1].body["spec"] == {"users": []}


def test_a_change_of_a_team_that_changes_nothing_is_told(user: CliFixture) -> None:
    user.fake.on("GET", f"{M}/users/ada", (200, named("ada")))
    user.fake.on("GET", TEAM, team("ada"))
    assert "already" in user.type("team", "add", "ops", "ada").err
    ended = user.type("team", "remove", "ops", "bob")
    assert (ended.code, "bob is not in spec.users of the team" in ended.err) == (1, True)
    assert "user 'eve' does not exist" in user.type("team", "create", "new", "--member", "eve").err
    assert user.fake.asked("PATCH", TEAM) == user.fake.asked("POST", f"{M}/teams") == []


@pytest.mark.parametrize(("flags", "query"), [((), {}), (("--dry-run",), {"dryRun": "All"})])
def test_a_migration_names_both_projects(user: CliFixture, flags: tuple[str, ...], query: dict[str, str]) -> None:
    user.fake.on("POST", MOVE, lambda request: (201, request.body))
    ended = user.type("vcluster", "migrate", "v", "--from", "here", "--to", "there", *flags)
    assert ("can be moved" if flags else "was moved") in ended.err
    (request,) = user.fake.asked("POST", MOVE)
    assert request.query == query
    assert request.body["sourceVirtualClusterInstance"] == {"name": "v", "namespace": "service-p-here"}


def test_an_import_is_external(user: CliFixture) -> None:
    place = f"{M}/namespaces/service-p-demo/virtualclusterinstances"
    user.fake.on("POST", place, lambda request: (201, request.body))
    assert user.type("vcluster", "import", "v", "--project", "demo", "--cluster", "c").code == 0
    assert user.fake.asked("POST", place)[0].body["spec"] == {"external": True, "clusterRef": {"cluster": "c"}}


@pytest.mark.parametrize("flags", [(), ("--abandon",)])
def test_a_virtual_cluster_is_deleted_and_waited_for(user: CliFixture, flags: tuple[str, ...]) -> None:
    place = f"{M}/namespaces/service-p-demo/virtualclusterinstances"
    found = named("v", spec={"config": {"secretName": "theirs"}})
    found["metadata"] |= {"uid": "1", "namespace": "service-p-demo"}
    user.fake.on("GET", f"{place}/v", (200, found))
    user.fake.on("PATCH", f"{place}/v", (200, found))
    user.fake.on("DELETE", f"{place}/v", (200, found))
    user.fake.on("GET", place, lines(END))
    assert user.type("vcluster", "delete", "v", "--project", "demo", *flags).code == 2
    assert user.fake.asked("DELETE", f"{place}/v") == user.fake.asked("PATCH", f"{place}/v") == []
    ended = user.type("vcluster", "delete", "v", "--project", "demo", "--yes", *flags)
    assert ended.code == 0 and "the virtual cluster v is deleted" in ended.err
    assert ("left behind" in ended.err) is bool(flags)
    assert len(user.fake.asked("PATCH", f"{place}/v")) == len(flags)


def test_an_app_is_shown_with_what_it_deploys(user: CliFixture) -> None:
    spec = {"config": {"chart": {"name": "nginx", "version": "4.0.0"}}, "parameters": [{"variable": "size"}]}
    user.fake.on("GET", f"{M}/apps/web", (200, named("web", spec=spec)))
    out = user.type("app", "show", "web").out
    assert "chart nginx 4.0.0" in out and "size: string" in out


def test_logins_are_listed_switched_and_forgotten_without_their_keys(user: CliFixture) -> None:
    user.keep("other")
    user.keep("third", key="fairlead_secret")
    assert user.type("context", "use", "test").code == 0
    assert user.kept().current == "test"
    listed = user.type("context", "list", "-o", "json").out
    assert [(each["name"], each["current"]) for each in json.loads(listed)] == [
        ("other", False),
        ("test", True),
        ("third", False),
    ]
    assert "fairlead_" not in listed + user.type("context", "list").out
    assert user.type("context", "forget", "third").code == 0
    assert user.type("context", "list", "-o", "name").out == "context/other\ncontext/test\n"
    assert user.type("context", "use", "third").code == 1
    assert "FAIRLEAD_CONTEXT is set" in user.type("context", "use", "other", FAIRLEAD_CONTEXT="test").err


@pytest.fixture
def tab(user: CliFixture, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(user.home / "config"))

    def pressed(plural: str, incomplete: str, **params: str) -> list[str]:
        context = typer.Context(get_command(make_app()))
        context.params = dict(params)
        return complete_names(plural, project="project")(context, incomplete)

    return pressed


def test_names_are_completed_by_the_server(user: CliFixture, tab: Callable[..., list[str]]) -> None:
    user.fake.on("GET", f"{M}/projects", items(named("demo"), named("desk"), named("other")))
    user.fake.on("GET", f"{M}/namespaces/service-p-demo/spaceinstances", items(named("s")))
    assert tab("projects", "de") == ["demo", "desk"]
    assert tab("spaceinstances", "", project="demo") == ["s"]
    assert complete_logins("te") == ["test"]


def test_completion_says_nothing_when_it_fails(user: CliFixture, tab: Callable[..., list[str]]) -> None:
    assert tab("projects", "") == []
    assert tab("projects", "", context="unknown") == []
    user.logins.write_text("- nonsense")
    assert (tab("projects", ""), complete_logins("")) == ([], [])
