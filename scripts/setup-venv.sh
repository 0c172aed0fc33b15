#!/usr/bin/env bash
# Creates .venv with Python 3.11 or newer, and installs the package into it in editable mode.
# The Makefile runs it if pyproject.toml, a lock or this file has changed. `setup-venv.sh test` adds the test dependencies.
# It installs the versions in requirements/*.lock and verifies their digests. On versions of Python that the locks do not
# support, it installs the newest versions that pyproject.toml allows.
# Debian's Python has no venv module. Root gets the missing package installed; for other users, the script prints its name.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf '%s\n' "$*" >&2; }
die() { say "error: $*"; exit 1; }

new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }

find_python() {
    local candidate
    if [[ -n "${PYTHON:-}" ]]; then
        new_enough "$PYTHON" || die "PYTHON=$PYTHON is not Python 3.11 or newer; set another one, or unset PYTHON"
        echo "$PYTHON"
        return
    fi
    # The Python of the system first, if it is complete: distributions build it with all optimisations. Without them, every
    # request takes 50 % longer.
    if new_enough /usr/bin/python3 && has_venv_module /usr/bin/python3; then echo /usr/bin/python3; return; fi
    for candidate in python3 python3.14 python3.13 python3.12 python3.11; do
        if new_enough "$candidate"; then echo "$candidate"; return; fi
    done
    if command -v python3 >/dev/null; then
        die "$(python3 --version 2>&1) is too old: Fairlead needs Python 3.11 or newer. Install one and run: make PYTHON=/path/to/python3.11"
    fi
    die "no Python found: Fairlead needs Python 3.11 or newer (Debian: apt-get install python3 python3-venv)"
}

has_venv_module() { "$1" -c 'import ensurepip, venv' >/dev/null 2>&1; }

need_venv_module() {
    local python=$1 package
    if has_venv_module "$python"; then return; fi
    package="$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')"
    if [[ $(id -u) != 0 ]] || ! command -v apt-get >/dev/null; then
        die "$python has no venv module. Install it (Debian and Ubuntu: apt-get install $package) and run make again"
    fi
    say "installing $package"
    scripts/apt-install.sh "$package" || die "could not install $package; install it by hand and run make again"
}

make_venv() {
    local python
    if [[ -x .venv/bin/pip ]] && new_enough .venv/bin/python; then return; fi
    python="$(find_python)"
    need_venv_module "$python"
    say "creating .venv with $("$python" --version)"
    "$python" -m venv --clear .venv
}

pip_install() {
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --root-user-action=ignore "$@" ||
        die "the installation failed, see above; without access to the package index, set PIP_INDEX_URL to a mirror"
}

is_locked_for() { [[ " $LOCKED " == *" $("$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])') "* ]]; }

LOCKED="3.11 3.12 3.13 3.14"
make_venv
say "installing fairlead${1:+ and the dependencies of its ${1}s} into .venv"
if is_locked_for .venv/bin/python; then
    locks=(--requirement requirements/runtime.lock --requirement requirements/build.lock)
    if [[ "${1:-}" == test ]]; then locks=(--requirement requirements/test.lock); fi
    pip_install --no-deps --require-hashes "${locks[@]}"
    # The locks contain the build dependencies as well, so nothing else is downloaded.
    pip_install --no-deps --no-build-isolation --editable .
else
    say "$(.venv/bin/python --version) is not one of those that the locks are for ($LOCKED): taking the newest versions instead"
    target='.[postgres,etcd]'
    if [[ "${1:-}" == test ]]; then target='.[postgres,etcd,test]'; fi
    pip_install --editable "$target"
fi
touch .venv/.installed
if [[ "${1:-}" == test ]]; then touch .venv/.installed-test; fi
