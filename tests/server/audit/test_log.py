"""The files of all logs together: which go first, and that nobody notices too late."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import structlog

from fairlead.server.audit.log import DiskBudget
from fairlead.server.audit.log_file import LogRetention

NOW = datetime(2026, 1, 31, tzinfo=UTC)
KILOBYTE = b"x" * 1_000


def shelf_in(folder: Path, budget: int, days_min: int = 7, count: int = 0) -> DiskBudget:
    names = {"unauthenticated": "audit.unauthenticated.log", "authenticated": "audit.log"}
    logs = {
        log: LogRetention(folder / name, count, 0, compress=False, min_days=days_min) for log, name in names.items()
    }
    return DiskBudget(logs, budget)


def add_files(shelf: DiskBudget, log: str, *ages: int) -> list[Path]:
    """Old files of so many days, a kilobyte each."""
    paths = [shelf.logs[log].rotated_path(NOW - timedelta(days=age)) for age in ages]
    for path in paths:
        path.write_bytes(KILOBYTE)
    return paths


def test_nothing_goes_while_there_is_room(tmp_path: Path) -> None:
    shelf = shelf_in(tmp_path, 5_000)
    kept = [*add_files(shelf, "unauthenticated", 1, 30), *add_files(shelf, "authenticated", 1, 30)]
    shelf.clean_up(NOW)
    assert all(path.exists() for path in kept) and shelf.is_retention_met(NOW)


def test_files_of_strangers_go_before_those_of_people_and_the_oldest_first(tmp_path: Path) -> None:
    shelf = shelf_in(tmp_path, 3_000)
    young, old = add_files(shelf, "unauthenticated", 8, 9)
    people = add_files(shelf, "authenticated", 20, 30)
    shelf.clean_up(NOW)
    assert not old.exists() and young.exists() and all(path.exists() for path in people)
    shelf.max_bytes = 2_000
    shelf.clean_up(NOW)
    assert not young.exists() and all(path.exists() for path in people)


def test_the_files_that_are_being_written_count(tmp_path: Path) -> None:
    shelf = shelf_in(tmp_path, 2_000)
    (tmp_path / "audit.log").write_bytes(KILOBYTE * 2)
    (old,) = add_files(shelf, "authenticated", 30)
    shelf.clean_up(NOW)
    assert not old.exists()


def test_records_that_go_before_their_time_raise_an_alarm(tmp_path: Path) -> None:
    shelf = shelf_in(tmp_path, 1_000)
    add_files(shelf, "authenticated", 1, 2, 30)
    with structlog.testing.capture_logs() as lines:
        shelf.clean_up(NOW)
    assert shelf.early_removals == {"unauthenticated": 0, "authenticated": 1}
    (line,) = lines
    assert line["log_level"] == "error" and line["log"] == "authenticated" and "raise audit_disk" in line["event"]
    assert not shelf.is_retention_met(NOW) and shelf.is_retention_met(NOW + timedelta(days=7))


def test_files_older_than_the_least_age_go_without_an_alarm(tmp_path: Path) -> None:
    shelf = shelf_in(tmp_path, 1_000)
    add_files(shelf, "authenticated", 8, 9, 10)
    with structlog.testing.capture_logs() as lines:
        shelf.clean_up(NOW)
    assert lines == [] and shelf.is_retention_met(NOW) and len(list(tmp_path.iterdir())) == 1


def test_a_flood_of_files_does_not_push_out_what_is_younger_than_the_least_age(tmp_path: Path) -> None:
    shelf = shelf_in(tmp_path, 0, count=2)
    young = add_files(shelf, "authenticated", *range(7))
    add_files(shelf, "authenticated", 8, 9, 10)
    shelf.clean_up(NOW)
    assert sorted(tmp_path.iterdir()) == sorted(young)


def test_files_that_cannot_be_removed_are_told_of(tmp_path: Path) -> None:
    shelf = shelf_in(tmp_path, 1)
    shelf.logs["authenticated"].rotated_path(NOW).mkdir()
    with structlog.testing.capture_logs() as lines:
        shelf.clean_up(NOW)
    assert [line["event"] for line in lines] == ["could not remove old audit logs to free disk space"]
