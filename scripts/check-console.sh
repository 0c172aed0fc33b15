#!/usr/bin/env bash
# Checks the code of the web console, which is served as it is written: there is no build step.
#
#   check-console.sh style     the format and the rules of Biome, set in biome.json
#   check-console.sh format    writes the format
#   check-console.sh types     the types that comments give (JSDoc), by TypeScript, set in jsconfig.json; those of core/
#                              are checked strictly, by scripts/console/strict.json
#
# Without the tools it says how to get them. That is an error with CI=true only, so that everything else can be checked.
set -euo pipefail
cd "$(dirname "$0")/.."

tools=.tools/console
biome() { "$tools/node_modules/.bin/biome" check --error-on-warnings --reporter=concise "$@" 2>&1; }

if ! cmp --silent scripts/console/package-lock.json "$tools/installed.json"; then
    echo 'note: the code of the console is not checked, because its tools are missing or old; run: scripts/setup-tools.sh console' >&2
    if [[ "${CI:-}" == true ]]; then exit 1; fi
    exit 0
fi

case "${1:-}" in
    style)
        if ! out="$(biome)"; then
            printf '%s\n' "$out" 'error: the code of the console breaks its rules; see above. `make fmt` corrects the format' >&2
            exit 1
        fi
        ;;
    types)
        for project in jsconfig.json scripts/console/strict.json; do
            if ! out="$("$tools/node_modules/.bin/tsc" --project "$project" 2>&1)"; then
                printf '%s\n' "$out" "error: the types of the console are wrong, as $project wants them; see above" >&2
                exit 1
            fi
        done
        ;;
    format) biome --write >/dev/null || true ;;
    *)
        echo "error: ${1:-nothing} cannot be checked; see the list in $0" >&2
        exit 2
        ;;
esac
