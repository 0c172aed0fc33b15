"""Commands about users, keys, projects, instances and kubeconfigs against a real server process."""

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import ROOT, Fairlead
from tests.cli.end_to_end import expect_json, expect_success, interrupt, open_admin_client
from tests.harness.cli import CliFixture, CommandResult
from tests.harness.fake_server import FakeServer
from tests.harness.server_process import TIMEOUT_SECONDS, Server, running_server, server_environment

PASSWORD = "correct horse battery"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running_server(tmp_path_factory.mktemp("server") / "data") as server:
        yield server


@pytest.fixture
def cli(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CliFixture:
    """The CLI, logged in as the administrator in the context `test`. Other users log in to contexts of their own."""
    cli = CliFixture(tmp_path, FakeServer(server.url, server.ca_file), monkeypatch)
    cli.save_login(key=server.key)
    return cli


def whoami(cli: CliFixture, key: str) -> CommandResult:
    """Runs `whoami` with a key from the environment, as CI jobs do."""
    variables = {"FAIRLEAD_URL": cli.fake.url, "FAIRLEAD_KEY": key, "FAIRLEAD_CA_FILE": cli.fake.ca_file}
    return cli.run("whoami", "-o", "json", **variables)


def create_user(cli: CliFixture, name: str, *flags: str) -> None:
    expect_success(cli.run("user", "create", name, "--password-stdin", *flags, stdin=f"{PASSWORD}\n"))


def log_in(cli: CliFixture, name: str, password: str = PASSWORD) -> CommandResult:
    flags = ("--user", name, "--password-stdin", "--ca-file", cli.fake.ca_file, "--name", name)
    return cli.run("login", cli.fake.url, *flags, stdin=f"{password}\n")


def build_environment(cli: CliFixture) -> dict[str, str]:
    """The environment in which a real process finds the logins of `cli`."""
    return {"HOME": str(cli.home), "XDG_CONFIG_HOME": str(cli.home / "config")}


def test_the_kubeconfig_written_by_up_works_as_a_login(server: Server, tmp_path: Path, cli: CliFixture) -> None:
    cli.contexts_file.unlink()
    kubeconfig = Path(server.ca_file).parents[1] / "admin.kubeconfig"
    advice = cli.run("whoami", FAIRLEAD_DATA=str(kubeconfig.parent)).err
    command = advice.split("`")[-2].split()
    assert command[:2] == ["fairlead", "login"]
    expect_success(cli.run(*command[1:]))
    status = expect_json(cli.run("whoami", "-o", "json"))
    assert (status["user"]["name"], status["accessKey"]) == ("admin", "admin-first-key")
    assert status["projectNamespacePrefix"] == "service-p-"
    assert "all permissions of admin" in cli.run("whoami").out


def test_a_user_logs_in_with_a_password_and_out_again(cli: CliFixture) -> None:
    create_user(cli, "alice", "--display-name", "Alice A.")
    assert "user name or password is wrong" in log_in(cli, "alice", "wrong password").err
    expect_success(log_in(cli, "alice"))
    status = expect_json(cli.run("whoami", "-o", "json"))
    assert (status["user"]["displayName"], status["accessKeyType"]) == ("Alice A.", "Login")
    value = cli.load_contexts().contexts["alice"].key
    assert "is revoked" in cli.run("logout").err
    assert set(cli.load_contexts().contexts) == {"test"}
    result = whoami(cli, value)
    assert result.code == 1
    assert "does not accept the key in FAIRLEAD_KEY" in result.err


def test_a_second_login_revokes_the_key_of_the_first(cli: CliFixture) -> None:
    create_user(cli, "again")
    expect_success(log_in(cli, "again"))
    first = cli.load_contexts().contexts["again"].key
    expect_success(log_in(cli, "again"))
    assert whoami(cli, first).code == 1
    assert cli.run("whoami").code == 0


def test_users_change_their_own_passwords_and_administrators_those_of_all_users(cli: CliFixture) -> None:
    create_user(cli, "bob")
    expect_success(log_in(cli, "bob"))
    result = cli.run("user", "passwd", "--password-stdin", stdin="not it\nanother password\n")
    assert result.code == 1
    assert "the current password is wrong" in result.err
    expect_success(cli.run("user", "passwd", "--password-stdin", stdin=f"{PASSWORD}\nanother password\n"))
    assert log_in(cli, "bob").code == 1
    expect_success(log_in(cli, "bob", "another password"))
    expect_success(
        cli.run("user", "passwd", "bob", "--password-stdin", "--context", "test", stdin="a third password\n")
    )
    expect_success(log_in(cli, "bob", "a third password"))
    result = cli.run("user", "passwd", "bob", "--password-stdin", "--context", "test", stdin="short\n")
    assert result.code == 1
    assert "at least 12 characters" in result.err


def test_a_disabled_user_cannot_use_any_key_until_enabled_again(cli: CliFixture) -> None:
    create_user(cli, "cy")
    key = expect_success(cli.run("key", "create", "--user", "cy")).strip()
    assert expect_json(whoami(cli, key))["user"]["name"] == "cy"
    expect_success(cli.run("user", "disable", "cy"))
    assert whoami(cli, key).code == 1
    assert log_in(cli, "cy").code == 1
    row = next(line for line in expect_success(cli.run("user", "list")).splitlines() if line.startswith("cy "))
    assert "disabled" in row
    expect_success(cli.run("user", "enable", "cy"))
    assert whoami(cli, key).code == 0


def test_a_new_user_can_be_added_to_a_team(cli: CliFixture, server: Server) -> None:
    with open_admin_client(server) as client:
        client.create("teams", {"kind": "Team", "metadata": {"name": "ops"}, "spec": {}})
    create_user(cli, "dan", "--team", "ops")
    expect_success(log_in(cli, "dan"))
    assert [each["name"] for each in expect_json(cli.run("whoami", "-o", "json"))["user"]["teams"]] == ["ops"]


def test_an_administrator_can_create_another_one(cli: CliFixture) -> None:
    create_user(cli, "eve", "--admin")
    expect_success(log_in(cli, "eve"))
    assert "admin" in expect_success(cli.run("user", "list"))


def test_a_key_is_created_listed_disabled_and_revoked(cli: CliFixture) -> None:
    created = cli.run("key", "create", "--name", "ci", "--display-name", "For builds", "--ttl", "30d")
    value = expect_success(created).strip()
    assert expect_json(whoami(cli, value))["accessKey"] == "ci"
    row = next(line for line in expect_success(cli.run("key", "list")).splitlines() if line.startswith("ci "))
    assert "For builds" in row and "in 29d" in row and "active" in row
    assert value not in expect_success(cli.run("key", "show", "ci", "-o", "json"))
    expect_success(cli.run("key", "disable", "ci"))
    assert whoami(cli, value).code == 1
    expect_success(cli.run("key", "enable", "ci"))
    assert whoami(cli, value).code == 0
    expect_success(cli.run("key", "revoke", "ci", "--yes"))
    assert whoami(cli, value).code == 1
    assert cli.run("key", "show", "ci").code == 1


def test_users_see_and_revoke_only_their_own_keys(cli: CliFixture) -> None:
    create_user(cli, "fay")
    expect_success(cli.run("key", "create", "--name", "admins-own"))
    expect_success(log_in(cli, "fay"))
    expect_success(cli.run("key", "create", "--name", "fays-own", "--ttl", "1h"))
    listed = expect_json(cli.run("key", "list", "--all", "-o", "json"))["items"]
    assert {each["spec"]["user"] for each in listed} == {"fay"}
    result = cli.run("key", "revoke", "admins-own", "--yes")
    assert result.code == 1
    assert "forbidden" in result.err
    expect_success(cli.run("key", "revoke", "fays-own", "--yes"))


def test_a_rotated_key_has_two_valid_values_during_the_overlap(cli: CliFixture) -> None:
    first = expect_success(cli.run("key", "create", "--name", "turning")).strip()
    second = expect_success(cli.run("key", "rotate", "turning", "--overlap", "1h")).strip()
    assert first != second
    assert [whoami(cli, value).code for value in (first, second)] == [0, 0]
    third = expect_success(cli.run("key", "rotate", "turning")).strip()
    assert whoami(cli, third).code == 0
    assert whoami(cli, second).code == 1


def test_rotating_the_key_in_use_keeps_the_login_valid(cli: CliFixture) -> None:
    create_user(cli, "gus")
    value = expect_success(cli.run("key", "create", "--user", "gus", "--name", "gus-own")).strip()
    flags = ("--key-stdin", "--ca-file", cli.fake.ca_file, "--name", "gus")
    expect_success(cli.run("login", cli.fake.url, *flags, stdin=value))
    expect_success(cli.run("key", "rotate", "gus-own"))
    assert expect_json(cli.run("whoami", "-o", "json"))["user"]["name"] == "gus"
    assert whoami(cli, value).code == 1


def test_a_scope_is_shown_and_explained(cli: CliFixture, server: Server) -> None:
    with open_admin_client(server) as client:
        client.create("projects", {"kind": "Project", "metadata": {"name": "demo"}, "spec": {}})
    flags = ("--name", "scoped", "--project", "demo", "--allow-cli")
    value = expect_success(cli.run("key", "create", *flags)).strip()
    status = expect_json(whoami(cli, value))
    assert status["accessKeyScope"] == {"projects": [{"project": "demo"}], "allowServiceCli": True}
    resource_flags = ("--resource", "configmaps", "--project")
    inside = cli.run("key", "explain", "scoped", "--verb", "create", *resource_flags, "demo")
    assert "scoped may create configmaps in service-p-demo" in expect_success(inside)
    outside = cli.run("key", "explain", "scoped", "--verb", "create", *resource_flags, "other")
    assert outside.code == 1
    assert "scoped may not create configmaps in service-p-other" in outside.out
    path = json.loads(
        cli.run("key", "explain", "scoped", "--verb", "create", *resource_flags, "other", "-o", "json").out
    )
    assert path["allowed"] is False
    assert [each["verdict"] for each in path["path"]].count("deny") == 1


def test_a_misspelt_scope_field_creates_no_key(cli: CliFixture, tmp_path: Path) -> None:
    """A rule whose only field is ignored would allow everything."""
    file = tmp_path / "scope.yaml"
    file.write_text("rules: [{verb: [get]}]")
    result = cli.run("key", "create", "--name", "mistyped", "--scope-file", str(file))
    assert (result.code, result.out) == (1, "")
    assert 'unknown field "spec.scope.rules[0].verb"' in result.err
    assert cli.run("key", "show", "mistyped").code == 1


def test_users_can_explain_their_own_keys_only(cli: CliFixture) -> None:
    create_user(cli, "hal")
    expect_success(log_in(cli, "hal"))
    without_ttl = cli.run("key", "create", "--name", "hals-own")
    assert without_ttl.code == 1
    assert "no key outlives the one that issued it" in without_ttl.err
    expect_success(cli.run("key", "create", "--name", "hals-own", "--ttl", "1h"))
    result = cli.run("key", "explain", "hals-own", "--verb", "delete", "--resource", "projects")
    assert result.code == 1
    assert "hals-own may not delete projects.management.service.sh" in result.out
    forbidden = cli.run("key", "explain", "admin-first-key", "--verb", "get", "--resource", "projects")
    assert forbidden.code == 1
    assert forbidden.err.startswith("fairlead: ")


def test_who_can_lists_users_and_teams_with_the_reason(cli: CliFixture, server: Server) -> None:
    create_user(cli, "ida")
    with open_admin_client(server) as client:
        client.create("teams", {"kind": "Team", "metadata": {"name": "keepers"}, "spec": {"users": ["ida"]}})
        rbac = "/kubernetes/management/apis/rbac.authorization.k8s.io/v1"
        rules = [{"apiGroups": ["management.service.sh"], "resources": ["apps"], "verbs": ["delete"]}]
        client.send("POST", f"{rbac}/clusterroles", {"metadata": {"name": "app-keeper"}, "rules": rules})
        subject = {"kind": "Group", "name": "service:team:keepers", "apiGroup": "rbac.authorization.k8s.io"}
        role = {"kind": "ClusterRole", "name": "app-keeper", "apiGroup": "rbac.authorization.k8s.io"}
        binding = {"metadata": {"name": "app-keepers"}, "roleRef": role, "subjects": [subject]}
        client.send("POST", f"{rbac}/clusterrolebindings", binding)
    listed = expect_json(cli.run("who-can", "delete", "apps", "-o", "json"))["items"]
    reasons = {(each["kind"], each["name"]): each["reason"] for each in listed}
    assert {("User", "admin"), ("User", "ida"), ("Team", "keepers")} <= set(reasons)
    assert "app-keeper" in reasons["User", "ida"] and "app-keeper" in reasons["Team", "keepers"]
    assert ("User", "ida") not in {
        (each["kind"], each["name"])
        for each in expect_json(cli.run("who-can", "delete", "projects", "-o", "json"))["items"]
    }


@pytest.mark.parametrize(
    ("program", "mode"),
    [
        ("kubectl", "--embed"),
        ("kubectl", "--exec"),
        ("kubectl-1.32", "--exec"),
        ("kubectl-1.20", "--embed"),
    ],
)
def test_kubectl_works_with_the_written_context(
    cli: CliFixture, server: Server, component: Callable[[str], Path], program: str, mode: str
) -> None:
    """Not 1.20 with `--exec`: it does not support `v1` of ExecCredential."""
    with open_admin_client(server) as client:
        name = f"{program.replace('.', '-')}{mode}"
        client.create("projects", {"kind": "Project", "metadata": {"name": name}, "spec": {}})
    kubectl = component(program)
    expect_success(cli.run("kubeconfig", mode, "--project", name))
    home = {"HOME": str(cli.home), "XDG_CONFIG_HOME": str(cli.home / "config")}
    for command in (["create", "configmap", "seen", "--from-literal=a=b"], ["get", "configmap", "seen", "-o", "name"]):
        result = subprocess.run(
            [str(kubectl), *command],
            cwd=ROOT,
            env=server_environment() | home,
            capture_output=True,
            text=True,
            check=False,
        )
        assert result.returncode == 0, result.stderr
    with open_admin_client(server) as client:
        path = f"/kubernetes/management/api/v1/namespaces/service-p-{name}/configmaps/seen"
        assert client.send("GET", path)["data"] == {"a": "b"}


def test_a_project_is_created_shown_and_deleted_by_its_owner(cli: CliFixture) -> None:
    create_user(cli, "jan")
    create_user(cli, "kim")
    expect_success(cli.run("team", "create", "crew", "--member", "kim"))
    flags = ("--display-name", "Ships", "--owner", "jan", "--member", "Team:crew:user", "--context", "test")
    assert expect_success(cli.run("project", "create", "ships", *flags, "-o", "name")) == "project/ships\n"
    expect_success(log_in(cli, "jan"))
    assert "project/ships" in expect_success(cli.run("project", "list", "-o", "name")).splitlines()
    assert "service-p-ships" in expect_success(cli.run("project", "show", "ships"))
    rows = [line.split()[:3] for line in expect_success(cli.run("project", "members", "ships")).splitlines()[1:]]
    assert rows == [["user", "jan", "owner"], ["user", "kim", "through"], ["team", "crew", "user"]]
    result = cli.run("project", "delete", "ships", "--yes")
    assert "the project ships is deleted" in result.err, result.err
    assert "project/ships" not in expect_success(cli.run("project", "list", "-o", "name"))


def test_team_members_are_added_and_removed(cli: CliFixture) -> None:
    create_user(cli, "lou")
    expect_success(cli.run("team", "create", "guests"))
    expect_success(cli.run("team", "add", "guests", "lou"))
    expect_success(log_in(cli, "lou"))
    assert [each["name"] for each in expect_json(cli.run("whoami", "-o", "json"))["user"]["teams"]] == ["guests"]
    expect_success(cli.run("team", "remove", "guests", "lou", "--context", "test"))
    assert not expect_json(cli.run("whoami", "-o", "json"))["user"].get("teams")
    assert "user 'nobody' does not exist" in cli.run("team", "add", "guests", "nobody", "--context", "test").err


def test_deleting_a_project_prints_what_it_waits_for(cli: CliFixture, server: Server, fairlead: Fairlead) -> None:
    expect_success(cli.run("project", "create", "held"))
    metadata = {"name": "held", "finalizers": ["example.com/held"]}
    with open_admin_client(server) as client:
        body = {"kind": "SpaceInstance", "metadata": metadata, "spec": {"template": {}}}
        client.create("spaceinstances", body, namespace="service-p-held")
        deleting = fairlead("project", "delete", "held", "--yes", "-v", **build_environment(cli))
        assert deleting.stderr
        lines = iter(deleting.stderr.readline, "")
        assert any("waiting for 1 spaceinstance" in line and "example.com/held" in line for line in lines)
        client.patch("spaceinstances", "held", {"metadata": {"finalizers": None}}, namespace="service-p-held")
        assert "the project held is deleted" in list(lines)[-1]
        assert deleting.wait() == 0


def test_list_with_watch_prints_changes(cli: CliFixture, fairlead: Fairlead) -> None:
    expect_success(cli.run("team", "create", "newcomers"))
    # Not the user of the watch: it ends when their teams change.
    expect_success(cli.run("user", "create", "newcomer", "--no-password"))
    watching = fairlead("team", "list", "--watch", "-o", "json", **build_environment(cli))
    assert watching.stdout
    events = map(json.loads, iter(watching.stdout.readline, ""))
    own_events = (each for each in events if each["object"]["metadata"]["name"] == "newcomers")
    assert next(own_events)["type"] == "ADDED"
    expect_success(cli.run("team", "add", "newcomers", "newcomer"))
    assert next(each for each in own_events if each["object"]["spec"].get("users"))["type"] == "MODIFIED"
    assert interrupt(watching) == (0, "")


def test_a_virtual_cluster_is_imported_and_migrated(cli: CliFixture) -> None:
    for project in ("from-here", "to-there"):
        expect_success(cli.run("project", "create", project))
    expect_success(
        cli.run("vcluster", "import", "theirs", "--project", "from-here", "--external", "--display-name", "Theirs")
    )
    command = ("vcluster", "migrate", "theirs", "--from", "from-here", "--to", "to-there")
    assert "can be moved" in cli.run(*command, "--dry-run").err
    assert list_projects_with(cli, "theirs") == ["from-here"]
    expect_success(cli.run(*command))
    assert list_projects_with(cli, "theirs") == ["to-there"]
    assert "no virtual clusters in from-here" in cli.run("vcluster", "list", "--project", "from-here").err
    again = cli.run(*command)
    assert again.code == 1
    assert "not found" in again.err
    assert "no spaces" in cli.run("space", "list", "--project", "to-there").err


def list_projects_with(cli: CliFixture, name: str) -> list[str]:
    lines = (line.split() for line in expect_success(cli.run("vcluster", "list")).splitlines())
    return [line[1] for line in lines if line[0] == name]


def test_a_workspace_is_created_from_a_template_and_waited_for(
    cli: CliFixture, server: Server, fairlead: Fairlead
) -> None:
    expect_success(cli.run("project", "create", "yard"))
    expect_success(cli.run("runner", "create", "dock", "--endpoint", "dock.example.com"))
    with open_admin_client(server) as client:
        spec = {"parameters": [{"variable": "size", "type": "number", "required": True}]}
        versions = [{"version": "1.2.0", "template": {}, **spec}]
        template = {"kind": "DevPodWorkspaceTemplate", "metadata": {"name": "python"}, "spec": {"versions": versions}}
        client.create("devpodworkspacetemplates", template)
        command = ("workspace", "create", "desk", "--project", "yard", "--template", "python@1.x.x", "--runner", "dock")
        result = cli.run(*command, "--parameter", "size=large")
        assert result.code == 1
        assert "size" in result.err
        waiting = fairlead(*command, "--parameter", "size=3", "--wait", "-v", "-o", "name", **build_environment(cli))
        assert waiting.stderr
        assert any("desk is Pending" in line for line in iter(waiting.stderr.readline, ""))
        path = client.path("devpodworkspaceinstances", "desk", "status", namespace="service-p-yard")
        change = {"status": {"phase": "Ready", "lastWorkspaceStatus": "Running"}}
        client.send("PATCH", path, change, media_type="application/merge-patch+json")
        out, err = waiting.communicate(timeout=TIMEOUT_SECONDS)
    assert (waiting.returncode, out) == (0, "devpodworkspaceinstance/desk\n"), err
    row = expect_success(cli.run("workspace", "list", "--project", "yard")).splitlines()[1].split()
    assert (row[:4], row[5:7]) == (["desk", "yard", "Running", "-"], ["python@1.x.x", "dock"])
    deleting = fairlead("workspace", "delete", "desk", "--project", "yard", "--yes", "-v", **build_environment(cli))
    assert deleting.stderr
    assert any("waiting for the runner dock" in line for line in iter(deleting.stderr.readline, ""))
    with open_admin_client(server) as client:
        client.patch("runners", "dock", {"metadata": {"annotations": {"service.sh/abandon": "true"}}})
        client.delete("runners", "dock")
    _, err = deleting.communicate(timeout=TIMEOUT_SECONDS)
    assert "the workspace desk is deleted" in err


def write_setting_by_kubectl(cli: CliFixture, kubectl: Path, level: str, *flags: str) -> None:
    """Merges the settings, as users do who have only kubectl."""
    patch = json.dumps({"spec": {"raw": f"audit:\n  level: {level}\n"}})
    kubeconfig = Path(cli.fake.ca_file).parents[1] / "admin.kubeconfig"
    command = [str(kubectl), "--kubeconfig", str(kubeconfig), "patch", "configs.management.service.sh"]
    arguments = ["service-manager-config", "--type", "merge", "--patch", patch, *flags]
    environment = server_environment() | build_environment(cli)
    subprocess.run([*command, *arguments], env=environment, check=True, timeout=TIMEOUT_SECONDS, capture_output=True)


def test_config_show_says_who_wrote_a_setting_and_whether_a_command_changes_it(
    cli: CliFixture, component: Callable[[str], Path]
) -> None:
    kubectl = component("kubectl")
    try:
        expect_success(cli.run("config", "set", "audit.level=Request"))
        shown = expect_success(cli.run("config", "show", "audit.level"))
        assert "the Config, written by fairlead-cli at " in shown
        assert "`fairlead config set audit.level=VALUE`, or `fairlead config unset audit.level`" in shown
        write_setting_by_kubectl(cli, kubectl, "Metadata")
        shown = expect_success(cli.run("config", "show", "audit.level"))
        assert "the Config, written by kubectl-patch at " in shown
        assert "`fairlead config set audit.level=VALUE`" in shown
        write_setting_by_kubectl(cli, kubectl, "Request", "--field-manager", "argocd-controller")
        shown = expect_success(cli.run("config", "show", "audit.level"))
        assert "where argocd-controller has it from" in shown
    finally:
        expect_success(cli.run("config", "unset", "audit.level"))
