"""`make dist`: builds the sdist and the wheel into dist/. The same sources give the same bytes.

Only files that git tracks are built, with fixed permissions, in a folder of its own: files that lie around, the umask
and the path of the checkout do not matter. The wheel is built from the unpacked sdist, so the sdist has everything that
an installation needs. The build backend writes one date into all files, whatever the clock and the time zone are.
Another version of Python may compress differently.
"""

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LEFT_OUT = {"SOURCE_DATE_EPOCH"}
"""Variables that would change the result."""


def main() -> None:
    parser = argparse.ArgumentParser(description="Builds the sdist and the wheel of Fairlead, reproducibly.")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="folder for the two files; default: dist")
    out: Path = parser.parse_args().out.absolute()
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        sources, built = Path(folder) / "sources", Path(folder) / "built"
        names = list_sources()
        report(f"copying {len(names)} files")
        copy_sources(names, sources)
        report("building the sdist")
        sdist = build("sdist", sources, built)
        report("building the wheel from the sdist")
        wheel = build("wheel", unpack(sdist, Path(folder) / "unpacked"), built)
        for former in (*out.glob("fairlead-*.tar.gz"), *out.glob("fairlead-*.whl")):
            former.unlink()
        for file in (sdist, wheel):
            shutil.copyfile(file, out / file.name)
            print(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {out / file.name}")


def report(step: str) -> None:
    """Says on stderr what happens, as a build can take minutes. stdout has only the digests."""
    print(f"{step} ...", file=sys.stderr, flush=True)


def list_sources() -> list[str]:
    """The tracked files; all files if this folder is an unpacked sdist."""
    if not (ROOT / ".git").exists():
        return [str(path.relative_to(ROOT)) for path in ROOT.rglob("*") if path.is_file() and not _is_made(path)]
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [name for name in listed.split("\0") if name and (ROOT / name).is_file()]


def _is_made(path: Path) -> bool:
    parts = path.relative_to(ROOT).parts
    return parts[0] in {".venv", ".tools", "build", "dist"} or "__pycache__" in parts or parts[0].endswith("_cache")


def copy_sources(names: list[str], target: Path) -> None:
    for name in names:
        copy = target / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, copy)
        copy.chmod(0o755 if os.access(ROOT / name, os.X_OK) and not name.endswith(".py") else 0o644)


def build(target: str, sources: Path, out: Path) -> Path:
    before = set(out.glob("*"))
    environment = {name: value for name, value in os.environ.items() if name not in LEFT_OUT}
    command = [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", str(out)]
    result = subprocess.run(command, cwd=sources, env=environment, capture_output=True, text=True, check=False)
    if result.returncode:
        sys.exit(f"error: the {target} could not be built:\n{result.stdout}{result.stderr}")
    (file,) = set(out.glob("*")) - before
    return file


def unpack(sdist: Path, folder: Path) -> Path:
    shutil.unpack_archive(sdist, folder)
    (top,) = folder.iterdir()
    return top


if __name__ == "__main__":
    main()
