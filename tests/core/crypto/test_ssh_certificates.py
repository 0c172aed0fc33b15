"""SSH user certificates, checked by a real ssh-keygen."""

import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fairlead.core.crypto.ssh_certificates import (
    CertificateFields,
    InvalidSshKey,
    encode_public_key,
    find_public_key,
    generate_private_key,
    parse_public_key,
    sign_user_certificate,
)

FIELDS = CertificateFields("uid-1", "ada", 7, datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, 0, 5, tzinfo=UTC))


@pytest.mark.parametrize("type", ["ed25519", "ecdsa", "rsa"])
def test_a_certificate_is_as_openssh_reads_it(tmp_path: Path, type: str) -> None:
    key, authority = tmp_path / "key", generate_private_key()
    subprocess.run(["ssh-keygen", "-q", "-t", type, "-N", "", "-f", key], check=True)
    public = parse_public_key((tmp_path / "key.pub").read_text())
    (tmp_path / "cert").write_text(sign_user_certificate(authority, public, FIELDS))
    shown = subprocess.check_output(["ssh-keygen", "-L", "-f", tmp_path / "cert"], text=True, env={"TZ": "UTC"})
    lines = [line.strip() for line in shown.splitlines()]
    assert 'Key ID: "ada"' in lines
    assert "Serial: 7" in lines
    assert "Valid: from 2026-01-01T00:00:00 to 2026-01-01T00:05:00" in lines
    start = lines.index("Principals:")
    assert lines[start + 1 :] == [
        "uid-1",
        "Critical Options: (none)",
        "Extensions:",
        "permit-agent-forwarding",
        "permit-port-forwarding",
        "permit-pty",
    ]


def test_a_private_key_has_the_public_key_that_openssh_finds(tmp_path: Path) -> None:
    private = generate_private_key()
    path = tmp_path / "key"
    path.write_text(private)
    path.chmod(0o600)
    assert subprocess.check_output(["ssh-keygen", "-y", "-f", path], text=True).strip() == find_public_key(private)
    assert encode_public_key(parse_public_key(find_public_key(private) + " a comment")) == find_public_key(private)


@pytest.mark.parametrize("text", ["", "ssh-ed25519", "ssh-ed25519 AAAA", "ssh-ed25519 é", "ssh-rsa " + "A" * 5000])
def test_what_is_not_a_public_key_is_rejected(text: str) -> None:
    with pytest.raises(InvalidSshKey):
        parse_public_key(text)


def test_a_short_rsa_key_and_a_private_key_that_is_none_are_rejected(tmp_path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "rsa", "-b", "1024", "-N", "", "-f", tmp_path / "key"], check=True)
    with pytest.raises(InvalidSshKey):
        parse_public_key((tmp_path / "key.pub").read_text())
    with pytest.raises(InvalidSshKey):
        find_public_key("x")
