"""storage/socket/frames.py: processes that share the memory see the same numbers."""

import mmap
import os

import pytest

from fairlead.storage.socket import SharedRevision


def test_another_process_sees_what_the_owner_publishes() -> None:
    shared = SharedRevision(memoryview(mmap.mmap(-1, mmap.PAGESIZE))[: SharedRevision.SIZE])
    shared.begin_epoch(1_000)
    epoch = shared.epoch
    child = os.fork()
    if child == 0:
        shared.publish((1 << 60) + 1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert shared.revision == (1 << 60) + 1
    assert shared.revision_in(epoch) == (1 << 60) + 1
    shared.begin_epoch(5)
    assert shared.revision_in(epoch) is None
    assert shared.revision_in(shared.epoch) == 5


def test_the_buffer_must_have_the_right_size() -> None:
    with pytest.raises(ValueError, match="16 bytes"):
        SharedRevision(memoryview(bytearray(24)))
