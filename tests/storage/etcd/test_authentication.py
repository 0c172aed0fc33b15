"""The etcd store authenticates with TLS client certificates or passwords, and renews expired tokens."""

import datetime
import ipaddress
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from fairlead.storage.contract import FIRST_REVISION, StoreUnavailable, Write
from fairlead.storage.etcd import EtcdStore, parse_address
from fairlead.storage.etcd.client import EtcdClient
from tests.harness.etcd_server import EtcdCluster, running_etcd

A = ("things", "a")


def _name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def write_certificates(folder: Path) -> None:
    """Writes a CA (ca.pem) and a certificate of it (cert.pem, key.pem) for client and server at 127.0.0.1."""
    now = datetime.datetime.now(datetime.UTC)
    keys = [ec.generate_private_key(ec.SECP256R1()) for _ in range(2)]
    loopback = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    authority = x509.BasicConstraints(ca=True, path_length=None)
    for subject, key, extension, file in (
        ("tests", keys[0], authority, "ca.pem"),
        ("etcd", keys[1], loopback, "cert.pem"),
    ):
        certificate = (
            x509.CertificateBuilder()
            .subject_name(_name(subject))
            .issuer_name(_name("tests"))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(minutes=5))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(extension, critical=True)
            .sign(keys[0], hashes.SHA256())
        )
        (folder / file).write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    pem = keys[1].private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "key.pem").write_bytes(pem)


@pytest.fixture
def short_timeouts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes rejected connections fail at once instead of after ten seconds of retries."""
    monkeypatch.setattr(EtcdClient.call_idempotent, "__defaults__", (0.5,))


async def test_tls_with_a_client_certificate(tmp_path: Path, short_timeouts: None) -> None:
    write_certificates(tmp_path)
    files = [f"--trusted-ca-file={tmp_path}/ca.pem", f"--cert-file={tmp_path}/cert.pem"]
    files += [f"--key-file={tmp_path}/key.pem", "--client-cert-auth"]
    options = f"?ca={tmp_path}/ca.pem&cert={tmp_path}/cert.pem&key={tmp_path}/key.pem"
    async with running_etcd(tmp_path, 1, files, "https", options) as cluster:
        store = await cluster.open()
        assert await store.commit([Write(A, b"x", 0)]) == FIRST_REVISION + 1
        await store.close()
        for options in ("", f"?ca={tmp_path}/ca.pem", "?tls=true"):
            cluster.options = options
            with pytest.raises(StoreUnavailable, match="cannot be reached"):
                await cluster.open()
        cluster.options = f"?ca={tmp_path}/missing.pem"
        with pytest.raises(StoreUnavailable, match=r"missing\.pem: No such file"):
            await cluster.open()


def enable_authentication(cluster: EtcdCluster) -> None:
    """Adds a user with access to /tests/ only, and root, which etcd requires for authentication."""
    for command in (
        "role add fairlead",
        "role grant-permission fairlead readwrite --prefix=true /tests/",
        "user add ann:secret",
        "user grant-role ann fairlead",
        "user add root:secret",
        "user grant-role root root",
        "auth enable",
    ):
        cluster.etcdctl(*command.split())


async def test_a_user_with_a_password_needs_permission_for_the_prefix_only(tmp_path: Path) -> None:
    async with running_etcd(tmp_path) as cluster:
        enable_authentication(cluster)
        cluster.login = "ann:secret@"
        store = await cluster.open()
        first = await store.commit([Write(A, b"1", 0)])
        [member] = cluster.members
        member.kill()
        member.start()  # a restart invalidates etcd's tokens
        watch = store.watch((), first)
        second = await store.commit([Write(A, b"2", first)])
        assert [event.revision for event in await anext(watch)] == [second]
        await store.compact(second)
        assert await store.oldest() == second
        await store.close()
        for login, prefix, problem in (
            ("", "tests", "requires authentication"),
            ("ann:wrong@", "tests", "rejects this user"),
            ("ann:secret@", "elsewhere", "readwrite on the prefix"),
        ):
            cluster.login = login
            with pytest.raises(StoreUnavailable, match=problem):
                await cluster.open(prefix)


async def test_a_password_for_an_etcd_without_authentication_is_rejected(tmp_path: Path) -> None:
    async with running_etcd(tmp_path) as cluster:
        with pytest.raises(StoreUnavailable, match="remove the user"):
            await EtcdStore.open(parse_address(f"//ann:secret@{cluster.members[0].endpoint}", {}))


async def test_the_etcd_of_a_skipped_test_is_stopped(tmp_path: Path) -> None:
    with pytest.raises(pytest.skip.Exception):
        async with running_etcd(tmp_path) as cluster:
            process = cluster.members[0].process
            assert process is not None and process.poll() is None
            pytest.skip("as if there were no etcdctl")
    assert process is not None and process.returncode is not None
