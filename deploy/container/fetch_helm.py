"""`fetch_helm.py TARGET`: writes the program `helm` that the server deploys charts with, if its digest is right.

The Containerfile and `make helm-tools` call it. It takes the archive of the pinned release from the file HELM_ARCHIVE,
else from the folder helm/ for builds without network, else from HELM_URL. For another HELM_VERSION, HELM_SHA256 has the
digest of its archive. It needs nothing but Python.
"""

import hashlib
import io
import os
import platform
import sys
import tarfile
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path

VERSION = "4.1.4"
DIGESTS = {
    "amd64": "70b2c30a19da4db264dfd68c8a3664e05093a361cefd89572ffb36f8abfa3d09",
    "arm64": "13d03672be289045d2ff00e4e345d61de1c6f21c1257a45955a30e8ae036d8f1",
}
"""SHA-256 of the archives of VERSION for Linux, as its release notes have them."""
ARCHITECTURES = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}
FOLDER = "helm"
MAX_BYTES = 200 * 2**20
TIMEOUT_SECONDS = 60


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("usage: fetch_helm.py TARGET")
    try:
        print(fetch(Path(sys.argv[1]), os.environ))
    except ValueError as error:
        sys.exit(f"error: {error}")


def fetch(target: Path, environment: Mapping[str, str], machine: str = "") -> str:
    """Writes the program, and returns what it has done. Raises ValueError with advice."""
    version = environment.get("HELM_VERSION") or VERSION
    machine = machine or platform.machine()
    architecture = ARCHITECTURES.get(machine)
    if architecture is None:
        raise ValueError(f"there is no digest of Helm for {machine}; put helm 3.8 or newer on the PATH yourself")
    expected = environment.get("HELM_SHA256") or (DIGESTS[architecture] if version == VERSION else "")
    if not expected:
        raise ValueError(f"Helm {version} is not the pinned {VERSION}; set HELM_SHA256 to the digest of its archive")
    name = f"helm-v{version}-linux-{architecture}.tar.gz"
    source, content = _read_archive(name, environment)
    digest = hashlib.sha256(content).hexdigest()
    if digest != expected:
        raise ValueError(f"{source}: its SHA-256 is {digest}, not {expected}; get the archive again from its project")
    target.parent.mkdir(parents=True, exist_ok=True)
    new = target.with_name(f"{target.name}.new")
    new.write_bytes(_extract(source, content, f"linux-{architecture}/helm"))
    new.chmod(0o755)
    new.rename(target)
    return f"{target}: Helm {version} from {source}"


def _read_archive(name: str, environment: Mapping[str, str]) -> tuple[str, bytes]:
    """The source of the archive, for messages, and its content."""
    local = Path(environment.get("HELM_ARCHIVE") or f"{FOLDER}/{name}")
    if local.is_file():
        return str(local), local.read_bytes()
    if environment.get("HELM_ARCHIVE"):
        raise ValueError(f"{local}: there is no such file; HELM_ARCHIVE names it")
    url = environment.get("HELM_URL") or f"https://get.helm.sh/{name}"
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS) as response:
            content = response.read(MAX_BYTES + 1)
    except (urllib.error.URLError, OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        advice = f"put {name} into the folder {FOLDER}/, or name a copy with HELM_URL or HELM_ARCHIVE"
        raise ValueError(f"{url} cannot be fetched: {reason}; {advice}") from None
    if len(content) > MAX_BYTES:
        raise ValueError(f"{url} has more than {MAX_BYTES} bytes; is it an archive of Helm?")
    return url, content


def _extract(source: str, content: bytes, member: str) -> bytes:
    try:
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as archive:
            found = archive.extractfile(member)
            if found is not None:
                return found.read()
    except (tarfile.TarError, KeyError, OSError, EOFError):
        pass
    raise ValueError(f"{source} has no program {member}; is it an archive of Helm for this machine?")


if __name__ == "__main__":
    main()
