"""The conformance cases on the stores that replicas share: whatever keeps the objects, clients see the same.

Not among the tests that `make test` finds, because it takes as long as all of the conformance suite for each store;
`make test-faults` names it.
"""

from pathlib import Path

import pytest

from tests.conformance.kit import areas, log_of, replay, serving
from tests.harness import etcd_server, postgres_server

pytestmark = pytest.mark.timeout(600)


def _postgres(folder: Path) -> str:
    postgres_server.require_postgres()
    return postgres_server.address_for(folder)


def _etcd(folder: Path) -> str:
    return f"etcd:{etcd_server.shared_cluster().url('conformance')}"


@pytest.mark.parametrize("address", [_postgres, _etcd], ids=["postgres", "etcd"])
def test_the_answers_are_the_same_on_every_store(address: object, tmp_path: Path) -> None:
    assert callable(address)
    with serving(tmp_path, address(tmp_path)) as server:
        outcomes = replay(server, list(areas()))
    assert len(outcomes) == len(areas())
    assert {name: outcome.text for name, outcome in outcomes.items() if outcome.hard} == {}
    assert server.process.returncode == 0
    assert "Traceback" not in log_of(tmp_path).read_text(encoding="utf-8")
