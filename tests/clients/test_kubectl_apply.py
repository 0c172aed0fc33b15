"""kubectl applies: the older way with its annotation, the newer one on the server, and what would differ."""

import pytest

from tests.clients.objects import app, as_yaml, project, workspace
from tests.clients.server import GROUP
from tests.harness.kubectl import Kubectl


def test_apply_creates_then_changes_then_leaves_alone(kubectl: Kubectl) -> None:
    first, second = as_yaml(app("older", displayName="1", icon="i")), as_yaml(app("older", displayName="2"))
    assert kubectl("apply", "-f", "-", body=first) == f"app.{GROUP}/older created\n"
    assert kubectl("apply", "-f", "-", body=second) == f"app.{GROUP}/older configured\n"
    assert kubectl.read("app", "older")["spec"] == {"displayName": "2"}
    assert kubectl("apply", "-f", "-", body=second) == f"app.{GROUP}/older unchanged\n"


def test_a_whole_project_can_be_applied_again_and_again(kubectl: Kubectl) -> None:
    bodies = as_yaml(project("green", displayName="G"), workspace("w", "service-p-green", owner={"user": "ada"}))
    assert kubectl("apply", "-f", "-", body=bodies).split()[1::2] == ["created", "created"]
    kubectl("wait", "--for=condition=Ready", "project/green", "--timeout=10s")
    assert kubectl("apply", "-f", "-", body=bodies).split()[1::2] == ["unchanged", "unchanged"]


@pytest.fixture(scope="module")
def owned(kubectl: Kubectl) -> str:
    """An app whose fields belong to the manager `one`."""
    body = as_yaml(app("owned", displayName="of one", icon="i"))
    kubectl("apply", "--server-side", "--field-manager=one", "-f", "-", body=body)
    return "owned"


def test_server_side_apply_removes_what_its_manager_leaves_out(kubectl: Kubectl) -> None:
    apply = ("apply", "--server-side", "-f", "-")
    said = kubectl(*apply, body=as_yaml(app("newer", displayName="1", icon="i")))
    assert said == f"app.{GROUP}/newer serverside-applied\n"
    kubectl(*apply, body=as_yaml(app("newer", displayName="2")))
    assert kubectl.read("app", "newer")["spec"] == {"displayName": "2"}


def test_server_side_apply_shares_an_object_and_names_conflicts(kubectl: Kubectl, owned: str) -> None:
    apply = ("apply", "--server-side", "--field-manager=two", "-f", "-")
    kubectl(*apply, body=as_yaml(app(owned, description="of two")))
    assert kubectl.read("app", owned)["spec"] == {"displayName": "of one", "icon": "i", "description": "of two"}
    said = kubectl.refused(*apply, body=as_yaml(app(owned, displayName="of two")))
    assert 'conflict with "one": .spec.displayName' in said
    kubectl(*apply, "--force-conflicts", body=as_yaml(app(owned, displayName="of two")))
    assert kubectl.read("app", owned)["spec"] == {"displayName": "of two", "icon": "i"}


def test_diff_shows_what_an_apply_would_change_and_changes_nothing(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", body=as_yaml(app("differing", displayName="here")))
    assert kubectl("diff", "-f", "-", body=as_yaml(app("differing", displayName="here"))) == ""
    shown = kubectl.differing("diff", "-f", "-", body=as_yaml(app("differing", displayName="there")))
    assert "-  displayName: here\n+  displayName: there\n" in shown
    assert kubectl.read("app", "differing")["spec"] == {"displayName": "here"}
