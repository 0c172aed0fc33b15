"""Sources that are refused before anything is fetched."""

import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from fairlead.runner.engines.contract import (
    GIT_TOKEN,
    EngineError,
    FolderSource,
    GitSource,
    Reason,
    Source,
    WorkspaceSpec,
)
from fairlead.runner.engines.devcontainer.settings import Settings
from fairlead.runner.engines.devcontainer.sources import (
    SCRIPT,
    dotfiles_options,
    find_protocol,
    plan_fetch,
)
from fairlead.runner.engines.kubernetes.scripts import CLONE


def settings(tmp_path: Path) -> Settings:
    (tmp_path / "allowed" / "repository").mkdir(parents=True)
    return Settings(state_folder=tmp_path / "state", runner="r", allowed_folders=(tmp_path / "allowed",))


@pytest.mark.parametrize(
    ("url", "protocol"),
    [
        ("https://example.com/x.git", "https"),
        ("HTTPS://example.com/x.git", "https"),
        ("git@example.com:x/y.git", "ssh"),
        ("ext::sh -c id", "ext"),
        ("ext::https://example.com", "ext"),
        ("fd::17", "fd"),
        ("/srv/x.git", "file"),
        ("../x", "file"),
    ],
)
def test_the_protocol_is_the_one_that_git_would_use(url: str, protocol: str) -> None:
    assert find_protocol(url) == protocol


@pytest.mark.parametrize(
    "source",
    [
        GitSource("ext::sh -c 'touch /tmp/x'"),
        GitSource("fd::3"),
        GitSource("http://169.254.169.254/latest"),
        GitSource("git://example.com/x"),
        GitSource("file:///etc"),
        GitSource("/etc"),
        GitSource("../../etc"),
        GitSource("--upload-pack=touch /tmp/x"),
        GitSource("https://ada:secret@example.com/x.git"),
        GitSource("https://example.com/x", branch="--upload-pack=x"),
        GitSource("https://example.com/x", commit="--help"),
        GitSource("https://example.com/x", subfolder="../../etc"),
        GitSource("https://example.com/x\nhttps://example.com/y"),
        FolderSource("/etc"),
        FolderSource("allowed"),
    ],
    ids=str,
)
def test_a_source_that_the_runner_does_not_allow_is_refused(tmp_path: Path, source: Source) -> None:
    with pytest.raises(EngineError) as raised:
        plan_fetch(source, settings(tmp_path), {})
    assert raised.value.reason == Reason.SOURCE_REFUSED
    assert "secret@" not in raised.value.message


def test_dotfiles_of_the_owner_take_the_place_of_those_of_the_template(tmp_path: Path) -> None:
    spec = WorkspaceSpec("u", "p", "w", "ada", FolderSource("/x"), options={"dotfiles": "https://example.com/t.git"})
    own = replace(spec, dotfiles="https://example.com/own.git")
    found = settings(tmp_path)
    assert dotfiles_options(spec, found)[-1] == "https://example.com/t.git"
    assert dotfiles_options(own, found)[-1] == "https://example.com/own.git"


@pytest.mark.parametrize("url", ["ext::sh -c id", "file:///etc", "https://example.com/$(id)", "--upload-pack=x"])
def test_dotfiles_come_from_a_repository_elsewhere(tmp_path: Path, url: str) -> None:
    spec = WorkspaceSpec("u", "p", "w", "ada", FolderSource("/x"), options={"dotfiles": url})
    with pytest.raises(EngineError):
        dotfiles_options(spec, settings(tmp_path))


def test_a_link_out_of_an_allowed_folder_is_refused(tmp_path: Path) -> None:
    allowed = settings(tmp_path)
    (tmp_path / "allowed" / "link").symlink_to("/etc")
    with pytest.raises(EngineError):
        plan_fetch(FolderSource(str(tmp_path / "allowed" / "link")), allowed, {})


def test_only_the_protocol_of_the_source_is_allowed_to_git(tmp_path: Path) -> None:
    fetch = plan_fetch(GitSource("https://example.com/x"), settings(tmp_path), {GIT_TOKEN: "canary"})
    assert fetch.variables["GIT_ALLOW_PROTOCOL"] == "https"
    assert "canary" not in repr(fetch)


def test_a_repository_on_disk_is_found_where_the_script_sees_it(tmp_path: Path) -> None:
    fetch = plan_fetch(GitSource(f"file://{tmp_path}/allowed/repository"), settings(tmp_path), {})
    assert fetch.folder == f"{tmp_path}/allowed/repository"
    assert (fetch.variables["GIT_ALLOW_PROTOCOL"], fetch.variables["URL"]) == ("file", "file:///source")
    assert fetch.variables["ORIGIN"] == f"file://{tmp_path}/allowed/repository"


def test_a_folder_that_is_a_link_is_given_as_the_one_that_was_checked(tmp_path: Path) -> None:
    allowed = settings(tmp_path)
    (tmp_path / "link").symlink_to(tmp_path / "allowed" / "repository")
    fetch = plan_fetch(FolderSource(str(tmp_path / "link")), allowed, {})
    assert (fetch.folder, fetch.variables) == (f"{tmp_path}/allowed/repository", {"KIND": "folder"})


def test_the_variables_of_the_script_reach_it_unchanged_and_run_nothing(tmp_path: Path) -> None:
    token = "a'b\"c$(touch x)`touch y`\n$HOME \\"
    fetch = plan_fetch(GitSource("https://example.com/x"), settings(tmp_path), {GIT_TOKEN: token})
    script = 'eval "$(cat)"; printf %s "$TOKEN"'
    command = ["/bin/sh", "-c", script]
    found = subprocess.run(command, input=fetch.script_input, stdout=subprocess.PIPE, cwd=tmp_path, check=True)
    assert found.stdout.decode() == token
    assert sorted(path.name for path in tmp_path.iterdir()) == ["allowed"]


@pytest.mark.parametrize("script", [SCRIPT, CLONE], ids=["devcontainer", "kubernetes"])
def test_no_redirect_takes_the_token_to_another_host(script: str) -> None:
    assert "set -- -c http.followRedirects=false -c credential.helper=" in script
    remote = [line for line in script.splitlines() if re.search(r"\bgit\b.*\b(clone|fetch) --quiet", line)]
    assert len(remote) == 2 and all(re.search(r'git "\$@" (clone|fetch) --quiet', line) for line in remote)
