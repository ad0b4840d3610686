#!/usr/bin/env bash
# Everything that has to hold before a change lands; what CI runs. Installs what it needs.
#
#   ./check.sh          all of it
#   ./check.sh STEP...  only these: tools bpf format clippy no_std docs deny test valgrind examples python extension lab
set -euo pipefail
cd "$(dirname "$0")"

# What makes the next build after a change shorter is of no use on a clean checkout, and takes gigabytes.
export CARGO_INCREMENTAL=0

DENY=0.20.2
# Failed tests that get a second try: more of them are no accident.
AGAIN=5
steps=("$@")
[ ${#steps[@]} -gt 0 ] || steps=(tools bpf format clippy no_std docs deny test valgrind examples python extension lab)

# Network tests need namespaces. Where they are switched on they fail if they cannot run.
if [ -z "${HEADSTART_TEST_NET:-}" ] && [ "$(id -u)" = 0 ]; then
    export HEADSTART_TEST_NET=1
fi
[ -n "${HEADSTART_TEST_NET:-}" ] || echo "note: not root, so tests in network namespaces are skipped (HEADSTART_TEST_NET=1 runs them)"

# The recorder's tests, with Chromium, which `tools` installs.
export HEADSTART_TEST_BROWSER=${HEADSTART_TEST_BROWSER:-1}

# Packages by the command that they bring.
tools() {
    local missing=()
    while read -r command package; do
        PATH="$PATH:/usr/sbin:/sbin" command -v "$command" >/dev/null || missing+=("$package")
    done <<'LIST'
cc gcc
make make
perl perl
curl curl
openssl openssl
python3 python3
ruby ruby
nginx nginx
haproxy haproxy
redis-server redis-server
ip iproute2
nft nftables
node nodejs
npm npm
cmake cmake
php php-cli
wget wget
tcpdump tcpdump
clang-14 clang-14
llvm-strip-14 llvm-14
setpriv util-linux
valgrind valgrind
chromium chromium
tor tor
microsocks microsocks
LIST
    [ -e /usr/include/bpf/bpf_helpers.h ] || missing+=(libbpf-dev)
    python3 -c 'import ensurepip' 2>/dev/null || missing+=(python3-venv)
    # Clients of the experiment `sharing`.
    /usr/bin/python3 -c 'import requests' 2>/dev/null || missing+=(python3-requests)
    php -m 2>/dev/null | grep -qx curl || missing+=(php-curl)
    perl -MIO::Socket::SSL -e 1 2>/dev/null || missing+=(libio-socket-ssl-perl)
    if [ ${#missing[@]} -gt 0 ]; then
        echo "installing ${missing[*]}"
        local sudo=()
        [ "$(id -u)" = 0 ] || sudo=(sudo)
        "${sudo[@]}" apt-get update -qq
        # They are for tests: none is to start as a service, and tor least of all, which would go out.
        local policy=/usr/sbin/policy-rc.d own_policy=
        if [ ! -e "$policy" ]; then
            own_policy=1
            printf '#!/bin/sh\nexit 101\n' | "${sudo[@]}" tee "$policy" >/dev/null
            "${sudo[@]}" chmod 755 "$policy"
        fi
        local installed=0
        "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null || installed=$?
        [ -z "$own_policy" ] || "${sudo[@]}" rm "$policy"
        [ "$installed" = 0 ] || return "$installed"
    fi
    cargo fmt --version >/dev/null && cargo clippy --version >/dev/null
    if ! cargo deny --version 2>/dev/null | grep -qF "$DENY"; then
        # Its own speed matters less than that of its build.
        CARGO_PROFILE_DEV_DEBUG=false cargo install --debug --locked --quiet cargo-deny --version "$DENY"
    fi
}

# The committed objects are what their sources give, with the one compiler that they are built with.
bpf() { bpf/build.sh --check; }

format() { cargo fmt --all --check; }

clippy() { cargo clippy --locked --workspace --all-targets -- -D warnings; }

# The core must not reach for a clock, a socket or a thread. A static library without std links only
# if nothing below it brings std along.
no_std() {
    cargo build --locked --manifest-path crates/proto/no_std/Cargo.toml --target-dir target/no_std
}

docs() { RUSTDOCFLAGS="-D warnings" cargo doc --locked --workspace --no-deps; }

# Advisories need a database from the network, which not every machine reaches: cargo deny check.
deny() { cargo deny --locked check bans licenses sources; }

# Fuzz corpora are replayed by ordinary tests of headstart-proto and headstart-tls.
# Most tests wait for other programs, and for time to pass. Those that fail beside others are run once more, by
# themselves: what is wrong is wrong each time.
test() {
    local log failed targets
    log=$(mktemp)
    if RUST_TEST_THREADS=${RUST_TEST_THREADS:-$((3 * $(nproc)))} \
        cargo test --locked --workspace --no-fail-fast 2>&1 | tee "$log"; then
        rm "$log"
        return
    fi
    # By the lists at the end of each program, and of cargo. What did not compile, or died, is in neither.
    mapfile -t failed < <(sed -n '/^failures:$/,/^test result/s/^    \([a-z0-9_:]*\)$/\1/p' "$log" | sort -u)
    mapfile -t targets < <(sed -n 's/^    `-p [^ ]* \(--test [^ ]*\|--lib\)`$/\1/p' "$log")
    if [ ${#failed[@]} = 0 ] || [ ${#failed[@]} -gt "$AGAIN" ] ||
        [ ${#targets[@]} != "$(grep -c '^    `-p ' "$log")" ] ||
        [ ${#targets[@]} != "$(grep -c '^test result: FAILED' "$log")" ]; then
        return 1
    fi
    rm "$log"
    echo "once more, by themselves: ${failed[*]}"
    # shellcheck disable=SC2086 # two words each
    cargo test --locked --workspace ${targets[*]} -- --test-threads=1 --exact "${failed[@]}"
}

# The calls of OpenSSL that crates/tls makes by itself, and the callbacks: no byte is used that is another's or was never
# written, and none is lost. Two minutes; tests that start other programs are left out.
valgrind() {
    # Those of other crates besides: of one crate alone, dependencies have other features, and would be built once more.
    local build=(cargo test --locked --workspace --test engine --test fuzz_replay --no-run)
    "${build[@]}"
    local programs program
    programs=$("${build[@]}" --quiet --message-format=json | sed -n 's|.*/crates/tls#.*"executable":"\([^"]*\)".*|\1|p')
    [ "$(wc -w <<<"$programs")" = 2 ]
    for program in $programs; do
        # Fair: threads that wait for each other get their turns.
        command valgrind --quiet --fair-sched=try --error-exitcode=1 --leak-check=full --show-leak-kinds=definite \
            --errors-for-leak-kinds=definite "$program" --test-threads=1 --skip interop
    done
}

examples() { crates/net/examples/run.sh; }

# All programs and libraries. With the tests, whose features are those of the step `test`: nothing is built twice.
programs() { cargo build --locked --workspace --lib --bins --tests; }

# The package for Python on the real command, and its wheel. pip brings the tools, into target/python.
python() {
    programs
    HEADSTART_BINARY=${CARGO_TARGET_DIR:-$PWD/target}/debug/headstart bindings/python/check.sh
}

# The browser extension: its types, and its tests in real Chromium. npm brings the compiler, into extension/node_modules.
extension() {
    programs
    HEADSTART_BINARY=${CARGO_TARGET_DIR:-$PWD/target}/debug/headstart extension/check.sh
}

# Every experiment in short: the shape of its results and its bars, at most 13 minutes together.
lab() {
    if [ -z "${HEADSTART_TEST_NET:-}" ]; then
        echo "skipped: HEADSTART_TEST_NET=1 runs the experiments"
        return
    fi
    local results file name tries headstart=${CARGO_TARGET_DIR:-$PWD/target}/debug/headstart
    programs
    results=$(mktemp -d)
    for file in lab/experiments/*.toml; do
        # Nobody else may attach programs to the kernel.
        if [[ $(basename "$file") == fop-* ]] && [ "$(id -u)" != 0 ]; then
            echo "skipped: $file needs root"
            continue
        fi
        if grep -q '^page = ' "$file"; then
            if [ -z "${HEADSTART_DATA:-}" ] || [ "$(id -u)" != 0 ]; then
                echo "skipped: $file needs recorded pages (HEADSTART_DATA) and root"
                continue
            fi
        fi
        if grep -q '^site = ' "$file" && ! command -v chromium >/dev/null; then
            echo "skipped: $file needs Chromium"
            continue
        fi
        # A few trials on a machine that does other things besides: what is wrong is wrong each time.
        name=$(basename "$file" .toml)
        tries=1
        until "$headstart" lab run "$name" --quick --out "$results/$name"; do
            [ "$tries" -lt 3 ] || return 1
            tries=$((tries + 1))
            rm -r "${results:?}/$name"
        done
    done
    "$headstart" lab report "$results"/* --html "$results/report.html" >/dev/null
    rm -r "$results"
}

for step in "${steps[@]}"; do
    echo "== $step"
    SECONDS=0
    "$step"
    echo "== $step: done in ${SECONDS} s"
done
