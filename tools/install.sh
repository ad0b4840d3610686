#!/usr/bin/env bash
# Installs what ./check.sh needs, by apt; with `full`, what its slow steps need besides.
set -euo pipefail
cd "$(dirname "$0")/.."

DENY=0.20.2
MDBOOK=0.5.2

missing=()
# Packages by the command that they bring.
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
wget2 wget2
tcpdump tcpdump
tshark tshark
ndpiReader libndpi-bin
clang-14 clang-14
llvm-strip-14 llvm-14
setpriv util-linux
go golang-go
chromium chromium
tor tor
microsocks microsocks
LIST
if [ "${1:-}" = full ]; then
    command -v kramdown-rfc >/dev/null || missing+=(ruby-kramdown-rfc2629)
    command -v valgrind >/dev/null || missing+=(valgrind)
    command -v testssl >/dev/null || missing+=(testssl.sh)
    command -v prometheus >/dev/null || missing+=(prometheus)
    command -v mmdebstrap >/dev/null || missing+=(mmdebstrap)
    command -v podman >/dev/null || missing+=(podman)
    command -v systemd-nspawn >/dev/null || missing+=(systemd-container)
fi
[ -e /usr/include/bpf/bpf_helpers.h ] || missing+=(libbpf-dev)
python3 -c 'import ensurepip' 2>/dev/null || missing+=(python3-venv)
# Clients of the experiment `sharing`.
/usr/bin/python3 -c 'import requests' 2>/dev/null || missing+=(python3-requests)
php -r 'exit(extension_loaded("curl") ? 0 : 1);' 2>/dev/null || missing+=(php-curl)
perl -MIO::Socket::SSL -e 1 2>/dev/null || missing+=(libio-socket-ssl-perl)
if [ ${#missing[@]} -gt 0 ]; then
    echo "installing ${missing[*]}"
    sudo=()
    [ "$(id -u)" = 0 ] || sudo=(sudo)
    "${sudo[@]}" apt-get update -qq
    # Tests start them: none is to start as a service, and tor least of all, which would go out.
    policy=/usr/sbin/policy-rc.d own_policy=
    if [ ! -e "$policy" ]; then
        own_policy=1
        printf '#!/bin/sh\nexit 101\n' | "${sudo[@]}" tee "$policy" >/dev/null
        "${sudo[@]}" chmod 755 "$policy"
    fi
    installed=0
    "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null || installed=$?
    [ -z "$own_policy" ] || "${sudo[@]}" rm "$policy"
    [ "$installed" = 0 ] || exit "$installed"
fi
cargo fmt --version >/dev/null && cargo clippy --version >/dev/null
# Their own speed matters less than that of their build.
build() { CARGO_PROFILE_DEV_DEBUG=false cargo install --debug --locked --quiet "$@"; }
if [ "${1:-}" = full ]; then
    cargo deny --version 2>/dev/null | grep -qF "$DENY" || build cargo-deny --version "$DENY"
    mdbook --version 2>/dev/null | grep -qF "$MDBOOK" ||
        build mdbook --version "$MDBOOK" --no-default-features
fi
