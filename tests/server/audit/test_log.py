"""server.audit.log: the disk budget of all audit logs, and the order in which files are removed."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import structlog

from fairlead.server.audit.log import DiskBudget
from fairlead.server.audit.log_file import LogRetention

NOW = datetime(2026, 1, 31, tzinfo=UTC)
KILOBYTE = b"x" * 1_000


def build_budget(folder: Path, max_bytes: int, min_days: int = 7, count: int = 0) -> DiskBudget:
    names = {"unauthenticated": "audit.unauthenticated.log", "authenticated": "audit.log"}
    logs = {
        log: LogRetention(folder / name, count, 0, compress=False, min_days=min_days) for log, name in names.items()
    }
    return DiskBudget(logs, max_bytes)


def add_files(budget: DiskBudget, log: str, *ages: int) -> list[Path]:
    """Creates rotated files of these ages in days, a kilobyte each."""
    paths = [budget.logs[log].rotated_path(NOW - timedelta(days=age)) for age in ages]
    for path in paths:
        path.write_bytes(KILOBYTE)
    return paths


def test_nothing_is_removed_within_the_budget(tmp_path: Path) -> None:
    budget = build_budget(tmp_path, 5_000)
    paths = [*add_files(budget, "unauthenticated", 1, 30), *add_files(budget, "authenticated", 1, 30)]
    budget.clean_up(NOW)
    assert all(path.exists() for path in paths) and budget.is_retention_met(NOW)


def test_unauthenticated_logs_are_removed_before_authenticated_ones_oldest_first(tmp_path: Path) -> None:
    budget = build_budget(tmp_path, 3_000)
    newer, older = add_files(budget, "unauthenticated", 8, 9)
    authenticated = add_files(budget, "authenticated", 20, 30)
    budget.clean_up(NOW)
    assert not older.exists() and newer.exists() and all(path.exists() for path in authenticated)
    budget.max_bytes = 2_000
    budget.clean_up(NOW)
    assert not newer.exists() and all(path.exists() for path in authenticated)


def test_open_log_files_count_toward_the_budget(tmp_path: Path) -> None:
    budget = build_budget(tmp_path, 2_000)
    (tmp_path / "audit.log").write_bytes(KILOBYTE * 2)
    (older,) = add_files(budget, "authenticated", 30)
    budget.clean_up(NOW)
    assert not older.exists()


def test_removing_files_before_the_minimum_retention_logs_an_error(tmp_path: Path) -> None:
    budget = build_budget(tmp_path, 1_000)
    add_files(budget, "authenticated", 1, 2, 30)
    with structlog.testing.capture_logs() as lines:
        budget.clean_up(NOW)
    assert budget.early_removals == {"unauthenticated": 0, "authenticated": 1}
    (line,) = lines
    assert line["log_level"] == "error" and line["log"] == "authenticated" and "raise audit_disk" in line["event"]
    assert not budget.is_retention_met(NOW) and budget.is_retention_met(NOW + timedelta(days=7))


def test_removing_files_after_the_minimum_retention_logs_nothing(tmp_path: Path) -> None:
    budget = build_budget(tmp_path, 1_000)
    add_files(budget, "authenticated", 8, 9, 10)
    with structlog.testing.capture_logs() as lines:
        budget.clean_up(NOW)
    assert lines == [] and budget.is_retention_met(NOW) and len(list(tmp_path.glob("audit*"))) == 1


def test_the_file_count_limit_does_not_remove_files_within_the_minimum_retention(tmp_path: Path) -> None:
    budget = build_budget(tmp_path, 0, count=2)
    newer = add_files(budget, "authenticated", *range(7))
    add_files(budget, "authenticated", 8, 9, 10)
    budget.clean_up(NOW)
    assert sorted(tmp_path.glob("audit*")) == sorted(newer)


def test_files_that_cannot_be_removed_are_logged(tmp_path: Path) -> None:
    budget = build_budget(tmp_path, 1)
    budget.logs["authenticated"].rotated_path(NOW).mkdir()
    with structlog.testing.capture_logs() as lines:
        budget.clean_up(NOW)
    assert [line["event"] for line in lines] == ["could not remove old audit logs to free disk space"]
