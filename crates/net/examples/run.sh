#!/usr/bin/env bash
# Runs the two examples against each other until a connection has opened by TurboTLS. On loopback
# TCP has often connected before there is a ClientHello, and then few of a hundred do. Every
# connection gets its answer.
set -euo pipefail
cd "$(dirname "$0")/../../.."
work=$(mktemp -d)
server=
cleanup() { [ -z "$server" ] || kill "$server" 2>/dev/null || true; rm -rf "$work"; }
trap cleanup EXIT

# Uses the features that `cargo test --workspace` gives the dependencies, so nothing is built twice.
cargo build --quiet --locked --workspace --example turbo_client --example turbo_server
target=$(cargo metadata --format-version 1 --no-deps |
  sed 's/.*"target_directory":"\([^"]*\)".*/\1/')
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 1 -subj /CN=localhost \
    -addext subjectAltName=DNS:localhost -keyout "$work/key.pem" -out "$work/cert.pem" 2>/dev/null
"$target/debug/examples/turbo_server" 127.0.0.1:0 "$work/cert.pem" "$work/key.pem" \
  >"$work/server" 2>&1 &
server=$!
for _ in $(seq 1200); do
    address=$(sed -n 's/^listening on //p' "$work/server")
    [ -z "$address" ] || break
    sleep 0.1
done
[ -n "$address" ] || { cat "$work/server"; exit 1; }
opened=0 tries=0
while [ "$opened" = 0 ]; do
    tries=$((tries + 1))
    [ "$tries" -le 500 ] || { echo "none of 500 connections opened by TurboTLS"; exit 1; }
  timeout 120 "$target/debug/examples/turbo_client" localhost "$address" "$work/cert.pem" |
    tee -a "$work/client"
    opened=$(grep -c '^opened by turbo' "$work/client" || true)
done
[ "$(grep -c '^hello over TurboTLS$' "$work/client")" = "$tries" ]
