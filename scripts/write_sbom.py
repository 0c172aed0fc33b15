"""`make sbom`: writes dist/fairlead-VERSION.cdx.json, a CycloneDX software bill of materials.

It lists what an installation with the drivers of all stores consists of, as the container does: Fairlead, and the
packages of requirements/runtime.lock with their versions, licenses and dependencies on each other. They are installed
into an environment of their own, from which cyclonedx-py reads them. The program Helm of the container is a component,
too, with the version and the digests that deploy/container/fetch_helm.py pins. The same locks and wheel give the same
bytes.
"""

import argparse
import ast
import json
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
REQUIREMENTS = ROOT / "requirements"
TOOLS = ROOT / ".venv" / "sbom"
PIP = ("-m", "pip", "--disable-pip-version-check", "--quiet")
FETCH_HELM = ROOT / "deploy" / "container" / "fetch_helm.py"
HELM = "helm"
INSTALL = ("install", "--no-deps", "--no-compile", "--no-warn-script-location", "--root-user-action=ignore")


def main() -> None:
    parser = argparse.ArgumentParser(description="Writes the CycloneDX bill of materials of a wheel.")
    parser.add_argument("wheel", type=Path, help="the wheel, from `make dist`")
    parser.add_argument("--out", type=Path, help="file to write; default: next to the wheel")
    options = parser.parse_args()
    wheel: Path = options.wheel.absolute()
    out = options.out or wheel.with_name("-".join(wheel.name.split("-")[:2]) + ".cdx.json")
    program = install_cyclonedx()
    with tempfile.TemporaryDirectory() as folder:
        bill = describe(program, install_runtime(Path(folder), wheel))
    # The version is not in pyproject.toml, where cyclonedx-py looks for it.
    bill["metadata"]["component"]["version"] = wheel.name.split("-")[1]
    bill["components"].append(describe_helm())
    bill["dependencies"].append({"ref": HELM})
    out.write_text(json.dumps(without_paths(bill), indent=2, sort_keys=True) + "\n")
    print(f"{out}: {len(bill['components'])} components")


def install_cyclonedx() -> Path:
    lock, marker = REQUIREMENTS / "sbom.lock", TOOLS / "installed"
    if not marker.exists() or marker.stat().st_mtime < lock.stat().st_mtime:
        print("installing cyclonedx-py into .venv/sbom", file=sys.stderr, flush=True)
        venv.create(TOOLS, clear=True, with_pip=True)
        run(TOOLS / "bin" / "python", *PIP, *INSTALL, "--require-hashes", "--requirement", lock)
        marker.touch()
    return TOOLS / "bin" / "cyclonedx-py"


def install_runtime(folder: Path, wheel: Path) -> Path:
    """Installs into an environment without pip, which is no part of the product. Returns its interpreter."""
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    target = ("--python", str(python))
    runtime = REQUIREMENTS / "runtime.lock"
    run(TOOLS / "bin" / "python", *PIP, *target, *INSTALL, "--require-hashes", "--requirement", runtime)
    run(TOOLS / "bin" / "python", *PIP, *target, *INSTALL, wheel)
    return python


def describe(program: Path, python: Path) -> dict[str, Any]:
    options = ("--output-reproducible", "--spec-version", "1.6", "--output-format", "JSON")
    text = run(program, "environment", *options, "--pyproject", ROOT / "pyproject.toml", python)
    bill: dict[str, Any] = json.loads(text)
    return bill


def describe_helm() -> dict[str, Any]:
    """The Helm that the container has, and that packages get with `make helm-tools`."""
    version = read_constant(FETCH_HELM, "VERSION")
    digests = read_constant(FETCH_HELM, "DIGESTS")
    archives = [
        {
            "type": "distribution",
            "url": f"https://get.helm.sh/helm-v{version}-linux-{architecture}.tar.gz",
            "hashes": [{"alg": "SHA-256", "content": digest}],
        }
        for architecture, digest in sorted(digests.items())
    ]
    return {
        "bom-ref": HELM,
        "type": "application",
        "name": HELM,
        "version": version,
        "description": "The program that deploys apps and virtual clusters",
        "scope": "optional",
        "licenses": [{"license": {"id": "Apache-2.0"}}],
        "purl": f"pkg:golang/helm.sh/helm/v{version.partition('.')[0]}@v{version}",
        "externalReferences": archives,
    }


def read_constant(path: Path, name: str) -> Any:
    """A constant of a script, which is not run."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and [ast.unparse(each) for each in node.targets] == [name]:
            return ast.literal_eval(node.value)
    sys.exit(f"error: {path} has no {name}; adapt {Path(__file__).name}")


def without_paths(bill: dict[str, Any]) -> dict[str, Any]:
    """Without references to the file that Fairlead was installed from, whose path differs from machine to machine."""
    for component in bill["components"]:
        references = [each for each in component.get("externalReferences", []) if not each["url"].startswith("file:")]
        component.pop("externalReferences", None)
        if references:
            component["externalReferences"] = references
    return bill


def run(*command: str | Path) -> str:
    result = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    if result.returncode:
        sys.exit(f"error: {Path(command[0]).name} failed:\n{result.stderr}")
    return result.stdout


if __name__ == "__main__":
    main()
