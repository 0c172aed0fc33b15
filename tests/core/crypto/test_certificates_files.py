"""Tests of `core/crypto/certificates.py`: files with certificates and keys, also damaged ones, and copies in memory."""

import base64
import os
from pathlib import Path

import pytest

from fairlead.core.crypto.certificates import copy_to_memory, read_certificate_files
from fairlead.core.files import FileProblem
from fairlead.server.http.tls_context import read_authorities
from tests.harness.certificates import create_authority

EC_KEY, UNKNOWN_KEY = bytes.fromhex("2a8648ce3d0201"), bytes.fromhex("2a8648ce3d027f")
"""Object identifiers: the type of a key, and one that does not exist."""


def change_key_type(file: Path) -> None:
    """Has a PEM file contain a key of an unknown type."""
    first, *lines, last = file.read_text().splitlines()
    content = base64.b64decode("".join(lines))
    assert content.count(EC_KEY) == 1
    text = base64.encodebytes(content.replace(EC_KEY, UNKNOWN_KEY)).decode()
    file.write_text(f"{first}\n{text}{last}\n")


@pytest.mark.parametrize("changed", ["crt", "key"])
def test_a_key_of_an_unknown_type_is_a_clear_problem(tmp_path: Path, changed: str) -> None:
    files = create_authority(tmp_path).issue("server")
    change_key_type(tmp_path / f"server.{changed}")
    with pytest.raises(FileProblem, match=r"server\.key: the HTTP server does not support keys of this type; use RSA"):
        read_certificate_files(*files)


def test_a_ca_with_a_key_of_an_unknown_type_is_a_clear_problem(tmp_path: Path) -> None:
    authority = create_authority(tmp_path)
    change_key_type(authority.file)
    with pytest.raises(FileProblem, match=r"ca\.crt: the key of a CA is not of a type that this server supports"):
        read_authorities(authority.file)


@pytest.mark.parametrize("changed", ["crt", "key"])
def test_a_file_that_is_not_pem_is_a_clear_problem(tmp_path: Path, changed: str) -> None:
    files = create_authority(tmp_path).issue("server")
    (tmp_path / f"server.{changed}").write_text("no")
    with pytest.raises(FileProblem, match="not PEM, or the key has a passphrase"):
        read_certificate_files(*files)


def test_copies_in_memory_are_complete_and_gone_once_closed(tmp_path: Path) -> None:
    files = read_certificate_files(*create_authority(tmp_path).issue("server"))
    before = set(os.listdir("/proc/self/fd"))
    with copy_to_memory(files) as copies:
        assert tuple(Path(path).read_bytes() for path in copies.paths) == (files.cert, files.key)
    assert set(os.listdir("/proc/self/fd")) == before
