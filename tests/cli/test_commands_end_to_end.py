"""The commands against a real server: what they print is what holds."""

import json
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fairlead.client import Client
from tests.cli.conftest import ROOT, Fairlead
from tests.harness.cli import CliFixture, CommandResult
from tests.harness.fake_server import FakeServer
from tests.harness.server_process import TIMEOUT_SECONDS, Server, environment, running

PASSWORD = "correct horse battery"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(tmp_path_factory.mktemp("server") / "data") as started:
        yield started


@pytest.fixture
def cli(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CliFixture:
    """The administrator, logged in as `test`. Other people log in beside it."""
    cli = CliFixture(tmp_path, FakeServer(server.url, server.ca_file), monkeypatch)
    cli.keep(key=server.key)
    return cli


def done(ended: CommandResult) -> str:
    assert ended.code == 0, ended.err + ended.out
    return ended.out


def as_json(ended: CommandResult) -> Any:
    return json.loads(done(ended))


def whoami(cli: CliFixture, key: str) -> CommandResult:
    """Who the server takes this key for; through the environment, as in CI."""
    variables = {"FAIRLEAD_URL": cli.fake.url, "FAIRLEAD_KEY": key, "FAIRLEAD_CA_FILE": cli.fake.ca_file}
    return cli.type("whoami", "-o", "json", **variables)


def make_user(cli: CliFixture, name: str, *flags: str) -> None:
    done(cli.type("user", "create", name, "--password-stdin", *flags, stdin=f"{PASSWORD}\n"))


def log_in(cli: CliFixture, name: str, password: str = PASSWORD) -> CommandResult:
    flags = ("--user", name, "--password-stdin", "--ca-file", cli.fake.ca_file, "--name", name)
    return cli.type("login", cli.fake.url, *flags, stdin=f"{password}\n")


def at(cli: CliFixture) -> dict[str, str]:
    """The environment in which a real process finds the logins of the desk."""
    return {"HOME": str(cli.home), "XDG_CONFIG_HOME": str(cli.home / "config")}


def administrator(server: Server) -> Client:
    return Client(server.url, server.key, ca_file=server.ca_file)


def test_the_kubeconfig_that_up_leaves_is_a_login(server: Server, tmp_path: Path, cli: CliFixture) -> None:
    cli.logins.unlink()
    kubeconfig = Path(server.ca_file).parents[1] / "admin.kubeconfig"
    advice = cli.type("whoami", FAIRLEAD_DATA=str(kubeconfig.parent)).err
    command = advice.split("`")[-2].split()
    assert command[:2] == ["fairlead", "login"]
    done(cli.type(*command[1:]))
    told = as_json(cli.type("whoami", "-o", "json"))
    assert (told["user"]["name"], told["accessKey"]) == ("admin", "admin-first-key")
    assert told["projectNamespacePrefix"] == "service-p-"
    assert "all permissions of admin" in cli.type("whoami").out


def test_a_user_logs_in_with_a_password_and_out_again(cli: CliFixture) -> None:
    make_user(cli, "alice", "--display-name", "Alice A.")
    assert "user name or password is wrong" in log_in(cli, "alice", "wrong password").err
    done(log_in(cli, "alice"))
    told = as_json(cli.type("whoami", "-o", "json"))
    assert (told["user"]["displayName"], told["accessKeyType"]) == ("Alice A.", "Login")
    value = cli.kept().contexts["alice"].key
    assert "is revoked" in cli.type("logout").err
    assert set(cli.kept().contexts) == {"test"}
    refused = whoami(cli, value)
    assert refused.code == 1
    assert "does not accept the key in FAIRLEAD_KEY" in refused.err


def test_a_second_login_ends_the_first(cli: CliFixture) -> None:
    make_user(cli, "again")
    done(log_in(cli, "again"))
    first = cli.kept().contexts["again"].key
    done(log_in(cli, "again"))
    assert whoami(cli, first).code == 1
    assert cli.type("whoami").code == 0


def test_people_change_their_own_passwords_and_administrators_anybodys(cli: CliFixture) -> None:
    make_user(cli, "bob")
    done(log_in(cli, "bob"))
    wrong = cli.type("user", "passwd", "--password-stdin", stdin="not it\nanother password\n")
    assert wrong.code == 1
    assert "the current password is wrong" in wrong.err
    done(cli.type("user", "passwd", "--password-stdin", stdin=f"{PASSWORD}\nanother password\n"))
    assert log_in(cli, "bob").code == 1
    done(log_in(cli, "bob", "another password"))
    done(cli.type("user", "passwd", "bob", "--password-stdin", "--context", "test", stdin="a third password\n"))
    done(log_in(cli, "bob", "a third password"))
    short = cli.type("user", "passwd", "bob", "--password-stdin", "--context", "test", stdin="short\n")
    assert short.code == 1
    assert "at least 12 characters" in short.err


def test_a_disabled_user_is_locked_out_with_all_keys_and_comes_back(cli: CliFixture) -> None:
    make_user(cli, "cy")
    key = done(cli.type("key", "create", "--user", "cy")).strip()
    assert as_json(whoami(cli, key))["user"]["name"] == "cy"
    done(cli.type("user", "disable", "cy"))
    assert whoami(cli, key).code == 1
    assert log_in(cli, "cy").code == 1
    row = next(line for line in done(cli.type("user", "list")).splitlines() if line.startswith("cy "))
    assert "disabled" in row
    done(cli.type("user", "enable", "cy"))
    assert whoami(cli, key).code == 0


def test_new_users_are_put_into_teams(cli: CliFixture, server: Server) -> None:
    with administrator(server) as client:
        client.create("teams", {"kind": "Team", "metadata": {"name": "ops"}, "spec": {}})
    make_user(cli, "dan", "--team", "ops")
    done(log_in(cli, "dan"))
    assert [each["name"] for each in as_json(cli.type("whoami", "-o", "json"))["user"]["teams"]] == ["ops"]


def test_an_administrator_can_make_another_one(cli: CliFixture) -> None:
    make_user(cli, "eve", "--admin")
    done(log_in(cli, "eve"))
    assert "admin" in done(cli.type("user", "list"))


def test_a_key_is_made_listed_switched_off_and_ended(cli: CliFixture) -> None:
    made = cli.type("key", "create", "--name", "ci", "--display-name", "For builds", "--ttl", "30d")
    value = done(made).strip()
    assert as_json(whoami(cli, value))["accessKey"] == "ci"
    row = next(line for line in done(cli.type("key", "list")).splitlines() if line.startswith("ci "))
    assert "For builds" in row and "in 29d" in row and "active" in row
    assert value not in done(cli.type("key", "show", "ci", "-o", "json"))
    done(cli.type("key", "disable", "ci"))
    assert whoami(cli, value).code == 1
    done(cli.type("key", "enable", "ci"))
    assert whoami(cli, value).code == 0
    done(cli.type("key", "revoke", "ci", "--yes"))
    assert whoami(cli, value).code == 1
    assert cli.type("key", "show", "ci").code == 1


def test_people_see_and_end_only_their_own_keys(cli: CliFixture) -> None:
    make_user(cli, "fay")
    done(cli.type("key", "create", "--name", "admins-own"))
    done(log_in(cli, "fay"))
    done(cli.type("key", "create", "--name", "fays-own", "--ttl", "1h"))
    listed = as_json(cli.type("key", "list", "--all", "-o", "json"))["items"]
    assert {each["spec"]["user"] for each in listed} == {"fay"}
    refused = cli.type("key", "revoke", "admins-own", "--yes")
    assert refused.code == 1
    assert "forbidden" in refused.err
    done(cli.type("key", "revoke", "fays-own", "--yes"))


def test_a_rotated_key_has_two_values_for_a_while(cli: CliFixture) -> None:
    first = done(cli.type("key", "create", "--name", "turning")).strip()
    second = done(cli.type("key", "rotate", "turning", "--overlap", "1h")).strip()
    assert first != second
    assert [whoami(cli, value).code for value in (first, second)] == [0, 0]
    third = done(cli.type("key", "rotate", "turning")).strip()
    assert whoami(cli, third).code == 0
    assert whoami(cli, second).code == 1


def test_rotating_the_key_in_use_does_not_end_the_login(cli: CliFixture) -> None:
    make_user(cli, "gus")
    value = done(cli.type("key", "create", "--user", "gus", "--name", "gus-own")).strip()
    flags = ("--key-stdin", "--ca-file", cli.fake.ca_file, "--name", "gus")
    done(cli.type("login", cli.fake.url, *flags, stdin=value))
    done(cli.type("key", "rotate", "gus-own"))
    assert as_json(cli.type("whoami", "-o", "json"))["user"]["name"] == "gus"
    assert whoami(cli, value).code == 1


def test_a_scope_is_told_and_explained(cli: CliFixture, server: Server) -> None:
    with administrator(server) as client:
        client.create("projects", {"kind": "Project", "metadata": {"name": "demo"}, "spec": {}})
    made = ("--name", "scoped", "--project", "demo", "--allow-cli")
    value = done(cli.type("key", "create", *made)).strip()
    told = as_json(whoami(cli, value))
    assert told["accessKeyScope"] == {"projects": [{"project": "demo"}], "allowServiceCli": True}
    place = ("--resource", "configmaps", "--project")
    inside = cli.type("key", "explain", "scoped", "--verb", "create", *place, "demo")
    assert "scoped may create configmaps in service-p-demo" in done(inside)
    outside = cli.type("key", "explain", "scoped", "--verb", "create", *place, "other")
    assert outside.code == 1
    assert "scoped may not create configmaps in service-p-other" in outside.out
    path = json.loads(cli.type("key", "explain", "scoped", "--verb", "create", *place, "other", "-o", "json").out)
    assert path["allowed"] is False
    assert [each["verdict"] for each in path["path"]].count("deny") == 1


def test_a_mistyped_restriction_makes_no_key(cli: CliFixture, tmp_path: Path) -> None:
    """A rule whose only field is passed over would allow everything."""
    file = tmp_path / "scope.yaml"
    file.write_text("rules: [{verb: [get]}]")
    ended = cli.type("key", "create", "--name", "mistyped", "--scope-file", str(file))
    assert (ended.code, ended.out) == (1, "")
    assert 'unknown field "spec.scope.rules[0].verb"' in ended.err
    assert cli.type("key", "show", "mistyped").code == 1


def test_people_ask_about_their_own_keys(cli: CliFixture) -> None:
    make_user(cli, "hal")
    done(log_in(cli, "hal"))
    lasting = cli.type("key", "create", "--name", "hals-own")
    assert lasting.code == 1
    assert "no key outlives the one that issued it" in lasting.err
    done(cli.type("key", "create", "--name", "hals-own", "--ttl", "1h"))
    ended = cli.type("key", "explain", "hals-own", "--verb", "delete", "--resource", "projects")
    assert ended.code == 1
    assert "hals-own may not delete projects.management.service.sh" in ended.out
    forbidden = cli.type("key", "explain", "admin-first-key", "--verb", "get", "--resource", "projects")
    assert forbidden.code == 1
    assert forbidden.err.startswith("fairlead: ")


def test_who_can_names_users_and_teams_with_the_reason(cli: CliFixture, server: Server) -> None:
    make_user(cli, "ida")
    with administrator(server) as client:
        client.create("teams", {"kind": "Team", "metadata": {"name": "keepers"}, "spec": {"users": ["ida"]}})
        rbac = "/kubernetes/management/apis/rbac.authorization.k8s.io/v1"
        rules = [{"apiGroups": ["management.service.sh"], "resources": ["apps"], "verbs": ["delete"]}]
        client.send("POST", f"{rbac}/clusterroles", {"metadata": {"name": "app-keeper"}, "rules": rules})
        subject = {"kind": "Group", "name": "service:team:keepers", "apiGroup": "rbac.authorization.k8s.io"}
        role = {"kind": "ClusterRole", "name": "app-keeper", "apiGroup": "rbac.authorization.k8s.io"}
        binding = {"metadata": {"name": "app-keepers"}, "roleRef": role, "subjects": [subject]}
        client.send("POST", f"{rbac}/clusterrolebindings", binding)
    listed = as_json(cli.type("who-can", "delete", "apps", "-o", "json"))["items"]
    named = {(each["kind"], each["name"]): each["reason"] for each in listed}
    assert {("User", "admin"), ("User", "ida"), ("Team", "keepers")} <= set(named)
    assert "app-keeper" in named["User", "ida"] and "app-keeper" in named["Team", "keepers"]
    assert ("User", "ida") not in {
        (each["kind"], each["name"])
        for each in as_json(cli.type("who-can", "delete", "projects", "-o", "json"))["items"]
    }


@pytest.mark.parametrize(
    ("program", "how"),
    [
        ("kubectl", "--embed"),
        ("kubectl", "--exec"),
        ("kubectl-1.32", "--exec"),
        ("kubectl-1.20", "--embed"),
    ],
)
def test_kubectl_works_with_the_context(
    cli: CliFixture, server: Server, component: Callable[[str], Path], program: str, how: str
) -> None:
    """Not 1.20 with a command for the token: it knows no `v1` of what such a command prints."""
    with administrator(server) as client:
        name = f"{program.replace('.', '-')}{how}"
        client.create("projects", {"kind": "Project", "metadata": {"name": name}, "spec": {}})
    kubectl = component(program)
    done(cli.type("kubeconfig", how, "--project", name))
    home = {"HOME": str(cli.home), "XDG_CONFIG_HOME": str(cli.home / "config")}
    for command in (["create", "configmap", "seen", "--from-literal=a=b"], ["get", "configmap", "seen", "-o", "name"]):
        ended = subprocess.run(
            [str(kubectl), *command], cwd=ROOT, env=environment() | home, capture_output=True, text=True, check=False
        )
        assert ended.returncode == 0, ended.stderr
    with administrator(server) as client:
        place = f"/kubernetes/management/api/v1/namespaces/service-p-{name}/configmaps/seen"
        assert client.send("GET", place)["data"] == {"a": "b"}


def test_a_project_is_made_shown_and_deleted_by_its_owner(cli: CliFixture) -> None:
    make_user(cli, "jan")
    make_user(cli, "kim")
    done(cli.type("team", "create", "crew", "--member", "kim"))
    made = ("--display-name", "Ships", "--owner", "jan", "--member", "Team:crew:user", "--context", "test")
    assert done(cli.type("project", "create", "ships", *made, "-o", "name")) == "project/ships\n"
    done(log_in(cli, "jan"))
    assert "project/ships" in done(cli.type("project", "list", "-o", "name")).splitlines()
    assert "service-p-ships" in done(cli.type("project", "show", "ships"))
    rows = [line.split()[:3] for line in done(cli.type("project", "members", "ships")).splitlines()[1:]]
    assert rows == [["user", "jan", "owner"], ["user", "kim", "through"], ["team", "crew", "user"]]
    ended = cli.type("project", "delete", "ships", "--yes")
    assert "the project ships is deleted" in ended.err, ended.err
    assert "project/ships" not in done(cli.type("project", "list", "-o", "name"))


def test_members_come_and_go(cli: CliFixture) -> None:
    make_user(cli, "lou")
    done(cli.type("team", "create", "guests"))
    done(cli.type("team", "add", "guests", "lou"))
    done(log_in(cli, "lou"))
    assert [each["name"] for each in as_json(cli.type("whoami", "-o", "json"))["user"]["teams"]] == ["guests"]
    done(cli.type("team", "remove", "guests", "lou", "--context", "test"))
    assert not as_json(cli.type("whoami", "-o", "json"))["user"].get("teams")
    assert "user 'nobody' does not exist" in cli.type("team", "add", "guests", "nobody", "--context", "test").err


def test_a_project_that_is_deleted_says_what_it_waits_for(cli: CliFixture, server: Server, fairlead: Fairlead) -> None:
    done(cli.type("project", "create", "held"))
    held = {"name": "held", "finalizers": ["example.com/held"]}
    with administrator(server) as client:
        body = {"kind": "SpaceInstance", "metadata": held, "spec": {"template": {}}}
        client.create("spaceinstances", body, namespace="service-p-held")
        deleting = fairlead("project", "delete", "held", "--yes", **at(cli))
        assert deleting.stderr
        told = iter(deleting.stderr.readline, "")
        assert any("waiting for 1 spaceinstance" in line and "example.com/held" in line for line in told)
        client.patch("spaceinstances", "held", {"metadata": {"finalizers": None}}, namespace="service-p-held")
        assert "the project held is deleted" in list(told)[-1]
        assert deleting.wait() == 0


def test_a_list_goes_on_with_what_changes(cli: CliFixture, fairlead: Fairlead) -> None:
    done(cli.type("team", "create", "newcomers"))
    watching = fairlead("team", "list", "--watch", "-o", "json", **at(cli))
    assert watching.stdout
    events = map(json.loads, iter(watching.stdout.readline, ""))
    ours = (each for each in events if each["object"]["metadata"]["name"] == "newcomers")
    assert next(ours)["type"] == "ADDED"
    done(cli.type("team", "add", "newcomers", "admin"))
    assert next(each for each in ours if each["object"]["spec"].get("users"))["type"] == "MODIFIED"
    watching.send_signal(signal.SIGINT)
    _, problems = watching.communicate()
    assert (watching.returncode, problems) == (0, "")


def test_a_virtual_cluster_is_imported_and_migrated(cli: CliFixture) -> None:
    for project in ("from-here", "to-there"):
        done(cli.type("project", "create", project))
    done(cli.type("vcluster", "import", "theirs", "--project", "from-here", "--display-name", "Theirs"))
    route = ("vcluster", "migrate", "theirs", "--from", "from-here", "--to", "to-there")
    assert "can be moved" in cli.type(*route, "--dry-run").err
    assert projects_of(cli, "theirs") == ["from-here"]
    done(cli.type(*route))
    assert projects_of(cli, "theirs") == ["to-there"]
    assert "no virtual clusters in from-here" in cli.type("vcluster", "list", "--project", "from-here").err
    again = cli.type(*route)
    assert again.code == 1
    assert "not found" in again.err
    assert "no spaces" in cli.type("space", "list", "--project", "to-there").err


def projects_of(cli: CliFixture, name: str) -> list[str]:
    lines = (line.split() for line in done(cli.type("vcluster", "list")).splitlines())
    return [line[1] for line in lines if line[0] == name]


def test_a_workspace_is_made_from_a_template_and_waited_for(
    cli: CliFixture, server: Server, fairlead: Fairlead
) -> None:
    done(cli.type("project", "create", "yard"))
    done(cli.type("runner", "create", "dock", "--endpoint", "dock.example.com"))
    with administrator(server) as client:
        spec = {"parameters": [{"variable": "size", "type": "number", "required": True}]}
        versions = [{"version": "1.2.0", "template": {}, **spec}]
        template = {"kind": "DevPodWorkspaceTemplate", "metadata": {"name": "python"}, "spec": {"versions": versions}}
        client.create("devpodworkspacetemplates", template)
        made = ("workspace", "create", "desk", "--project", "yard", "--template", "python@1.x.x", "--runner", "dock")
        refused = cli.type(*made, "--parameter", "size=large")
        assert refused.code == 1
        assert "size" in refused.err
        waiting = fairlead(*made, "--parameter", "size=3", "--wait", "-o", "name", **at(cli))
        assert waiting.stderr
        assert any("desk is Pending" in line for line in iter(waiting.stderr.readline, ""))
        place = client.path("devpodworkspaceinstances", "desk", "status", namespace="service-p-yard")
        change = {"status": {"phase": "Ready", "lastWorkspaceStatus": "Running"}}
        client.send("PATCH", place, change, media_type="application/merge-patch+json")
        out, err = waiting.communicate(timeout=TIMEOUT_SECONDS)
    assert (waiting.returncode, out) == (0, "devpodworkspaceinstance/desk\n"), err
    row = done(cli.type("workspace", "list", "--project", "yard")).splitlines()[1].split()
    assert (row[:3], row[4:6]) == (["desk", "yard", "Ready"], ["python@1.x.x", "dock"])
    deleting = fairlead("workspace", "delete", "desk", "--project", "yard", **at(cli))
    assert deleting.stderr
    assert any("waiting for the runner dock" in line for line in iter(deleting.stderr.readline, ""))
    with administrator(server) as client:
        client.delete("runners", "dock")
    _, err = deleting.communicate(timeout=TIMEOUT_SECONDS)
    assert "the workspace desk is deleted" in err
