"""Tests of peers: other servers on the command line, and their HTTP responses."""

import asyncio
import os

import pytest

from bench.connection import Connection, build_head
from bench.servers import Server, parse_peer


def test_a_peer_is_given_by_address_and_token() -> None:
    kube = parse_peer("kube=https://10.0.0.1:6443,secret")
    assert (kube.name, kube.host, kube.port, kube.root, kube.pids) == ("kube", "10.0.0.1", 6443, "", ())
    assert kube.headers == {"authorization": "Bearer secret"}


def test_without_its_processes_the_processor_time_and_memory_of_a_peer_are_unknown() -> None:
    kube = parse_peer("kube=https://host,secret")
    assert (kube.cpu_seconds(), kube.memory(), kube.cpu_us_since(None, 1)) == (None, None, None)


def test_the_processor_time_and_memory_of_a_peer_are_those_of_its_processes() -> None:
    process = os.getpid()
    kube = parse_peer(f"kube=https://host,secret,{process}+{process}")
    assert kube.headers == {"authorization": "Bearer secret"} and kube.pids == (process, process)
    assert (kube.cpu_seconds() or 0) > 0 and (kube.memory() or 0) > 1024 * 1024


@pytest.mark.parametrize(("pids", "message"), [("x", "'x' is not the id"), ("0", "process 0 cannot be read")])
def test_a_process_that_cannot_be_read_is_rejected(pids: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_peer(f"kube=https://host,secret,{pids}")


def test_the_path_of_its_address_is_the_prefix_of_every_request() -> None:
    rooted = parse_peer("other=https://host/some/root/,token")
    assert rooted.port == 443
    assert build_head(rooted, "GET", "/apis", "", 0).startswith(b"GET /some/root/apis HTTP")


@pytest.mark.parametrize("text", ["kube", "kube=https://host", "=https://host,t", "kube=http://host,t", "kube=x,t"])
def test_an_invalid_peer_is_rejected_with_the_expected_form(text: str) -> None:
    with pytest.raises(ValueError, match="NAME=https://HOST:PORT,TOKEN"):
        parse_peer(text)


@pytest.mark.parametrize("name", ["fairlead", "ceiling"])
def test_a_peer_cannot_have_the_name_of_our_servers(name: str) -> None:
    with pytest.raises(ValueError, match="choose another"):
        parse_peer(f"{name}=https://host,t")


async def test_chunked_responses_are_joined() -> None:
    reader = asyncio.StreamReader()
    reader.feed_data(
        b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n{"a\r\nb\r\n":[1,2,3,4]\r\n1\r\n}\r\n0\r\n\r\n'
    )
    connection = Connection(Server("kube", "host", 1, {}), reader, _NullWriter())  # type: ignore[arg-type]
    assert await connection.request("GET", "/") == b'{"a":[1,2,3,4]}'


class _NullWriter:
    """Discards what is written."""

    def write(self, data: bytes) -> None:
        return None
