"""`fairlead team`, `vcluster`, `app` and `context`, and shell completion of names."""

import json
from base64 import b64decode, b64encode
from collections.abc import Callable
from pathlib import Path

import pytest
import typer
from typer.main import get_command

from fairlead.cli import make_app
from fairlead.cli.ui.completion import complete_logins, complete_names
from tests.harness.cli import CliFixture
from tests.harness.fake_server import M, build_object, failure_status, list_response
from tests.harness.watch_responses import END, build_watch_response

CORE = "/kubernetes/management/api/v1"
TEAM = f"{M}/teams/ops"
MIGRATION = f"{M}/projects/there/migratevirtualclusterinstance"


def build_team_response(*users: str) -> tuple[int, dict[str, object]]:
    team = build_object("ops", kind="Team", spec={"users": list(users)})
    team["metadata"]["resourceVersion"] = "5"
    return 200, team


def test_a_team_change_is_retried_on_conflict(user: CliFixture) -> None:
    user.fake.on("GET", f"{M}/users/bob", (200, build_object("bob")))
    user.fake.on("GET", TEAM, build_team_response("ada"))
    user.fake.on("PATCH", TEAM, (409, failure_status(409, "Conflict", "changed")), build_team_response())
    assert "bob is now a member of the team ops" in user.run("team", "add", "ops", "bob").err
    change = {"metadata": {"resourceVersion": "5"}, "spec": {"users": ["ada", "bob"]}}
    assert [each.body for each in user.fake.requests_to("PATCH", TEAM)] == [change, change]
    assert user.run("team", "remove", "ops", "ada").code == 0
    assert user.fake.requests_to("PATCH", TEAM)[-1].body["spec"] == {"users": []}


def test_a_team_change_without_effect_is_reported(user: CliFixture) -> None:
    user.fake.on("GET", f"{M}/users/ada", (200, build_object("ada")))
    user.fake.on("GET", TEAM, build_team_response("ada"))
    assert "already" in user.run("team", "add", "ops", "ada").err
    result = user.run("team", "remove", "ops", "bob")
    assert (result.code, "bob is not in spec.users of the team" in result.err) == (1, True)
    assert "user 'eve' does not exist" in user.run("team", "create", "new", "--member", "eve").err
    assert user.fake.requests_to("PATCH", TEAM) == user.fake.requests_to("POST", f"{M}/teams") == []


@pytest.mark.parametrize(("flags", "query"), [((), {}), (("--dry-run",), {"dryRun": "All"})])
def test_a_migration_names_both_projects(user: CliFixture, flags: tuple[str, ...], query: dict[str, str]) -> None:
    user.fake.on("POST", MIGRATION, lambda request: (201, request.body))
    result = user.run("vcluster", "migrate", "v", "--from", "here", "--to", "there", *flags)
    assert ("can be moved" if flags else "was moved") in result.err
    (request,) = user.fake.requests_to("POST", MIGRATION)
    assert request.query == query
    assert request.body["sourceVirtualClusterInstance"] == {"name": "v", "namespace": "service-p-here"}


VIRTUAL_CLUSTERS = f"{M}/namespaces/service-p-demo/virtualclusterinstances"
CONNECTED: dict[str, object] = {"config": {"secretName": "s"}}


def offer_clusters(user: CliFixture, **specs: dict[str, object]) -> None:
    """The project `demo` has these clusters, and the template `default`."""
    clusters = [build_object(name, kind="Cluster", spec=spec) for name, spec in specs.items()]
    user.fake.on("GET", f"{M}/projects/demo/clusters", (200, {"clusters": clusters}))
    templates = {"virtualClusterTemplates": [build_object("default"), build_object("other")]}
    user.fake.on("GET", f"{M}/projects/demo/templates", (200, templates))
    user.fake.on("POST", VIRTUAL_CLUSTERS, lambda request: (201, request.body))


def test_a_virtual_cluster_is_created_in_the_only_cluster_from_the_default_template(user: CliFixture) -> None:
    offer_clusters(user, berlin=CONNECTED, closed={**CONNECTED, "unusable": True}, planned={})
    result = user.run("vcluster", "create", "dev", "--project", "demo")
    assert result.code == 0 and "in the cluster berlin, the only one of the project demo" in result.err
    spec = user.fake.requests_to("POST", VIRTUAL_CLUSTERS)[0].body["spec"]
    assert spec == {"clusterRef": {"cluster": "berlin"}, "templateRef": {"name": "default"}}


@pytest.mark.parametrize(
    ("clusters", "message"),
    [
        ({"b": CONNECTED, "a": {"networkPeer": True}}, "several clusters; choose one with --cluster: a, b"),
        (
            {},
            "no cluster to run it in: an administrator connects one with `fairlead cluster add`, and lets the members "
            "use it with `fairlead project allow-cluster demo CLUSTER`",
        ),
        ({"planned": {}}, "of its 1 clusters, none is connected and accepts instances"),
    ],
)
def test_without_an_only_cluster_nothing_is_created(
    user: CliFixture, clusters: dict[str, dict[str, object]], message: str
) -> None:
    offer_clusters(user, **clusters)
    result = user.run("vcluster", "create", "dev", "--project", "demo")
    assert (result.code, message in result.err) == (2, True)
    assert user.fake.requests_to("POST", VIRTUAL_CLUSTERS) == []


def test_a_migration_lists_what_moves_and_what_changes(user: CliFixture) -> None:
    moves = [{"kind": "VirtualClusterInstance", "name": "v"}, {"kind": "AppInstance", "name": "web"}]
    details = {"moves": moves, "count": 5, "changes": ["members lose access"]}
    user.fake.on("POST", MIGRATION, lambda request: (201, {**request.body, "result": details}))
    result = user.run("vcluster", "migrate", "v", "--from", "here", "--to", "there", "--dry-run")
    assert result.err.splitlines() == [
        "the virtual cluster v can be moved from the project here to there",
        "  with it: AppInstance web",
        "  and 3 more objects",
        "  members lose access",
    ]


def test_an_external_virtual_cluster_is_only_listed(user: CliFixture) -> None:
    user.fake.on("POST", VIRTUAL_CLUSTERS, lambda request: (201, request.body))
    result = user.run("vcluster", "import", "v", "--project", "demo", "--external", "--cluster", "c")
    assert result.code == 0 and "imported the external virtual cluster v" in result.err
    spec = user.fake.requests_to("POST", VIRTUAL_CLUSTERS)[0].body["spec"]
    assert spec == {"external": True, "clusterRef": {"cluster": "c"}}


SECRETS = f"{CORE}/namespaces/service-p-demo/secrets"
SOURCE = "/kubernetes/cluster/berlin/api/v1/namespaces/vc-ns/secrets/vc-theirs"
PLACE = ("--cluster", "berlin", "--namespace", "vc-ns", "--virtual-cluster", "theirs")
IMPORT = ("vcluster", "import", "v", "--project", "demo")
KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: x
contexts: [{name: x, context: {cluster: x, user: x}}]
clusters: [{name: x, cluster: {server: 'https://vc.example:8443'}}]
users: [{name: x, user: {token: inner-token}}]
"""


def accept_import(user: CliFixture) -> None:
    user.fake.on("POST", SECRETS, lambda request: (201, request.body))
    user.fake.on("PATCH", f"{SECRETS}/vcluster-v", (200, {}))
    user.fake.on("DELETE", f"{SECRETS}/vcluster-v", (200, {}))
    created = {"apiVersion": "management.service.sh/v1", "metadata": {"name": "v", "uid": "1"}}
    user.fake.on("POST", VIRTUAL_CLUSTERS, (201, created))


def expect_imported(user: CliFixture, annotations: dict[str, str] | None) -> bytes:
    """Returns the kubeconfig that was stored."""
    (secret,) = user.fake.requests_to("POST", SECRETS)
    (instance,) = user.fake.requests_to("POST", VIRTUAL_CLUSTERS)
    (change,) = user.fake.requests_to("PATCH", f"{SECRETS}/vcluster-v")
    assert instance.body["spec"] == {"config": {"secretName": "vcluster-v", "key": "config"}}
    assert instance.body["metadata"].get("annotations") == annotations
    (owner,) = change.body["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("VirtualClusterInstance", "v", "1")
    return b64decode(secret.body["data"]["config"])


def test_a_virtual_cluster_is_imported_with_a_kubeconfig(user: CliFixture, tmp_path: Path) -> None:
    accept_import(user)
    (tmp_path / "theirs").write_text(KUBECONFIG)
    result = user.run(*IMPORT, "--kubeconfig", str(tmp_path / "theirs"))
    assert result.code == 0, result.err
    assert "imported the virtual cluster v into the project demo" in result.err
    assert "vcluster connect v" in result.err and "inner-token" not in result.err
    assert b"inner-token" in expect_imported(user, None)


def test_a_virtual_cluster_is_imported_by_the_secret_that_its_chart_wrote(user: CliFixture) -> None:
    accept_import(user)
    secret = {"data": {"config": b64encode(KUBECONFIG.encode()).decode()}}
    user.fake.on("GET", SOURCE, (200, secret))
    result = user.run(*IMPORT, *PLACE)
    assert result.code == 0, result.err
    stored = expect_imported(user, {"service.sh/import-source": "berlin/vc-ns/theirs"})
    assert stored == KUBECONFIG.encode()  # the server compares it with the Secret


@pytest.mark.parametrize(
    ("response", "message"),
    [
        (
            (404, failure_status(404, "NotFound", "not found")),
            "vc-theirs in the namespace vc-ns of the cluster berlin d",
        ),
        ((403, failure_status(403, "Forbidden", "no")), "you may not read the Secret vc-theirs"),
        ((200, {"data": {}}), "has no kubeconfig in its key config"),
    ],
)
def test_without_the_secret_of_the_chart_nothing_is_imported(
    user: CliFixture, response: tuple[int, dict[str, object]], message: str
) -> None:
    accept_import(user)
    user.fake.on("GET", SOURCE, response)
    result = user.run(*IMPORT, *PLACE)
    assert (result.code, message in result.err) == (1, True), result.err
    assert user.fake.requests_to("POST", SECRETS) == user.fake.requests_to("POST", VIRTUAL_CLUSTERS) == []


def test_the_secret_of_a_rejected_import_is_deleted_again(user: CliFixture, tmp_path: Path) -> None:
    user.fake.on("POST", SECRETS, (201, {}), (409, failure_status(409, "AlreadyExists", "exists")))
    user.fake.on("DELETE", f"{SECRETS}/vcluster-v", (200, {}))
    user.fake.on("POST", VIRTUAL_CLUSTERS, (422, failure_status(422, "Invalid", "not allowed")))
    (tmp_path / "theirs").write_text(KUBECONFIG)
    result = user.run(*IMPORT, "--kubeconfig", str(tmp_path / "theirs"))
    assert (result.code, "not allowed" in result.err) == (1, True)
    assert len(user.fake.requests_to("DELETE", f"{SECRETS}/vcluster-v")) == 1
    # That of another import is not.
    result = user.run(*IMPORT, "--kubeconfig", str(tmp_path / "theirs"))
    assert (result.code, "the Secret vcluster-v already exists" in result.err) == (1, True)
    assert len(user.fake.requests_to("DELETE", f"{SECRETS}/vcluster-v")) == 1


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ((), "name its kubeconfig with --kubeconfig FILE, or where it runs"),
        (PLACE[:4], "--virtual-cluster is missing"),
        ((*PLACE, "--kubeconfig", "x"), "mutually exclusive"),
        (("--external", "--kubeconfig", "x"), "mutually exclusive"),
        (("--kube-context", "x"), "name that with --kubeconfig"),
    ],
)
def test_an_import_names_one_source(user: CliFixture, flags: tuple[str, ...], message: str) -> None:
    result = user.run(*IMPORT, *flags)
    assert (result.code, message in result.err) == (2, True), result.err


@pytest.mark.parametrize("flags", [(), ("--abandon",)])
def test_deleting_a_virtual_cluster_waits_for_it(user: CliFixture, flags: tuple[str, ...]) -> None:
    path = f"{M}/namespaces/service-p-demo/virtualclusterinstances"
    found = build_object("v", spec={"config": {"secretName": "theirs"}})
    found["metadata"] |= {"uid": "1", "namespace": "service-p-demo"}
    user.fake.on("GET", f"{path}/v", (200, found))
    user.fake.on("PATCH", f"{path}/v", (200, found))
    user.fake.on("DELETE", f"{path}/v", (200, found))
    user.fake.on("GET", path, build_watch_response(END))
    assert user.run("vcluster", "delete", "v", "--project", "demo", *flags).code == 2
    assert user.fake.requests_to("DELETE", f"{path}/v") == user.fake.requests_to("PATCH", f"{path}/v") == []
    result = user.run("vcluster", "delete", "v", "--project", "demo", "--yes", *flags)
    assert result.code == 0 and "the virtual cluster v is deleted" in result.err
    assert ("left behind" in result.err) is bool(flags)
    assert len(user.fake.requests_to("PATCH", f"{path}/v")) == len(flags)


def test_an_app_is_shown_with_what_it_deploys(user: CliFixture) -> None:
    spec = {"config": {"chart": {"name": "nginx", "version": "4.0.0"}}, "parameters": [{"variable": "size"}]}
    user.fake.on("GET", f"{M}/apps/web", (200, build_object("web", spec=spec)))
    out = user.run("app", "show", "web").out
    assert "chart nginx 4.0.0" in out and "size: string" in out


def test_contexts_are_listed_switched_and_removed_without_showing_keys(user: CliFixture) -> None:
    user.save_login("other")
    user.save_login("third", key="fairlead_secret")
    assert user.run("context", "use", "test").code == 0
    assert user.load_contexts().current == "test"
    listed = user.run("context", "list", "-o", "json").out
    assert [(each["name"], each["current"]) for each in json.loads(listed)] == [
        ("other", False),
        ("test", True),
        ("third", False),
    ]
    assert "fairlead_" not in listed + user.run("context", "list").out
    assert user.run("context", "forget", "third").code == 2
    assert user.run("context", "forget", "third", "--yes").code == 0
    assert user.run("context", "list", "-o", "name").out == "context/other\ncontext/test\n"
    assert user.run("context", "use", "third").code == 1
    assert "FAIRLEAD_CONTEXT is set" in user.run("context", "use", "other", FAIRLEAD_CONTEXT="test").err


@pytest.fixture
def complete_name(user: CliFixture, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(user.home / "config"))

    def complete(plural: str, incomplete: str, **params: str) -> list[str]:
        context = typer.Context(get_command(make_app()))
        context.params = dict(params)
        return complete_names(plural, project="project")(context, incomplete)

    return complete


def test_names_are_completed_with_those_of_the_server(
    user: CliFixture, complete_name: Callable[..., list[str]]
) -> None:
    user.fake.on(
        "GET", f"{M}/projects", list_response(build_object("demo"), build_object("desk"), build_object("other"))
    )
    user.fake.on("GET", f"{M}/namespaces/service-p-demo/spaceinstances", list_response(build_object("s")))
    assert complete_name("projects", "de") == ["demo", "desk"]
    assert complete_name("spaceinstances", "", project="demo") == ["s"]
    assert complete_logins("te") == ["test"]


def test_completion_returns_nothing_when_it_fails(user: CliFixture, complete_name: Callable[..., list[str]]) -> None:
    assert complete_name("projects", "") == []
    assert complete_name("projects", "", context="unknown") == []
    user.contexts_file.write_text("- nonsense")
    assert (complete_name("projects", ""), complete_logins("")) == ([], [])
