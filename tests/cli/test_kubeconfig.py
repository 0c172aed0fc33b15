"""`fairlead kubeconfig` and `fairlead token`: a context for kubectl, with the key in it or a way to get it."""

import json
from pathlib import Path

import pytest
import yaml

from tests.cli.desk import Desk
from tests.client.fake import KEY


def test_a_context_is_put_into_the_home_folders_file(user: Desk) -> None:
    ended = user.type("kubeconfig")
    assert (ended.code, ended.out) == (0, "")
    path = user.home / ".kube" / "config"
    assert f"wrote the context 'fairlead-test' into {path}" in ended.err
    config = yaml.safe_load(path.read_bytes())
    assert config["current-context"] == "fairlead-test"
    assert config["users"] == [{"name": "fairlead-test", "user": {"token": KEY}}]
    assert config["clusters"][0]["cluster"]["server"] == f"{user.fake.url}/kubernetes/management"
    assert not user.fake.requests
    assert KEY not in ended.err


def test_a_project_sets_the_namespace_as_the_server_names_it(user: Desk, tmp_path: Path) -> None:
    user.fake.on_self(projectNamespacePrefix="p-")
    target = tmp_path / "mine"
    ended = user.type("kubeconfig", "--project", "demo", "-o", str(target))
    assert ended.code == 0
    assert f"kubectl --kubeconfig {target} --context fairlead-test-demo" in ended.err
    (context,) = yaml.safe_load(target.read_bytes())["contexts"]
    assert context == {
        "name": "fairlead-test-demo",
        "context": {"cluster": "fairlead-test-demo", "user": "fairlead-test-demo", "namespace": "p-demo"},
    }


def test_other_contexts_and_the_current_one_can_stay(user: Desk) -> None:
    path = user.home / ".kube" / "config"
    path.parent.mkdir()
    before = "contexts: [{name: other, context: {cluster: c, user: u}}]\ncurrent-context: other\n"
    path.write_text(before)
    ended = user.type("kubeconfig", "--keep-current", "--context-name", "mine")
    assert "kubectl --context mine" in ended.err
    assert f"the file before is {path}.bak" in ended.err
    config = yaml.safe_load(path.read_bytes())
    assert [each["name"] for each in config["contexts"]] == ["other", "mine"]
    assert config["current-context"] == "other"
    assert path.with_name("config.bak").read_text() == before


def test_stdout_gets_a_whole_file(user: Desk) -> None:
    ended = user.type("kubeconfig", "-o", "-")
    assert yaml.safe_load(ended.out)["current-context"] == "fairlead-test"
    assert ended.err == ""
    assert not (user.home / ".kube").exists()


def test_a_kubectl_that_reads_another_file_is_noticed(user: Desk) -> None:
    assert "`unset KUBECONFIG` to use this file" in user.type("kubeconfig", KUBECONFIG="/elsewhere").err


def test_a_file_can_call_for_the_key_instead_of_holding_it(user: Desk) -> None:
    out = user.type("kubeconfig", "--exec", "-o", "-").out
    assert KEY not in out
    plugin = yaml.safe_load(out)["users"][0]["user"]["exec"]
    assert plugin["apiVersion"] == "client.authentication.k8s.io/v1"
    assert plugin["args"][-3:] == ["token", "--context", "test"]
    assert plugin["interactiveMode"] == "Never"


def test_an_insecure_login_makes_an_insecure_context(desk: Desk) -> None:
    desk.fake.on("GET", "/version", (200, {}))
    desk.fake.on_self()
    desk.type("login", desk.fake.url, "--insecure", "--key-stdin", stdin=KEY)
    cluster = yaml.safe_load(desk.type("kubeconfig", "-o", "-").out)["clusters"][0]["cluster"]
    assert cluster == {"server": f"{desk.fake.url}/kubernetes/management", "insecure-skip-tls-verify": True}


def test_the_token_is_printed_as_kubectl_wants_it(user: Desk) -> None:
    ended = user.type("token")
    assert (ended.code, ended.err) == (0, "")
    assert json.loads(ended.out) == {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {"token": KEY},
    }
    assert user.type("token", "--plain").out == f"{KEY}\n"
    assert not user.fake.requests


@pytest.mark.parametrize(
    ("asked", "answered"),
    [("client.authentication.k8s.io/v1beta1", "v1beta1"), ("client.authentication.k8s.io/v9", "v1"), ("", "v1")],
)
def test_the_token_comes_in_the_version_that_kubectl_asks_for(user: Desk, asked: str, answered: str) -> None:
    info = json.dumps({"apiVersion": asked, "kind": "ExecCredential"})
    out = user.type("token", KUBERNETES_EXEC_INFO=info).out
    assert json.loads(out)["apiVersion"] == f"client.authentication.k8s.io/{answered}"


def test_a_token_without_a_login_is_a_failure_that_kubectl_shows(desk: Desk) -> None:
    ended = desk.type("token", "--context", "gone")
    assert (ended.code, ended.out) == (1, "")
    assert "no login named 'gone'" in ended.err
