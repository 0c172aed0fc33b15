"""fairlead.cli.resources.app_instance: apps installed, upgraded, rolled back, shown and uninstalled."""

from pathlib import Path
from typing import Any

import pytest

from tests.harness.cli import CliFixture, parse_yaml
from tests.harness.fake_server import M, build_object
from tests.harness.watch_responses import END, build_watch_response

APPS = f"{M}/namespaces/service-p-demo/appinstances"
SHOP = f"{APPS}/shop"
INSTALL = ("app", "install", "web", "--project", "demo", "--name", "shop")
HISTORY = [
    {"revision": 4, "appVersion": "1.1.0", "parameters": "size: 3\n", "hasAllParameters": True},
    {"revision": 3, "appVersion": "1.1.0", "parameters": "size: 3\n", "hasAllParameters": True},
    {"revision": 2, "appVersion": "1.0.0", "parameters": "size: 2\n", "hasAllParameters": True},
    {"revision": 1, "appVersion": "", "parameters": "", "hasAllParameters": False},
]


DEPLOYED = [{"type": "Deployed", "status": "True", "observedGeneration": 5}]


def build_instance(version: str = "1.1.0", **status: Any) -> dict[str, Any]:
    spec = {
        "appRef": {"name": "web", "version": version},
        "target": {"spaceInstance": {"name": "dev"}},
        "parameters": "size: 3\nimage:\n  tag: a\ntoken: <hidden>\n",
        "releaseName": "shop",
    }
    instance = build_object("shop", kind="AppInstance", spec=spec, status=status)
    instance["metadata"] |= {"uid": "1", "namespace": "service-p-demo", "generation": 5}
    return instance


@pytest.fixture
def ada(user: CliFixture) -> CliFixture:
    user.fake.on("POST", APPS, (201, build_instance()))
    user.fake.on("GET", SHOP, (200, build_instance(history=HISTORY, conditions=DEPLOYED)))
    user.fake.on("PATCH", SHOP, (200, build_instance()))
    return user


@pytest.mark.parametrize(
    ("flags", "target"),
    [
        (("--space", "dev"), {"spaceInstance": {"name": "dev"}}),
        (("--vcluster", "v"), {"virtualClusterInstance": {"name": "v"}}),
        (("--cluster", "c", "-n", "tools"), {"cluster": {"name": "c", "namespace": "tools"}}),
    ],
)
def test_install_sends_the_target(ada: CliFixture, flags: tuple[str, ...], target: dict[str, Any]) -> None:
    result = ada.run(*INSTALL, *flags)
    assert (result.code, "`fairlead app status shop --project demo` shows how" in result.err) == (0, True)
    (sent,) = ada.fake.requests_to("POST", APPS)
    assert sent.body["spec"] == {"appRef": {"name": "web"}, "target": target}
    assert sent.body["metadata"]["name"] == "shop"


def test_install_merges_values_and_flags(ada: CliFixture, tmp_path: Path) -> None:
    (tmp_path / "values.yaml").write_text("image: {tag: a, name: b}\nsize: 1\n")
    flags = (
        "--space",
        "dev",
        "--version",
        "1.x.x",
        "--values",
        str(tmp_path / "values.yaml"),
        "--set",
        "image.tag=c=d",
    )
    assert ada.run(*INSTALL, *flags).code == 0
    (sent,) = ada.fake.requests_to("POST", APPS)
    assert sent.body["spec"]["appRef"] == {"name": "web", "version": "1.x.x"}
    assert parse_yaml(sent.body["spec"]["parameters"]) == {"image.tag": "c=d", "image.name": "b", "size": 1}


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ((), "one of --cluster, --space and --vcluster"),
        (("--space", "a", "--cluster", "b"), "one of --cluster, --space and --vcluster"),
        (("--space", "a", "--namespace", "b"), "leave --namespace out"),
        (("--space", "a", "--set", "b"), "use the format NAME=VALUE"),
        (("--space", "a", "--set", "b=1", "--set", "b=2"), "set twice"),
        (("--space", "a", "--values", "/no/such/file"), "no such file"),
    ],
)
def test_mistakes_are_reported_before_anything_is_sent(ada: CliFixture, flags: tuple[str, ...], message: str) -> None:
    result = ada.run(*INSTALL, *flags)
    assert result.code != 0
    assert message in result.err
    assert ada.fake.requests_to("POST", APPS) == []


def test_install_waits_until_the_app_is_deployed(ada: CliFixture) -> None:
    ready = {"type": "MODIFIED", "object": build_instance(phase="Ready")}
    ada.fake.on("GET", APPS, build_watch_response({"type": "ADDED", "object": build_instance()}, END, ready))
    result = ada.run(*INSTALL, "--space", "dev", "--wait")
    assert (result.code, "the app instance shop is Ready" in result.err) == (0, True)


def test_a_failed_installation_names_the_commands_that_help(ada: CliFixture) -> None:
    failed = build_instance(phase="Failed", reason="AppNotFound", message="there is none")
    ada.fake.on("GET", APPS, build_watch_response({"type": "ADDED", "object": failed}, END))
    result = ada.run(*INSTALL, "--space", "dev", "--wait")
    assert result.code == 1
    assert "`fairlead app status shop --project demo`" in result.err
    assert "`fairlead app uninstall shop --project demo`" in result.err


def test_upgrade_keeps_the_other_parameters(ada: CliFixture) -> None:
    assert ada.run("app", "upgrade", "shop", "--project", "demo", "--version", "1.2.0", "--set", "size=4").code == 0
    (sent,) = ada.fake.requests_to("PATCH", SHOP)
    assert sent.body["spec"]["appRef"] == {"version": "1.2.0"}
    expected = {"size": "4", "image.tag": "a", "token": "<hidden>"}
    assert parse_yaml(sent.body["spec"]["parameters"]) == expected
    assert "set what to change" in ada.run("app", "upgrade", "shop", "--project", "demo").err


@pytest.mark.parametrize("flags", [(), ("--revision", "2")])
def test_rollback_writes_an_earlier_version_and_its_parameters(ada: CliFixture, flags: tuple[str, ...]) -> None:
    result = ada.run("app", "rollback", "shop", "--project", "demo", *flags)
    assert (result.code, "returning to revision 2 of version 1.0.0 with size=2" in result.err) == (0, True)
    (sent,) = ada.fake.requests_to("PATCH", SHOP)
    assert sent.body["spec"] == {"appRef": {"version": "1.0.0"}, "parameters": "size: 2\n"}


@pytest.mark.parametrize("version", ["1.1.0", "1.2.0", "1.x.x"])
@pytest.mark.parametrize("history", [HISTORY, HISTORY[1:2]])
@pytest.mark.parametrize(
    "conditions",
    [
        [],
        [{"type": "Deployed", "status": "False", "observedGeneration": 5}],
        [{"type": "Deployed", "status": "True", "observedGeneration": 4}],
    ],
)
def test_rollback_of_a_failed_upgrade_returns_to_the_newest_deployed_revision(
    ada: CliFixture, version: str, history: list[Any], conditions: list[Any]
) -> None:
    ada.fake.on("GET", SHOP, (200, build_instance(version, history=history, conditions=conditions)))
    result = ada.run("app", "rollback", "shop", "--project", "demo")
    newest = history[0]["revision"]
    assert (result.code, f"returning to revision {newest} of version 1.1.0 with size=3" in result.err) == (0, True)
    (sent,) = ada.fake.requests_to("PATCH", SHOP)
    assert sent.body["spec"] == {"appRef": {"version": "1.1.0"}, "parameters": "size: 3\n"}


def test_rollback_skips_the_deployed_version_that_a_pattern_stands_for(ada: CliFixture) -> None:
    ada.fake.on("GET", SHOP, (200, build_instance("1.x.x", history=HISTORY, conditions=DEPLOYED)))
    assert ada.run("app", "rollback", "shop", "--project", "demo").code == 0
    (sent,) = ada.fake.requests_to("PATCH", SHOP)
    assert sent.body["spec"]["appRef"] == {"version": "1.0.0"}


@pytest.mark.parametrize(
    ("history", "flags", "message"),
    [
        (HISTORY, ("--revision", "9"), "revision 9 is not in the history (known: 4, 3, 2, 1)"),
        (HISTORY, ("--revision", "1"), "too long to be kept"),
        (HISTORY[:2], (), "there is no earlier revision"),
        ([], (), "known: none"),
    ],
)
def test_a_revision_that_cannot_be_returned_to_is_an_error(
    ada: CliFixture, history: list[Any], flags: tuple[str, ...], message: str
) -> None:
    ada.fake.on("GET", SHOP, (200, build_instance(history=history, conditions=DEPLOYED)))
    result = ada.run("app", "rollback", "shop", "--project", "demo", *flags)
    assert result.code == 1
    assert message in result.err
    assert ada.fake.requests_to("PATCH", SHOP) == []


def test_status_shows_the_release_and_the_notes(ada: CliFixture) -> None:
    release = {"name": "shop", "namespace": "demo-dev", "revision": 4, "chart": "web", "version": "1.2.3"}
    ada.fake.on("GET", SHOP, (200, build_instance(release=release, notes="Open it.\n", history=HISTORY)))
    shown = ada.run("app", "status", "shop", "--project", "demo").out
    texts = ("space dev", "web 1.2.3", "revision 2 of version 1.0.0 with size=2;", "too long to be kept")
    for text in (*texts, "Open it.", "token: <hidden>"):
        assert text in shown


def failed_instance(generation: int, outcome: str) -> dict[str, Any]:
    """Helm has failed, which the server tries again: the phase stays Pending."""
    message = "helm upgrade failed: the port is invalid"
    condition = {"type": "Deployed", "status": "False", "reason": "HelmFailed", "message": message}
    ready = {**condition, "type": "Ready"}
    return build_instance(
        phase="Pending",
        reason="HelmFailed",
        message=message,
        observedGeneration=5,
        conditions=[ready, condition],
        lastAttempt={"generation": generation, "outcome": outcome, "reason": "HelmFailed"},
    )


def test_a_wait_ends_with_the_reason_once_when_helm_has_failed(ada: CliFixture) -> None:
    failed = {"type": "MODIFIED", "object": failed_instance(5, "Failed")}
    ada.fake.on("GET", APPS, build_watch_response({"type": "ADDED", "object": build_instance()}, END, failed))
    for flags in ((), ("-v",)):
        result = ada.run(*INSTALL, "--space", "dev", "--wait", *flags)
        assert (result.code, result.err.count("the port is invalid")) == (1, 1), result.err


@pytest.mark.parametrize("state", [(4, "Failed"), (5, "Interrupted"), (5, "Running")])
def test_a_wait_goes_on_unless_the_current_generation_has_failed(ada: CliFixture, state: tuple[int, str]) -> None:
    ready = build_instance(phase="Ready", observedGeneration=5, conditions=DEPLOYED)
    ada.fake.on(
        "GET",
        APPS,
        build_watch_response(
            {"type": "ADDED", "object": failed_instance(*state)}, END, {"type": "MODIFIED", "object": ready}
        ),
    )
    assert ada.run(*INSTALL, "--space", "dev", "--wait").code == 0
