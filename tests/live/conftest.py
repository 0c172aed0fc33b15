"""Runs suites whose guarantees must hold across worker processes on two workers; `make test-long` also on one."""

from collections.abc import Iterator

import pytest

from tests.harness import server_process

SUITES = (
    "test_audit",
    "test_audit_events",
    "test_canaries",
    "test_crash",
    "test_direct_tokens",
    "test_dynamic_config",
    "test_full_disk",
    "test_last_used",
    "test_quota_race",
    "test_revocation",
    "test_secrets",
    "test_shutdown",
    "test_slow_watchers",
    "test_storage_quota",
    "test_watch",
    "test_workload_identity",
)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if metafunc.module.__name__.rpartition(".")[2] in SUITES:
        counts = (pytest.param(1, marks=pytest.mark.long), 2)
        metafunc.parametrize("workers", counts, ids=("1-worker", "2-workers"), indirect=True, scope="module")


@pytest.fixture(scope="module", autouse=True)
def workers(request: pytest.FixtureRequest) -> Iterator[None]:
    """Sets the number of workers of the servers that the tests of a module start."""
    before = server_process.default_settings
    if hasattr(request, "param"):
        server_process.default_settings = {"workers": request.param}
    yield
    server_process.default_settings = before
