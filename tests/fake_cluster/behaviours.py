"""What the far side does at its `/far/...` paths: all the ways in which an upstream can be slow, large or broken.

/far/slow?seconds=S           answers after a while
/far/never                    never answers
/far/hang-up                  closes without a byte
/far/break-off?bytes=N        promises one byte more than it sends, and closes
/far/break-chunked            closes in the middle of a chunked body
/far/stall                    sends a head and half of a body, and then nothing
/far/redirect?to=URL          302
/far/status?code=N            an empty answer with this status
/far/huge?bytes=N             that many bytes, with their length
/far/chunked?bytes=N&size=M   the same in chunks of M bytes
/far/ticks?count=N&seconds=S  a chunk with a line every S seconds, as a watch or `logs -f` has
/far/garbage                  not HTTP
/far/long-head?bytes=N        a head with a header of that size
/far/until-closed?bytes=N     a body without length, which ends when the connection does
/far/continue                 100 and 103 first, then an answer
/far/last                     an answer with `connection: close`
/far/drop-idle                an answer that lets the client believe in a connection which is then closed
/far/extra                    an answer and more bytes than it said
/far/switch                   101 without having been asked
"""

import asyncio
from functools import partial

from tests.fake_cluster.exchange import Answer, Behaviour, RecordedRequest

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n"
PIECE = 64 * 1024


async def slow(asked: RecordedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    await asyncio.sleep(float(asked.query.get("seconds", "1")))
    writer.write(Answer(body=b'"slow"').wire(asked.method))
    return True


async def never(asked: RecordedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    await reader.read()
    return False


async def hang_up(asked: RecordedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    return False


async def break_off(asked: RecordedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    count = int(asked.query.get("bytes", "10"))
    writer.write(HEAD + b"content-length: %d\r\n\r\n" % (count + 1) + b"x" * count)
    return False


async def stall(asked: RecordedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    writer.write(HEAD + b"content-length: 10\r\n\r\nhalf ")
    await reader.read()
    return False


async def redirect(asked: RecordedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    to = asked.query.get("to", "https://elsewhere.example/")
    writer.write(Answer(302, b"moved", "text/plain", {"location": to}).wire(asked.method))
    return True


async def status(asked: RecordedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    code = int(asked.query["code"])
    if code in (204, 304):
        writer.write(b"HTTP/1.1 %d Nothing\r\n\r\n" % code)
    else:
        writer.write(Answer(code, b"far", "text/plain").wire(asked.method))
    return True


async def huge(asked: RecordedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    left = int(asked.query["bytes"])
    writer.write(HEAD + b"content-length: %d\r\n\r\n" % left)
    while left > 0:
        writer.write(b"x" * min(left, PIECE))
        left -= PIECE
        await writer.drain()
    return True


async def chunked(asked: RecordedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    left, size = int(asked.query["bytes"]), int(asked.query.get("size", "1000"))
    writer.write(HEAD + b"transfer-encoding: chunked\r\n\r\n")
    while left > 0:
        count = min(left, size)
        writer.write(b"%x\r\n" % count + b"x" * count + b"\r\n")
        left -= count
        await writer.drain()
    writer.write(b"0\r\n\r\n")
    return True


async def ticks(asked: RecordedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    writer.write(HEAD + b"transfer-encoding: chunked\r\n\r\n")
    for number in range(int(asked.query.get("count", "1000000"))):
        line = b"tick %d\n" % number
        writer.write(b"%x\r\n%s\r\n" % (len(line), line))
        await writer.drain()
        await asyncio.sleep(float(asked.query.get("seconds", "0.05")))
    writer.write(b"0\r\n\r\n")
    return True


async def long_head(asked: RecordedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    writer.write(HEAD + b"x-long: " + b"x" * int(asked.query["bytes"]) + b"\r\ncontent-length: 0\r\n\r\n")
    return True


async def until_closed(asked: RecordedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    writer.write(HEAD + b"connection: close\r\n\r\n" + b"x" * int(asked.query["bytes"]))
    return False


async def drop_idle(asked: RecordedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    writer.write(Answer(body=b'"bye"').wire(asked.method))
    return False


async def raw(
    content: bytes, asked: RecordedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> bool:
    """These bytes, and then the silence of one who believes to have answered."""
    writer.write(content)
    await writer.drain()
    await reader.read()
    return False


def sending(content: bytes) -> Behaviour:
    return partial(raw, content)


async def broken_chunk(asked: RecordedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    writer.write(HEAD + b"transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n10\r\nhalf")
    return False


async def informed(asked: RecordedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    writer.write(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n")
    writer.write(Answer(body=b'"at last"').wire(asked.method))
    return True


async def last(asked: RecordedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    writer.write(Answer(body=b'"last"', headers={"connection": "close"}).wire(asked.method))
    return False


BEHAVIOURS: dict[str, Behaviour] = {
    "/far/slow": slow,
    "/far/never": never,
    "/far/hang-up": hang_up,
    "/far/break-off": break_off,
    "/far/break-chunked": broken_chunk,
    "/far/stall": stall,
    "/far/redirect": redirect,
    "/far/status": status,
    "/far/huge": huge,
    "/far/chunked": chunked,
    "/far/ticks": ticks,
    "/far/garbage": sending(b"SSH-2.0-OpenSSH_9.6\r\nwho are you\r\n\r\n"),
    "/far/long-head": long_head,
    "/far/until-closed": until_closed,
    "/far/continue": informed,
    "/far/last": last,
    "/far/drop-idle": drop_idle,
    "/far/extra": sending(HEAD + b"content-length: 2\r\n\r\nokHTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil"),
    "/far/switch": sending(b"HTTP/1.1 101 Switching Protocols\r\nupgrade: tunnel\r\nconnection: upgrade\r\n\r\nboo"),
}
