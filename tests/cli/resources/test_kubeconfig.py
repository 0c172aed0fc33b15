"""`fairlead kubeconfig` and `fairlead token`: a context for kubectl, with the key in it or a way to get it."""

import json
from pathlib import Path

import pytest
import yaml

from tests.harness.cli import CliFixture
from tests.harness.fake_server import KEY, M, failure


def test_a_context_is_put_into_the_home_folders_file(user: CliFixture) -> None:
    ended = user.type("kubeconfig")
    assert (ended.code, ended.out) == (0, "")
    path = user.home / ".kube" / "config"
    assert f"wrote the context 'fairlead-test' to {path}" in ended.err
    config = yaml.safe_load(path.read_bytes())
    assert config["current-context"] == "fairlead-test"
    assert config["users"] == [{"name": "fairlead-test", "user": {"token": KEY}}]
    assert config["clusters"][0]["cluster"]["server"] == f"{user.fake.url}/kubernetes/management"
    assert not user.fake.requests
    assert KEY not in ended.err


def test_a_project_sets_the_namespace_as_the_server_names_it(user: CliFixture, tmp_path: Path) -> None:
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


@pytest.mark.parametrize(
    ("flags", "object", "path", "name"),
    [
        (("--cluster", "berlin"), "clusters/berlin", "cluster/berlin", "cluster-berlin"),
        (
            ("--virtual-cluster", "demo/vc"),
            "namespaces/service-p-demo/virtualclusterinstances/vc",
            "project/demo/virtualcluster/vc",
            "virtualcluster-demo/vc",
        ),
    ],
)
def test_a_context_can_lead_through_the_server(
    user: CliFixture, flags: tuple[str, str], object: str, path: str, name: str
) -> None:
    user.fake.on("GET", f"{M}/{object}", (200, {}))
    config = yaml.safe_load(user.type("kubeconfig", *flags, "-o", "-").out)
    cluster = config["clusters"][0]["cluster"]
    assert cluster["server"] == f"{user.fake.url}/kubernetes/{path}"
    assert cluster["certificate-authority-data"]
    assert config["current-context"] == f"fairlead-test-{name}"
    assert "namespace" not in config["contexts"][0]["context"]


def test_what_is_not_there_makes_no_context(user: CliFixture) -> None:
    ended = user.type("kubeconfig", "--cluster", "berlin", "-o", "-")
    assert (ended.code, ended.out) == (1, "")
    assert "check the name" in ended.err


def test_a_key_that_may_only_use_a_cluster_is_taken_at_its_word(user: CliFixture) -> None:
    user.fake.on("GET", f"{M}/clusters/berlin", (403, failure(403, "Forbidden", "outside of the key's scope")))
    assert "/kubernetes/cluster/berlin" in user.type("kubeconfig", "--cluster", "berlin", "-o", "-").out


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (("--cluster", "berlin", "--project", "demo"), "choose one"),
        (("--space", "dev"), "use the format --space P/S"),
        (("--virtual-cluster", "a/b/c"), "use the format --virtual-cluster P/V"),
        (("--space", "/dev"), "use the format --space P/S"),
    ],
)
def test_a_context_leads_to_one_place(user: CliFixture, flags: tuple[str, ...], told: str) -> None:
    ended = user.type("kubeconfig", *flags)
    assert (ended.code, told in ended.err) == (2, True)
    assert not (user.home / ".kube").exists()


@pytest.mark.parametrize("name", ["..", "."])
def test_a_name_that_is_a_step_in_a_path_is_refused(user: CliFixture, name: str) -> None:
    ended = user.type("kubeconfig", "--cluster", name, "-o", "-")
    assert (ended.code, ended.out) == (1, "")
    assert "is not a valid object name" in ended.err


def test_other_contexts_and_the_current_one_can_stay(user: CliFixture) -> None:
    path = user.home / ".kube" / "config"
    path.parent.mkdir()
    before = "contexts: [{name: other, context: {cluster: c, user: u}}]\ncurrent-context: other\n"
    path.write_text(before)
    ended = user.type("kubeconfig", "--keep-current", "--context-name", "mine")
    assert "kubectl --context mine" in ended.err
    assert f"the previous version is {path}.bak" in ended.err
    config = yaml.safe_load(path.read_bytes())
    assert [each["name"] for each in config["contexts"]] == ["other", "mine"]
    assert config["current-context"] == "other"
    assert path.with_name("config.bak").read_text() == before


def test_stdout_gets_a_whole_file(user: CliFixture) -> None:
    ended = user.type("kubeconfig", "-o", "-")
    assert yaml.safe_load(ended.out)["current-context"] == "fairlead-test"
    assert ended.err == ""
    assert not (user.home / ".kube").exists()


def test_a_kubectl_that_reads_another_file_is_noticed(user: CliFixture) -> None:
    assert "`unset KUBECONFIG` to use this file" in user.type("kubeconfig", KUBECONFIG="/elsewhere").err


def test_a_file_can_call_for_the_key_instead_of_holding_it(user: CliFixture) -> None:
    out = user.type("kubeconfig", "--exec", "-o", "-").out
    assert KEY not in out
    plugin = yaml.safe_load(out)["users"][0]["user"]["exec"]
    assert plugin["apiVersion"] == "client.authentication.k8s.io/v1"
    assert plugin["args"][-3:] == ["token", "--context", "test"]
    assert plugin["interactiveMode"] == "Never"


def test_an_insecure_login_makes_an_insecure_context(cli: CliFixture) -> None:
    cli.fake.on("GET", "/version", (200, {}))
    cli.fake.on_self()
    cli.type("login", cli.fake.url, "--insecure", "--key-stdin", stdin=KEY)
    cluster = yaml.safe_load(cli.type("kubeconfig", "-o", "-").out)["clusters"][0]["cluster"]
    assert cluster == {"server": f"{cli.fake.url}/kubernetes/management", "insecure-skip-tls-verify": True}


def test_the_token_is_printed_as_kubectl_wants_it(user: CliFixture) -> None:
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
def test_the_token_comes_in_the_version_that_kubectl_asks_for(user: CliFixture, asked: str, answered: str) -> None:
    info = json.dumps({"apiVersion": asked, "kind": "ExecCredential"})
    out = user.type("token", KUBERNETES_EXEC_INFO=info).out
    assert json.loads(out)["apiVersion"] == f"client.authentication.k8s.io/{answered}"


def test_a_token_without_a_login_is_a_failure_that_kubectl_shows(cli: CliFixture) -> None:
    ended = cli.type("token", "--context", "gone")
    assert (ended.code, ended.out) == (1, "")
    assert "no login named 'gone'" in ended.err
