#!/usr/bin/env bash
# slow_first.sh BUILD: each test with the label slow has a high cost for ctest, before it ever ran.
set -euo pipefail
count() { ctest --test-dir "$1" --show-only=json-v1 -L "$2" -R "$3" | grep -c "$4" || true; }

slow=$(count "$1" '^slow$' . '"name" : "TIMEOUT"')
costly=$(count "$1" '^slow$' . '"name" : "COST"')
[ "$slow" -ge 1 ] && [ "$slow" = "$costly" ] || { echo "$slow tests are slow, $costly of them have a high cost"; exit 1; }
others=$(count "$1" . 'setup: slow tests start first' '"name" : "COST"')
[ "$others" = 0 ] || { echo "a quick test has a high cost"; exit 1; }
