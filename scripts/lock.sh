#!/usr/bin/env bash
# Writes requirements/*.lock: all packages with their versions and the digests of their files, for all supported versions of
# Python and all platforms. Run it after the dependencies in pyproject.toml have changed, and regularly to take newer
# versions: `scripts/lock.sh --upgrade`. It needs network access. uv is downloaded into a temporary folder.
#
#   runtime.lock  what the server needs, with the drivers of all stores; the container has exactly this
#   build.lock    what builds the package
#   test.lock     both, and what `make test` needs
#   audit.lock    what `make audit` needs
#   sbom.lock     what `make sbom` needs
#   docs.lock     what `make docs` needs
set -euo pipefail
cd "$(dirname "$0")/.."

UV=uv==0.13.7
OLDEST=3.11

folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python="${PYTHON:-python3}"
"$python" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "$UV"
"$folder/venv/bin/python" - >"$folder/build.in" <<'END'
import tomllib
print("\n".join(tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"]))
END
echo 'editables' >>"$folder/build.in" # needed by the build backend for an editable install
echo 'pip-audit>=2.10' >"$folder/audit.in"
echo 'cyclonedx-bom>=7.5' >"$folder/sbom.in"
# Two engines for the same pages: the second one is the way out if the first one is given up.
printf '%s\n' 'zensical>=0.0.70' 'mkdocs-material>=9.8' >"$folder/docs.in"
stores=(--extra postgres --extra etcd)

# lock NAME ARGUMENTS...: without header, annotations and index, which would contain names of this machine and its mirror.
lock() {
    local name=$1
    shift
    "$folder/venv/bin/uv" pip compile --quiet --universal --generate-hashes --python-version "$OLDEST" --no-header \
        --no-annotate --no-emit-index-url --no-emit-find-links "${upgrade[@]}" --output-file "requirements/$name.lock" "$@"
    sed -i "1i # Written by scripts/lock.sh for Python $OLDEST and newer; do not edit." "requirements/$name.lock"
    echo "requirements/$name.lock: $(grep -c == "requirements/$name.lock") packages" >&2
}

upgrade=()
if [[ "${1:-}" == --upgrade ]]; then upgrade=(--upgrade); fi
mkdir -p requirements
lock runtime "${stores[@]}" pyproject.toml
lock build --constraint requirements/runtime.lock "$folder/build.in"
lock test "${stores[@]}" --extra test --constraint requirements/runtime.lock --constraint requirements/build.lock \
    pyproject.toml "$folder/build.in"
lock audit "$folder/audit.in"
lock sbom "$folder/sbom.in"
lock docs "$folder/docs.in"
