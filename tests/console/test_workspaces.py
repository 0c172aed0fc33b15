"""Workspaces and runners in the console, with a real runner whose workspaces are processes."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.console.browser import Page, role
from tests.console.conftest import SignIn
from tests.console.long_logs import LINES, check_long_log, line_of
from tests.console.servers import ADMIN, GROUP, VIEWER, ConsoleServer
from tests.harness.eventually import wait_until
from tests.live.runner_process import PROCESS_ENGINE, RunnerProcess, running_runner

WORKSPACES = f"{GROUP}/namespaces/service-p-web/devpodworkspaceinstances"
PAGES = "devpodworkspaceinstances/service-p-web"
HOSTILE = "<img src=x onerror=alert(1)>"
ANSWER_PORTS = """(() => {
  const send = window.fetch;
  const ports = [{ port: 8080, address: "127.0.0.1", process: "<img src=x onerror=alert(1)>" }];
  window.fetch = (path, options) =>
    String(path).endsWith("/ports") ? Promise.resolve(new Response(JSON.stringify({ ports }))) : send(path, options);
})()"""
ANSWER_LOG = """(() => {
  const send = window.fetch;
  const answer = () => new Response(new ReadableStream({ start(controller) {
    const encoder = new TextEncoder();
    for (let first = 0; first < %(lines)d; first += 500) {
      const numbers = Array.from({ length: 500 }, (_, index) => first + index);
      const lines = numbers.map((each) => JSON.stringify({ time: "2026-11-17T01:00:00Z", message: `%(line)s${each}` }));
      const bytes = btoa(`${lines.join("\\n")}\\n`);
      controller.enqueue(encoder.encode(`${JSON.stringify({ type: 0, offset: first, bytes })}\\n`));
    }
  } }));
  window.fetch = (path, options) =>
    /\\/log[?]taskID=/.test(String(path)) ? Promise.resolve(answer()) : send(path, options);
})()"""
TEMPLATE = {
    "apiVersion": "management.service.sh/v1",
    "kind": "DevPodWorkspaceTemplate",
    "metadata": {"name": "tools"},
    "spec": {
        "displayName": "Tools",
        "parameters": [{"variable": "greeting", "label": "Greeting", "defaultValue": "hello"}],
        "template": {
            "provider": {"name": "process"},
            "workspaceEnv": {"GREETING": {"value": "{{ parameters.greeting }}"}},
            "instanceTemplate": {"metadata": {"annotations": {"sleepmode.service.sh/sleep-after": "3600"}}},
        },
    },
}


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sources") / "shop"
    folder.mkdir()
    (folder / "README").write_text("read me\n")
    identity = ("-c", "user.name=Test", "-c", "user.email=test@example.com")
    for command in (("init", "-q", "-b", "main"), ("add", "README"), (*identity, "commit", "-qm", "First")):
        subprocess.run(["git", *command], cwd=folder, check=True)
    return folder


@pytest.fixture(scope="module")
def runner(
    tmp_path_factory: pytest.TempPathFactory, server: ConsoleServer, repository: Path
) -> Iterator[RunnerProcess]:
    """The runner `local`, with the project `web`, which has `viewer` as a member and no runner of the demo."""
    folder, flags = tmp_path_factory.mktemp("runner"), ("--allow-folder", str(repository))
    with (
        server.server.client() as admin,
        running_runner(server.server, admin, folder / "runner", PROCESS_ENGINE, flags=flags) as process,
    ):
        server.create(f"{GROUP}/devpodworkspacetemplates", TEMPLATE)
        members = [{"kind": "User", "name": VIEWER, "clusterRole": "viewer"}]
        spec = {"members": members, "allowedRunners": [{"name": "local"}, {"name": "spare"}]}
        server.send("PATCH", f"{GROUP}/projects/web", {"spec": spec}, patch=True)
        yield process


def create_workspace(server: ConsoleServer, name: str, source: str, project: str = "web", **spec: Any) -> None:
    annotations = {"service.sh/workspace-source": source, "service.sh/workspace-up": "1"}
    body = {
        "apiVersion": "management.service.sh/v1",
        "kind": "DevPodWorkspaceInstance",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"access": [{"name": "read", "verbs": ["get"], "users": [VIEWER]}], **spec},
    }
    server.create(f"{GROUP}/namespaces/service-p-{project}/devpodworkspaceinstances", body)


def read_status(server: ConsoleServer, name: str) -> dict[str, Any]:
    status: dict[str, Any] = server.send("GET", f"{WORKSPACES}/{name}").get("status") or {}
    return status


def count_tasks(server: ConsoleServer) -> int:
    return len(server.send("GET", f"{WORKSPACES}/desk/tasks")["tasks"])


def click_action(page: Page, name: str) -> None:
    """Clicks on a button as soon as it is known that the user may use it."""
    button = role("button", name)
    page.wait_until(lambda: page.attribute(button, "aria-disabled") is None, f"{name} is enabled")
    page.click(button)


@pytest.fixture(scope="module")
def workspace_path(server: ConsoleServer, runner: RunnerProcess, repository: Path) -> str:
    """A workspace that runs."""
    template = {"name": "tools"}
    create_workspace(server, "desk", f"git:file://{repository}", templateRef=template, displayName=HOSTILE)
    wait_until(lambda: read_status(server, "desk").get("lastWorkspaceStatus") == "Running", 20, what="desk runs")
    return f"{PAGES}/desk"


def test_a_workspace_is_created_with_parameters_and_comes_up_with_its_steps(
    page: Page, server: ConsoleServer, runner: RunnerProcess, repository: Path, sign_in: SignIn
) -> None:
    sign_in(page, ADMIN)
    page.goto("devpodworkspaceinstances/~new?project=web&template=tools")
    page.fill("Greeting", "good morning")
    page.fill("Name", "shop")
    page.fill("Source", f"file://{repository}")
    page.fill("Branch", "main")
    page.click(role("button", "Create"))
    page.wait_for_text("Clone", ".steps", timeout=20)
    page.wait_for_text("It runs", ".workspace-now", timeout=20)
    page.wait_for_text("Start: succeeded")
    assert all(text.split()[-1] == "s" for text in page.texts(".steps li"))
    assert page.path.endswith(f"{PAGES}/shop")
    created = server.send("GET", f"{WORKSPACES}/shop")
    assert created["metadata"]["annotations"]["service.sh/workspace-source"] == f"git:file://{repository}@main"
    assert created["spec"]["parameters"] == "greeting: good morning\n"


def test_a_workspace_without_a_source_is_created_and_not_started(
    page: Page, server: ConsoleServer, runner: RunnerProcess, sign_in: SignIn
) -> None:
    sign_in(page, ADMIN)
    page.goto("devpodworkspaceinstances/~new?project=web&template=tools")
    page.fill("Name", "blank")
    page.click(role("button", "Create"))
    page.wait_for_text("It has not been started yet.", ".workspace-now")
    assert not server.send("GET", f"{WORKSPACES}/blank")["metadata"].get("annotations")


def test_no_project_is_chosen_for_the_user(page: Page, server: ConsoleServer, sign_in: SignIn) -> None:
    sign_in(page, ADMIN)
    page.goto("devpodworkspaceinstances/~new")
    page.wait_for_text("Choose a project first", ".choices")
    assert "Version" not in page.text("form"), "nothing that has versions is chosen"
    page.fill("Name", "nowhere")
    page.click(role("button", "Create"))
    assert page.eval("document.querySelector('form select').matches(':invalid')")
    assert page.path.endswith("/~new")
    page.fill("Project", "Storefront")
    page.wait_for_text("Workspace in a container", ".choices")


def test_the_log_has_the_lines_of_the_task(page: Page, workspace_path: str, sign_in: SignIn) -> None:
    sign_in(page, ADMIN)
    page.goto(f"{workspace_path}?view=log")
    page.wait_for_text("step Clone took", ".log-view")
    page.wait_for_text("End of the log")
    assert any(text.startswith("Start: succeeded") for text in page.texts(".tab-panel option"))


def test_a_log_of_20_000_lines_stands_in_the_page_of_its_workspace(
    page: Page, workspace_path: str, sign_in: SignIn
) -> None:
    values = {"lines": LINES, "line": line_of(0).removesuffix("0").replace("\x1b", "\\x1b")}
    page.send("Page.addScriptToEvaluateOnNewDocument", source=ANSWER_LOG % values)
    sign_in(page, ADMIN)
    page.goto(f"{workspace_path}?view=log")
    check_long_log(page)


def test_a_failed_task_says_why_and_leads_to_its_log(
    page: Page, server: ConsoleServer, runner: RunnerProcess, sign_in: SignIn
) -> None:
    create_workspace(server, "broken", "local:/nowhere", templateRef={"name": "tools"})
    sign_in(page, ADMIN)
    page.goto(f"{PAGES}/broken")
    page.wait_for_text("It has failed: ", ".workspace-now", timeout=20)
    page.wait_for_text("Start: failed")
    page.click(role("link", "See the log"))
    page.wait_for_text("up failed: ", ".log-view")


def test_a_shell_in_the_terminal_runs_commands(page: Page, workspace_path: str, sign_in: SignIn) -> None:
    sign_in(page, ADMIN)
    page.goto(f"{workspace_path}?view=terminal")
    page.wait_for_text("Connected")
    page.type("echo $GREETING $((6*7)); cat README\n")
    page.wait_for_text("hello 42", ".terminal")
    page.wait_for_text("read me", ".terminal")
    assert page.eval("document.querySelector('.terminal-frame').offsetHeight > innerHeight / 2")


def test_ports_have_the_command_that_forwards_them(page: Page, workspace_path: str, sign_in: SignIn) -> None:
    """The runner's engine for processes has no ports, so the response is replaced."""
    sign_in(page, ADMIN)
    page.goto(f"{workspace_path}?view=ports")
    page.wait_for_text("No program in the workspace listens on a port.")
    page.eval(ANSWER_PORTS)
    page.click(role("button", "Refresh"))
    page.wait_for_text("fairlead workspace port-forward desk 8080 --project web")
    assert HOSTILE in page.text(".tab-panel table")


def test_a_workspace_is_held_awake_stopped_and_started(page: Page, workspace_path: str, sign_in: SignIn) -> None:
    sign_in(page, ADMIN)
    page.goto(workspace_path)
    page.wait_for_text("fairlead workspace ssh desk --project web")
    page.wait_for("a[href^='vscode://vscode-remote/ssh-remote+desk.web.fairlead/']")
    click_action(page, "Keep awake for 2 h")
    page.wait_for_text("Held awake until")
    click_action(page, "End keeping awake")
    page.wait_until(lambda: "Held awake until" not in page.text(), "it is not held any more")
    click_action(page, "Stop")
    page.wait_for_text("It is stopped.", ".workspace-now", timeout=20)
    page.wait_for_text("Stop: succeeded")
    page.wait_for_text("Stopped", ".object-head")
    page.goto(f"{workspace_path}?view=terminal")
    page.wait_for_text("A workspace that sleeps wakes up for it.")
    assert page.count(role("button", "Open a terminal")) == 1  # nothing is started without being asked for
    page.goto(workspace_path)
    click_action(page, "Start")
    page.wait_for_text("It runs", ".workspace-now", timeout=20)


def test_a_reset_is_confirmed_first(page: Page, server: ConsoleServer, workspace_path: str, sign_in: SignIn) -> None:
    sign_in(page, ADMIN)
    page.goto(workspace_path)
    before = count_tasks(server)
    click_action(page, "Reset…")
    page.wait_for_text("all changes that were not pushed")
    page.press("Escape")
    assert count_tasks(server) == before
    click_action(page, "Reset…")
    page.click(role("button", "Delete and start again"))
    page.wait_until(lambda: count_tasks(server) == before + 1, "the reset has begun")
    page.wait_for_text("It runs", ".workspace-now", timeout=20)
    page.wait_for_text("Start: succeeded")


def test_who_may_only_read_a_workspace_sees_why_the_actions_are_disabled(
    page: Page, workspace_path: str, sign_in: SignIn
) -> None:
    sign_in(page, VIEWER)
    page.goto(workspace_path)
    page.wait_for_text("You may see this workspace, but not use it.")
    for name in ("Stop", "Recreate…", "Reset…"):
        assert page.attribute(role("button", name), "aria-disabled") == "true"
        assert page.attribute(role("button", name), "title")
    assert HOSTILE in page.text("h1")


def test_a_runner_shows_its_heartbeat_and_its_workspaces(page: Page, workspace_path: str, sign_in: SignIn) -> None:
    sign_in(page, ADMIN)
    page.goto("runners/local")
    page.wait_for_text("Connected since")
    page.wait_for_text("fairlead runner start local")
    page.wait_for(f"a[href$='{workspace_path}']")
    page.wait_until(lambda: re.search(r"Last heartbeat\s+(just now|\d+s ago)", page.text()), "there is a heartbeat")


def test_a_workspace_says_which_runner_it_waits_for(
    page: Page, server: ConsoleServer, runner: RunnerProcess, sign_in: SignIn
) -> None:
    body = {"apiVersion": "management.service.sh/v1", "kind": "Runner", "metadata": {"name": "spare"}, "spec": {}}
    server.create(f"{GROUP}/runners", body)
    create_workspace(server, "waiting", "image:debian:12", runnerRef={"runner": "spare"})
    sign_in(page, ADMIN)
    page.goto(f"{PAGES}/waiting")
    page.wait_for_text("It waits for the runner spare", ".workspace-now")
    page.wait_for_text("fairlead runner start spare")
    click_action(page, "Start")
    page.wait_for(".error")
    page.wait_for_text("spare", ".error")


def test_a_workspace_without_a_runner_says_why_it_waits(
    page: Page, server: ConsoleServer, runner: RunnerProcess, sign_in: SignIn
) -> None:
    spec = {"allowedRunners": [{"name": "missing"}]}
    body = {"apiVersion": "management.service.sh/v1", "kind": "Project", "metadata": {"name": "alone"}, "spec": spec}
    server.create(f"{GROUP}/projects", body)
    create_workspace(server, "lonely", "image:debian:12", project="alone")
    sign_in(page, ADMIN)
    page.goto("devpodworkspaceinstances/service-p-alone/lonely")
    page.wait_for_text("It waits for a runner: ", ".workspace-now", timeout=15)
    page.wait_for_text("fairlead runner start NAME")
