"""scripts/write_sbom.py: the component for Helm is the one that the image is built with."""

from pathlib import Path

import pytest

from scripts.write_sbom import describe_helm, read_constant
from tests.scripts.test_fetch_helm import fetch_helm


def test_helm_has_the_version_and_the_digests_that_are_pinned() -> None:
    helm = describe_helm()
    assert helm["version"] == fetch_helm.VERSION
    assert helm["purl"] == f"pkg:golang/helm.sh/helm/v{fetch_helm.VERSION[0]}@v{fetch_helm.VERSION}"
    digests = [reference["hashes"][0]["content"] for reference in helm["externalReferences"]]
    assert sorted(digests) == sorted(fetch_helm.DIGESTS.values())
    for reference in helm["externalReferences"]:
        assert reference["url"].endswith(".tar.gz") and f"v{fetch_helm.VERSION}-linux-" in reference["url"]


def test_a_constant_that_was_renamed_is_reported(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("OTHER = 1\n")
    with pytest.raises(SystemExit, match="has no VERSION"):
        read_constant(script, "VERSION")
