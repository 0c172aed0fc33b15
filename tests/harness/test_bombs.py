"""tests.harness.bombs: what it makes is one gzip stream that unpacks to the repeated block."""

import gzip
import zlib

from tests.harness.bombs import repeat_compressed


def test_the_stream_is_one_member_and_unpacks_to_the_repeated_block() -> None:
    block = bytes(range(256)) * 300
    packed = repeat_compressed(block, 5)
    assert gzip.decompress(packed) == block * 5
    decoder = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
    assert decoder.decompress(packed) == block * 5
    assert decoder.eof and decoder.unused_data == b""
