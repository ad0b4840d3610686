#!/usr/bin/env bash
# Builds the BPF objects that are committed beside this script; --check builds them elsewhere and
# compares.
#
# Users need none of this: the objects are part of the program. To change one:
#   apt-get install clang-14 llvm-14 libbpf-dev     (Debian 12)
#   crates/net/bpf/build.sh
#
# One compiler, so that whoever rebuilds gets the same bytes: clang 14.0.6 of Debian 12, with the
# headers of libbpf-dev 1.1.2 and linux-libc-dev 6.1 there. CLANG and STRIP name others, for a try.
set -euo pipefail
cd "$(dirname "$0")"

CLANG=${CLANG:-clang-14}
STRIP=${STRIP:-llvm-strip-14}
COMPILER="clang version 14.0.6"

hint() {
    echo "error: $1" >&2
    echo "hint: apt-get install clang-14 llvm-14 libbpf-dev (Debian 12)" >&2
    exit 2
}

command -v "$CLANG" >/dev/null || hint "there is no $CLANG"
command -v "$STRIP" >/dev/null || hint "there is no $STRIP"
[ -e /usr/include/bpf/bpf_helpers.h ] || hint "there are no headers of libbpf"
if [ "$CLANG" = clang-14 ] && ! "$CLANG" --version | grep -qF "$COMPILER"; then
    hint "the objects are built with $COMPILER; this is $("$CLANG" --version | head -n 1)"
fi

# Headers that include asm/types.h find it in the directory of the machine they are for.
machine=$(gcc -print-multiarch 2>/dev/null || echo x86_64-linux-gnu)

# build NAME DIR: little-endian; instructions that Linux 4.14 knows; BTF, which socket storage
# needs, but no DWARF; no path of this machine in it.
build() {
    "$CLANG" -O2 -g -Wall -Wextra -Wno-unused-parameter -Werror -target bpfel -mcpu=v2 \
        -ffile-compilation-dir=. -I"/usr/include/$machine" -c "$1.bpf.c" -o "$2/$1.bpf.o"
    "$STRIP" -g "$2/$1.bpf.o"
}

case "${1:-}" in
"")
    for name in careful client server; do build "$name" .; done
    sha256sum -- *.bpf.o
    ;;
--check)
    built=$(mktemp -d)
    trap 'rm -r "$built"' EXIT
    for name in careful client server; do
        build "$name" "$built"
        if ! cmp -s "$name.bpf.o" "$built/$name.bpf.o"; then
            echo "error: crates/net/bpf/$name.bpf.o is not what its source gives" >&2
            echo "hint: run crates/net/bpf/build.sh, and commit what it wrote" >&2
            exit 1
        fi
    done
    echo "the committed objects are what their sources give"
    ;;
*)
    echo "usage: crates/net/bpf/build.sh [--check]" >&2
    exit 2
    ;;
esac
