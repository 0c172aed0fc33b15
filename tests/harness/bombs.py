"""Compressed content that is many times larger when it is unpacked, made without packing all of it."""

import struct
import zlib


def repeat_compressed(block: bytes, count: int) -> bytes:
    """What `gzip.compress(block * count)` stands for, as one member: some decoders read no second one.

    After a full flush, a deflate stream ends at a byte and refers to nothing before it, so it can be repeated.
    """
    compressor = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    packed = compressor.compress(block) + compressor.flush(zlib.Z_FULL_FLUSH)
    end = compressor.flush(zlib.Z_FINISH)
    checksum = 0
    for _ in range(count):
        checksum = zlib.crc32(block, checksum)
    header = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
    return header + packed * count + end + struct.pack("<II", checksum, len(block) * count & 0xFFFFFFFF)
