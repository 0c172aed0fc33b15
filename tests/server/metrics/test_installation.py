"""server/metrics/installation.py: the leader election, the certificate and the disk."""

import shutil
from pathlib import Path

import pytest
from cryptography import x509

from fairlead.core.crypto.certificates import ensure_certificates, read_certificate_files
from fairlead.server.metrics.exposition import TEXT, render_families
from fairlead.server.metrics.installation import InstallationMetrics, ServedCertificate


def build_metrics(*, is_leader: bool, certificate: ServedCertificate, data: Path = Path("/")) -> str:
    metrics = InstallationMetrics(lambda: is_leader, "fairlead-controllers", certificate, data)
    return render_families(metrics.families(), TEXT).decode()


@pytest.mark.parametrize("is_leader", [True, False])
def test_a_replica_says_whether_it_is_the_leader(is_leader: bool) -> None:
    page = build_metrics(is_leader=is_leader, certificate=ServedCertificate())
    assert f'leader_election_master_status{{name="fairlead-controllers"}} {float(is_leader)}\n' in page


def test_the_certificate_has_its_time_of_expiry_once_it_is_served(tmp_path: Path) -> None:
    certificate = ServedCertificate()
    name = "fairlead_certificate_expiration_timestamp_seconds"
    assert name not in build_metrics(is_leader=True, certificate=certificate)
    made = ensure_certificates(tmp_path / "tls", ("localhost",))
    certificate.record(read_certificate_files(made.cert_file, made.key_file))
    expires = x509.load_pem_x509_certificate(made.cert_file.read_bytes()).not_valid_after_utc
    line = next(
        each for each in build_metrics(is_leader=True, certificate=certificate).splitlines() if each.startswith(name)
    )
    assert float(line.split()[1]) == expires.timestamp()


def test_the_free_space_of_the_data_folder_is_exported(tmp_path: Path) -> None:
    page = build_metrics(is_leader=True, certificate=ServedCertificate(), data=tmp_path)
    values = dict(line.split() for line in page.splitlines() if line.startswith("fairlead_data_"))
    size = float(values["fairlead_data_size_bytes"])
    assert 0 < float(values["fairlead_data_free_bytes"]) < size == shutil.disk_usage(tmp_path).total


def test_a_data_folder_that_cannot_be_read_does_not_fail_the_scrape(tmp_path: Path) -> None:
    page = build_metrics(is_leader=True, certificate=ServedCertificate(), data=tmp_path / "absent")
    assert "fairlead_data_" not in page and "leader_election_master_status" in page
