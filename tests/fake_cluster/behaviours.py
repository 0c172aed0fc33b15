"""Behaviours of the fake cluster at its `/fake/...` paths: the ways in which an upstream can be slow, large or broken.

/fake/slow?seconds=S           responds after a while
/fake/never                    never responds
/fake/hang-up                  closes without a byte
/fake/break-off?bytes=N        announces one byte more than it sends, and closes
/fake/break-chunked            closes in the middle of a chunked body
/fake/stall                    sends a head and half of a body, and then nothing
/fake/redirect?to=URL          302
/fake/status?code=N            an empty response with this status
/fake/huge?bytes=N             that many bytes, with their length
/fake/chunked?bytes=N&size=M   the same in chunks of M bytes
/fake/ticks?count=N&seconds=S  a chunk with a line every S seconds, as a watch or `logs -f` has
/fake/garbage                  not HTTP
/fake/long-head?bytes=N        a head with a header of that size
/fake/until-closed?bytes=N     a body without length, which ends when the connection does
/fake/continue                 100 and 103 first, then a response
/fake/last                     a response with `connection: close`
/fake/drop-idle                a response with keep-alive, and then closes
/fake/extra                    a response and more bytes than it announced
/fake/switch                   101 without an upgrade request
"""

import asyncio
from functools import partial

from tests.fake_cluster.exchange import Behaviour, CannedResponse, RecordedRequest

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n"
BLOCK_BYTES = 64 * 1024


async def respond_slowly(request: RecordedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    await asyncio.sleep(float(request.query.get("seconds", "1")))
    writer.write(CannedResponse(body=b'"slow"').encode(request.method))
    return True


async def never_respond(request: RecordedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    await reader.read()
    return False


async def close_without_response(
    request: RecordedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> bool:
    return False


async def truncate_body(request: RecordedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    count = int(request.query.get("bytes", "10"))
    writer.write(HEAD + b"content-length: %d\r\n\r\n" % (count + 1) + b"x" * count)
    return False


async def stall_in_body(request: RecordedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    writer.write(HEAD + b"content-length: 10\r\n\r\nhalf ")
    await reader.read()
    return False


async def send_redirect(request: RecordedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    location = request.query.get("to", "https://elsewhere.example/")
    writer.write(CannedResponse(302, b"moved", "text/plain", {"location": location}).encode(request.method))
    return True


async def send_status(request: RecordedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    code = int(request.query["code"])
    if code in (204, 304):
        writer.write(b"HTTP/1.1 %d Nothing\r\n\r\n" % code)
    else:
        writer.write(CannedResponse(code, b"fake", "text/plain").encode(request.method))
    return True


async def send_sized_body(request: RecordedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    remaining = int(request.query["bytes"])
    writer.write(HEAD + b"content-length: %d\r\n\r\n" % remaining)
    while remaining > 0:
        writer.write(b"x" * min(remaining, BLOCK_BYTES))
        remaining -= BLOCK_BYTES
        await writer.drain()
    return True


async def send_chunked_body(
    request: RecordedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> bool:
    remaining, size = int(request.query["bytes"]), int(request.query.get("size", "1000"))
    writer.write(HEAD + b"transfer-encoding: chunked\r\n\r\n")
    while remaining > 0:
        count = min(remaining, size)
        writer.write(b"%x\r\n" % count + b"x" * count + b"\r\n")
        remaining -= count
        await writer.drain()
    writer.write(b"0\r\n\r\n")
    return True


async def send_ticks(request: RecordedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    writer.write(HEAD + b"transfer-encoding: chunked\r\n\r\n")
    for number in range(int(request.query.get("count", "1000000"))):
        line = b"tick %d\n" % number
        writer.write(b"%x\r\n%s\r\n" % (len(line), line))
        await writer.drain()
        await asyncio.sleep(float(request.query.get("seconds", "0.05")))
    writer.write(b"0\r\n\r\n")
    return True


async def send_long_head(request: RecordedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    writer.write(HEAD + b"x-long: " + b"x" * int(request.query["bytes"]) + b"\r\ncontent-length: 0\r\n\r\n")
    return True


async def send_body_until_close(
    request: RecordedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> bool:
    writer.write(HEAD + b"connection: close\r\n\r\n" + b"x" * int(request.query["bytes"]))
    return False


async def close_after_response(
    request: RecordedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> bool:
    writer.write(CannedResponse(body=b'"bye"').encode(request.method))
    return False


async def send_raw_bytes(
    content: bytes, request: RecordedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> bool:
    """Writes these bytes, and then keeps the connection open."""
    writer.write(content)
    await writer.drain()
    await reader.read()
    return False


def respond_with_bytes(content: bytes) -> Behaviour:
    return partial(send_raw_bytes, content)


async def truncate_chunked_body(
    request: RecordedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> bool:
    writer.write(HEAD + b"transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n10\r\nhalf")
    return False


async def send_informational_responses(
    request: RecordedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> bool:
    writer.write(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n")
    writer.write(CannedResponse(body=b'"at last"').encode(request.method))
    return True


async def send_last_response(
    request: RecordedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> bool:
    writer.write(CannedResponse(body=b'"last"', headers={"connection": "close"}).encode(request.method))
    return False


BEHAVIOURS: dict[str, Behaviour] = {
    "/fake/slow": respond_slowly,
    "/fake/never": never_respond,
    "/fake/hang-up": close_without_response,
    "/fake/break-off": truncate_body,
    "/fake/break-chunked": truncate_chunked_body,
    "/fake/stall": stall_in_body,
    "/fake/redirect": send_redirect,
    "/fake/status": send_status,
    "/fake/huge": send_sized_body,
    "/fake/chunked": send_chunked_body,
    "/fake/ticks": send_ticks,
    "/fake/garbage": respond_with_bytes(b"SSH-2.0-OpenSSH_9.6\r\nhello\r\n\r\n"),
    "/fake/long-head": send_long_head,
    "/fake/until-closed": send_body_until_close,
    "/fake/continue": send_informational_responses,
    "/fake/last": send_last_response,
    "/fake/drop-idle": close_after_response,
    "/fake/extra": respond_with_bytes(
        HEAD + b"content-length: 2\r\n\r\nokHTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil"
    ),
    "/fake/switch": respond_with_bytes(
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: tunnel\r\nconnection: upgrade\r\n\r\nboo"
    ),
}
