"""settings/sources.py: secrets that systemd hands over as files."""

from pathlib import Path

import pytest

from fairlead.settings import StartError, load_credentials


def test_a_credential_has_the_value_of_its_variable(tmp_path: Path) -> None:
    (tmp_path / "fairlead.pepper").write_text("c2VjcmV0\n")
    (tmp_path / "fairlead.store").write_text("postgres://fairlead:secret@db/fairlead")
    (tmp_path / "tls.key").write_text("for the setting tls_key")
    assert load_credentials({"CREDENTIALS_DIRECTORY": str(tmp_path)}) == {
        "FAIRLEAD_PEPPER": "c2VjcmV0",
        "FAIRLEAD_STORE": "postgres://fairlead:secret@db/fairlead",
    }


def test_without_credentials_nothing_is_read(tmp_path: Path) -> None:
    assert load_credentials({}) == load_credentials({"CREDENTIALS_DIRECTORY": str(tmp_path / "none")}) == {}


def test_a_misspelt_credential_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "fairlead.peper").write_text("x")
    with pytest.raises(StartError, match=r"unknown credential fairlead\.peper"):
        load_credentials({"CREDENTIALS_DIRECTORY": str(tmp_path)})


def test_a_value_that_is_given_twice_is_an_error_that_does_not_quote_it(tmp_path: Path) -> None:
    (tmp_path / "fairlead.pepper").write_text("one-secret")
    with pytest.raises(StartError, match=r"FAIRLEAD_PEPPER is set, and there is a credential") as caught:
        load_credentials({"CREDENTIALS_DIRECTORY": str(tmp_path), "FAIRLEAD_PEPPER": "other-secret"})
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(("content", "problem"), [(b"\xff\xfe", "is not text"), (b"x" * (1 << 20) + b"x", "larger")])
def test_a_credential_that_cannot_be_a_secret_is_an_error(tmp_path: Path, content: bytes, problem: str) -> None:
    (tmp_path / "fairlead.store").write_bytes(content)
    with pytest.raises(StartError, match=problem):
        load_credentials({"CREDENTIALS_DIRECTORY": str(tmp_path)})
