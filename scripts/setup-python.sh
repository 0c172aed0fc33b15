#!/usr/bin/env bash
# Unpacks a Python of another Debian suite into .tools, and installs the locked dependencies for it, so that tests run on
# it: `setup-python.sh 3.14 sid` makes .tools/python3.14/venv, and .tools/bin/fairlead-python3.14, which runs it. With `test` as a third argument, the
# dependencies of the tests are installed as well. The package itself is not installed: run it from the checkout.
#
# No root permissions are needed, and nothing is installed in the system: Python is started by the C library of its own
# suite, which may be newer than that of the machine. The name of the program stays that of the script which starts it,
# so that Python finds its virtual environment, and programs that it starts again by `sys.executable` run the same way.
# pip comes from the same suite.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf '%s\n' "$*" >&2; }
fail() { say "error: $*"; exit 1; }

[[ $# == 2 || $# == 3 ]] || fail "usage: $0 VERSION SUITE [test]"
version=$1 suite=$2 lock=runtime
if [[ "${3:-}" == test ]]; then lock=test; fi
mkdir -p .tools
home="$(cd .tools && pwd -P)/python$version"
tree="$home/debian"
python="$home/venv/bin/python"

fetch_python() {
    local loader program="$tree/usr/bin/python$version"
    say "fetching Python $version of Debian $suite into .tools"
    rm -rf "$home"
    mkdir -p "$home"
    scripts/fetch-debian-package.sh --with-dependencies "$suite" "python$version-venv" "$tree"
    loader="$(find "$tree/usr/lib" -mindepth 2 -maxdepth 2 -name 'ld-linux*.so*' -print -quit)"
    [[ -n $loader ]] || fail "the packages of Python $version in Debian $suite have no dynamic loader"
    mv "$program" "$program.elf"
    cat >"$program" <<WRAPPER
#!/bin/sh
exec "$loader" --library-path "$(dirname "$loader")" --argv0 "\$0" "$program.elf" "\$@"
WRAPPER
    chmod 755 "$program"
    "$program" -m venv --without-pip "$home/venv"
}

install_lock() {
    local pip
    say "installing requirements/$lock.lock for Python $version into .tools"
    pip="$(find "$tree/usr/share/python-wheels" -name 'pip-*.whl' -print -quit)"
    PYTHONPATH="$pip" "$python" -m pip install --quiet --disable-pip-version-check --root-user-action=ignore \
        --no-deps --require-hashes --only-binary :all: --requirement "requirements/$lock.lock"
    cp "requirements/$lock.lock" "$home/$lock.lock"
    mkdir -p .tools/bin
    printf '#!/bin/sh\nexec "%s" "$@"\n' "$python" >".tools/bin/fairlead-python$version"
    chmod 755 ".tools/bin/fairlead-python$version"
}

if ! "$python" -c '' 2>/dev/null; then fetch_python; fi
if ! cmp --silent "requirements/$lock.lock" "$home/$lock.lock"; then install_lock; fi
