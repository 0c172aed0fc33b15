"""Tests of `fairlead.upstream.kubeconfig` (T-12, T-22): fields that would run programs, read files or use proxies are
rejected with an instruction."""

import weakref
from base64 import b64encode
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from fairlead.upstream.kubeconfig import InvalidKubeconfig, parse_kubeconfig
from fairlead.upstream.kubeconfig import kubeconfig_problems as list_problems
from tests.fake_cluster.certificates import get_authority

CANARY = "canary-credential"


def encode_base64(text: str) -> str:
    return b64encode(text.encode()).decode()


def build_kubeconfig(cluster: dict[str, Any] | None = None, user: dict[str, Any] | None = None, **top: Any) -> bytes:
    """A valid kubeconfig with these fields added or replaced."""
    valid_cluster = {
        "server": "https://berlin.example.com:6443",
        "certificate-authority-data": encode_base64(get_authority().pem),
    }
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "n"}}],
        "clusters": [{"name": "c", "cluster": {**valid_cluster, **(cluster or {})}}],
        "users": [{"name": "u", "user": {"token": CANARY} if user is None else user}],
    }
    return yaml.safe_dump({**content, **top}).encode()


def expect_problems(content: bytes) -> tuple[str, ...]:
    with pytest.raises(InvalidKubeconfig) as caught:
        parse_kubeconfig(content)
    assert CANARY not in str(caught.value)
    return caught.value.problems


def test_a_server_an_authority_and_a_token_are_sufficient() -> None:
    endpoint = parse_kubeconfig(build_kubeconfig())
    assert (endpoint.host, endpoint.port, endpoint.base_path) == ("berlin.example.com", 6443, "")
    assert endpoint.tls_server_name == "berlin.example.com"
    assert endpoint.ca_data == get_authority().pem
    assert endpoint.token == CANARY
    assert CANARY not in repr(endpoint)


def test_a_client_certificate_can_replace_the_token() -> None:
    pem = get_authority().issue(common_name="ada")
    user = {"client-certificate-data": encode_base64(pem.certificate), "client-key-data": encode_base64(pem.key)}
    endpoint = parse_kubeconfig(build_kubeconfig(user=user))
    assert (endpoint.client_certificate, endpoint.client_key, endpoint.token) == (pem.certificate, pem.key, "")


def test_a_path_the_default_port_and_a_tls_server_name_are_parsed() -> None:
    endpoint = parse_kubeconfig(
        build_kubeconfig({"server": "https://HUB.example.com/k8s/clusters/c-1/", "tls-server-name": "inside"})
    )
    assert (endpoint.host, endpoint.port, endpoint.base_path) == ("hub.example.com", 443, "/k8s/clusters/c-1")
    assert endpoint.tls_server_name == "inside"
    assert parse_kubeconfig(build_kubeconfig({"server": "https://[2001:db8::7]:8443"})).host == "2001:db8::7"


def test_without_an_authority_the_system_authorities_are_used() -> None:
    assert parse_kubeconfig(build_kubeconfig({"certificate-authority-data": ""})).ca_data == ""


def test_the_only_context_is_the_default() -> None:
    assert parse_kubeconfig(edit_kubeconfig(lambda content: content.pop("current-context"))).token == CANARY


def test_extensions_and_empty_fields_are_ignored() -> None:
    cluster = {"extensions": [{"name": "minikube"}], "proxy-url": "", "disable-compression": True}
    assert parse_kubeconfig(build_kubeconfig(cluster, {"token": CANARY, "username": ""})).token == CANARY


REJECTED_USER_FIELDS = {
    "exec": {"command": "aws"},
    "auth-provider": {"name": "gcp"},
    "tokenFile": "/etc/passwd",
    "client-certificate": "/etc/passwd",
    "client-key": "/etc/passwd",
    "username": "admin",
    "password": CANARY,
    "as": "system:admin",
    "as-groups": ["system:masters"],
    "as-uid": "1",
    "as-user-extra": {"a": ["b"]},
    "somethingNew": CANARY,
}


@pytest.mark.parametrize("field", REJECTED_USER_FIELDS)
def test_t12_user_fields_that_run_programs_read_files_or_impersonate_are_rejected(field: str) -> None:
    [problem] = expect_problems(build_kubeconfig(user={"token": CANARY, field: REJECTED_USER_FIELDS[field]}))
    assert problem.startswith(f"user: {field} ")
    assert "; " in problem


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("certificate-authority", "/etc/passwd"),
        ("proxy-url", "socks5://proxy.example.com:1080"),
        ("insecure-skip-tls-verify", True),
        ("somethingNew", "x"),
    ],
)
def test_t12_cluster_fields_that_read_files_use_other_proxies_or_skip_tls_are_rejected(
    field: str, value: object
) -> None:
    [problem] = expect_problems(build_kubeconfig({field: value}))
    assert problem.startswith(f"cluster: {field} ")


def test_t12_a_field_with_an_invalid_name_is_rejected_without_quoting_it() -> None:
    assert expect_problems(build_kubeconfig(user={"token": "t", f"{CANARY}: {CANARY}": "x"})) == (
        "user: a field with an invalid name is not supported; remove it",
    )


@pytest.mark.parametrize(
    "server",
    [
        "http://berlin.example.com",
        "ftp://berlin.example.com",
        "berlin.example.com:6443",
        "https://ada:secret@berlin.example.com",
        "https://@berlin.example.com",
        "https://berlin.example.com/#part",
        "https://berlin.example.com#",
        "https://berlin.example.com?x=1",
        "https://berlin.example.com?",
        "https://berlin.example.com:0",
        "https://berlin.example.com:99999",
        "https://berlin.example.com:",
        "https://berlin.example.com/a/../b",
        "https://berlin.example.com/%2e%2e/b",
        "https://berlin.example.com//b",
        "https://berlin.example.com\\@evil.example",
        "https://berlin.example.com\r\nHost: evil",
        "https://berlin example.com",
        "https://bérlin.example.com",
        "https://[fe80::1%25eth0]:6443",
        "https://[::1",
        "https://*.example.com",
        "https://",
        "",
        7,
    ],
)
def test_t22_a_server_that_is_not_an_https_url_with_host_port_and_path_is_rejected(server: object) -> None:
    [problem] = expect_problems(build_kubeconfig({"server": server}))
    assert problem.startswith("cluster: server")
    assert "https://cluster.example.com:6443" in problem
    assert "evil" not in problem


@pytest.mark.parametrize(
    ("cluster", "user", "prefix"),
    [
        ({"certificate-authority-data": "?"}, None, "cluster: certificate-authority-data is not a base64-encoded"),
        (
            {"certificate-authority-data": encode_base64("no PEM")},
            None,
            "cluster: certificate-authority-data contains no",
        ),
        ({"tls-server-name": "a b"}, None, "cluster: tls-server-name"),
        ({"tls-server-name": ["a"]}, None, "cluster: tls-server-name"),
        (None, {"token": "two\r\nlines"}, "user: token"),
        (None, {"token": 7}, "user: token"),
        (None, {"client-key-data": encode_base64("x")}, "user: client-certificate-data and client-key-data must"),
        (
            None,
            {"client-certificate-data": encode_base64("x"), "client-key-data": encode_base64("y")},
            "user: client-certificate",
        ),
        (None, {}, "user: has neither a token nor a client certificate"),
    ],
)
def test_an_invalid_value_is_a_problem_of_its_field(cluster: Any, user: Any, prefix: str) -> None:
    [problem] = expect_problems(build_kubeconfig(cluster, user))
    assert problem.startswith(prefix)


def test_a_key_that_does_not_match_the_certificate_is_a_problem() -> None:
    first, second = get_authority().issue(common_name="ada"), get_authority().issue(common_name="bob")
    user = {"client-certificate-data": encode_base64(first.certificate), "client-key-data": encode_base64(second.key)}
    [problem] = expect_problems(build_kubeconfig(user=user))
    assert "does not match client-certificate-data" in problem


def test_an_rsa_key_is_only_compared_with_its_certificate() -> None:
    """To validate one takes 200 ms of the event loop. This one would fail: its private exponent is wrong."""
    key = rsa.generate_private_key(65537, 2048)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "ada")])
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), serial_number=1)
        .not_valid_before(datetime(2026, 1, 1, tzinfo=UTC))
        .not_valid_after(datetime(2100, 1, 1, tzinfo=UTC))
        .sign(key, hashes.SHA256())
        .public_bytes(Encoding.PEM)
        .decode()
    )
    numbers = key.private_numbers()
    wrong = rsa.RSAPrivateNumbers(
        p=numbers.p,
        q=numbers.q,
        d=numbers.d + 2,
        dmp1=numbers.dmp1,
        dmq1=numbers.dmq1,
        iqmp=numbers.iqmp,
        public_numbers=numbers.public_numbers,
    ).private_key(unsafe_skip_rsa_key_validation=True)
    pem = wrong.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()).decode()
    user = {"client-certificate-data": encode_base64(certificate), "client-key-data": encode_base64(pem)}
    assert parse_kubeconfig(build_kubeconfig(user=user)).client_key == pem


def test_the_same_content_is_parsed_once_while_it_is_in_use() -> None:
    endpoint = parse_kubeconfig(build_kubeconfig())
    assert parse_kubeconfig(build_kubeconfig()) is endpoint
    assert parse_kubeconfig(build_kubeconfig(user={"token": "other"})) is not endpoint
    reference = weakref.ref(endpoint)
    del endpoint
    assert reference() is None


def test_all_problems_are_reported_together() -> None:
    problems = expect_problems(build_kubeconfig({"server": "http://x", "proxy-url": "p"}, {"exec": {"command": "x"}}))
    assert [problem.split(";")[0] for problem in problems] == [
        "user: exec would run a program on the server",
        "cluster: server must be an https URL",
        "cluster: proxy-url must be an http URL",
    ]


@pytest.mark.parametrize(
    ("content", "prefix"),
    [
        (b"", "empty or not a kubeconfig"),
        (b"[]", "empty or not a kubeconfig"),
        (f"a: [{CANARY}".encode(), "invalid YAML in line 1"),
        (b"\xff", "invalid YAML"),
        (b"{}", "current-context is missing"),
        (build_kubeconfig(kind="Secret"), "wrong kind"),
        (build_kubeconfig(contexts=[]), "the context is not in contexts"),
        (build_kubeconfig(contexts=7), "the context is not in contexts"),
        (build_kubeconfig(clusters=[{"name": "other"}]), "the cluster is not in clusters"),
        (build_kubeconfig(users=[{"name": "u", "user": None}]), "user: must be an object"),
        (
            build_kubeconfig(users=[{"name": "u", "user": {}}, {"name": "u", "user": {}}]),
            "the user occurs more than once",
        ),
        (build_kubeconfig() + b"users: []\n", "duplicate field"),
    ],
)
def test_a_text_that_is_no_kubeconfig_is_a_problem(content: bytes, prefix: str) -> None:
    assert expect_problems(content)[0].startswith(prefix)


def test_nested_yaml_aliases_are_rejected() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    assert expect_problems("\n".join(lines).encode())[0].startswith("invalid YAML")


def edit_kubeconfig(edit: Callable[[dict[str, Any]], object]) -> bytes:
    content = yaml.safe_load(build_kubeconfig())
    edit(content)
    return yaml.safe_dump(content).encode()


@pytest.mark.parametrize("value", [None, 7, "x", [], {}, [[]], {"a": {}}, True])
@pytest.mark.parametrize("section", ["contexts", "clusters", "users", "current-context", "kind", "apiVersion"])
def test_any_content_results_in_an_endpoint_or_in_problems(section: str, value: object) -> None:
    try:
        endpoint = parse_kubeconfig(edit_kubeconfig(lambda content: content.update({section: value})))
    except InvalidKubeconfig as error:
        assert error.problems
    else:
        assert endpoint.host == "berlin.example.com"


def test_problems_can_be_listed_without_an_endpoint() -> None:
    assert list_problems(build_kubeconfig()) == ()
    assert list_problems(b"") == expect_problems(b"")


def test_a_certificate_with_an_unsupported_key_type_is_a_problem() -> None:
    pair = get_authority().issue(common_name="ada")
    der = x509.load_pem_x509_certificate(pair.certificate.encode()).public_bytes(Encoding.DER)
    known_oid = next(oid for oid in map(bytes.fromhex, ("2a8648ce3d0201", "2a864886f70d010101")) if oid in der)
    certificate = b64encode(der.replace(known_oid, known_oid[:-1] + b"\x7f")).decode()
    pem = f"-----BEGIN CERTIFICATE-----\n{certificate}\n-----END CERTIFICATE-----\n"
    user = {"client-certificate-data": encode_base64(pem), "client-key-data": encode_base64(pair.key)}
    [problem] = expect_problems(build_kubeconfig(user=user))
    assert problem.startswith("user: client-certificate-data has an unsupported key type")
