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
from tests.harness.cli import Desk, Ended
from tests.harness.fake_server import Fake
from tests.harness.server_process import PATIENCE, Server, environment, running

PASSWORD = "correct horse battery"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(tmp_path_factory.mktemp("server") / "data") as started:
        yield started


@pytest.fixture
def desk(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """The administrator, logged in as `test`. Other people log in beside it."""
    desk = Desk(tmp_path, Fake(server.url, server.ca_file), monkeypatch)
    desk.keep(key=server.key)
    return desk


def done(ended: Ended) -> str:
    assert ended.code == 0, ended.err + ended.out
    return ended.out


def as_json(ended: Ended) -> Any:
    return json.loads(done(ended))


def whoami(desk: Desk, key: str) -> Ended:
    """Who the server takes this key for; through the environment, as in CI."""
    variables = {"FAIRLEAD_URL": desk.fake.url, "FAIRLEAD_KEY": key, "FAIRLEAD_CA_FILE": desk.fake.ca_file}
    return desk.type("whoami", "-o", "json", **variables)


def make_user(desk: Desk, name: str, *flags: str) -> None:
    done(desk.type("user", "create", name, "--password-stdin", *flags, stdin=f"{PASSWORD}\n"))


def log_in(desk: Desk, name: str, password: str = PASSWORD) -> Ended:
    flags = ("--user", name, "--password-stdin", "--ca-file", desk.fake.ca_file, "--name", name)
    return desk.type("login", desk.fake.url, *flags, stdin=f"{password}\n")


def at(desk: Desk) -> dict[str, str]:
    """The environment in which a real process finds the logins of the desk."""
    return {"HOME": str(desk.home), "XDG_CONFIG_HOME": str(desk.home / "config")}


def administrator(server: Server) -> Client:
    return Client(server.url, server.key, ca_file=server.ca_file)


def test_the_kubeconfig_that_up_leaves_is_a_login(server: Server, tmp_path: Path, desk: Desk) -> None:
    desk.logins.unlink()
    kubeconfig = Path(server.ca_file).parents[1] / "admin.kubeconfig"
    advice = desk.type("whoami", FAIRLEAD_DATA=str(kubeconfig.parent)).err
    command = advice.split("`")[-2].split()
    assert command[:2] == ["fairlead", "login"]
    done(desk.type(*command[1:]))
    told = as_json(desk.type("whoami", "-o", "json"))
    assert (told["user"]["name"], told["accessKey"]) == ("admin", "admin-first-key")
    assert told["projectNamespacePrefix"] == "service-p-"
    assert "all permissions of admin" in desk.type("whoami").out


def test_a_user_logs_in_with_a_password_and_out_again(desk: Desk) -> None:
    make_user(desk, "alice", "--display-name", "Alice A.")
    assert "user name or password is wrong" in log_in(desk, "alice", "wrong password").err
    done(log_in(desk, "alice"))
    told = as_json(desk.type("whoami", "-o", "json"))
    assert (told["user"]["displayName"], told["accessKeyType"]) == ("Alice A.", "Login")
    value = desk.kept().contexts["alice"].key
    assert "is revoked" in desk.type("logout").err
    assert set(desk.kept().contexts) == {"test"}
    refused = whoami(desk, value)
    assert refused.code == 1
    assert "does not accept the key in FAIRLEAD_KEY" in refused.err


def test_a_second_login_ends_the_first(desk: Desk) -> None:
    make_user(desk, "again")
    done(log_in(desk, "again"))
    first = desk.kept().contexts["again"].key
    done(log_in(desk, "again"))
    assert whoami(desk, first).code == 1
    assert desk.type("whoami").code == 0


def test_people_change_their_own_passwords_and_administrators_anybodys(desk: Desk) -> None:
    make_user(desk, "bob")
    done(log_in(desk, "bob"))
    wrong = desk.type("user", "passwd", "--password-stdin", stdin="not it\nanother password\n")
    assert wrong.code == 1
    assert "the current password is wrong" in wrong.err
    done(desk.type("user", "passwd", "--password-stdin", stdin=f"{PASSWORD}\nanother password\n"))
    assert log_in(desk, "bob").code == 1
    done(log_in(desk, "bob", "another password"))
    done(desk.type("user", "passwd", "bob", "--password-stdin", "--context", "test", stdin="a third password\n"))
    done(log_in(desk, "bob", "a third password"))
    short = desk.type("user", "passwd", "bob", "--password-stdin", "--context", "test", stdin="short\n")
    assert short.code == 1
    assert "at least 12 characters" in short.err


def test_a_disabled_user_is_locked_out_with_all_keys_and_comes_back(desk: Desk) -> None:
    make_user(desk, "cy")
    key = done(desk.type("key", "create", "--user", "cy")).strip()
    assert as_json(whoami(desk, key))["user"]["name"] == "cy"
    done(desk.type("user", "disable", "cy"))
    assert whoami(desk, key).code == 1
    assert log_in(desk, "cy").code == 1
    row = next(line for line in done(desk.type("user", "list")).splitlines() if line.startswith("cy "))
    assert "disabled" in row
    done(desk.type("user", "enable", "cy"))
    assert whoami(desk, key).code == 0


def test_new_users_are_put_into_teams(desk: Desk, server: Server) -> None:
    with administrator(server) as client:
        client.create("teams", {"kind": "Team", "metadata": {"name": "ops"}, "spec": {}})
    make_user(desk, "dan", "--team", "ops")
    done(log_in(desk, "dan"))
    assert [each["name"] for each in as_json(desk.type("whoami", "-o", "json"))["user"]["teams"]] == ["ops"]


def test_an_administrator_can_make_another_one(desk: Desk) -> None:
    make_user(desk, "eve", "--admin")
    done(log_in(desk, "eve"))
    assert "admin" in done(desk.type("user", "list"))


def test_a_key_is_made_listed_switched_off_and_ended(desk: Desk) -> None:
    made = desk.type("key", "create", "--name", "ci", "--display-name", "For builds", "--ttl", "30d")
    value = done(made).strip()
    assert as_json(whoami(desk, value))["accessKey"] == "ci"
    row = next(line for line in done(desk.type("key", "list")).splitlines() if line.startswith("ci "))
    assert "For builds" in row and "in 29d" in row and "active" in row
    assert value not in done(desk.type("key", "show", "ci", "-o", "json"))
    done(desk.type("key", "disable", "ci"))
    assert whoami(desk, value).code == 1
    done(desk.type("key", "enable", "ci"))
    assert whoami(desk, value).code == 0
    done(desk.type("key", "revoke", "ci", "--yes"))
    assert whoami(desk, value).code == 1
    assert desk.type("key", "show", "ci").code == 1


def test_people_see_and_end_only_their_own_keys(desk: Desk) -> None:
    make_user(desk, "fay")
    done(desk.type("key", "create", "--name", "admins-own"))
    done(log_in(desk, "fay"))
    done(desk.type("key", "create", "--name", "fays-own", "--ttl", "1h"))
    listed = as_json(desk.type("key", "list", "--all", "-o", "json"))["items"]
    assert {each["spec"]["user"] for each in listed} == {"fay"}
    refused = desk.type("key", "revoke", "admins-own", "--yes")
    assert refused.code == 1
    assert "forbidden" in refused.err
    done(desk.type("key", "revoke", "fays-own", "--yes"))


def test_a_rotated_key_has_two_values_for_a_while(desk: Desk) -> None:
    first = done(desk.type("key", "create", "--name", "turning")).strip()
    second = done(desk.type("key", "rotate", "turning", "--overlap", "1h")).strip()
    assert first != second
    assert [whoami(desk, value).code for value in (first, second)] == [0, 0]
    third = done(desk.type("key", "rotate", "turning")).strip()
    assert whoami(desk, third).code == 0
    assert whoami(desk, second).code == 1


def test_rotating_the_key_in_use_does_not_end_the_login(desk: Desk) -> None:
    make_user(desk, "gus")
    value = done(desk.type("key", "create", "--user", "gus", "--name", "gus-own")).strip()
    flags = ("--key-stdin", "--ca-file", desk.fake.ca_file, "--name", "gus")
    done(desk.type("login", desk.fake.url, *flags, stdin=value))
    done(desk.type("key", "rotate", "gus-own"))
    assert as_json(desk.type("whoami", "-o", "json"))["user"]["name"] == "gus"
    assert whoami(desk, value).code == 1


def test_a_scope_is_told_and_explained(desk: Desk, server: Server) -> None:
    with administrator(server) as client:
        client.create("projects", {"kind": "Project", "metadata": {"name": "demo"}, "spec": {}})
    made = ("--name", "scoped", "--project", "demo", "--allow-cli")
    value = done(desk.type("key", "create", *made)).strip()
    told = as_json(whoami(desk, value))
    assert told["accessKeyScope"] == {"projects": [{"project": "demo"}], "allowServiceCli": True}
    place = ("--resource", "configmaps", "--project")
    inside = desk.type("key", "explain", "scoped", "--verb", "create", *place, "demo")
    assert "scoped may create configmaps in service-p-demo" in done(inside)
    outside = desk.type("key", "explain", "scoped", "--verb", "create", *place, "other")
    assert outside.code == 1
    assert "scoped may not create configmaps in service-p-other" in outside.out
    path = json.loads(desk.type("key", "explain", "scoped", "--verb", "create", *place, "other", "-o", "json").out)
    assert path["allowed"] is False
    assert [each["verdict"] for each in path["path"]].count("deny") == 1


def test_a_mistyped_restriction_makes_no_key(desk: Desk, tmp_path: Path) -> None:
    """A rule whose only field is passed over would allow everything."""
    file = tmp_path / "scope.yaml"
    file.write_text("rules: [{verb: [get]}]")
    ended = desk.type("key", "create", "--name", "mistyped", "--scope-file", str(file))
    assert (ended.code, ended.out) == (1, "")
    assert 'unknown field "spec.scope.rules[0].verb"' in ended.err
    assert desk.type("key", "show", "mistyped").code == 1


def test_people_ask_about_their_own_keys(desk: Desk) -> None:
    make_user(desk, "hal")
    done(log_in(desk, "hal"))
    lasting = desk.type("key", "create", "--name", "hals-own")
    assert lasting.code == 1
    assert "no key outlives the one that issued it" in lasting.err
    done(desk.type("key", "create", "--name", "hals-own", "--ttl", "1h"))
    ended = desk.type("key", "explain", "hals-own", "--verb", "delete", "--resource", "projects")
    assert ended.code == 1
    assert "hals-own may not delete projects.management.service.sh" in ended.out
    forbidden = desk.type("key", "explain", "admin-first-key", "--verb", "get", "--resource", "projects")
    assert forbidden.code == 1
    assert forbidden.err.startswith("fairlead: ")


def test_who_can_names_users_and_teams_with_the_reason(desk: Desk, server: Server) -> None:
    make_user(desk, "ida")
    with administrator(server) as client:
        client.create("teams", {"kind": "Team", "metadata": {"name": "keepers"}, "spec": {"users": ["ida"]}})
        rbac = "/kubernetes/management/apis/rbac.authorization.k8s.io/v1"
        rules = [{"apiGroups": ["management.service.sh"], "resources": ["apps"], "verbs": ["delete"]}]
        client.send("POST", f"{rbac}/clusterroles", {"metadata": {"name": "app-keeper"}, "rules": rules})
        subject = {"kind": "Group", "name": "service:team:keepers", "apiGroup": "rbac.authorization.k8s.io"}
        role = {"kind": "ClusterRole", "name": "app-keeper", "apiGroup": "rbac.authorization.k8s.io"}
        binding = {"metadata": {"name": "app-keepers"}, "roleRef": role, "subjects": [subject]}
        client.send("POST", f"{rbac}/clusterrolebindings", binding)
    listed = as_json(desk.type("who-can", "delete", "apps", "-o", "json"))["items"]
    named = {(each["kind"], each["name"]): each["reason"] for each in listed}
    assert {("User", "admin"), ("User", "ida"), ("Team", "keepers")} <= set(named)
    assert "app-keeper" in named["User", "ida"] and "app-keeper" in named["Team", "keepers"]
    assert ("User", "ida") not in {
        (each["kind"], each["name"])
        for each in as_json(desk.type("who-can", "delete", "projects", "-o", "json"))["items"]
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
    desk: Desk, server: Server, component: Callable[[str], Path], program: str, how: str
) -> None:
    """Not 1.20 with a command for the token: it knows no `v1` of what such a command prints."""
    with administrator(server) as client:
        name = f"{program.replace('.', '-')}{how}"
        client.create("projects", {"kind": "Project", "metadata": {"name": name}, "spec": {}})
    kubectl = component(program)
    done(desk.type("kubeconfig", how, "--project", name))
    home = {"HOME": str(desk.home), "XDG_CONFIG_HOME": str(desk.home / "config")}
    for command in (["create", "configmap", "seen", "--from-literal=a=b"], ["get", "configmap", "seen", "-o", "name"]):
        ended = subprocess.run(
            [str(kubectl), *command], cwd=ROOT, env=environment() | home, capture_output=True, text=True, check=False
        )
        assert ended.returncode == 0, ended.stderr
    with administrator(server) as client:
        place = f"/kubernetes/management/api/v1/namespaces/service-p-{name}/configmaps/seen"
        assert client.send("GET", place)["data"] == {"a": "b"}


def test_a_project_is_made_shown_and_deleted_by_its_owner(desk: Desk) -> None:
    make_user(desk, "jan")
    make_user(desk, "kim")
    done(desk.type("team", "create", "crew", "--member", "kim"))
    made = ("--display-name", "Ships", "--owner", "jan", "--member", "Team:crew:user", "--context", "test")
    assert done(desk.type("project", "create", "ships", *made, "-o", "name")) == "project/ships\n"
    done(log_in(desk, "jan"))
    assert "project/ships" in done(desk.type("project", "list", "-o", "name")).splitlines()
    assert "service-p-ships" in done(desk.type("project", "show", "ships"))
    rows = [line.split()[:3] for line in done(desk.type("project", "members", "ships")).splitlines()[1:]]
    assert rows == [["user", "jan", "owner"], ["user", "kim", "through"], ["team", "crew", "user"]]
    ended = desk.type("project", "delete", "ships", "--yes")
    assert "the project ships is deleted" in ended.err, ended.err
    assert "project/ships" not in done(desk.type("project", "list", "-o", "name"))


def test_members_come_and_go(desk: Desk) -> None:
    make_user(desk, "lou")
    done(desk.type("team", "create", "guests"))
    done(desk.type("team", "add", "guests", "lou"))
    done(log_in(desk, "lou"))
    assert [each["name"] for each in as_json(desk.type("whoami", "-o", "json"))["user"]["teams"]] == ["guests"]
    done(desk.type("team", "remove", "guests", "lou", "--context", "test"))
    assert not as_json(desk.type("whoami", "-o", "json"))["user"].get("teams")
    assert "user 'nobody' does not exist" in desk.type("team", "add", "guests", "nobody", "--context", "test").err


def test_a_project_that_is_deleted_says_what_it_waits_for(desk: Desk, server: Server, fairlead: Fairlead) -> None:
    done(desk.type("project", "create", "held"))
    held = {"name": "held", "finalizers": ["example.com/held"]}
    with administrator(server) as client:
        body = {"kind": "SpaceInstance", "metadata": held, "spec": {"template": {}}}
        client.create("spaceinstances", body, namespace="service-p-held")
        deleting = fairlead("project", "delete", "held", "--yes", **at(desk))
        assert deleting.stderr
        told = iter(deleting.stderr.readline, "")
        assert any("waiting for 1 spaceinstance" in line and "example.com/held" in line for line in told)
        client.patch("spaceinstances", "held", {"metadata": {"finalizers": None}}, namespace="service-p-held")
        assert "the project held is deleted" in list(told)[-1]
        assert deleting.wait() == 0


def test_a_list_goes_on_with_what_changes(desk: Desk, fairlead: Fairlead) -> None:
    done(desk.type("team", "create", "newcomers"))
    watching = fairlead("team", "list", "--watch", "-o", "json", **at(desk))
    assert watching.stdout
    events = map(json.loads, iter(watching.stdout.readline, ""))
    ours = (each for each in events if each["object"]["metadata"]["name"] == "newcomers")
    assert next(ours)["type"] == "ADDED"
    done(desk.type("team", "add", "newcomers", "admin"))
    assert next(each for each in ours if each["object"]["spec"].get("users"))["type"] == "MODIFIED"
    watching.send_signal(signal.SIGINT)
    _, problems = watching.communicate()
    assert (watching.returncode, problems) == (0, "")


def test_a_virtual_cluster_is_imported_and_migrated(desk: Desk) -> None:
    for project in ("from-here", "to-there"):
        done(desk.type("project", "create", project))
    done(desk.type("vcluster", "import", "theirs", "--project", "from-here", "--display-name", "Theirs"))
    route = ("vcluster", "migrate", "theirs", "--from", "from-here", "--to", "to-there")
    assert "can be moved" in desk.type(*route, "--dry-run").err
    assert projects_of(desk, "theirs") == ["from-here"]
    done(desk.type(*route))
    assert projects_of(desk, "theirs") == ["to-there"]
    assert "no virtual clusters in from-here" in desk.type("vcluster", "list", "--project", "from-here").err
    again = desk.type(*route)
    assert again.code == 1
    assert "not found" in again.err
    assert "no spaces" in desk.type("space", "list", "--project", "to-there").err


def projects_of(desk: Desk, name: str) -> list[str]:
    lines = (line.split() for line in done(desk.type("vcluster", "list")).splitlines())
    return [line[1] for line in lines if line[0] == name]


def test_a_workspace_is_made_from_a_template_and_waited_for(desk: Desk, server: Server, fairlead: Fairlead) -> None:
    done(desk.type("project", "create", "yard"))
    done(desk.type("runner", "create", "dock", "--endpoint", "dock.example.com"))
    with administrator(server) as client:
        spec = {"parameters": [{"variable": "size", "type": "number", "required": True}]}
        versions = [{"version": "1.2.0", "template": {}, **spec}]
        template = {"kind": "DevPodWorkspaceTemplate", "metadata": {"name": "python"}, "spec": {"versions": versions}}
        client.create("devpodworkspacetemplates", template)
        made = ("workspace", "create", "desk", "--project", "yard", "--template", "python@1.x.x", "--runner", "dock")
        refused = desk.type(*made, "--parameter", "size=large")
        assert refused.code == 1
        assert "size" in refused.err
        waiting = fairlead(*made, "--parameter", "size=3", "--wait", "-o", "name", **at(desk))
        assert waiting.stderr
        assert any("desk is Pending" in line for line in iter(waiting.stderr.readline, ""))
        place = client.path("devpodworkspaceinstances", "desk", "status", namespace="service-p-yard")
        change = {"status": {"phase": "Ready", "lastWorkspaceStatus": "Running"}}
        client.send("PATCH", place, change, media_type="application/merge-patch+json")
        out, err = waiting.communicate(timeout=PATIENCE)
    assert (waiting.returncode, out) == (0, "devpodworkspaceinstance/desk\n"), err
    row = done(desk.type("workspace", "list", "--project", "yard")).splitlines()[1].split()
    assert (row[:3], row[4:6]) == (["desk", "yard", "Ready"], ["python@1.x.x", "dock"])
    deleting = fairlead("workspace", "delete", "desk", "--project", "yard", **at(desk))
    assert deleting.stderr
    assert any("waiting for the runner dock" in line for line in iter(deleting.stderr.readline, ""))
    with administrator(server) as client:
        client.delete("runners", "dock")
    _, err = deleting.communicate(timeout=PATIENCE)
    assert "the workspace desk is deleted" in err
