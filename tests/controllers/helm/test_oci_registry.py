"""Tests of `fairlead.controllers.helm.oci_registry` with real servers: charts in OCI registries, and logins there."""

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from fairlead.controllers.helm import oci_registry
from fairlead.controllers.helm.chart import Chart
from fairlead.controllers.helm.oci_registry import ChartReference, parse_challenges, parse_reference
from tests.controllers.helm.chart_hosts import INSIDE, INTERNAL, OTHER, REPOSITORY, VC, Hosts, oci_chart, open_hosts
from tests.fake_cluster.certificates import get_authority
from tests.fake_cluster.chart_repository import Chart as PackedChart
from tests.fake_cluster.chart_repository import ChartRepository, ChartResponse, encode_basic, redirect_to

BASE = "/v2/charts/vc"
MANIFEST, TAGS = f"{BASE}/manifests/1.2.3", f"{BASE}/tags/list"
BASIC = encode_basic("ada", "repo-password")
TOKEN = ChartResponse(200, b'{"token": "registry-token"}')


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    with open_hosts(tmp_path) as opened:
        yield opened


def blob_path(repository: ChartRepository) -> str:
    manifest = json.loads(repository.responses[MANIFEST].body)
    return f"{BASE}/blobs/{manifest['layers'][0]['digest']}"


def start_locked(hosts: Hosts, token_url: str) -> ChartRepository:
    """A registry whose token server is at `token_url`."""
    challenge = f'Bearer realm="{token_url}",service="registry.example",scope="repository:charts/vc:pull"'
    return hosts.start(REPOSITORY, VC, authorization="Bearer registry-token", challenge=challenge)


def test_a_chart_of_an_exact_version_is_downloaded_without_a_list_of_tags(hosts: Hosts) -> None:
    registry = hosts.start(REPOSITORY, VC)
    hosts.fetch(oci_chart(registry, "1.2.3"))
    assert registry.paths == [MANIFEST, blob_path(registry)]


@pytest.mark.parametrize(
    ("requested", "expected"),
    [("", "1.10.0"), ("^1.2", "1.10.0"), ("~1.2", "1.2.3"), ("1.2.x", "1.2.3"), (">=2.0.0-0", "2.0.0-rc.1")],
)
def test_a_range_selects_a_tag(hosts: Hosts, requested: str, expected: str) -> None:
    charts = [PackedChart("vc", {}, version) for version in ("1.2.3", "1.10.0", "2.0.0-rc.1")]
    registry = hosts.start(REPOSITORY, *charts)
    tags = ["1.2.3", "latest", "1.10.0", "v9.0.0", "9", "2.0.0-rc.1", 7]
    registry.responses[TAGS] = ChartResponse(200, json.dumps({"tags": tags}).encode())
    hosts.fetch(oci_chart(registry, requested))
    assert registry.paths[1] == f"{BASE}/manifests/{expected}"


def test_tags_have_underscores_for_the_plus_of_a_version(hosts: Hosts) -> None:
    registry = hosts.start(REPOSITORY, VC)
    registry.responses[f"{BASE}/manifests/2.0.0_x"] = registry.responses[MANIFEST]
    registry.responses[TAGS] = ChartResponse(200, b'{"tags": ["1.2.3", "2.0.0_x"]}')
    hosts.fetch(oci_chart(registry))
    assert registry.paths[1] == f"{BASE}/manifests/2.0.0_x"


def test_all_pages_of_tags_are_read(hosts: Hosts) -> None:
    registry = hosts.start(REPOSITORY, VC)
    link = {"Link": f'<{TAGS}?last=0.1.0>; rel="next"'}
    registry.responses[TAGS] = ChartResponse(200, b'{"tags": ["0.1.0"]}', headers=link)
    registry.responses[f"{TAGS}?last=0.1.0"] = ChartResponse(200, b'{"tags": ["1.2.3"]}')
    hosts.fetch(oci_chart(registry))
    assert registry.paths[:3] == [TAGS, f"{TAGS}?last=0.1.0", MANIFEST]


@pytest.mark.parametrize(
    "link", [f"https://{OTHER}/x", "/v2/secrets/tags/list?x", "//[", "tags/../../../x?", "file:///x"]
)
def test_a_next_page_elsewhere_is_not_requested(hosts: Hosts, link: str) -> None:
    registry = hosts.start(REPOSITORY, VC)
    headers = {"Link": f'<{link}>; rel="next"'}
    registry.responses[TAGS] = ChartResponse(200, b'{"tags": ["0.1.0"]}', headers=headers)
    assert hosts.fail(oci_chart(registry)).reason == "InvalidRepository"
    assert registry.paths == [TAGS]


def test_pages_without_an_end_are_not_all_read(hosts: Hosts) -> None:
    registry = hosts.start(REPOSITORY, VC)
    headers = {"Link": f'<{TAGS}?again>; rel="next"'}
    registry.responses[TAGS] = ChartResponse(200, b'{"tags": ["1.2.3"]}', headers=headers)
    hosts.fetch(oci_chart(registry), 60)
    assert len(registry.paths) == 50 + 2


def test_a_registry_that_asks_for_basic_authentication_gets_the_password(hosts: Hosts) -> None:
    registry = hosts.start(REPOSITORY, VC, password="repo-password")
    hosts.fetch(oci_chart(registry, "1.2.3", "ada", "repo-password"))
    assert [authorization for _, authorization in registry.requests] == ["", BASIC, BASIC]


def test_a_registry_that_asks_for_nothing_gets_no_password(hosts: Hosts) -> None:
    registry = hosts.start(REPOSITORY, VC)
    hosts.fetch(oci_chart(registry, "1.2.3", "ada", "repo-password"))
    assert {authorization for _, authorization in registry.requests} == {""}


@pytest.mark.parametrize("password", ["", "repo-password"])
def test_the_token_server_that_the_registry_names_gets_the_password_and_the_registry_the_token(
    hosts: Hosts, password: str
) -> None:
    tokens = hosts.start(OTHER, responses={"/token": TOKEN})
    registry = start_locked(hosts, f"https://{OTHER}:{tokens.port}/token")
    hosts.fetch(oci_chart(registry, "1.2.3", "ada" if password else "", password))
    ((path, authorization),) = tokens.requests
    assert authorization == (BASIC if password else "")
    assert parse_qs(urlsplit(path).query) == {"service": ["registry.example"], "scope": ["repository:charts/vc:pull"]}
    assert [sent for _, sent in registry.requests] == ["", "Bearer registry-token", "Bearer registry-token"]


@pytest.mark.parametrize("scope", ["repository:charts/vc:pull,push", "repository:other:*", "registry:catalog:*", ""])
def test_a_token_with_more_permissions_is_not_requested(hosts: Hosts, scope: str) -> None:
    tokens = hosts.start(OTHER, responses={"/token": TOKEN})
    challenge = f'Bearer realm="https://{OTHER}:{tokens.port}/token",scope="{scope}"'
    registry = hosts.start(REPOSITORY, VC, authorization="Bearer registry-token", challenge=challenge)
    hosts.fetch(oci_chart(registry, "1.2.3", "ada", "repo-password"))
    assert parse_qs(urlsplit(tokens.paths[0]).query) == {"scope": ["repository:charts/vc:pull"]}


@pytest.mark.parametrize("token_url", [f"https://{INSIDE}:PORT/token", f"https://{INTERNAL}:PORT/token"])
def test_t22_a_token_server_at_an_internal_address_is_not_requested(hosts: Hosts, token_url: str) -> None:
    inside = hosts.start(INSIDE, listen=INTERNAL)
    registry = start_locked(hosts, token_url.replace("PORT", str(inside.port)))
    error = hosts.fail(oci_chart(registry, "1.2.3", "ada", "repo-password"))
    assert (error.reason, inside.requests) == ("RepositoryAddressBlocked", [])
    assert "the token server of the registry has an address that is not allowed" in error.message


@pytest.mark.parametrize(
    "token_url", ["http://other.example/token", "file:///etc/passwd", "", "https://a:b@other.example/"]
)
def test_a_token_server_needs_an_https_url(hosts: Hosts, token_url: str) -> None:
    registry = start_locked(hosts, token_url)
    assert hosts.fail(oci_chart(registry, "1.2.3", "ada", "repo-password")).reason == "InvalidRepository"


def test_a_token_server_cannot_redirect_the_password(hosts: Hosts) -> None:
    third = hosts.start("third.example", responses={"/token": TOKEN})
    redirect = redirect_to(f"https://third.example:{third.port}/token")
    tokens = hosts.start(OTHER, responses={"/token": redirect})
    registry = start_locked(hosts, f"https://{OTHER}:{tokens.port}/token")
    hosts.fetch(oci_chart(registry, "1.2.3", "ada", "repo-password"))
    assert third.requests == [("/token", "")]


@pytest.mark.parametrize("body", [b"", b"canary", b"[]", b"{}", b'{"token": 7}', b'{"token": "a\\r\\nb"}'])
def test_a_token_that_is_not_valid_is_reported_without_its_text(hosts: Hosts, body: bytes) -> None:
    tokens = hosts.start(OTHER, responses={"/token": ChartResponse(200, body)})
    error = hosts.fail(oci_chart(start_locked(hosts, f"https://{OTHER}:{tokens.port}/token"), "1.2.3"))
    assert error.reason == "InvalidRepository" and "canary" not in error.message


@pytest.mark.parametrize("place", ["registry", "token server"])
def test_a_rejected_login_is_reported(hosts: Hosts, place: str) -> None:
    answer = ChartResponse(200, b'{"access_token": "wrong"}') if place == "registry" else ChartResponse(401)
    tokens = hosts.start(OTHER, responses={"/token": answer})
    registry = start_locked(hosts, f"https://{OTHER}:{tokens.port}/token")
    error = hosts.fail(oci_chart(registry, "1.2.3", "ada", "wrong"))
    assert error.reason == "RepositoryLoginFailed" and place in error.message
    assert len(tokens.requests) == 1


@pytest.mark.parametrize("challenge", ["", "Digest realm=x", 'Basic realm="x"'])
def test_a_registry_that_asks_for_a_login_without_a_password_is_reported(hosts: Hosts, challenge: str) -> None:
    registry = hosts.start(REPOSITORY, VC, authorization="x", challenge=challenge)
    error = hosts.fail(oci_chart(registry, "1.2.3"))
    assert error.reason == "RepositoryLoginFailed" and "set the username and password" in error.message


def test_the_storage_that_a_registry_redirects_to_gets_neither_token_nor_password(hosts: Hosts) -> None:
    storage = hosts.start(OTHER)
    registry = hosts.start(REPOSITORY, VC, password="repo-password")
    path = blob_path(registry)
    storage.responses["/blob"] = registry.responses[path]
    registry.responses[path] = redirect_to(f"https://{OTHER}:{storage.port}/blob?signature={'x' * 3000}", 307)
    hosts.fetch(oci_chart(registry, "1.2.3", "ada", "repo-password"))
    assert [authorization for _, authorization in storage.requests] == [""]


def test_storage_cannot_ask_for_the_password(hosts: Hosts) -> None:
    storage = hosts.start(OTHER, authorization="x", challenge='Basic realm="give it to me"')
    registry = hosts.start(REPOSITORY, VC)
    registry.responses[MANIFEST] = redirect_to(f"https://{OTHER}:{storage.port}/manifest")
    error = hosts.fail(oci_chart(registry, "1.2.3", "ada", "repo-password"))
    assert error.reason == "RepositoryLoginFailed"
    assert [sent for _, sent in (*registry.requests, *storage.requests)] == ["", ""]


def test_t22_a_registry_cannot_redirect_to_an_internal_address(hosts: Hosts) -> None:
    inside = hosts.start(INSIDE, listen=INTERNAL)
    registry = hosts.start(REPOSITORY, VC)
    registry.responses[blob_path(registry)] = redirect_to(f"https://{INSIDE}:{inside.port}/blob")
    assert hosts.fail(oci_chart(registry, "1.2.3")).reason == "RepositoryAddressBlocked"
    assert inside.requests == []


def change_manifest(registry: ChartRepository, **changes: object) -> None:
    manifest = json.loads(registry.responses[MANIFEST].body)
    registry.responses[MANIFEST] = ChartResponse(200, json.dumps({**manifest, **changes}).encode())


@pytest.mark.parametrize(
    "changes",
    [
        {"config": {"mediaType": "application/vnd.oci.image.config.v1+json"}},
        {"config": None},
        {"layers": []},
        {"layers": None},
        {"layers": [7, {"mediaType": "application/vnd.oci.image.layer.v1.tar+gzip"}]},
        {"layers": [{"mediaType": "application/tar+gzip", "digest": "md5:0"}]},
        {"layers": [{"mediaType": "application/tar+gzip", "digest": "sha256:../../../../x"}]},
        {"layers": [{"mediaType": "application/tar+gzip"}]},
    ],
)
def test_what_is_not_a_chart_is_reported(hosts: Hosts, changes: dict[str, object]) -> None:
    registry = hosts.start(REPOSITORY, VC)
    change_manifest(registry, **changes)
    assert "something other than a Helm chart" in hosts.fail(oci_chart(registry, "1.2.3")).message
    assert registry.paths == [MANIFEST]


def test_an_archive_with_another_digest_than_the_manifest_is_refused(hosts: Hosts) -> None:
    registry = hosts.start(REPOSITORY, VC)
    registry.responses[blob_path(registry)] = ChartResponse(200, PackedChart("vc", {"x": "y"}).pack())
    error = hosts.fail(oci_chart(registry, "1.2.3"))
    assert error.reason == "InvalidChart" and "digest" in error.message


@pytest.mark.parametrize("body", [b"", b"canary", b"[]", b"{" * 100_000])
def test_a_manifest_that_is_not_valid_is_reported_without_its_text(hosts: Hosts, body: bytes) -> None:
    registry = hosts.start(REPOSITORY, VC)
    registry.responses[MANIFEST] = ChartResponse(200, body)
    error = hosts.fail(oci_chart(registry, "1.2.3"))
    assert error.reason == "InvalidRepository" and "canary" not in error.message


@pytest.mark.parametrize("path", [MANIFEST, TAGS])
def test_documents_without_an_end_are_cut(hosts: Hosts, path: str) -> None:
    registry = hosts.start(REPOSITORY, VC)
    registry.responses[path] = ChartResponse(200, b" " * 2**20, endless=0)
    assert "sent more than 4096 KiB" in hosts.fail(oci_chart(registry, "1.2.3" if path == MANIFEST else "")).message


@pytest.mark.parametrize("version", ["9.9.9", "^9", ""])
def test_a_missing_version_is_reported(hosts: Hosts, version: str) -> None:
    registry = hosts.start(REPOSITORY, VC)
    registry.responses[TAGS] = ChartResponse(200, b'{"tags": ["1.2.3"]}' if version else b'{"tags": null}')
    error = hosts.fail(oci_chart(registry, version))
    assert error.reason == "ChartNotFound" and "correct" in error.message


def test_a_missing_chart_is_reported(hosts: Hosts) -> None:
    registry = hosts.start(REPOSITORY)
    error = hosts.fail(oci_chart(registry))
    assert (error.reason, "the registry has no such chart" in error.message) == ("ChartNotFound", True)


@pytest.mark.parametrize("version", ["", "1.2.3"])
def test_a_server_that_is_no_registry_is_reported(hosts: Hosts, version: str) -> None:
    server = hosts.start(REPOSITORY)
    del server.responses["/v2/"]
    error = hosts.fail(oci_chart(server, version))
    assert (error.reason, error.message) == ("RepositoryNotFound", oci_registry.NO_REGISTRY)


@pytest.mark.parametrize("status", [401, 503])
def test_a_registry_with_another_answer_than_not_found_is_one(hosts: Hosts, status: int) -> None:
    registry = hosts.start(REPOSITORY)
    registry.responses["/v2/"] = ChartResponse(status)
    assert hosts.fail(oci_chart(registry)).reason == "ChartNotFound"


def test_a_missing_token_server_is_reported(hosts: Hosts) -> None:
    tokens = hosts.start(OTHER)
    registry = start_locked(hosts, f"https://{OTHER}:{tokens.port}/token")
    error = hosts.fail(oci_chart(registry, "1.2.3"))
    assert error.reason == "RepositoryNotFound"
    assert "the token server of the registry does not exist" in error.message


def test_dns_and_certificate_errors_of_a_registry_are_distinguished(hosts: Hosts, tmp_path: Path) -> None:
    unknown = hosts.fail(Chart("vc", "oci://nowhere.example/charts"))
    assert unknown.reason == "RepositoryNotResolved"
    (tmp_path / "run").rmdir()
    certificate = get_authority("a stranger").issue(REPOSITORY, days=2)
    registry = hosts.start(REPOSITORY, VC, certificate=certificate)
    error = hosts.fail(oci_chart(registry))
    assert error.reason == "RepositoryNotTrusted" and "the certificate of the registry" in error.message


@pytest.mark.parametrize("name", ["UPPER", "a..b", "-x", "x/../y", "x?y", "a@sha256:0"])
def test_a_name_that_no_registry_has_is_reported(hosts: Hosts, name: str) -> None:
    error = hosts.fail(Chart(name, "oci://charts.example/charts"))
    assert error.reason == "InvalidChart" and "lower-case" in error.message


def test_references() -> None:
    assert parse_reference("oci://host:5000/a/b:1.0.0+x") == ChartReference("https://host:5000", "a/b", "1.0.0_x")
    assert parse_reference("oci://docker.io/library/x") == ChartReference("https://registry-1.docker.io", "library/x")


def test_challenges() -> None:
    header = r'Basic realm="a, Bearer b", Bearer realm="https://x/\"y\"",service=z , scope="s"'
    assert parse_challenges(header) == {
        "basic": {"realm": "a, Bearer b"},
        "bearer": {"realm": 'https://x/"y"', "service": "z", "scope": "s"},
    }
    assert parse_challenges("bearer " * 100_000) == {"bearer": {}, "be": {}} or parse_challenges("bearer " * 9) == {
        "bearer": {}
    }
