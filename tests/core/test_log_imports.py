"""Tests of the imports of `core/log.py`, with packages hidden as if they were not installed."""

import subprocess
import sys

import pytest

from fairlead.core.log import import_without


def test_a_hidden_package_cannot_be_imported_and_is_restored_afterwards() -> None:
    import json.decoder

    before = sys.modules["json"], sys.modules["json.decoder"]
    with import_without("json"), pytest.raises(ImportError):
        import json.scanner
    assert (sys.modules["json"], sys.modules["json.decoder"]) == before
    assert json.decoder.JSONDecoder().decode("1") == 1


def test_logging_does_not_import_rich() -> None:
    code = "import sys, fairlead.core.log; assert 'rich' not in sys.modules; import rich.console"
    subprocess.run([sys.executable, "-c", code], check=True)
