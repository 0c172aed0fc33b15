"""Tests of `fairlead.controllers.helm.fetch` with real servers: what is downloaded from repositories with an index."""

import io
import socket
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlead.controllers.helm import fetch
from fairlead.controllers.helm.chart import Chart
from fairlead.upstream import address_policy
from tests.controllers.helm.chart_hosts import (
    ALLOWED,
    INSIDE,
    INTERNAL,
    OTHER,
    REPOSITORY,
    VC,
    Hosts,
    https_chart,
    open_hosts,
    set_entry,
)
from tests.fake_cluster.certificates import get_authority
from tests.fake_cluster.chart_repository import Chart as PackedChart
from tests.fake_cluster.chart_repository import ChartRepository, ChartResponse, encode_basic, redirect_to

ARCHIVE = "/vc-1.2.3.tgz"


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    with open_hosts(tmp_path) as opened:
        yield opened


@pytest.fixture
def inside(hosts: Hosts) -> ChartRepository:
    """A repository that the policy does not allow, with a certificate that is trusted."""
    return hosts.start(INSIDE, VC, listen=INTERNAL)


def file_names(archive: bytes) -> set[str]:
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        return set(opened.getnames())


def test_a_chart_with_a_relative_url_is_downloaded(hosts: Hosts) -> None:
    repository = hosts.start(REPOSITORY, VC)
    assert file_names(hosts.fetch(https_chart(repository, "1.2.3"))) == {"vc/Chart.yaml", "vc/templates/x.yaml"}
    assert repository.requests == [("/index.yaml", ""), (ARCHIVE, "")]


def test_a_chart_with_an_absolute_url_on_another_host_is_downloaded_without_the_password(hosts: Hosts) -> None:
    repository = hosts.start(REPOSITORY, VC, password="repo-password")
    other = hosts.start(OTHER, VC)
    set_entry(repository, urls=[f"https://{OTHER}:{other.port}{ARCHIVE}?signature=x"])
    hosts.fetch(https_chart(repository, "", "ada", "repo-password"))
    assert repository.requests == [("/index.yaml", encode_basic("ada", "repo-password"))]
    assert other.requests == [(f"{ARCHIVE}?signature=x", "")]


@pytest.mark.parametrize(
    "url", [ARCHIVE[1:], ARCHIVE, f"//{REPOSITORY}:PORT{ARCHIVE}", f"https://{REPOSITORY}:PORT{ARCHIVE}"]
)
def test_the_password_is_sent_to_the_repository_for_index_and_archive(hosts: Hosts, url: str) -> None:
    repository = hosts.start(REPOSITORY, VC, password="repo-password")
    set_entry(repository, urls=[url.replace("PORT", str(repository.port))])
    hosts.fetch(https_chart(repository, "", "ada", "repo-password"))
    assert {authorization for _, authorization in repository.requests} == {encode_basic("ada", "repo-password")}


def test_a_repository_below_a_path_is_requested_there(hosts: Hosts) -> None:
    repository = hosts.start(REPOSITORY, VC)
    for path in ("/index.yaml", ARCHIVE):
        repository.responses[f"/a/b{path}"] = repository.responses.pop(path)
    hosts.fetch(Chart("vc", f"https://{REPOSITORY}:{repository.port}/a/b/"))
    assert repository.paths == ["/a/b/index.yaml", f"/a/b{ARCHIVE}"]


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_are_followed_without_the_password(hosts: Hosts, status: int) -> None:
    repository = hosts.start(REPOSITORY, VC, password="repo-password")
    other = hosts.start(OTHER, VC)
    repository.responses[ARCHIVE] = redirect_to(f"https://{OTHER}:{other.port}/moved", status)
    other.responses["/moved"] = redirect_to(ARCHIVE, status)
    hosts.fetch(https_chart(repository, "", "ada", "repo-password"))
    assert other.requests == [("/moved", ""), (ARCHIVE, "")]


def test_a_redirect_back_to_the_repository_is_without_the_password(hosts: Hosts) -> None:
    """Another server has chosen what is requested: the login would make the repository serve that."""
    repository = hosts.start(REPOSITORY, VC, password="repo-password")
    other = hosts.start(OTHER)
    repository.responses["/index.yaml"] = redirect_to(f"https://{OTHER}:{other.port}/x")
    other.responses["/x"] = redirect_to(f"https://{REPOSITORY}:{repository.port}/private")
    error = hosts.fail(https_chart(repository, "", "ada", "repo-password"))
    assert error.reason == "RepositoryLoginFailed"
    login = encode_basic("ada", "repo-password")
    assert (repository.requests, other.requests) == ([("/index.yaml", login), ("/private", "")], [("/x", "")])


BLOCKED = [
    f"https://{INSIDE}:PORT/vc-1.2.3.tgz",
    f"https://{INTERNAL}:PORT/vc-1.2.3.tgz",
    f"https://[::ffff:{INTERNAL}]:PORT/vc-1.2.3.tgz",
    f"//{INSIDE}:PORT/vc-1.2.3.tgz",
    "https://169.254.169.254/latest/meta-data",
    "https://[fd00:ec2::254]/latest",
    "https://10.96.0.1/api",
    "https://localhost:PORT/",
    "https://0.0.0.0:PORT/",
]


@pytest.mark.parametrize("url", BLOCKED)
@pytest.mark.parametrize("hops", [0, 1, 3])
def test_t22_no_url_of_a_repository_leads_to_an_internal_address(
    hosts: Hosts, inside: ChartRepository, url: str, hops: int
) -> None:
    hosts.names["localhost"] = [INTERNAL]
    repository = hosts.start(REPOSITORY, VC)
    url = url.replace("PORT", str(inside.port))
    for number in range(hops):
        following = f"/hop{number + 1}" if number + 1 < hops else url
        repository.responses[f"/hop{number}"] = redirect_to(following)
    set_entry(repository, urls=["/hop0" if hops else url])
    error = hosts.fail(https_chart(repository))
    assert (error.reason, inside.requests) == ("RepositoryAddressBlocked", [])
    assert "add its network to the setting cluster_networks" in error.message


@pytest.mark.parametrize("url", BLOCKED)
def test_t22_no_redirect_of_the_index_leads_to_an_internal_address(
    hosts: Hosts, inside: ChartRepository, url: str
) -> None:
    hosts.names["localhost"] = [INTERNAL]
    redirect = redirect_to(url.replace("PORT", str(inside.port)))
    repository = hosts.start(REPOSITORY, responses={"/index.yaml": redirect})
    assert hosts.fail(https_chart(repository)).reason == "RepositoryAddressBlocked"
    assert inside.requests == []


def test_t22_a_repository_at_an_internal_address_is_not_requested(hosts: Hosts, inside: ChartRepository) -> None:
    error = hosts.fail(Chart("vc", f"https://{INSIDE}:{inside.port}"))
    assert (error.reason, inside.requests) == ("RepositoryAddressBlocked", [])


def test_t22_a_name_that_changes_its_address_is_looked_up_once_for_each_request(
    hosts: Hosts, inside: ChartRepository
) -> None:
    """Were the name resolved again for the connection, that would go to the second address."""
    repository = hosts.start(REPOSITORY, VC)
    hosts.names[REPOSITORY] = [ALLOWED, INTERNAL]
    error = hosts.fail(https_chart(repository))
    assert (repository.paths, hosts.lookups) == (["/index.yaml"], [REPOSITORY, REPOSITORY])
    assert "has an address that is not allowed" in error.message and inside.requests == []


@pytest.mark.parametrize(
    "url",
    [
        "http://charts.example/vc-1.2.3.tgz",
        "file:///etc/passwd",
        "https://ada:x@charts.example/vc.tgz",
        "https://[",
        "gopher://x",
        "https://charts.example\\@inside.example/",
        "data:,x",
        "oci://charts.example/UPPER:1.2.3",
        "oci://charts.example/../x:1.2.3",
    ],
)
def test_other_urls_are_not_followed(hosts: Hosts, url: str) -> None:
    repository = hosts.start(REPOSITORY, VC)
    set_entry(repository, urls=[url])
    assert hosts.fail(https_chart(repository)).reason in ("InvalidRepository", "InvalidChart")
    assert repository.paths == ["/index.yaml"]


@pytest.mark.parametrize("location", ["http://charts.example/", "file:///etc/passwd", "", "https://[", "ftp://x/"])
def test_redirects_elsewhere_are_not_followed(hosts: Hosts, location: str) -> None:
    repository = hosts.start(REPOSITORY, responses={"/index.yaml": redirect_to(location)})
    error = hosts.fail(https_chart(repository))
    assert error.reason in ("InvalidRepository", "RepositoryUnreachable")


def test_redirects_in_a_circle_end(hosts: Hosts) -> None:
    repository = hosts.start(REPOSITORY, responses={"/index.yaml": redirect_to("/index.yaml")})
    assert "redirects more than 5 times" in hosts.fail(https_chart(repository)).message
    assert len(repository.requests) == 6


def test_an_index_may_name_a_chart_in_a_registry(hosts: Hosts) -> None:
    """Without the password: the registry is another server."""
    repository = hosts.start(REPOSITORY, VC, password="repo-password")
    registry = hosts.start(OTHER, VC)
    set_entry(repository, urls=[f"oci://{OTHER}:{registry.port}/charts/vc:1.2.3"])
    hosts.fetch(https_chart(repository, "", "ada", "repo-password"))
    assert {authorization for _, authorization in registry.requests} == {""}
    assert registry.paths[0] == "/v2/charts/vc/manifests/1.2.3"


@pytest.mark.parametrize(
    ("requested", "expected"),
    [("", "1.10.0"), ("1.2.3", "1.2.3"), ("^1.2", "1.10.0"), ("~1.2", "1.2.3"), ("2-0", "2.0.0-rc.1")],
)
def test_a_version_or_a_range_selects_the_archive(hosts: Hosts, requested: str, expected: str) -> None:
    charts = [PackedChart("vc", {}, version) for version in ("1.2.3", "1.10.0", "1.9.0", "2.0.0-rc.1")]
    repository = hosts.start(REPOSITORY, *charts)
    hosts.fetch(https_chart(repository, requested))
    assert repository.paths[-1] == f"/vc-{expected}.tgz"


@pytest.mark.parametrize(
    ("chart", "version", "said"),
    [
        ("vc", "9.9.9", 'has no version "9.9.9" of the chart "vc"'),
        ("vc", "^2", 'has no version "^2" of the chart "vc"'),
        ("nothing", "", 'has no chart "nothing"'),
    ],
)
def test_a_missing_chart_or_version_is_named(hosts: Hosts, chart: str, version: str, said: str) -> None:
    repository = hosts.start(REPOSITORY, VC)
    error = hosts.fail(Chart(chart, f"https://{REPOSITORY}:{repository.port}", version))
    assert error.reason == "ChartNotFound" and said in error.message and "correct" in error.message


def test_a_repository_without_an_index_and_an_archive_that_is_gone_are_distinguished(hosts: Hosts) -> None:
    repository = hosts.start(REPOSITORY, VC)
    del repository.responses[ARCHIVE]
    error = hosts.fail(https_chart(repository))
    assert error.reason == "ChartNotFound"
    assert "the archive in the index of the repository does not exist" in error.message


def test_a_page_that_is_no_repository_is_reported(hosts: Hosts) -> None:
    repository = hosts.start(REPOSITORY)
    del repository.responses["/index.yaml"]
    error = hosts.fail(https_chart(repository))
    assert (error.reason, error.message) == ("RepositoryNotFound", fetch.NO_INDEX)


@pytest.mark.parametrize("password", ["", "wrong"])
def test_a_rejected_login_is_reported(hosts: Hosts, password: str) -> None:
    repository = hosts.start(REPOSITORY, VC, password="repo-password")
    error = hosts.fail(https_chart(repository, "", "ada" if password else "", password))
    assert error.reason == "RepositoryLoginFailed"
    assert "correct the username and password" in error.message


@pytest.mark.parametrize("status", [204, 400, 429, 500, 503])
def test_other_statuses_are_reported(hosts: Hosts, status: int) -> None:
    responses = {"/index.yaml": ChartResponse(status, b"canary")}
    error = hosts.fail(https_chart(hosts.start(REPOSITORY, responses=responses)))
    assert error.reason == "RepositoryUnreachable"
    assert f"status {status}" in error.message and "canary" not in error.message


@pytest.mark.parametrize("digest", ["", f"{'0' * 64}", f"sha256:{'0' * 64}", "md5:0", "x"])
def test_the_digest_of_the_index_is_compared(hosts: Hosts, digest: str) -> None:
    repository = hosts.start(REPOSITORY, VC)
    set_entry(repository, digest=digest)
    if not digest:
        hosts.fetch(https_chart(repository))
        return
    error = hosts.fail(https_chart(repository))
    assert error.reason in ("InvalidChart", "InvalidRepository") and "digest" in error.message


def test_dns_tls_and_connection_errors_are_distinguished(hosts: Hosts, tmp_path: Path) -> None:
    unknown = hosts.fail(Chart("vc", "https://nowhere.example"))
    assert unknown.reason == "RepositoryNotResolved" and "does not resolve" in unknown.message
    (tmp_path / "run").rmdir()
    hosts.names["down.example"] = [ALLOWED]
    down = hosts.fail(Chart("vc", f"https://down.example:{free_port()}"))
    assert down.reason == "RepositoryUnreachable" and "cannot be reached" in down.message


def test_a_dns_server_that_does_not_answer_is_reported(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    released = threading.Event()
    monkeypatch.setattr(address_policy, "RESOLVE_SECONDS", 0.1)
    monkeypatch.setattr(address_policy, "_getaddrinfo", lambda host, port: released.wait(10) and [])
    threading.Timer(0.5, released.set).start()
    error = hosts.fail(Chart("vc", "https://slow.example"))
    assert error.reason == "RepositoryNotResolved" and "timed out" in error.message


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((ALLOWED, 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.mark.parametrize(
    ("names", "authority", "days", "said"),
    [
        ((REPOSITORY,), (), -1, "has expired"),
        ((OTHER,), (), 2, "is for another host name"),
        ((REPOSITORY,), ("a stranger",), 2, "SSL_CERT_FILE"),
    ],
)
def test_a_certificate_that_is_not_valid_is_reported(
    hosts: Hosts, names: tuple[str, ...], authority: tuple[str, ...], days: int, said: str
) -> None:
    certificate = get_authority(*authority).issue(*names, days=days)
    repository = hosts.start(REPOSITORY, VC, certificate=certificate, password="repo-password")
    error = hosts.fail(https_chart(repository, "", "ada", "repo-password"))
    assert error.reason == "RepositoryNotTrusted"
    assert "the certificate of the repository" in error.message and said in error.message
    assert repository.requests == []


def test_a_server_without_tls_is_reported(hosts: Hosts) -> None:
    hosts.names[REPOSITORY] = [ALLOWED]
    with socket.create_server((ALLOWED, 0)) as plain:
        thread = threading.Thread(target=answer_plainly, args=(plain,))
        thread.start()
        error = hosts.fail(Chart("vc", f"https://{REPOSITORY}:{plain.getsockname()[1]}"))
        thread.join()
    assert error.reason == "RepositoryTlsFailed"
    assert "the TLS handshake with the repository failed" in error.message


def answer_plainly(server: socket.socket) -> None:
    connection, _ = server.accept()
    with connection:
        connection.recv(1)
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


ENDLESS = {
    "an endless index": ("/index.yaml", ChartResponse(200, b"#" * 2**20, endless=0), "sent more than"),
    "an endless archive": (ARCHIVE, ChartResponse(200, b"\x1f\x8b" + bytes(2**20), endless=0), "sent more than"),
    "a slow index": ("/index.yaml", ChartResponse(200, b"#", endless=0.05), "took longer than 2 s"),
    "a slow archive": (ARCHIVE, ChartResponse(200, b"#", endless=0.05), "took longer than 2 s"),
}


@pytest.mark.parametrize("case", ENDLESS)
def test_a_response_without_an_end_is_cut(hosts: Hosts, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    path, response, said = ENDLESS[case]
    seconds = 2 if "slow" in case else 60
    repository = hosts.start(REPOSITORY, VC)
    repository.responses[path] = response
    assert said in hosts.fail(https_chart(repository), seconds).message


def test_a_server_that_never_answers_is_reported(hosts: Hosts) -> None:
    hosts.names[REPOSITORY] = [ALLOWED]
    with socket.create_server((ALLOWED, 0)) as silent:
        error = hosts.fail(Chart("vc", f"https://{REPOSITORY}:{silent.getsockname()[1]}"), 1)
    assert (error.reason, "took longer than 1 s" in error.message) == ("RepositoryUnreachable", True)


@pytest.mark.parametrize(
    "index", [b"", b"canary", b"entries: 7", b"[", b"\0", b"entries: {vc: [{version: [}", b"<html>"]
)
def test_an_index_that_is_not_valid_is_reported_without_its_text(hosts: Hosts, index: bytes) -> None:
    repository = hosts.start(REPOSITORY, responses={"/index.yaml": ChartResponse(200, index)})
    error = hosts.fail(https_chart(repository))
    assert error.reason == "InvalidRepository" and "canary" not in error.message


@pytest.mark.parametrize("archive", [b"", b"canary", b"\x1f\x8bcanary"])
def test_an_archive_that_is_not_valid_is_reported_without_its_text(hosts: Hosts, archive: bytes) -> None:
    repository = hosts.start(REPOSITORY, VC)
    repository.responses[ARCHIVE] = ChartResponse(200, archive)
    set_entry(repository, digest="")
    error = hosts.fail(https_chart(repository))
    assert error.reason == "InvalidChart" and "canary" not in error.message


def test_an_archive_that_unpacks_to_too_much_is_refused(hosts: Hosts) -> None:
    bomb = PackedChart("vc", {f"zeros{number}": "0" * 2**23 for number in range(13)})
    repository = hosts.start(REPOSITORY, bomb)
    error = hosts.fail(https_chart(repository))
    assert error.reason == "InvalidChart" and "100 MiB" in error.message
