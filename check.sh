#!/usr/bin/env bash
# Checks what has to hold before a change lands.
#
#   ./check.sh          everything that a change is likely to break
#   ./check.sh full     everything; writes down that it passed (tools/full-check.json)
#   ./check.sh resume   the same, but for steps of which nothing has changed since they passed
#   ./check.sh STEP...  only these steps, whether or not anything has changed
#
# Steps: format prose circles bpf clippy no_std docs test examples smoke go
# and, of `full`: deny draft site crates python valgrind conformance monitoring packages ech
# extension interop lab
#
# A step of which no input has changed since it passed in this target folder is skipped, so that a
# change of a document rebuilds nothing. What measures times may run again, at most twice; the last
# line says how often that was. Installs nothing: tools/install.sh [full] does.
set -euo pipefail
cd "$(dirname "$0")"

QUICK=(format prose circles bpf clippy no_std docs test examples smoke go)
SLOW=(deny draft site crates python valgrind conformance monitoring packages ech extension interop
    lab)
TARGET=$(realpath -m "${CARGO_TARGET_DIR:-target}")
PASSED=$TARGET/check
# Tests and experiments that measure times, and ran again: one line each.
export HEADSTART_CHECK_RETRIES=$PASSED/retries

# Network tests need namespaces. Where they are switched on they fail if they cannot run.
if [ -z "${HEADSTART_TEST_NET:-}" ] && [ "$(id -u)" = 0 ]; then
    export HEADSTART_TEST_NET=1
fi
[ -n "${HEADSTART_TEST_NET:-}" ] ||
    echo "note: not root: tests in network namespaces are skipped (HEADSTART_TEST_NET=1 runs them)"

# The recorder's tests, with Chromium.
if [ -z "${HEADSTART_TEST_BROWSER:-}" ] && command -v chromium >/dev/null; then
    export HEADSTART_TEST_BROWSER=1
fi

# What each step reads, for git. No document is compiled.
RUST=('*.rs' '*Cargo.toml' '*Cargo.lock' clippy.toml rustfmt.toml crates/net/bpf lab/experiments
    lab/papers lab/sites lab/programs lab/interop '*.css' '*.ttf' '*.png' 'crates/*/tests' ':!*.md')
inputs() {
    case $1 in
    format) printf '%s\n' '*.rs' rustfmt.toml ;;
    prose) printf '%s\n' . ;;
    circles) printf '%s\n' '*.rs' tools/circles.py ;;
    bpf) printf '%s\n' crates/net/bpf ':!*.md' ;;
    smoke) printf '%s\n' "${RUST[@]}" tools/run_experiments.py tools/retries.py ;;
    go) printf '%s\n' "${RUST[@]}" go docs/vectors ':!*.md' ;;
    draft) printf '%s\n' 'docs/draft-*.md' docs/vectors/exchange.txt tools/draft.py ;;
    clippy | no_std | docs | examples | crates | valgrind) printf '%s\n' "${RUST[@]}" ;;
    # It knows by itself which programs are due.
    test) ;;
    *) printf '%s\n' . ;;
    esac
}

# A digest of the step's inputs as they are in the working tree, and of the step itself.
state() {
    mapfile -t paths < <(inputs "$1")
    [ ${#paths[@]} -gt 0 ] || return 0
    {
        declare -f "$1"
        rustc --version
        [ "$1" != go ] || type -P go || true
        git ls-files -z --cached --others --exclude-standard -- "${paths[@]}" |
            sort -zu | xargs -0 -r sha256sum 2>/dev/null || true
    } | sha256sum | cut -d' ' -f1
}

format() { cargo fmt --all --check; }

# Habits of prose that slow a reader down, links that lead nowhere, commands that do not exist,
# requirements that no code or no test cites, and metrics that documents, dashboard and alerts name
# otherwise than the sources.
prose() { tools/prose.py --check; tools/citations.py --check; tools/metrics.py --check; }

# No two modules depend on each other.
circles() { tools/circles.py; }

# The committed objects are what their sources give, with the one compiler that they are built with.
bpf() { crates/net/bpf/build.sh --check; }

clippy() { cargo clippy --locked --workspace --all-targets -- -D warnings; }

# The core must not reach for a clock, a socket or a thread. A static library without std links only
# if nothing below it brings std along.
no_std() {
    cargo build --locked --manifest-path crates/proto/no_std/Cargo.toml \
        --target-dir "$TARGET/no_std"
}

docs() { RUSTDOCFLAGS="-D warnings" cargo doc --locked --workspace --no-deps; }

# Advisories need a database from the network, which not every machine reaches: cargo deny check.
deny() { cargo deny --locked check bans licenses sources; }

# The specification as an Internet-Draft, in text and HTML, without a warning. pip brings xml2rfc.
draft() { mkdir -p "$TARGET/draft" && tools/draft.py "$TARGET/draft"; }

# Fuzz corpora are replayed by ordinary tests.
test() { tools/run_tests.py ${all:+--all}; }

examples() { crates/net/examples/run.sh; }

# All programs and libraries, with the features of the step `test`: nothing is built twice.
programs() { cargo build --locked --workspace --lib --bins --tests; }

# One experiment of each kind, and the product at scale, in short.
smoke() { programs && tools/run_experiments.py turbotls-table scale; }

# The second implementation: by the vectors, on loopback, with the product, and for each system.
go() {
    if ! type -P go >/dev/null; then
        echo "note: no Go: go/ is not checked (tools/install.sh installs it)"
        return
    fi
    programs
    (
        cd go
        [ -z "$(command gofmt -l .)" ] || { command gofmt -d .; exit 1; }
        command go vet ./...
        # The seeds of the fuzz targets are among the tests.
        HEADSTART_BIN=$TARGET/debug/headstart command go test -race -timeout 120s ./...
        for system in darwin/arm64 windows/amd64 freebsd/amd64 android/arm64; do
            echo "go build for $system"
            CGO_ENABLED=0 GOOS=${system%/*} GOARCH=${system#*/} command go build ./...
        done
    )
}

# The documents and the help of the commands as a site, and its links.
site() { programs && tools/site.py "$TARGET/site" "$TARGET/debug"; }

# Each crate of the product builds from the package that a registry would get, and whoever uses net
# without its features gets neither eBPF nor DNS.
crates() {
    # To cargo a version never changes: what it has unpacked and built of these goes first.
    local unpacked=registry/src/[^:]*/headstart- built
    rm -rf "${CARGO_HOME:-$HOME/.cargo}"/registry/{cache,src}/*/headstart-*
    for built in $(grep -ls "$unpacked" "$TARGET"/debug/deps/*headstart*.d); do
        rm -rf "$TARGET"/debug/.fingerprint/*-"$(basename "${built##*-}" .d)"
    done
    cargo package --locked --allow-dirty --quiet -p headstart-proto -p headstart-tls \
        -p headstart-sessions -p headstart-net -p headstart-client -p headstart-preload \
        -p headstart
    if cargo tree --locked -p headstart-net --no-default-features -e normal --prefix none |
        grep -E '^(aya|hickory-)'; then
        echo "error: headstart-net depends on these without its features" >&2
        return 1
    fi
    local features
    for features in "" attach dns; do
        cargo clippy --locked -p headstart-net --no-default-features --features "$features" -- \
            -D warnings
    done
    cargo test --locked --quiet -p headstart-net --no-default-features --lib
}

# Clients and servers of both implementations, each with each: no cell fails, and the committed
# matrix is true.
interop() {
    if ! type -P go >/dev/null; then
        echo "note: no Go: no other implementation to run with (tools/install.sh installs it)"
        return
    fi
    programs
    (cd go && command go build -o "$TARGET/turboproxy" ./cmd/turboproxy)
    TURBOPROXY=$TARGET/turboproxy "$TARGET/debug/headstart-lab" interop \
        --implementation go=lab/interop/go.sh | diff lab/interop/matrix.txt -
}

lab() { programs && tools/run_experiments.py --all; }

# The package for Python on the real command, and its wheel. pip brings the tools.
python() {
    programs
    HEADSTART_BINARY=$TARGET/debug/headstart bindings/python/check.sh
}

# The calls of OpenSSL that crates/tls makes by itself, and the callbacks: no byte is used that is
# another's or was never written, and none is lost. Tests that start other programs are left out.
valgrind() {
    # Those of other crates besides: of one crate alone, dependencies have other features, and would
    # be built once more.
    local build=(cargo test --locked --workspace --test engine --test fuzz_replay --no-run)
    "${build[@]}"
    local programs program
    programs=$("${build[@]}" --quiet --message-format=json |
        sed -n 's|.*/crates/tls#.*"executable":"\([^"]*\)".*|\1|p')
    [ "$(wc -w <<<"$programs")" = 2 ]
    for program in $programs; do
        # Fair: threads that wait for each other get their turns.
        command valgrind --quiet --fair-sched=try --error-exitcode=1 --leak-check=full \
            --show-leak-kinds=definite --errors-for-leak-kinds=definite \
            "$program" --test-threads=1 --skip interop
    done
}

# The edge that speaks TLS, as h2spec, sslyze and testssl judge it. Go and pip bring the first two.
conformance() { programs && tools/conformance.py "$TARGET/debug/headstart" "$TARGET/conformance"; }

# Dashboard and alerts, on a real Prometheus.
monitoring() { programs && tools/monitoring.py "$TARGET/debug/headstart"; }

# The packages, on a fresh Debian that systemd boots in a container, and the tutorial, on two.
packages() {
    [ "$(id -u)" = 0 ] || { echo "note: not root: packages are not installed"; return; }
    programs
    PREFIX=$TARGET/debug packaging/test.sh
}

# The one server with Encrypted ClientHello, on OpenSSL 4.0, beside the other programs.
ech() {
    local manifest=extras/ech-server/Cargo.toml
    cargo fmt --manifest-path "$manifest" --check
    cargo clippy --locked --manifest-path "$manifest" --target-dir "$TARGET" -- -D warnings
    cargo build --locked --manifest-path "$manifest" --target-dir "$TARGET"
    programs
    tools/run_experiments.py ech
}

# The browser extension: its types, and its tests in real Chromium. npm brings the compiler.
extension() {
    programs
    HEADSTART_BINARY=$TARGET/debug/headstart-lab extension/check.sh
}

# Runs one step, unless nothing that it reads has changed since it passed.
run() {
    local step=$1 now
    now=$(state "$step")
    if [ -z "$forced" ] && [ -n "$now" ] && [ "$(cat "$PASSED/$step" 2>/dev/null)" = "$now" ]; then
        echo "== $step: unchanged since it passed"
        seconds[$step]=$(cat "$PASSED/$step.seconds")
        return
    fi
    echo "== $step"
    SECONDS=0
    "$step"
    mkdir -p "$PASSED"
    echo "$now" >"$PASSED/$step"
    echo "$SECONDS" >"$PASSED/$step.seconds"
    seconds[$step]=$SECONDS
    echo "== $step: done in ${SECONDS} s"
}

# The closing line: what ran again, of all that measures times.
retried() {
    local names
    names=$(paste -sd, "$HEADSTART_CHECK_RETRIES")
    echo "retries: $(wc -l <"$HEADSTART_CHECK_RETRIES")${names:+ (${names//,/, })}"
}

# What `full` leaves behind, and .ci/run looks at. Only of a tree that was not touched meanwhile.
write_down() {
    local step text= again=
    if [ "$(git rev-parse HEAD)" != "$commit" ] || [ -n "$(git status --porcelain)" ]; then
        echo "full: all of it passed, but the tree has changed since it began" >&2
        exit 1
    fi
    for step in "${steps[@]}"; do
        text+="${text:+, }\"$step\": ${seconds[$step]}"
    done
    again=$(sed 's/.*/"&"/' "$HEADSTART_CHECK_RETRIES" | paste -sd,)
    printf '{\n "commit": "%s",\n "date": "%s",\n "seconds": {%s},\n "retries": [%s]\n}\n' \
        "$commit" "$(date -u +%F)" "$text" "${again//,/, }" >tools/full-check.json
    echo "all of it passed: commit tools/full-check.json"
}

declare -A seconds=()
# Set: runs steps although nothing has changed, and tests although they passed.
forced= all=
steps=("${QUICK[@]}")
if [ "${1:-}" = full ] || [ "${1:-}" = resume ]; then
    [ "$1" = resume ] || forced=1 all=1
    steps+=("${SLOW[@]}")
    commit=$(git rev-parse HEAD)
    [ -z "$(git status --porcelain)" ] || { echo "full: commit your changes first" >&2; exit 2; }
    for tool in cargo-deny kramdown-rfc mdbook valgrind testssl go mmdebstrap systemd-nspawn \
        prometheus podman; do
        type -P "$tool" >/dev/null ||
            { echo "full: no $tool: tools/install.sh full installs it" >&2; exit 2; }
    done
elif [ $# -gt 0 ]; then
    forced=1
    steps=("$@")
fi
mkdir -p "$PASSED"
[ "${1:-}" = resume ] || : >"$HEADSTART_CHECK_RETRIES"
trap retried EXIT
for step in "${steps[@]}"; do
    run "$step"
done
[ -z "${commit:-}" ] || write_down
