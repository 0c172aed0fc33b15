"""`kubectl apply` on the client side and on the server side, and `kubectl diff`."""

import pytest

from tests.clients.objects import build_app, build_project, build_workspace, to_yaml
from tests.clients.server import GROUP
from tests.harness.kubectl import Kubectl


def test_apply_prints_created_then_configured_then_unchanged(kubectl: Kubectl) -> None:
    first, second = to_yaml(build_app("older", displayName="1", icon="i")), to_yaml(build_app("older", displayName="2"))
    assert kubectl("apply", "-f", "-", body=first) == f"app.{GROUP}/older created\n"
    assert kubectl("apply", "-f", "-", body=second) == f"app.{GROUP}/older configured\n"
    assert kubectl.get_json("app", "older")["spec"] == {"displayName": "2"}
    assert kubectl("apply", "-f", "-", body=second) == f"app.{GROUP}/older unchanged\n"


def test_a_project_with_a_workspace_can_be_applied_twice(kubectl: Kubectl) -> None:
    bodies = to_yaml(
        build_project("green", displayName="G"), build_workspace("w", "service-p-green", owner={"user": "ada"})
    )
    assert kubectl("apply", "-f", "-", body=bodies).split()[1::2] == ["created", "created"]
    kubectl("wait", "--for=condition=Ready", "project/green", "--timeout=60s")
    assert kubectl("apply", "-f", "-", body=bodies).split()[1::2] == ["unchanged", "unchanged"]


@pytest.fixture(scope="module")
def owned_app(kubectl: Kubectl) -> str:
    """The name of an app whose fields are owned by the manager `one`."""
    body = to_yaml(build_app("owned", displayName="of one", icon="i"))
    kubectl("apply", "--server-side", "--field-manager=one", "-f", "-", body=body)
    return "owned"


def test_server_side_apply_removes_fields_that_its_manager_omits(kubectl: Kubectl) -> None:
    apply = ("apply", "--server-side", "-f", "-")
    output = kubectl(*apply, body=to_yaml(build_app("newer", displayName="1", icon="i")))
    assert output == f"app.{GROUP}/newer serverside-applied\n"
    kubectl(*apply, body=to_yaml(build_app("newer", displayName="2")))
    assert kubectl.get_json("app", "newer")["spec"] == {"displayName": "2"}


def test_server_side_apply_shares_an_object_and_reports_conflicts(kubectl: Kubectl, owned_app: str) -> None:
    apply = ("apply", "--server-side", "--field-manager=two", "-f", "-")
    kubectl(*apply, body=to_yaml(build_app(owned_app, description="of two")))
    assert kubectl.get_json("app", owned_app)["spec"] == {"displayName": "of one", "icon": "i", "description": "of two"}
    error = kubectl.expect_failure(*apply, body=to_yaml(build_app(owned_app, displayName="of two")))
    assert 'conflict with "one": .spec.displayName' in error
    kubectl(*apply, "--force-conflicts", body=to_yaml(build_app(owned_app, displayName="of two")))
    assert kubectl.get_json("app", owned_app)["spec"] == {"displayName": "of two", "icon": "i"}


def test_diff_shows_the_changes_of_an_apply_without_writing(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", body=to_yaml(build_app("differing", displayName="here")))
    assert kubectl("diff", "-f", "-", body=to_yaml(build_app("differing", displayName="here"))) == ""
    output = kubectl.expect_diff("diff", "-f", "-", body=to_yaml(build_app("differing", displayName="there")))
    assert "-  displayName: here\n+  displayName: there\n" in output
    assert kubectl.get_json("app", "differing")["spec"] == {"displayName": "here"}
