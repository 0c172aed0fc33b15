#!/usr/bin/env bash
# Makes .venv with a Python of at least 3.11 and installs the package into it, editable.
# Called by the Makefile only when pyproject.toml, a lock or this file changed. `setup-venv.sh test` adds the test group.
# What is installed is what requirements/*.lock names, file by file with its digest. Pythons that the locks were not tried
# with get the newest versions that pyproject.toml allows.
# On Debian, Python comes without its venv module: as root the missing package is installed, otherwise named.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf '%s\n' "$*" >&2; }
die() { say "error: $*"; exit 1; }

new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }

find_python() {
    local candidate
    if [[ -n "${PYTHON:-}" ]]; then
        new_enough "$PYTHON" || die "PYTHON=$PYTHON is not a Python 3.11 or newer; name another, or leave PYTHON unset"
        echo "$PYTHON"
        return
    fi
    # The system's own first, if it is complete: distributions build Python with all optimisations. With one that somebody
    # compiled without them, every request takes half as long again.
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
        die "installing failed; the lines above say why (no network? then point PIP_INDEX_URL at a mirror)"
}

is_locked_for() { [[ " $LOCKED " == *" $("$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])') "* ]]; }

LOCKED="3.11 3.12 3.13 3.14"
make_venv
say "installing fairlead${1:+ and what its ${1}s need} into .venv"
if is_locked_for .venv/bin/python; then
    lock=runtime
    if [[ "${1:-}" == test ]]; then lock=test; fi
    pip_install --no-deps --require-hashes --requirement "requirements/$lock.lock"
    # What builds the package is in the lock, too: nothing is fetched that is not.
    pip_install --no-deps --no-build-isolation --editable .
else
    say "$(.venv/bin/python --version) is not one of those that the locks are for ($LOCKED): taking the newest versions instead"
    target=.
    if [[ "${1:-}" == test ]]; then target='.[test]'; fi
    pip_install --editable "$target"
fi
touch .venv/.installed
if [[ "${1:-}" == test ]]; then touch .venv/.installed-test; fi
