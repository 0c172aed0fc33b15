"""Kubeconfigs are read strictly: what would run, read or go elsewhere is refused with what to do (T-12, T-22)."""

from base64 import b64encode
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from fairlead.upstream.kubeconfig import InvalidKubeconfig, parse_kubeconfig
from fairlead.upstream.kubeconfig import kubeconfig_problems as list_problems
from tests.fake_cluster.certificates import authority

CANARY = "canary-credential"


def encoded(text: str) -> str:
    return b64encode(text.encode()).decode()


def config(cluster: dict[str, Any] | None = None, user: dict[str, Any] | None = None, **top: Any) -> bytes:
    """A kubeconfig that is accepted, but for what is given."""
    whole = {"server": "https://berlin.example.com:6443", "certificate-authority-data": encoded(authority().pem)}
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "n"}}],
        "clusters": [{"name": "c", "cluster": {**whole, **(cluster or {})}}],
        "users": [{"name": "u", "user": {"token": CANARY} if user is None else user}],
    }
    return yaml.safe_dump({**content, **top}).encode()


def problems(content: bytes) -> tuple[str, ...]:
    with pytest.raises(InvalidKubeconfig) as raised:
        parse_kubeconfig(content)
    assert CANARY not in str(raised.value)
    return raised.value.problems


def test_an_address_an_authority_and_a_token_are_all_it_takes() -> None:
    access = parse_kubeconfig(config())
    assert (access.host, access.port, access.base_path) == ("berlin.example.com", 6443, "")
    assert access.tls_server_name == "berlin.example.com"
    assert access.ca_data == authority().pem
    assert access.token == CANARY
    assert CANARY not in repr(access)


def test_a_client_certificate_does_instead_of_a_token() -> None:
    pem = authority().issue(common_name="ada")
    user = {"client-certificate-data": encoded(pem.certificate), "client-key-data": encoded(pem.key)}
    access = parse_kubeconfig(config(user=user))
    assert (access.client_certificate, access.client_key, access.token) == (pem.certificate, pem.key, "")


def test_a_path_a_default_port_and_another_server_name_are_understood() -> None:
    access = parse_kubeconfig(
        config({"server": "https://HUB.example.com/k8s/clusters/c-1/", "tls-server-name": "inside"})
    )
    assert (access.host, access.port, access.base_path) == ("hub.example.com", 443, "/k8s/clusters/c-1")
    assert access.tls_server_name == "inside"
    assert parse_kubeconfig(config({"server": "https://[2001:db8::7]:8443"})).host == "2001:db8::7"


def test_without_an_authority_the_machines_own_are_meant() -> None:
    assert parse_kubeconfig(config({"certificate-authority-data": ""})).ca_data == ""


def test_the_only_context_is_the_current_one() -> None:
    assert parse_kubeconfig(shaken(lambda content: content.pop("current-context"))).token == CANARY


def test_notes_of_other_tools_and_empty_fields_are_passed_over() -> None:
    cluster = {"extensions": [{"name": "minikube"}], "proxy-url": "", "disable-compression": True}
    assert parse_kubeconfig(config(cluster, {"token": CANARY, "username": ""})).token == CANARY


REFUSED_OF_USERS = {
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


@pytest.mark.parametrize("field", REFUSED_OF_USERS)
def test_t12_what_would_run_read_or_pretend_is_refused_of_users(field: str) -> None:
    [problem] = problems(config(user={"token": CANARY, field: REFUSED_OF_USERS[field]}))
    assert problem.startswith(f"user: {field} ")
    assert "; " in problem


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("certificate-authority", "/etc/passwd"),
        ("proxy-url", "http://proxy.example.com:3128"),
        ("insecure-skip-tls-verify", True),
        ("somethingNew", "x"),
    ],
)
def test_t12_what_would_read_or_go_elsewhere_is_refused_of_clusters(field: str, value: object) -> None:
    [problem] = problems(config({field: value}))
    assert problem.startswith(f"cluster: {field} ")


def test_t12_a_field_with_a_strange_name_is_refused_without_quoting_it() -> None:
    assert problems(config(user={"token": "t", f"{CANARY}: {CANARY}": "x"})) == (
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
def test_t22_an_address_that_is_more_or_less_than_https_host_port_path_is_refused(server: object) -> None:
    [problem] = problems(config({"server": server}))
    assert problem.startswith("cluster: server")
    assert "https://cluster.example.com:6443" in problem
    assert "evil" not in problem


@pytest.mark.parametrize(
    ("cluster", "user", "begin"),
    [
        ({"certificate-authority-data": "?"}, None, "cluster: certificate-authority-data is not a base64-encoded"),
        ({"certificate-authority-data": encoded("no PEM")}, None, "cluster: certificate-authority-data contains no"),
        ({"tls-server-name": "a b"}, None, "cluster: tls-server-name"),
        ({"tls-server-name": ["a"]}, None, "cluster: tls-server-name"),
        (None, {"token": "two\r\nlines"}, "user: token"),
        (None, {"token": 7}, "user: token"),
        (None, {"client-key-data": encoded("x")}, "user: client-certificate-data and client-key-data must"),
        (None, {"client-certificate-data": encoded("x"), "client-key-data": encoded("y")}, "user: client-certificate"),
        (None, {}, "user: has neither a token nor a client certificate"),
    ],
)
def test_what_cannot_be_used_is_said_with_what_to_do(cluster: Any, user: Any, begin: str) -> None:
    [problem] = problems(config(cluster, user))
    assert problem.startswith(begin)


def test_a_key_of_another_certificate_is_noticed() -> None:
    one, other = authority().issue(common_name="ada"), authority().issue(common_name="bob")
    user = {"client-certificate-data": encoded(one.certificate), "client-key-data": encoded(other.key)}
    [problem] = problems(config(user=user))
    assert "does not match client-certificate-data" in problem


def test_everything_that_is_wrong_is_told_at_once() -> None:
    found = problems(config({"server": "http://x", "proxy-url": "p"}, {"exec": {"command": "x"}}))
    assert [each.split(";")[0] for each in found] == [
        "cluster: proxy-url is not supported",
        "user: exec would run a program on the server",
        "cluster: server must be an https URL",
    ]


@pytest.mark.parametrize(
    ("content", "begin"),
    [
        (b"", "empty or not a kubeconfig"),
        (b"[]", "empty or not a kubeconfig"),
        (f"a: [{CANARY}".encode(), "invalid YAML in line 1"),
        (b"\xff", "invalid YAML"),
        (b"{}", "current-context is missing"),
        (config(kind="Secret"), "wrong kind"),
        (config(contexts=[]), "the context is not in contexts"),
        (config(contexts=7), "the context is not in contexts"),
        (config(clusters=[{"name": "other"}]), "the cluster is not in clusters"),
        (config(users=[{"name": "u", "user": None}]), "user: must be an object"),
        (config(users=[{"name": "u", "user": {}}, {"name": "u", "user": {}}]), "the user occurs more than once"),
        (config() + b"users: []\n", "duplicate field"),
    ],
)
def test_what_is_no_kubeconfig_is_told_apart(content: bytes, begin: str) -> None:
    assert problems(content)[0].startswith(begin)


def test_a_bomb_of_aliases_is_refused() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    assert problems("\n".join(lines).encode())[0].startswith("invalid YAML")


def shaken(edit: Callable[[dict[str, Any]], object]) -> bytes:
    content = yaml.safe_load(config())
    edit(content)
    return yaml.safe_dump(content).encode()


@pytest.mark.parametrize("value", [None, 7, "x", [], {}, [[]], {"a": {}}, True])
@pytest.mark.parametrize("section", ["contexts", "clusters", "users", "current-context", "kind", "apiVersion"])
def test_no_shape_of_it_leads_to_anything_but_an_access_or_problems(section: str, value: object) -> None:
    try:
        access = parse_kubeconfig(shaken(lambda content: content.update({section: value})))
    except InvalidKubeconfig as error:
        assert error.problems
    else:
        assert access.host == "berlin.example.com"


def test_problems_can_be_asked_for_without_the_access() -> None:
    assert list_problems(config()) == ()
    assert list_problems(b"") == problems(b"")


def test_a_certificate_for_a_key_of_an_unknown_sort_is_a_problem_and_no_crash() -> None:
    pair = authority().issue(common_name="ada")
    der = x509.load_pem_x509_certificate(pair.certificate.encode()).public_bytes(Encoding.DER)
    known = next(each for each in map(bytes.fromhex, ("2a8648ce3d0201", "2a864886f70d010101")) if each in der)
    strange = b64encode(der.replace(known, known[:-1] + b"\x7f")).decode()
    pem = f"-----BEGIN CERTIFICATE-----\n{strange}\n-----END CERTIFICATE-----\n"
    user = {"client-certificate-data": encoded(pem), "client-key-data": encoded(pair.key)}
    [problem] = problems(config(user=user))
    assert problem.startswith("user: client-certificate-data has an unsupported key type")
