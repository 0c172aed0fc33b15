"""`fairlead agent`, as a process: what ends it at the start."""

import json
from pathlib import Path

from tests.cli.conftest import Fairlead

KUBECONFIG = {
    "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:6443"}}],
    "users": [{"name": "u", "user": {"token": "t"}}],
    "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    "current-context": "c",
}


def test_an_agent_that_can_never_join_ends_with_an_error(fairlead: Fairlead, tmp_path: Path) -> None:
    (tmp_path / "kubeconfig").write_text(json.dumps(KUBECONFIG))
    process = fairlead(
        *("agent", "--server", "https://127.0.0.1:9", "--token-file", str(tmp_path / "nosuch")),
        *("--kubeconfig", str(tmp_path / "kubeconfig"), "--state", str(tmp_path / "state")),
    )
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1, errors
    assert f"fairlead: {tmp_path / 'nosuch'}: no such file, and the agent has not joined before" in errors
