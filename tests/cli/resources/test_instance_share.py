"""`share` of `fairlead space` and `vcluster`: adds users and teams to `spec.access`, and removes them."""

from typing import Any

import pytest

from tests.harness.cli import CliFixture
from tests.harness.fake_server import M, build_object, failure_status

SPACE = f"{M}/namespaces/service-p-demo/spaceinstances/dev"
SHARE = ("space", "share", "dev", "--project", "demo")
ALL: dict[str, Any] = {"verbs": ["*"], "subresources": ["*"], "users": ["owner", "ada"]}
SHARED: dict[str, Any] = {"verbs": ["use", "get"], "users": ["bob"]}


def build_space(*access: dict[str, Any]) -> dict[str, Any]:
    space = build_object("dev", kind="SpaceInstance", spec={"access": list(access)})
    space["metadata"]["resourceVersion"] = "7"
    return space


def share(user: CliFixture, access: list[dict[str, Any]], *flags: str) -> Any:
    """The access rules that the command writes."""
    user.fake.on("GET", SPACE, (200, build_space(*access)))
    user.fake.on("PATCH", SPACE, (200, build_space()))
    result = user.run(*SHARE, *flags)
    assert result.code == 0, result.err
    body = user.fake.requests_to("PATCH", SPACE)[-1].body
    assert body["metadata"] == {"resourceVersion": "7"}
    return body["spec"]["access"]


@pytest.mark.parametrize(
    ("access", "flags", "written"),
    [
        ([], ("--user", "ada"), [{"verbs": ["get", "use"], "users": ["ada"]}]),
        ([ALL], ("--team", "web"), [ALL, {"verbs": ["get", "use"], "teams": ["web"]}]),
        (
            [SHARED, ALL],
            ("--user", "ada", "--user", "bob", "--team", "web"),
            [{"verbs": ["use", "get"], "users": ["bob", "ada"], "teams": ["web"]}, ALL],
        ),
        ([ALL, SHARED], ("--user", "ada", "--remove"), [{**ALL, "users": ["owner"]}, SHARED]),
        ([ALL, SHARED], ("--user", "bob", "--remove"), [ALL]),
    ],
)
def test_the_rules_are_changed(
    user: CliFixture, access: list[dict[str, Any]], flags: tuple[str, ...], written: list[dict[str, Any]]
) -> None:
    assert share(user, access, *flags) == written


def test_a_conflict_is_tried_again_with_the_new_object(user: CliFixture) -> None:
    user.fake.on("GET", SPACE, (200, build_space()), (200, build_space(ALL)))
    user.fake.on("PATCH", SPACE, (409, failure_status(409, "Conflict", "changed")), (200, build_space()))
    result = user.run(*SHARE, "--user", "bob")
    assert (result.code, result.err) == (0, "the user bob may use the space dev\n")
    assert user.fake.requests_to("PATCH", SPACE)[-1].body["spec"]["access"][0] == ALL


def test_no_user_and_no_team_is_a_usage_error(user: CliFixture) -> None:
    result = user.run(*SHARE)
    assert (result.code, "name at least one --user or --team" in result.err) == (2, True)
