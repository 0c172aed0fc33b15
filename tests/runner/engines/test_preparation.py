"""What a workspace gets before anything runs: number, ids, limits, folders."""

import os
from pathlib import Path

import pytest

from fairlead.runner.engines.contract import (
    EngineError,
    FolderSource,
    GitSource,
    ImageSource,
    Limits,
    Reason,
    Source,
    WorkspaceSpec,
)
from fairlead.runner.engines.devcontainer.grant import IDS_PER_WORKSPACE
from fairlead.runner.engines.devcontainer.layout import WorkspaceFolder, open_folder
from fairlead.runner.engines.devcontainer.preparation import (
    bound_limits,
    build_grant,
    check_free_disk,
    decode_spec,
    describe_repository,
    encode_spec,
    prepare_folders,
    project_name,
)
from fairlead.runner.engines.devcontainer.settings import Settings
from tests.runner.harness.grants import make_grant

URL = "https://example.com/x.git"


def make_settings(tmp_path: Path, **changes: object) -> Settings:
    return Settings(state_folder=tmp_path / "state", runner="r", ranges_folder=tmp_path / "ranges", **changes)  # type: ignore[arg-type]


def make_spec(source: Source | None = None, namespace: str = "project", **changes: object) -> WorkspaceSpec:
    return WorkspaceSpec("u", namespace, "demo", "ada", source or GitSource(URL), **changes)  # type: ignore[arg-type]


def grant_permissions(tmp_path: Path, *permissions: str) -> tuple[str, ...]:
    settings = make_settings(tmp_path)
    spec = make_spec(permissions=frozenset(permissions))
    return build_grant(settings, spec, open_folder(settings.state_folder, "u"), "task-1").permissions


def test_no_two_workspaces_have_ids_in_common(tmp_path: Path) -> None:
    settings = make_settings(tmp_path)
    grants = [build_grant(settings, make_spec(), open_folder(settings.state_folder, name), "t") for name in "ab"]
    assert [grant.first_uid for grant in grants] == [settings.first_uid, settings.first_uid + IDS_PER_WORKSPACE]


def test_a_permission_that_the_engine_does_not_know_is_named(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="allows magic, which this engine does not know; known are buildOptions"):
        grant_permissions(tmp_path, "magic", "mounts")


def test_a_permission_of_earlier_versions_has_no_meaning_any_more_and_is_no_error(tmp_path: Path) -> None:
    assert grant_permissions(tmp_path, "buildMounts", "mounts") == ("mounts",)


def test_limits_are_those_of_the_template_within_those_of_the_operator(tmp_path: Path) -> None:
    default, most = Limits(4 << 30, 2.0, 4096), Limits(memory_bytes=8 << 30, cpus=1.0)
    settings = make_settings(tmp_path, default_limits=default, max_limits=most)
    assert bound_limits(Limits(), settings) == Limits(4 << 30, 1.0, 4096)
    assert bound_limits(Limits(16 << 30, 0.5, 100_000), settings) == Limits(8 << 30, 0.5, 100_000)


@pytest.mark.parametrize(
    ("name", "project"),
    [("demo", "demo"), ("a.b c/d", "a-b-c-d"), ("../../etc", "etc"), ("...", "workspace"), ("", "workspace")],
)
def test_the_name_of_the_work_folder_is_harmless_in_a_path(name: str, project: str) -> None:
    assert project_name(name) == project


def test_images_are_shared_by_workspaces_of_one_repository_in_one_project() -> None:
    own = describe_repository(make_spec())
    assert own == describe_repository(make_spec(GitSource(URL, branch="other")))
    others = [
        make_spec(namespace="other"),
        make_spec(GitSource(f"{URL}x")),
        make_spec(GitSource(f"t\n{URL}"), "projec"),
    ]
    assert own not in [describe_repository(other) for other in others]
    assert {describe_repository(make_spec(source)) for source in (FolderSource("/x"), ImageSource("debian"))} == {""}


def test_a_disk_that_is_nearly_full_is_no_place_for_another_workspace(tmp_path: Path) -> None:
    settings = make_settings(tmp_path, min_free_bytes=1 << 62)
    settings.state_folder.mkdir()
    with pytest.raises(EngineError, match="delete workspaces or images there") as raised:
        check_free_disk(settings)
    assert raised.value.reason == Reason.DISK_FULL
    check_free_disk(make_settings(tmp_path, min_free_bytes=1))


async def test_folders_belong_to_the_workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owners: dict[str, int] = {}
    monkeypatch.setattr(os, "chown", lambda path, uid, gid, follow_symlinks: owners.update({path.name: uid}))
    folder, grant = WorkspaceFolder(tmp_path), make_grant()
    prepare_folders(folder, grant)
    assert sorted(os.listdir(tmp_path)) == ["images", "images-var", "private", "var", "work", "ws"]
    assert owners == dict.fromkeys(("demo", "ws", "var", "private", "images", "images-var"), grant.first_uid)
    assert not folder.private.stat().st_mode & 0o077 and not folder.store.stat().st_mode & 0o077


async def test_what_belongs_to_the_workspace_already_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, grant = WorkspaceFolder(tmp_path), make_grant()
    changed: list[Path] = []
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    monkeypatch.setattr(os, "chown", lambda path, uid, gid, follow_symlinks: changed.append(path))
    prepare_folders(folder, grant)
    assert changed == []


@pytest.mark.parametrize("source", [GitSource(URL, branch="b", subfolder="s"), FolderSource("/x"), ImageSource("i")])
def test_a_specification_is_stored_without_its_secrets(source: Source) -> None:
    limits, secrets = Limits(cpus=1.5), {"TOKEN": "canary"}
    spec = make_spec(source, permissions=frozenset({"gpu"}), limits=limits, secrets=secrets, recreate=True)
    fields = encode_spec(spec)
    assert "canary" not in str(fields)
    assert decode_spec(fields) == make_spec(source, permissions=frozenset({"gpu"}), limits=limits)
