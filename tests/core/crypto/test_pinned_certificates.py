"""The certificate of a runner that listens: created once, and reported if it is damaged."""

from pathlib import Path

import pytest

from fairlead.core.crypto.pinned_certificates import load_pinned_certificate
from fairlead.core.files import FileProblem


def test_the_certificate_stays_the_same_and_only_its_user_may_read_its_key(tmp_path: Path) -> None:
    first = load_pinned_certificate(tmp_path / "tls")
    assert load_pinned_certificate(tmp_path / "tls").fingerprint == first.fingerprint
    assert len(first.fingerprint) == 64
    assert (tmp_path / "tls" / "link.pem").stat().st_mode & 0o777 == 0o600
    assert load_pinned_certificate(tmp_path / "other").fingerprint != first.fingerprint


def test_a_damaged_certificate_is_not_replaced_silently(tmp_path: Path) -> None:
    load_pinned_certificate(tmp_path)
    (tmp_path / "link.pem").write_text("damaged")
    with pytest.raises(FileProblem, match="remove it to create a new one, and set its fingerprint"):
        load_pinned_certificate(tmp_path)
