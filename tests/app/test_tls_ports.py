"""Tests of `fairlead.app.tls_ports`: what the ports for client certificates need to start."""

import asyncio
import errno
import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from fairlead.app import tls_ports
from fairlead.app.host_cluster import HostAuthentication
from fairlead.app.tls_ports import PortCounters, PortOpener, configured_ports, open_tls_ports, request_header_config
from fairlead.core.call import CLIENT, FRONT_PROXY
from fairlead.core.crypto.certificates import Certificates
from fairlead.core.files import FileProblem
from fairlead.server.http.listeners import open_listener
from fairlead.server.http.tls_context import AuthorityFile
from fairlead.server.http.tls_port import TlsPort, TlsPortOptions, UnixBackend
from fairlead.server.metrics.installation import ServedCertificate
from fairlead.settings import Settings, StartError
from tests.harness.certificates import create_authority
from tests.harness.eventually import eventually
from tests.harness.free_ports import free_port


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(data=tmp_path / "data", requestheader_allowed_names=("front-proxy",))


async def test_without_settings_there_are_no_ports(settings: Settings) -> None:
    async with open_tls_ports(settings, None) as ports:
        assert ports.backend is None and not ports.origins().connections
    assert request_header_config(settings) is None


async def test_a_front_proxy_and_users_must_not_share_a_ca(tmp_path: Path, settings: Settings) -> None:
    one, other = create_authority(tmp_path / "one"), create_authority(tmp_path / "other")
    copy = tmp_path / "copy.crt"
    copy.write_bytes(other.file.read_bytes() + one.file.read_bytes())
    with pytest.raises(StartError, match="have a CA in common"):
        async with open_tls_ports(replace(settings, client_ca=one.file, requestheader_client_ca=copy), None):
            pass
    async with open_tls_ports(replace(settings, client_ca=one.file, requestheader_client_ca=other.file), None) as ports:
        assert ports.backend is not None


async def test_a_ca_that_is_in_use_on_the_other_port_is_refused_when_the_files_change(tmp_path: Path) -> None:
    server, users, proxies = (create_authority(tmp_path / name) for name in ("server", "users", "proxies"))
    cert, key = server.issue("server")
    certificates = Certificates(server.file, cert, key)
    backend, openers, counters = UnixBackend(tmp_path), list[PortOpener](), PortCounters("x", ServedCertificate())
    for file, options in (
        (users.file, TlsPortOptions(CLIENT, False)),
        (proxies.file, TlsPortOptions(FRONT_PROXY, True)),
    ):
        opener = PortOpener(options, backend, certificates, AuthorityFile(file), openers, counters)
        opener.open()
        openers.append(opener)
    for_users, for_proxies = openers
    former = users.file.read_bytes()
    users.file.write_bytes(former + proxies.file.read_bytes())
    with pytest.raises(FileProblem, match=r"users/ca.crt, .*proxies/ca.crt: have a CA in common"):
        for_users.read()
    # What counts is what the other port uses, and not what its file contains meanwhile.
    proxies.file.write_bytes(create_authority(tmp_path / "next").file.read_bytes())
    with pytest.raises(FileProblem, match="have a CA in common"):
        for_users.read()
    assert for_proxies.port is not None
    await for_proxies.port.replace(for_proxies.read())
    assert for_users.read().authorities == users.file.read_bytes()
    backend.close()


async def test_load_balancers_with_the_proxy_protocol_are_not_those_whose_headers_are_believed(
    tmp_path: Path, settings: Settings
) -> None:
    file = create_authority(tmp_path).file
    configured = replace(
        settings, client_ca=file, proxy_protocol_networks=("10.1.0.0/16",), trusted_proxies=("10.2.0.0/16",)
    )
    ((_, _, options),) = configured_ports(configured)
    assert options.is_proxy is not None and options.is_proxy("10.1.0.1") and not options.is_proxy("10.2.0.1")
    async with open_tls_ports(configured, None) as ports:
        proxies = ports.origins().proxies
        assert proxies.is_trusted("10.2.0.1") and not proxies.is_trusted("10.1.0.1")
    ((_, _, options),) = configured_ports(replace(configured, proxy_protocol_networks=()))
    assert options.is_proxy is None


@pytest.mark.parametrize(("content", "message"), [(None, "no such file"), (b"x", "contains no certificate")])
async def test_a_ca_file_that_is_not_usable_is_reported(
    tmp_path: Path, settings: Settings, content: bytes | None, message: str
) -> None:
    file = tmp_path / "ca.crt"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(FileProblem, match=message):
        async with open_tls_ports(replace(settings, client_ca=file), None):
            pass


async def test_the_headers_of_front_proxies_are_those_of_the_settings(tmp_path: Path, settings: Settings) -> None:
    configured = replace(
        settings,
        requestheader_client_ca=create_authority(tmp_path).file,
        requestheader_username_headers=("X-User", "X-Forwarded-User"),
        requestheader_uid_headers=("X-Uid",),
        requestheader_link_users="on",
    )
    config = request_header_config(configured)
    assert config is not None and config.links_users
    assert config.allowed_names == {"front-proxy"}
    assert config.username_headers == ("x-user", "x-forwarded-user") and config.uid_headers == ("x-uid",)
    assert (config.group_headers, config.extra_prefixes) == (("x-remote-group",), ("x-remote-extra-",))


async def test_a_port_whose_ca_comes_from_the_host_waits_for_it(tmp_path: Path, settings: Settings) -> None:
    host = HostAuthentication(replace(settings, aggregated_api="host", requestheader_allowed_names=()))
    ((number, source, options),) = configured_ports(replace(settings, aggregated_api="host"), host)
    assert (number, source, options.is_required) == (settings.requestheader_port, host, True)
    async with open_tls_ports(replace(settings, aggregated_api="host"), None, host) as ports:
        assert ports.backend is not None and not source.is_known
    data = {
        "requestheader-client-ca-file": create_authority(tmp_path).file.read_text(),
        "requestheader-allowed-names": '["front-proxy-client"]',
        "requestheader-username-headers": '["X-Remote-User"]',
    }
    host.update({"data": data})
    await source.wait()
    assert source.read().startswith(b"-----BEGIN") and source.sign() == (source.read(),)


@pytest.fixture
def opener(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PortOpener:
    monkeypatch.setattr(tls_ports, "POLL_SECONDS", 0.01)
    server, users = create_authority(tmp_path / "server"), create_authority(tmp_path / "users")
    certificates, source = Certificates(server.file, *server.issue("server")), AuthorityFile(users.file)
    counters = PortCounters("client", ServedCertificate())
    return PortOpener(TlsPortOptions(CLIENT, False), UnixBackend(tmp_path), certificates, source, [], counters)


def failing_twice(action: Callable[..., object], attempts: list[object]) -> Callable[..., object]:
    def act(*arguments: object) -> object:
        attempts.append(arguments)
        if len(attempts) <= 2:
            raise OSError(errno.EMFILE, "Too many open files")
        return action(*arguments)

    return act


@pytest.mark.parametrize(("owner", "name"), [(PortOpener, "read"), (TlsPort, "accept"), (PortOpener, "_sign")])
async def test_a_port_is_served_whatever_fails_at_first(
    opener: PortOpener, monkeypatch: pytest.MonkeyPatch, owner: type, name: str
) -> None:
    attempts: list[object] = []
    monkeypatch.setattr(owner, name, failing_twice(getattr(owner, name), attempts))
    with open_listener("127.0.0.1", 0, 10) as listener:
        task = asyncio.create_task(opener.serve(listener))
        await eventually(lambda: len(attempts) >= 3, 20)
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        writer.write(b"no TLS")
        assert (await asyncio.wait_for(reader.read(100), 20))[:1] in (b"\x15", b"")  # an alert of TLS
        writer.close()
        assert not task.done()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert opener.port is not None
    await opener.port.close(1)
    opener.backend.close()


async def test_no_other_process_can_take_a_port_that_waits_for_its_ca(tmp_path: Path, settings: Settings) -> None:
    number = free_port()
    configured = replace(settings, listen="127.0.0.1", aggregated_api="host", requestheader_port=number)
    server, host = create_authority(tmp_path / "server"), HostAuthentication(configured)
    certificates, counters = Certificates(server.file, *server.issue("server")), PortCounters("x", ServedCertificate())
    async with open_tls_ports(configured, None, host) as ports:
        opener = PortOpener(TlsPortOptions(FRONT_PROXY, True), UnixBackend(tmp_path), certificates, host, [], counters)
        async with ports._run(opener, number):
            with socket.socket() as other, pytest.raises(OSError, match="in use"):
                other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                other.bind(("127.0.0.1", number))
            assert opener.port is None
        opener.backend.close()
