"""fairlead.cli.workspaces.sources: the argument SOURCE as the annotation that runners read."""

from pathlib import Path

import pytest

from fairlead.cli.ui.session import UsageError
from fairlead.cli.workspaces.sources import Revision, describe_source, encode_source
from fairlead.runner.desired import parse_source
from fairlead.runner.engines.contract import FolderSource, GitSource, ImageSource


@pytest.mark.parametrize(
    ("text", "revision", "expected"),
    [
        ("https://example.com/shop.git", Revision(), GitSource("https://example.com/shop.git")),
        ("example.com/team/shop", Revision(), GitSource("https://example.com/team/shop")),
        ("git@example.com:team/shop.git", Revision(), GitSource("git@example.com:team/shop.git")),
        ("ssh://git@example.com/shop.git", Revision("main"), GitSource("ssh://git@example.com/shop.git", "main")),
        ("git:file:///srv/shop", Revision(), GitSource("file:///srv/shop")),
        (
            "https://example.com/shop.git",
            Revision(commit="0123abc", subfolder="/web/"),
            GitSource("https://example.com/shop.git", "", "0123abc", "web"),
        ),
        (
            "https://example.com:8443/shop.git",
            Revision("feature/x", subfolder="web"),
            GitSource("https://example.com:8443/shop.git", "feature/x", "", "web"),
        ),
        ("image:debian:12", Revision(), ImageSource("debian:12")),
        ("local:/srv/shop", Revision(), FolderSource("/srv/shop")),
    ],
)
def test_the_runner_reads_what_was_meant(text: str, revision: Revision, expected: object) -> None:
    assert parse_source(encode_source(text, revision)) == expected


def test_a_path_is_a_repository_if_it_has_one_and_else_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shop" / ".git").mkdir(parents=True)
    (tmp_path / "plain").mkdir()
    monkeypatch.chdir(tmp_path / "shop")
    monkeypatch.setenv("HOME", str(tmp_path))
    repository = f"git:file://{tmp_path}/shop"
    assert [encode_source(each, Revision()) for each in (".", "../shop", "~/shop")] == [repository] * 3
    assert encode_source(str(tmp_path / "plain"), Revision()) == f"local:{tmp_path}/plain"
    with pytest.raises(UsageError, match="--branch is for git repositories"):
        encode_source(str(tmp_path / "plain"), Revision("main"))


@pytest.mark.parametrize(
    ("text", "revision", "message"),
    [
        ("shop", Revision(), "'shop' is not a source; use a URL"),
        ("./none", Revision(), "no such folder on this machine; for a folder that only the machine of the runner has"),
        ("image:", Revision(), "names nothing"),
        ("image:debian", Revision("main"), "--branch is for git repositories"),
        ("https://example.com/shop", Revision("main", "0123abc"), "choose one"),
        ("https://example.com/shop", Revision(commit="v1"), "use its hexadecimal name"),
        ("https://example.com/a@b", Revision(), "the URL contains '@'"),
        ("https://example.com/shop", Revision("a@b"), "--branch contains '@'"),
    ],
)
def test_a_source_that_makes_no_sense_is_a_usage_error(text: str, revision: Revision, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        encode_source(text, revision)


def test_a_password_is_neither_stored_nor_printed() -> None:
    with pytest.raises(UsageError) as caught:
        encode_source("https://ada:canary@example.com/shop.git", Revision())
    assert "contains a password" in str(caught.value) and "canary" not in str(caught.value)


def test_sources_are_described_in_words() -> None:
    described = [describe_source(each) for each in ("git:https://a/b@main", "local:/srv", "image:debian:12", "")]
    assert described == ["https://a/b@main", "copy of the folder /srv", "image debian:12", ""]
