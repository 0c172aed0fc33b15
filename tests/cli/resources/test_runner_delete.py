"""fairlead.cli.resources.runner: a runner with workspaces is deleted only if they are abandoned."""

from typing import Any

from tests.harness.cli import CliFixture
from tests.harness.fake_server import M, build_object, failure_status, list_response
from tests.harness.watch_responses import END, build_watch_response

RUNNERS, WORKSPACES = f"{M}/runners", f"{M}/devpodworkspaceinstances"


def build_workspace(name: str, state: str = "") -> dict[str, Any]:
    found = build_object(name, spec={"runnerRef": {"runner": "one"}}, status={"lastWorkspaceStatus": state})
    found["metadata"]["namespace"] = "p-demo"
    return found


def serve(cli: CliFixture, *workspaces: dict[str, Any]) -> None:
    cli.fake.on("GET", f"{RUNNERS}/one", (200, build_object("one")))
    cli.fake.on("PATCH", f"{RUNNERS}/one", (200, build_object("one")))
    cli.fake.on("DELETE", f"{RUNNERS}/one", (200, {"kind": "Status", "status": "Success"}))
    cli.fake.on("GET", RUNNERS, build_watch_response(END))
    cli.fake.on("GET", WORKSPACES, list_response(*workspaces))
    cli.fake.on("POST", f"{M}/selves", (201, {"status": {"projectNamespacePrefix": "p-"}}))


def test_delete_is_rejected_while_the_runner_has_workspaces(user: CliFixture) -> None:
    serve(user, build_workspace("a", "Running"), build_workspace("b"))
    result = user.run("runner", "delete", "one", "--yes")
    assert result.code == 1
    assert "there are 2 workspaces on the runner one:" in result.err
    assert "  workspace a of the project demo: Running\n" in result.err
    assert "  workspace b of the project demo: never started\n" in result.err
    assert "--abandon" in result.err
    assert user.fake.requests_to("DELETE", f"{RUNNERS}/one") == []
    (listed,) = user.fake.requests_to("GET", WORKSPACES)
    assert listed.query["fieldSelector"] == "spec.runnerRef.runner=one"


def test_abandon_lists_what_is_left_behind_and_says_so_to_the_server(user: CliFixture) -> None:
    serve(user, build_workspace("a", "Running"))
    result = user.run("runner", "delete", "one", "--yes", "--abandon")
    assert result.code == 0
    assert "  workspace a of the project demo: Running\n" in result.err
    assert "the runner one is deleted\n" in result.err
    assert "goes on running there" in result.err
    (patch,) = user.fake.requests_to("PATCH", f"{RUNNERS}/one")
    assert patch.body == {"metadata": {"annotations": {"service.sh/abandon": "true"}}}
    assert len(user.fake.requests_to("DELETE", f"{RUNNERS}/one")) == 1


def test_a_runner_without_workspaces_is_deleted_without_abandoning_anything(user: CliFixture) -> None:
    serve(user)
    for flags in ((), ("--no-wait",)):
        result = user.run("runner", "delete", "one", "--yes", *flags)
        assert (result.code, result.err.splitlines()[-1]) == (
            0,
            f"the runner one is {'being ' if flags else ''}deleted",
        )
    assert user.fake.requests_to("PATCH", f"{RUNNERS}/one") == []


def test_the_refusal_of_the_server_is_shown_to_users_who_may_not_list_workspaces(user: CliFixture) -> None:
    serve(user)
    user.fake.on("GET", WORKSPACES, (403, failure_status(403, "Forbidden", "not for you")))
    user.fake.on("DELETE", f"{RUNNERS}/one", (409, failure_status(409, "Conflict", "1 of them is on it")))
    result = user.run("runner", "delete", "one", "--yes")
    assert (result.code, "1 of them is on it" in result.err) == (1, True)
