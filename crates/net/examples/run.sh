#!/usr/bin/env bash
# Runs the two examples against each other: three connections, each opened by TurboTLS.
set -euo pipefail
cd "$(dirname "$0")/../../.."
work=$(mktemp -d)
server=
cleanup() { [ -z "$server" ] || kill "$server" 2>/dev/null || true; rm -rf "$work"; }
trap cleanup EXIT

cargo build --quiet --locked -p headstart-net --examples
target=$(cargo metadata --format-version 1 --no-deps | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 1 -subj /CN=localhost \
    -addext subjectAltName=DNS:localhost -keyout "$work/key.pem" -out "$work/cert.pem" 2>/dev/null
"$target/debug/examples/turbo_server" 127.0.0.1:0 "$work/cert.pem" "$work/key.pem" >"$work/server" 2>&1 &
server=$!
for _ in $(seq 100); do
    address=$(sed -n 's/^listening on //p' "$work/server")
    [ -z "$address" ] || break
    sleep 0.1
done
[ -n "$address" ] || { cat "$work/server"; exit 1; }
for _ in 1 2 3; do
    timeout 20 "$target/debug/examples/turbo_client" localhost "$address" "$work/cert.pem" | tee -a "$work/client"
done
[ "$(grep -c '^hello over TurboTLS$' "$work/client")" = 3 ]
[ "$(grep -c '^opened by turbo' "$work/client")" = 3 ]
