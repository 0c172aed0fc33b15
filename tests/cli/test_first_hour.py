"""What a new user types in the first hour, against a real server: objects of any kind, output, waiting, errors."""

import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlead.cli.resources.any_kind import read_manifests
from fairlead.client.discovery import list_resources
from fairlead.core.objects import name_of
from tests.cli.conftest import ROOT, Fairlead
from tests.cli.end_to_end import expect_json, expect_success, interrupt, open_admin_client
from tests.harness.cli import CliFixture
from tests.harness.fake_server import FakeServer
from tests.harness.server_process import Server, running_server

APP = "apiVersion: management.service.sh/v1\nkind: App\nmetadata:\n  name: {name}\nspec:\n  displayName: {title}\n"


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


def run_on_terminal(cli: CliFixture, *arguments: str, **variables: str) -> str:
    """Runs a command in a process with a terminal, and returns what it shows."""
    home = {"HOME": str(cli.home), "XDG_CONFIG_HOME": str(cli.home / "config"), "COLUMNS": "200", "TERM": "xterm"}
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("FAIRLEAD_", "NO_COLOR"))}
    controller, terminal = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "fairlead", *arguments],
        cwd=ROOT,
        env=environment | home | variables,
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
    )
    os.close(terminal)
    shown = b""
    try:
        while part := os.read(controller, 4096):
            shown += part
    except OSError:  # the terminal is closed when the process ends
        pass
    finally:
        os.close(controller)
        process.wait(timeout=60)
    return shown.decode()


def test_every_kind_has_an_example_that_can_be_applied(cli: CliFixture, server: Server) -> None:
    result = cli.run("apply", "-f", str(ROOT / "examples"), "--force-conflicts")
    assert (result.code, result.err) == (0, ""), result.err
    kinds = {line.split("/")[0] for line in result.out.splitlines()}
    with open_admin_client(server) as client:
        served = {
            each.kind.lower()
            for each in list_resources(client)
            if each.group == client.group and {"create", "list"} <= each.verbs
        }
    assert served - kinds == set()
    again = expect_success(cli.run("apply", "-f", str(ROOT / "examples"), "--force-conflicts"))
    assert "created" not in again
    for file in ("appinstance.yaml", "app-with-versions.yaml", "app.yaml"):
        expect_success(cli.run("delete", "-f", str(ROOT / "examples" / file), "--yes"))


def test_examples_do_not_change_the_objects_of_the_readme() -> None:
    created = set(re.findall(r"fairlead (?:\w+) (?:create|add) (?:--name )?([\w-]+)", (ROOT / "README.md").read_text()))
    assert {"ada", "berlin", "ci", "desk", "dev", "local"} <= created
    names = {name_of(each.body) for each in read_manifests([str(ROOT / "examples")], recursive=False)}
    assert created & names == set()


def test_the_value_of_a_key_from_a_manifest_is_printed_by_the_command_in_the_example(cli: CliFixture) -> None:
    expect_success(cli.run("apply", "-f", str(ROOT / "examples" / "user.yaml")))
    cli.run("delete", "ownedaccesskey", "example-ci", "--yes", "--ignore-not-found")
    example = ROOT / "examples" / "ownedaccesskey.yaml"
    template = next(line for line in example.read_text().splitlines() if "fairlead apply" in line).split("'")[1]
    value = expect_success(cli.run("apply", "-f", str(example), "-o", f"jsonpath={template}"))
    assert value.startswith("fairlead_")


def test_objects_are_applied_printed_and_deleted_without_kubectl(cli: CliFixture) -> None:
    file = cli.home / "apps.yaml"
    file.write_text(f"{APP.format(name='one', title='One')}---\n{APP.format(name='two', title='Two')}")
    dry = cli.run("apply", "-f", str(file), "--dry-run")
    assert (dry.code, dry.out) == (0, "app/one created (dry run)\napp/two created (dry run)\n")
    assert cli.run("get", "app", "one").code == 1
    assert expect_success(cli.run("apply", "-f", str(file))) == "app/one created\napp/two created\n"
    file.write_text(f"{APP.format(name='one', title='Other')}---\n{APP.format(name='two', title='Two')}")
    assert expect_success(cli.run("apply", "-f", str(file))) == "app/one configured\napp/two unchanged\n"
    table = expect_success(cli.run("get", "apps")).splitlines()
    assert table[0].split()[:3] == ["NAME", "DISPLAY", "NAME"]
    assert expect_success(cli.run("get", "app/one", "app/two", "-o", "name")) == "app/one\napp/two\n"
    template = "jsonpath={.items[*].spec.displayName}"
    assert expect_success(cli.run("get", "apps", "--sort-by", ".spec.displayName", "-o", template)) == "Other Two\n"
    assert cli.run("delete", "-f", str(file)).code == 2
    assert expect_success(cli.run("delete", "-f", str(file), "--yes")) == "app/two deleted\napp/one deleted\n"
    result = cli.run("delete", "app/one", "app/two", "--yes")
    assert (result.code, result.err.count("not found")) == (1, 2)
    assert cli.run("delete", "app", "one", "--yes", "--ignore-not-found").code == 0


def test_a_rejected_object_does_not_stop_the_others_and_the_exit_code_is_1(cli: CliFixture) -> None:
    stdin = f"{APP.format(name='bad', title='1')}  unknown: 1\n---\n{APP.format(name='good', title='Good')}"
    file = cli.home / "apps.yaml"
    file.write_text(stdin)
    result = cli.run("apply", "-f", str(file))
    assert (result.code, result.out) == (1, "app/good created\n")
    assert f"fairlead: {file}: app/bad: " in result.err
    expect_success(cli.run("delete", "app", "good", "--yes"))


def test_objects_of_any_kind_are_watched(cli: CliFixture, fairlead: Fairlead) -> None:
    expect_success(cli.run("project", "create", "watched"))
    environment = {"HOME": str(cli.home), "XDG_CONFIG_HOME": str(cli.home / "config")}
    watching = fairlead("get", "project", "watched", "--watch", **environment)
    assert watching.stdout is not None
    assert watching.stdout.readline().split()[:3] == ["EVENT", "NAME", "NAMESPACE"]
    assert watching.stdout.readline().split()[:3] == ["ADDED", "watched", "service-p-watched"]
    expect_success(cli.run("project", "create", "other"))
    expect_success(cli.run("project", "delete", "watched", "--yes"))
    events = [watching.stdout.readline().split()[:2], watching.stdout.readline().split()[:2]]
    assert ["MODIFIED", "watched"] in events
    assert interrupt(watching) == (0, "")
    names = fairlead("get", "projects", "-w", "-o", "name", **environment)
    assert names.stdout is not None
    assert names.stdout.readline().startswith("project/")
    assert interrupt(names) == (0, "")
    assert "is for one kind" in cli.run("get", "apps,projects", "-w").err
    assert cli.run("get", "project", "none", "-w").code == 1


def test_a_mistyped_kind_is_answered_with_the_right_one(cli: CliFixture) -> None:
    result = cli.run("get", "aps")
    assert result.code == 1
    assert "the server has no resource 'aps'; did you mean 'apps'?" in result.err
    kinds = expect_success(cli.run("get"))
    assert "spaceinstances" in kinds and "clusterroles" in kinds


def test_objects_of_projects_need_a_project(cli: CliFixture) -> None:
    assert "spaceinstances are in namespaces; add --project P" in cli.run("get", "space", "dev").err
    assert cli.run("get", "spaces,workspaces,vclusters,keys").code == 0
    assert "choose one" in cli.run("get", "spaceinstances", "-n", "x", "--project", "y").err
    for command in (("get", "spaces"), ("get", "space", "dev"), ("delete", "space", "dev", "--yes")):
        missing = cli.run(*command, "-n", "nope")
        expected = "there is no namespace 'nope'; for the objects of a project, use --project PROJECT"
        assert (missing.code, expected in missing.err) == (1, True), missing.err


def test_errors_name_projects_and_flags(cli: CliFixture, server: Server) -> None:
    missing = cli.run("space", "create", "dev", "--project", "nope", "--cluster", "c")
    assert (missing.code, "namespace" in missing.err) == (1, False)
    assert "there is no project 'nope'" in missing.err
    for command in (
        ("space", "list"),
        ("get", "spaces"),
        ("get", "space", "dev"),
        ("space", "show", "dev"),
        ("workspace", "delete", "dev", "--yes"),
    ):
        assert "there is no project 'nope'" in cli.run(*command, "--project", "nope").err
    expect_success(cli.run("project", "create", "words"))
    spec = {"template": {}, "parameters": [{"variable": "size", "type": "number", "required": True}]}
    with open_admin_client(server) as client:
        template = {"kind": "DevPodWorkspaceTemplate", "metadata": {"name": "sized"}, "spec": spec}
        client.create("devpodworkspacetemplates", template)
    flags = ("--project", "words", "--template", "sized", "--parameter", "size=large")
    result = cli.run("workspace", "create", "w", *flags)
    assert (result.code, "spec." in result.err) == (1, False)
    assert '--parameter size: Invalid value: "large"' in result.err
    invalid = cli.run("user", "create", "Not_Valid", "--no-password")
    assert (invalid.code, "metadata.name" in invalid.err) == (1, False)


def test_lists_are_selected_sorted_and_widened(cli: CliFixture, server: Server) -> None:
    for name, label in (("b1", "x"), ("b2", "y"), ("b3", "x")):
        expect_success(cli.run("project", "create", name, "--description", f"about {name}"))
        with open_admin_client(server) as client:
            client.patch("projects", name, {"metadata": {"labels": {"kind": label}}})
    flags = ("project", "ls", "-l", "kind=x")
    assert expect_success(cli.run(*flags, "-o", "name")) == "project/b1\nproject/b3\n"
    assert "about b1" in expect_success(cli.run(*flags, "-o", "wide"))
    assert "about b1" not in expect_success(cli.run(*flags))
    newest_first = "jsonpath={.items[-1].metadata.name}"
    assert expect_success(cli.run(*flags, "--sort-by", ".metadata.creationTimestamp", "-o", newest_first)) == "b3\n"
    assert cli.run("project", "list", "-o", "jsonpath={.items[").code == 2
    assert cli.run("project", "list", "-o", "nonsense").code == 2
    assert cli.run("space", "list", "--all-projects").code == 0
    assert cli.run("space", "list", "--all-projects", "--project", "b1").code == 2


def test_a_workspace_without_a_runner_is_not_waited_for(server: Server, tmp_path: Path, cli: CliFixture) -> None:
    for each in expect_json(cli.run("runner", "list", "-o", "json"))["items"]:
        expect_success(cli.run("runner", "delete", each["metadata"]["name"], "--yes", "--abandon"))
    expect_success(cli.run("project", "create", "idle"))
    with open_admin_client(server) as client:
        template = {"kind": "DevPodWorkspaceTemplate", "metadata": {"name": "idle"}, "spec": {"template": {}}}
        client.create("devpodworkspacetemplates", template)
    command = ("workspace", "create", "desk", "--project", "idle", "--template", "idle", "--wait")
    result = cli.run(*command)
    assert result.code == 1
    assert "not waiting for the workspace desk: nothing will happen to it: there is no runner" in result.err


def test_a_colleague_joins_a_project_and_leaves_it(cli: CliFixture) -> None:
    expect_success(cli.run("project", "create", "joined", "--member", "User:admin:admin"))
    expect_success(cli.run("user", "create", "colleague", "--no-password"))
    command = ("project", "add-member", "joined", "User:colleague")
    assert "now a member of the project joined, with the role viewer" in cli.run(*command).err
    assert "already a member" in cli.run(*command).err
    assert "with the role user" in cli.run("project", "add-member", "joined", "User:colleague:user").err
    shown = expect_json(cli.run("project", "show", "joined", "-o", "json"))["spec"]["members"]
    assert [(each["name"], each["clusterRole"]) for each in shown] == [("admin", "admin"), ("colleague", "user")]
    assert (
        'KIND:NAME[:ROLE]: there is no user "nobody"' in cli.run("project", "add-member", "joined", "User:nobody").err
    )
    assert "no longer a member" in cli.run("project", "remove-member", "joined", "user:colleague").err
    again = cli.run("project", "remove-member", "joined", "User:colleague")
    assert (again.code, "fairlead project members joined" in again.err) == (1, True)
    unknown = cli.run("project", "add-member", "joined", "User:colleague:owner")
    assert "the roles of each project are admin, user, viewer" in unknown.err
    mistyped = cli.run("project", "add-member", "joined", "colleague")
    assert (mistyped.code, "User:NAME[:ROLE]" in mistyped.err) == (2, True)


def test_a_space_is_created_for_a_colleague(cli: CliFixture) -> None:
    expect_success(cli.run("project", "create", "shared"))
    flags = ("--project", "shared", "--cluster", "none", "--user", "colleague")
    created = cli.run("space", "create", "dev", *flags, "-o", "jsonpath={.spec.access}")
    assert created.code == 0, created.err
    assert created.out == '[{"users":["colleague"],"verbs":["get","use"]}]\n'


def test_a_wait_ends_after_the_timeout_with_what_is_missing(cli: CliFixture, server: Server) -> None:
    expect_success(cli.run("project", "create", "slow"))
    with open_admin_client(server) as client:
        body = {"kind": "App", "metadata": {"name": "held", "finalizers": ["example.com/held"]}, "spec": {}}
        client.create("apps", body)
        for command in (("app", "delete", "held"), ("delete", "app", "held")):
            result = cli.run(*command, "--yes", "--timeout", "1s")
            assert result.code == 1
            assert (
                "held is not deleted after 1s: being deleted: waiting for the finalizers example.com/held" in result.err
            )
        client.patch("apps", "held", {"metadata": {"finalizers": None}})


def test_a_failed_space_ends_the_wait_with_its_conditions_and_what_to_do(cli: CliFixture, server: Server) -> None:
    expect_success(cli.run("project", "create", "broken"))
    with open_admin_client(server) as client:
        client.create("clusters", {"kind": "Cluster", "metadata": {"name": "unconnected"}, "spec": {}})
    command = [
        "space",
        "create",
        "dev",
        "--project",
        "broken",
        "--cluster",
        "unconnected",
        "--wait",
        "-v",
        "--timeout",
        "5s",
    ]
    result = cli.run(*command)
    assert result.code == 1
    assert "dev: Ready is False (ClusterNotConnected): " in result.err
    shown = expect_success(cli.run("space", "show", "dev", "--project", "broken"))
    assert "conditions" in shown and "ClusterNotConnected" in shown


def test_a_rejected_password_leaves_no_user_and_the_retry_works(cli: CliFixture) -> None:
    result = cli.run("user", "create", "eva", "--password-stdin", stdin="short\n")
    assert result.code == 1
    assert "no user was created" in result.err and "at least 12 characters" in result.err
    expect_success(cli.run("user", "create", "eva", "--password-stdin", stdin="correct horse battery\n"))


def test_a_login_needs_no_scheme_and_its_name_has_no_colon(cli: CliFixture, server: Server) -> None:
    address = server.url.removeprefix("https://")
    result = cli.run("login", address, "--ca-file", server.ca_file, "--key-stdin", stdin=server.key)
    assert result.code == 0
    assert cli.load_contexts().current == address.replace(":", "-")
    expect_success(cli.run("kubeconfig"))
    config = (cli.home / ".kube" / "config").read_text()
    assert f"current-context: fairlead-{address.replace(':', '-')}\n" in config


def test_a_virtual_cluster_is_created_and_connected(cli: CliFixture, server: Server) -> None:
    expect_success(cli.run("project", "create", "virtual"))
    with open_admin_client(server) as client:
        client.create("clusters", {"kind": "Cluster", "metadata": {"name": "host"}, "spec": {}})
    result = cli.run("vcluster", "create", "vc", "--project", "virtual", "--cluster", "host", "-o", "name")
    assert (result.code, result.out) == (0, "virtualclusterinstance/vc\n")
    assert "`fairlead vcluster connect vc --project virtual`" in result.err
    refused = cli.run("vcluster", "connect", "vc", "--project", "virtual", "-o", "-")
    assert (refused.code, refused.out) == (1, "") and "the virtual cluster vc is Pending (" in refused.err


def test_an_app_is_created_from_a_script(cli: CliFixture) -> None:
    script = cli.home / "seed.sh"
    script.write_text("echo $PARAMETER_ROWS\n")
    expect_success(cli.run("app", "create", "seed", "--script", str(script), "--image", "tools:1"))
    config = expect_json(cli.run("app", "show", "seed", "-o", "json"))["spec"]["config"]
    assert config == {"bash": {"script": "echo $PARAMETER_ROWS\n", "image": "tools:1"}}
    without = cli.run("app", "create", "other", "--script", str(script))
    assert (without.code, "--script and --image belong together" in without.err) == (2, True)
    both = cli.run("app", "create", "other", "--script", str(script), "--image", "x", "--chart", "c")
    assert (both.code, "one of --chart, --manifests and --script" in both.err) == (2, True)
    chart = cli.run("app", "create", "other", "--script", str(script), "--image", "x", "--repo", "https://x")
    assert (chart.code, "are for a chart" in chart.err) == (2, True)
    expect_success(cli.run("delete", "app/seed", "--yes"))


def test_an_app_is_created_from_a_chart_or_from_manifests(cli: CliFixture) -> None:
    manifests = cli.home / "quota.yaml"
    manifests.write_text("kind: ConfigMap\n")
    expect_success(cli.run("app", "create", "chart", "--chart", "c", "--repo", "https://charts.example.com"))
    expect_success(cli.run("app", "create", "files", "--manifests", str(manifests), "--visible-to-all"))
    assert "chart c" in expect_success(cli.run("app", "show", "chart"))
    assert (
        expect_json(cli.run("app", "show", "files", "-o", "json"))["spec"]["config"]["manifests"] == "kind: ConfigMap\n"
    )
    assert cli.run("app", "create", "none").code == 2
    expect_success(cli.run("delete", "app/chart", "app/files", "--yes"))


def test_names_are_completed_by_the_shell(cli: CliFixture) -> None:
    expect_success(cli.run("project", "create", "completed"))
    assert complete_line(cli, "fairlead project show compl") == ["completed"]
    assert complete_line(cli, "fairlead get proj") == ["projects", "projectsecrets"]
    assert complete_line(cli, "fairlead delete project compl") == ["completed"]


def complete_line(cli: CliFixture, line: str) -> list[str]:
    """What bash suggests for the last word of a line."""
    words = {"COMP_WORDS": line, "COMP_CWORD": str(line.count(" ")), "_FAIRLEAD_COMPLETE": "complete_bash"}
    home = {"HOME": str(cli.home), "XDG_CONFIG_HOME": str(cli.home / "config")}
    code = "from fairlead.cli import make_app; make_app()(prog_name='fairlead')"
    result = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | home | words, capture_output=True, text=True, check=True
    )
    return result.stdout.split()


def test_states_are_coloured_only_on_a_terminal_without_no_color(cli: CliFixture) -> None:
    expect_success(cli.run("project", "create", "colours"))
    green = "\x1b[32mReady"
    assert green in run_on_terminal(cli, "project", "list")
    assert "\x1b[32m" not in run_on_terminal(cli, "project", "list", NO_COLOR="1")
    assert "\x1b" not in cli.run("project", "list").out


def test_a_wait_on_a_terminal_has_a_spinner(cli: CliFixture) -> None:
    expect_success(cli.run("project", "create", "spun"))
    shown = run_on_terminal(cli, "project", "delete", "spun", "--yes")
    hidden_cursor = "\x1b[?25l"
    assert shown.startswith(hidden_cursor)
    assert "the project spun is deleted" in shown


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("project", "show", "none-such"), 1),
        (("project", "show"), 2),
        (("project", "show", "x", "--no-such-flag"), 2),
        (("project", "delete", "exit-codes"), 2),
        (("apply", "-f", "no-such-file.yaml"), 2),
        (("app", "create", "x", "--manifests", "no-such-file.yaml"), 2),
        (("cluster", "add", "x", "--kubeconfig", "no-such-file.yaml"), 2),
        (("login", "--kubeconfig", "no-such-file.yaml"), 2),
        (("key", "create", "--scope-file", "no-such-file.yaml"), 2),
        (("backup", "verify", "no-such-file"), 2),
        (("restore", "no-such-file"), 2),
        (("login", "127.0.0.1:1", "--key-stdin"), 1),
        (("nonsense",), 2),
        (("project", "list"), 0),
    ],
)
def test_the_exit_codes_are_those_of_the_page(cli: CliFixture, arguments: tuple[str, ...], code: int) -> None:
    cli.run("project", "create", "exit-codes")
    assert cli.run(*arguments).code == code


def test_usual_names_of_commands_work_in_every_group(cli: CliFixture) -> None:
    assert expect_success(cli.run("context", "ls", "-o", "name")) == "context/test\n"
    assert expect_success(cli.run("key", "ls", "-o", "name")) == expect_success(cli.run("key", "list", "-o", "name"))
    for command in (("cluster", "delete", "none"), ("key", "delete", "none")):
        assert "not found; check the name" in cli.run(*command).err
    assert "deleted the login 'test'" in cli.run("context", "delete", "test", "--yes").err
    assert " ls " not in cli.run("project", "--help").out
