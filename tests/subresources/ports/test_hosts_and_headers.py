"""Host names of ports, signed grants, and the headers and cookies of programs."""

import msgspec
import pytest

from fairlead.core.errors import BadRequest
from fairlead.subresources.ports.cookies import rewrite_set_cookies
from fairlead.subresources.ports.grants import Grant, GrantSigners
from fairlead.subresources.ports.headers import PortHeadEncoder, rewrite_location
from fairlead.subresources.ports.hosts import MAX_NAMES_CHARS, PortAddress, PortHosts, mark_of

HOSTS = PortHosts("ports.example.com", "https://fairlead.example.com:8443")
GRANT = Grant(
    namespace="service-p-demo",
    workspace="desk",
    uid="u",
    port=8080,
    key="login-ada-x",
    user="ada",
    user_uid="v",
    expires=100,
)


def test_a_host_name_and_its_port_belong_together() -> None:
    address = PortAddress(8080, "my-desk", "demo")
    origin = HOSTS.origin(address)
    assert origin == "https://8080--my-desk--demo.ports.example.com:8443"
    assert HOSTS.parse(origin.removeprefix("https://")) == address


def test_each_workspace_has_its_own_origin_whatever_its_name() -> None:
    addresses = [PortAddress(8080, "desk", "demo", mark_of(uid)) for uid in ("former", "later")]
    origins = [HOSTS.origin(each) for each in addresses]
    assert len({*origins, HOSTS.origin(PortAddress(8080, "desk", "demo"))}) == 3
    assert [HOSTS.parse(each.removeprefix("https://")) for each in origins] == addresses


def test_a_name_that_has_a_host_has_one_with_the_mark_as_well() -> None:
    longest = "d" * (MAX_NAMES_CHARS - len("8080----demo"))
    for mark in ("", mark_of("x")):
        origin = HOSTS.origin(PortAddress(8080, longest, "demo", mark))
        label = origin.removeprefix("https://").partition(".")[0]
        assert len(label) <= 63
        with pytest.raises(BadRequest):
            HOSTS.origin(PortAddress(8080, f"{longest}d", "demo", mark))


@pytest.mark.parametrize(
    "host",
    [
        "0--desk--demo.ports.example.com",
        "65536--desk--demo.ports.example.com",
        "8080--desk.ports.example.com",
        "8080--desk--demo--x.ports.example.com",
        "8080--desk--demo--abcdefg1.ports.example.com",
        "8080--desk--demo--abcdefgh--abcdefgh.ports.example.com",
        "a.8080--desk--demo.ports.example.com",
        "ports.example.com",
        f"8080--{'d' * 60}--demo.ports.example.com",
    ],
)
def test_other_names_of_the_domain_are_no_ports_and_are_not_the_servers_either(host: str) -> None:
    assert HOSTS.parse(host) is None
    assert HOSTS.covers(host)


@pytest.mark.parametrize("host", ["fairlead.example.com", "example.com", "evilports.example.com", "", "127.0.0.1:8443"])
def test_other_hosts_are_those_of_the_server(host: str) -> None:
    assert not HOSTS.covers(host)


@pytest.mark.parametrize("name", ["a--b", "a.b", "d" * 60])
def test_a_workspace_whose_name_makes_no_label_gets_a_clear_error(name: str) -> None:
    with pytest.raises(BadRequest, match="port-forward"):
        HOSTS.origin(PortAddress(8080, name, "demo"))


def test_a_ticket_is_no_session_and_neither_outlives_its_time_or_its_server() -> None:
    signers = GrantSigners(b"secret")
    ticket = signers.tickets.sign(GRANT)
    assert signers.tickets.open(ticket, 99) == GRANT
    assert signers.tickets.open(ticket, 100) is None
    assert signers.sessions.open(ticket, 99) is None
    assert GrantSigners(b"other").tickets.open(ticket, 99) is None
    changed = signers.tickets.sign(msgspec.structs.replace(GRANT, port=22)).partition(".")[0]
    assert signers.tickets.open(f"{changed}.{ticket.partition('.')[2]}", 99) is None


@pytest.mark.parametrize(
    ("location", "expected"),
    [
        ("http://localhost:8080/a?b#c", "https://x/a?b#c"),
        ("https://127.0.0.1:8080", "https://x/"),
        ("http://localhost:8080?b", "https://x/?b"),
        ("http://localhost:8080.evil.example.com/", "http://localhost:8080.evil.example.com/"),
        ("http://localhost:9090/", "http://localhost:9090/"),
        ("/relative", "/relative"),
    ],
)
def test_only_redirects_to_the_port_itself_are_rewritten(location: str, expected: str) -> None:
    assert rewrite_location(location, "https://x", 8080) == expected


@pytest.mark.parametrize(
    "header", ["__host-FAIRLEAD_port=x", "no-value", "bad name=x", "a=b\x01", f"a={'x' * 5000}", "=x"]
)
def test_cookies_that_are_invalid_or_the_servers_are_dropped(header: str) -> None:
    assert list(rewrite_set_cookies([header])) == []


def test_no_header_of_a_client_becomes_a_second_request() -> None:
    encoder = PortHeadEncoder(8080)
    head = encoder.encode("GET", "/a?b", [("accept", "*/*"), ("content-length", "3")], "content-length: 3\r\n")
    assert head == b"GET /a?b HTTP/1.1\r\nhost: localhost:8080\r\naccept: */*\r\ncontent-length: 3\r\n\r\n"
    for method, target, name, value in (
        ("GET", "/a b", "a", "b"),
        ("G ET", "/", "a", "b"),
        ("GET", "/", "a b", "c"),
        ("GET", "/", "a", "b\r\nc: d"),
        ("GET", "/", "a", "b\nc: d"),
    ):
        with pytest.raises(BadRequest):
            encoder.encode(method, target, [(name, value)], "")
