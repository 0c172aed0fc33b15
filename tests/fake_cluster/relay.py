"""Requests to a fake cluster that another server answers: the fake adds what a Fairlead does not have, such as pods."""

import asyncio
import ssl
from urllib.parse import urlsplit

from tests.fake_cluster.exchange import Behaviour, RecordedRequest

_OWN_HEADERS = frozenset({"connection", "host", "content-length", "transfer-encoding", "authorization"})


def build_relay(url: str, path: str, key: str, ca_file: str) -> Behaviour:
    """Passes a request on to `path` of the server, with this key, on a connection of its own."""
    server = urlsplit(url)
    trust = ssl.create_default_context(cafile=ca_file)

    async def relay(request: RecordedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        source, target = await asyncio.open_connection(server.hostname, server.port, ssl=trust)
        try:
            headers = [f"{name}: {value}" for name, value in request.headers if name not in _OWN_HEADERS]
            own = [f"host: {server.netloc}", f"authorization: Bearer {key}", "connection: close"]
            length = [f"content-length: {len(request.body)}"] if request.body else []
            lines = (f"{request.method} {path}{request.target} HTTP/1.1", *headers, *own, *length, "", "")
            target.write("\r\n".join(lines).encode("latin-1") + request.body)
            while data := await source.read(65536):
                writer.write(data)
                await writer.drain()
        finally:
            target.close()
        return False

    return relay
