"""The kubeconfig of a runner in a Pod: the token of its service account is a file, which the cluster renews."""

from pathlib import Path

import yaml

from fairlead import __version__
from fairlead.runner.engines.kubernetes.contexts import Contexts
from tests.fake_cluster.workspace_node import WorkspaceNode


async def test_a_renewed_token_file_is_used_without_a_restart(node: WorkspaceNode, tmp_path: Path) -> None:
    config = yaml.safe_load(node.build_kubeconfig())
    config["users"][0]["user"] = {"tokenFile": "token"}
    kubeconfig, token = tmp_path / "kubeconfig", tmp_path / "token"
    kubeconfig.write_text(yaml.safe_dump(config))
    token.write_text("first-token")
    contexts = Contexts(kubeconfig, call_seconds=5)
    path = "/api/v1/namespaces/dev/pods"
    try:
        for value in ("first-token", "first-token", "renewed"):
            if token.read_text() != value:
                token.write_text(value)
            await contexts.open("").list(path)
    finally:
        await contexts.close()
    requests = [each for each in node.cluster.requests if each.path == path]
    assert {each.header("user-agent") for each in requests} == {f"fairlead/{__version__} (runner)"}
    assert [each.header("authorization") for each in requests] == [
        "Bearer first-token",
        "Bearer first-token",
        "Bearer renewed",
    ]
