"""Mistakes of users: no traceback, a message with what is wrong and what to do, and the right exit code."""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.cli.conftest import ROOT, Fairlead
from tests.cli.end_to_end import expect_success, interrupt, open_admin_client
from tests.harness.cli import CliFixture, CommandResult
from tests.harness.fake_server import FakeServer
from tests.harness.server_process import Server, running_server

APP = "apiVersion: management.service.sh/v1\nkind: App\nmetadata:\n  name: {name}\nspec:\n  displayName: {title}\n"
LATIN_1 = "Gr\udcf6\udcdfe"
"""An argument in Latin-1, as Python decodes it in a UTF-8 locale."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running_server(tmp_path_factory.mktemp("server") / "data") as server:
        with open_admin_client(server) as client:
            client.create(
                "projects", {"kind": "Project", "metadata": {"name": "one"}, "spec": {"displayName": "Größe"}}
            )
        yield server


@pytest.fixture
def cli(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CliFixture:
    """The CLI, logged in as the administrator."""
    cli = CliFixture(tmp_path, FakeServer(server.url, server.ca_file), monkeypatch)
    cli.save_login(key=server.key)
    return cli


def run_in_shell(cli: CliFixture, command: str, **variables: str) -> CommandResult:
    """Runs a line of shell, in which `fairlead` is the command."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("FAIRLEAD_", "KUBE", "LC_"))}
    home = {"HOME": str(cli.home), "XDG_CONFIG_HOME": str(cli.home / "config"), "PYTHON_PROGRAM": sys.executable}
    result = subprocess.run(
        ["bash", "-c", f'fairlead() {{ "$PYTHON_PROGRAM" -m fairlead "$@"; }}; set -o pipefail; {command}'],
        cwd=ROOT,
        env=inherited | home | variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    assert b"Traceback" not in result.stderr, result.stderr.decode()
    return CommandResult(result.returncode, result.stdout.decode(errors="replace"), result.stderr.decode())


@pytest.mark.parametrize(
    "command", ["get clusterroles", "get clusterroles -o yaml", "project list", "--help", "key create"]
)
def test_output_to_a_full_disk_is_reported(cli: CliFixture, command: str) -> None:
    result = run_in_shell(cli, f"fairlead {command} >/dev/full")
    assert result.code == 1
    assert result.err.endswith("fairlead: cannot write the output: No space left on device; it is incomplete\n")


@pytest.mark.parametrize("command", ["get clusterroles -o yaml", "project list", "--help", "export crds"])
def test_a_reader_that_stops_early_is_no_error_message(cli: CliFixture, command: str) -> None:
    assert run_in_shell(cli, f"fairlead {command} | true").err == ""
    head = run_in_shell(cli, f"fairlead {command} | head -1")
    assert (head.err, head.out.count("\n")) == ("", 1)


@pytest.mark.parametrize("closing", [">&-", "2>&-", "<&-"])
def test_closed_streams_do_no_harm(cli: CliFixture, closing: str) -> None:
    result = run_in_shell(cli, f"fairlead get project one -o name {closing}")
    assert (result.code, result.err) == (0, "")
    assert result.out == ("" if closing == ">&-" else "project/one\n")
    assert run_in_shell(cli, f"fairlead project delete one {closing}").code == 2


def test_a_key_whose_rotation_cannot_be_printed_stays_usable(cli: CliFixture, server: Server) -> None:
    created = cli.run("key", "create", "--name", "rotated")
    cli.save_login("other", created.out.strip())
    result = run_in_shell(cli, "fairlead key rotate rotated --context other >/dev/full")
    assert (result.code, "cannot write the output" in result.err) == (1, True)
    expect_success(cli.run("whoami", "--context", "other"))


def test_ctrl_c_ends_a_wait_and_not_the_operation(cli: CliFixture, fairlead: Fairlead) -> None:
    environment = {"HOME": str(cli.home), "XDG_CONFIG_HOME": str(cli.home / "config")}
    waiting = fairlead("space", "create", "s", "--project", "one", "--cluster", "none", "--wait", "-v", **environment)
    assert waiting.stderr is not None
    assert any("s is Pending" in line for line in waiting.stderr)
    code, err = interrupt(waiting)
    assert (code, err.endswith("stopped waiting; the operation continues on the server\n")) == (130, True), err
    expect_success(cli.run("space", "show", "s", "--project", "one"))


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_every_locale_can_show_every_name(cli: CliFixture, encoding: str) -> None:
    shown = run_in_shell(cli, "fairlead project list", PYTHONIOENCODING=encoding)
    assert (shown.code, "Gr" in shown.out) == (0, True)
    assert r"Gr\xf6\xdfe" in shown.out or encoding != "ascii"
    data = run_in_shell(cli, "fairlead project show one -o json", PYTHONIOENCODING=encoding)
    assert (data.code, '"displayName": "Größe"' in data.out) == (0, True)


@pytest.mark.parametrize(
    "arguments",
    [
        ("project", "create", "two", "--display-name", LATIN_1),
        ("project", "create", LATIN_1),
        ("project", "show", LATIN_1),
        ("project", "list", "-l", f"a={LATIN_1}"),
        ("project", "list", "--watch", "-l", f"a={LATIN_1}"),
    ],
)
def test_arguments_that_are_not_utf_8_are_rejected(cli: CliFixture, arguments: Sequence[str]) -> None:
    result = cli.run(*arguments)
    assert (result.code, "is not valid UTF-8; check its names and values" in result.err) == (1, True)


def test_a_home_that_cannot_be_written_is_named(cli: CliFixture) -> None:
    (cli.home / "file").touch()
    nowhere = {"HOME": str(cli.home / "file"), "XDG_CONFIG_HOME": ""}
    for command in ("kubeconfig", "up --port 0"):
        url, key, ca = cli.fake.url, cli.load_contexts().contexts["test"].key, cli.fake.ca_file
        login = {"FAIRLEAD_URL": url, "FAIRLEAD_KEY": key, "FAIRLEAD_CA_FILE": ca} if command == "kubeconfig" else {}
        result = run_in_shell(cli, f"fairlead {command}", XDG_DATA_HOME="", **nowhere, **login)
        assert (result.code, f"fairlead: {cli.home}/file" in result.err) == (1, True), result.err
    completion = run_in_shell(cli, "fairlead --install-completion bash", **nowhere)
    assert (completion.code, "; make it accessible, and try again" in completion.err) == (1, True), completion.err


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("get", "projects", "-l", "a in ("), 2, "--selector 'a in (': "),
        (("project", "list", "-l", "a in ("), 2, "use the format app=web"),
        (("delete", "projects", "-l", "a in (", "--yes"), 2, "--selector 'a in (': "),
        (("get", "apps/"), 2, "'apps/' is not in the form KIND/NAME, like app/nginx"),
        (("token", "create", "--space", "x"), 2, "'x' is not a valid scope entry; use the format PROJECT/SPACE"),
        (("token", "create", "--cluster", "none"), 1, '--cluster: Invalid value: "none": there is no such cluster'),
        (("key", "create", "--user", "none"), 1, '--user: Invalid value: "none": there is no user with that name'),
        (("key", "rotate", "held", "--overlap", "30d"), 1, "--overlap: Invalid value: 2592000"),
        (("kubeconfig", "--project", "none"), 1, "there is no project 'none'"),
        (("kubeconfig", "--space", "one"), 2, "use the format --space P/S"),
        (("login", "http://127.0.0.1:8443"), 2, "use https://127.0.0.1:8443"),
        (("project", "show", "one", "--context", "none"), 1, "no login named 'none' (available: test)"),
        (("project", "lst"), 2, "Did you mean 'list'?"),
        (("space", "list", "--projct", "one"), 2, "--project"),
        (("space", "create", "s"), 2, "Missing option '--project'. `fairlead project list` lists them."),
        (("create", "project", "x"), 2, "No such command 'create'. Did you mean 'fairlead project create x'?"),
        (("list", "projects"), 2, "Did you mean 'fairlead project list'?"),
        (("create", "virtualcluster", "v"), 2, "Did you mean 'fairlead vcluster create v'?"),
        (("frobnicate", "project", "x"), 2, "No such command 'frobnicate'.\n"),
        (("hlep",), 2, "No such command 'hlep'."),
        (("cluster", "add", "Berlin"), 2, "'Berlin' is not a name for a cluster; use lower-case letters"),
        (("project", "create"), 2, "Missing argument 'NAME'"),
        (("project", "create", "a", "b"), 2, "unexpected extra argument"),
        (("key", "create", "--ttl", "5x"), 2, "'5x' is not a duration; use the format 30d"),
        (("apply", "-f", "/bin/sh"), 2, "/bin/sh: not UTF-8"),
    ],
)
def test_a_message_names_what_is_wrong(cli: CliFixture, arguments: tuple[str, ...], code: int, message: str) -> None:
    cli.run("key", "create", "--name", "held")
    result = cli.run(*arguments)
    assert (result.code, message in result.err) == (code, True), result.err


@pytest.mark.parametrize(
    ("arguments", "warning"),
    [
        (("project", "create", "p1", "--member", "User:none"), '--member: there is no user "none"'),
        (("project", "create", "p2", "--owner", "none"), '--owner: there is no user "none"'),
        (("key", "create", "--project", "none"), '--project: there is no project "none" that you can read'),
        (("space", "create", "w", "--project", "one", "--cluster", "none"), '--cluster: there is no cluster "none"'),
        (
            ("vcluster", "import", "v", "--external", "--project", "one", "--cluster", "none"),
            '--cluster: there is no cluster "none"',
        ),
    ],
)
def test_a_warning_names_the_flag_of_a_typo(cli: CliFixture, arguments: tuple[str, ...], warning: str) -> None:
    result = cli.run(*arguments)
    assert (result.code, f"warning: {warning}" in result.err) == (0, True), result.err


def test_a_new_key_is_printed_with_how_to_use_it(cli: CliFixture, server: Server) -> None:
    result = cli.run("key", "create", "--ttl", "1h")
    assert f"to use it: `fairlead login {server.url} --ca-file CA.CRT --key-stdin`, or set FAIRLEAD_KEY" in result.err
    assert "`fairlead admin ca`, on its machine, prints that" in result.err
    assert result.out.count("\n") == 1


def test_objects_that_exist_are_printed_although_another_does_not(cli: CliFixture) -> None:
    file = cli.home / "app.yaml"
    file.write_text(APP.format(name="present", title="Present"))
    expect_success(cli.run("apply", "-f", str(file)))
    result = cli.run("get", "apps", "nope", "present")
    assert (result.code, [line.split()[0] for line in result.out.splitlines()]) == (1, ["NAME", "present"])
    assert result.err == 'fairlead: apps.management.service.sh "nope" not found; check the name\n'
    assert cli.run("get", "app/present", "app/nope", "-o", "name").out == "app/present\n"
    listed = cli.run("get", "app/present", "app/nope", "-o", "jsonpath={.items[*].metadata.name}")
    assert (listed.code, listed.out) == (1, "present\n")
    none = cli.run("get", "app/none", "app/nope", "-o", "json")
    assert (none.code, none.out, none.err.count("not found")) == (1, "", 2)
    expect_success(cli.run("delete", "app", "present", "--yes"))


def test_each_cause_of_an_invalid_manifest_is_on_a_line_of_its_own(cli: CliFixture) -> None:
    file = cli.home / "app.yaml"
    file.write_text(f"{APP.format(name='bad', title='Bad')}  one: 1\n  two: 2\n")
    lines = cli.run("apply", "-f", str(file)).err.splitlines()
    plain = "unknown fields spec.one, spec.two; check the spelling and the indentation"
    assert lines[0].startswith(f"fairlead: {file}") and lines[0].endswith(plain)
    assert "  .spec.one: field not declared in schema" in lines
    assert "  .spec.two: field not declared in schema" in lines


def test_fields_that_a_command_has_no_flag_for_are_not_named_by_flags_of_others(
    cli: CliFixture, server: Server
) -> None:
    expect_success(cli.run("user", "create", "member", "--no-password"))
    expect_success(cli.run("project", "add-member", "one", "User:member:user"))
    with open_admin_client(server) as client:
        body = {"kind": "SpaceInstance", "metadata": {"name": "dev"}, "spec": {"clusterRef": {"cluster": "c"}}}
        client.create("spaceinstances", body, namespace="service-p-one")
        access = [{"users": ["*"], "verbs": ["get", "use"]}]
        client.create("apps", {"kind": "App", "metadata": {"name": "web"}, "spec": {"access": access}})
        client.delete("virtualclustertemplates", "default")  # it would be used
    key = expect_success(cli.run("key", "create", "--user", "member", "--ttl", "1h")).strip()
    member = CliFixture(cli.home / "member", cli.fake, cli.patches)
    member.save_login(key=key)
    installed = member.run("app", "install", "web", "--project", "one", "--space", "dev")
    assert (installed.code, "ask its owner for that permission (spec.access)" in installed.err) == (1, True)
    created = member.run("vcluster", "create", "other", "--project", "one", "--cluster", "c")
    assert (created.code, "name a template in --template, or ask for that permission" in created.err) == (1, True)
