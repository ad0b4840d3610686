#!/usr/bin/env bash
# Types and tests of the extension, these in real Chromium. npm brings the compiler, by the versions
# of package-lock.json.
#
#   HEADSTART_BINARY   the command whose databases are used; without it that test is skipped
set -euo pipefail
cd "$(dirname "$0")"

installed=node_modules/.package-lock.json
if [ ! -e "$installed" ] || [ package-lock.json -nt "$installed" ]; then
    npm ci --no-audit --no-fund --loglevel=error
fi
npx --no-install tsc
# Each file of these has a Chromium of its own; one after another, as machines have few processors.
node --test --test-concurrency=1 --test-reporter=spec test/unit test/e2e
