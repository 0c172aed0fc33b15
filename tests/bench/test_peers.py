"""Other servers are named on the command line, and may speak HTTP in ways that ours does not."""

import asyncio

import pytest

from bench.connection import Connection, head
from bench.servers import Server, peer


def test_a_peer_is_named_by_address_and_token() -> None:
    kube = peer("kube=https://10.0.0.1:6443,secret")
    assert (kube.name, kube.host, kube.port, kube.root, kube.pid) == ("kube", "10.0.0.1", 6443, "", None)
    assert kube.headers == {"authorization": "Bearer secret"}


def test_the_path_of_its_address_stands_before_every_request() -> None:
    rooted = peer("other=https://host/some/root/,token")
    assert rooted.port == 443
    assert head(rooted, "GET", "/apis", "", 0).startswith(b"GET /some/root/apis HTTP")


@pytest.mark.parametrize("text", ["kube", "kube=https://host", "=https://host,t", "kube=http://host,t", "kube=x,t"])
def test_what_is_not_of_that_form_is_refused_with_the_form(text: str) -> None:
    with pytest.raises(ValueError, match="NAME=https://HOST:PORT,TOKEN"):
        peer(text)


@pytest.mark.parametrize("name", ["fairlead", "ceiling"])
def test_a_peer_cannot_take_the_name_of_a_server_of_ours(name: str) -> None:
    with pytest.raises(ValueError, match="choose another"):
        peer(f"{name}=https://host,t")


async def test_answers_in_chunks_are_put_together() -> None:
    reader = asyncio.StreamReader()
    reader.feed_data(
        b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n{"a\r\nb\r\n":[1,2,3,4]\r\n1\r\n}\r\n0\r\n\r\n'
    )
    connection = Connection(Server("kube", "host", 1, {}), reader, _Silent())  # type: ignore[arg-type]
    assert await connection.ask("GET", "/") == b'{"a":[1,2,3,4]}'


class _Silent:
    """Takes what is written and sends it nowhere."""

    def write(self, data: bytes) -> None:
        return None
