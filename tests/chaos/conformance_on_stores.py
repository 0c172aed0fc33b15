"""The conformance cases on the stores that replicas share: clients get the same responses from every store.

CI does not collect it, because it takes as long as the whole conformance suite for each store;
`make test-faults` names it.
"""

from pathlib import Path

import pytest

from tests.conformance.kit import get_log_path, read_case_areas, replay, run_server
from tests.harness import etcd_server, postgres_server

pytestmark = pytest.mark.timeout(600)


def _create_postgres_address(folder: Path) -> str:
    postgres_server.require_postgres()
    return postgres_server.address_for(folder)


def _create_etcd_address(folder: Path) -> str:
    return f"etcd:{etcd_server.shared_cluster().url('conformance')}"


@pytest.mark.parametrize("address", [_create_postgres_address, _create_etcd_address], ids=["postgres", "etcd"])
def test_the_responses_are_the_same_on_every_store(address: object, tmp_path: Path) -> None:
    assert callable(address)
    with run_server(tmp_path, address(tmp_path)) as server:
        outcomes = replay(server, list(read_case_areas()))
    assert len(outcomes) == len(read_case_areas())
    assert {name: outcome.text for name, outcome in outcomes.items() if outcome.is_hard} == {}
    assert server.process.returncode == 0
    assert "Traceback" not in get_log_path(tmp_path).read_text(encoding="utf-8")
