"""Metric families about the installation around the server: the leader election, certificates, the disk.

`app` provides the sources. No name of an object is in a label.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from fairlead.core.crypto.certificates import CertificateFiles
from fairlead.server.http.certificate_watch import ReloadCounter
from fairlead.server.metrics.exposition import COUNTER, GAUGE, MAXIMUM, MINIMUM, Family, MetricFamily, single_value


@dataclass(slots=True)
class ServedCertificate:
    """When the certificate expires that new connections get, in seconds since 1970; None before there is one.

    `evicted_handshakes` are those that had to make room for newer ones, by port.
    """

    expires: float | None = None
    reloads: ReloadCounter = field(default_factory=ReloadCounter)
    evicted_handshakes: Counter[str] = field(default_factory=Counter)

    def record(self, files: CertificateFiles) -> None:
        self.expires = files.certificate.not_valid_after_utc.timestamp()


@dataclass(frozen=True, slots=True)
class InstallationMetrics:
    """`is_leader` says whether this process runs the controllers.

    `lease` is the name of the Lease of the leader election, `data` the folder of the database and the audit log.
    """

    is_leader: Callable[[], bool]
    lease: str
    certificate: ServedCertificate
    data: Path

    def families(self) -> Iterator[MetricFamily]:
        yield Family(
            name="leader_election_master_status",
            type=GAUGE,
            help="1 if this replica holds the lease and runs the controllers, else 0.",
            labels=("name",),
            series=[((self.lease,), int(self.is_leader()))],
            aggregation=MAXIMUM,
        )
        yield Family(
            "fairlead_tls_handshakes_evicted_total",
            COUNTER,
            "Handshakes on ports for client certificates that were cancelled to make room for newer ones, by port.",
            ("port",),
            [((port,), count) for port, count in self.certificate.evicted_handshakes.items()],
        )
        if self.certificate.expires is not None:
            yield single_value(
                "fairlead_certificate_expiration_timestamp_seconds",
                GAUGE,
                "When the certificate of the server expires, in seconds since the Unix epoch.",
                self.certificate.expires,
                MINIMUM,
            )
        yield from _disk_families(self.data)


def _disk_families(folder: Path) -> Iterator[MetricFamily]:
    try:
        disk = os.statvfs(folder)
    except OSError:  # scrapes must go on
        return
    free, size = disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize
    yield single_value(
        "fairlead_data_free_bytes", GAUGE, "Free space on the file system of the data folder.", free, MINIMUM
    )
    yield single_value("fairlead_data_size_bytes", GAUGE, "Size of the file system of the data folder.", size, MINIMUM)


def reload_families(reloads: ReloadCounter) -> Iterator[MetricFamily]:
    yield Family(
        "fairlead_certificate_reloads_total",
        COUNTER,
        "Attempts to use changed files of certificates, by port and result.",
        ("port", "result"),
        list(reloads.results.items()),
    )
