"""Compiles the test files once for all processes of a run.

pytest rewrites the asserts of a test file before it compiles it, which takes longer than the rest of the collection,
and caches the result. In a new clone, all processes of a parallel run would find nothing there and do the same work at
the same time. `tests/conftest.py` imports the hook, which runs in the process that starts the others.

pytest has no public function for this. Where its private ones have changed, the processes compile the files themselves.
"""

import multiprocessing
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from _pytest.assertion import rewrite

TESTS = Path(__file__).resolve().parents[1]
PATTERNS = ("test_*.py", "conftest.py")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config: pytest.Config) -> None:
    if sys.dont_write_bytecode:
        return
    files = sorted(file for pattern in PATTERNS for file in TESTS.rglob(pattern))
    count = os.cpu_count() or 1
    fork = multiprocessing.get_context("fork")
    processes = [fork.Process(target=_compile, args=(files[index::count], config)) for index in range(count)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()


def _compile(files: Sequence[Path], config: pytest.Config) -> None:
    with suppress(AttributeError, TypeError, OSError, SyntaxError):
        for file in files:
            compile_test_file(file, config)


def compile_test_file(file: Path, config: pytest.Config) -> Path:
    """Returns the compiled file, where pytest looks for it."""
    folder = rewrite.get_cache_dir(file)
    compiled = folder / (file.stem + rewrite.PYC_TAIL)
    if rewrite._read_pyc(file, compiled) is None:
        digest, code = rewrite._rewrite_test(file, config)
        rewrite.try_makedirs(folder)
        rewrite._write_pyc(config.stash[rewrite.assertstate_key], code, digest, compiled)
    return compiled
