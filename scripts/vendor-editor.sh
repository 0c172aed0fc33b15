#!/usr/bin/env bash
# Makes the editor of the console, CodeMirror 6, one module with the licences of its packages beside it, in
# fairlead/console/static/vendor. The packages come from npm in the versions and with the digests of
# scripts/editor/package-lock.json; the digests of the result are in scripts/editor/SHA256SUMS.
#
#   vendor-editor.sh             writes the files and their digests
#   vendor-editor.sh --check     makes them in a temporary folder only, and compares
set -euo pipefail
cd "$(dirname "$0")/.."

name=codemirror
sources=$PWD/scripts/editor
vendored=$PWD/fairlead/console/static/vendor
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT

cp "$sources"/{package.json,package-lock.json,entry.js} "$work"
cd "$work"
npm ci --loglevel=error --no-fund --no-audit --ignore-scripts

# The content security policy of the console forbids <style> elements, which CodeMirror uses for documents, and allows
# style sheets that a script constructs, which it uses for shadow roots.
styles=node_modules/style-mod/src/style-mod.js
sed --in-place 's/if (!root\.head && root\.adoptedStyleSheets/if (root.adoptedStyleSheets/' "$styles"
if ! grep --quiet 'if (root\.adoptedStyleSheets' "$styles"; then
    echo "error: $styles has changed; look how it adds its rules, and correct the line above" >&2
    exit 1
fi

# The program is run itself: its package is a script that looks for it.
node_modules/@esbuild/*/bin/esbuild entry.js --bundle --format=esm --minify --target=es2022 --charset=utf8 \
    --legal-comments=none --banner:js="// @ts-nocheck: made by scripts/vendor-editor.sh; the licences are in $name.txt" \
    --outfile="$name.js" --log-level=error

{
    printf '%s.js is made of these packages by scripts/vendor-editor.sh.\n' "$name"
    for manifest in node_modules/{@codemirror,@lezer,@marijn}/*/package.json node_modules/{crelt,style-mod,w3c-keyname}/package.json; do
        folder="$(dirname "$manifest")"
        printf '\n%s %s\n\n' "${folder#node_modules/}" "$(node -p "require('./$manifest').version")"
        cat "$folder/LICENSE"
    done
} >"$name.txt"

sha256sum "$name.js" "$name.txt" >SHA256SUMS
if [[ "${1:-}" == --check ]]; then
    diff "$sources/SHA256SUMS" SHA256SUMS >&2 || { echo 'error: the result differs from scripts/editor/SHA256SUMS' >&2; exit 1; }
    cd "$vendored" && sha256sum --check --quiet "$sources/SHA256SUMS"
    exit
fi
mkdir -p "$vendored"
cp "$name.js" "$name.txt" "$vendored"
cp SHA256SUMS "$sources"
