#!/usr/bin/env bash
# Packages the programs that cargo has built, into target/packages with SHA256SUMS:
#
#   packaging/build.sh [all | [deb] [tar] [oci] [wheel]]
#
# PREFIX: folder of the programs (target/release); OUT: another place for the packages; REVISION:
# what follows the version in a .deb (1); LEVEL: of xz (9). The same programs and commit give the
# same bytes: all times are that of the commit. Needs dpkg-dev, for the image podman, and for the
# wheel pip.
set -euo pipefail
cd "$(dirname "$0")/.."

PREFIX=$(realpath "${PREFIX:-target/release}")
OUT=$(realpath -m "${OUT:-target/packages}")
VERSION=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
REVISION=${REVISION:-1}
HATCHLING=1.27.0
MAINTAINER="The headstart authors <$(git log -1 --format=%ae)>"
ARCH=$(dpkg --print-architecture)
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH
umask 022

WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT

# Installs a file at the place $1 below the folder of the current package.
put() { install -D -m "${3:-644}" "$2" "$ROOT/$1"; }

program() {
    put "usr/bin/$1" "$PREFIX/$1" 755
    strip --strip-all "$ROOT/usr/bin/$1"
    mkdir -p "$ROOT"/usr/share/{man/man1,bash-completion/completions,zsh/vendor-completions} \
        "$ROOT/usr/share/fish/vendor_completions.d"
    "$PREFIX/$1" man --dir "$ROOT/usr/share/man/man1"
    "$PREFIX/$1" completions bash >"$ROOT/usr/share/bash-completion/completions/$1"
    "$PREFIX/$1" completions zsh >"$ROOT/usr/share/zsh/vendor-completions/_$1"
    "$PREFIX/$1" completions fish >"$ROOT/usr/share/fish/vendor_completions.d/$1.fish"
    put "usr/share/doc/$1/changelog" CHANGELOG.md
    cat >"$ROOT/usr/share/doc/$1/changelog.Debian" <<EOF
$1 ($VERSION-$REVISION) unstable; urgency=medium

  * See changelog.gz.

 -- $MAINTAINER  $(date -Rud "@$SOURCE_DATE_EPOCH")
EOF
    {
        printf 'headstart is licensed under MIT or Apache-2.0, at your option.\n'
        printf 'On Debian, /usr/share/common-licenses/Apache-2.0 is the latter.\n\n'
        cat LICENSE-MIT
    } >"$ROOT/usr/share/doc/$1/copyright"
}

# The files of both packages, one folder for each.
files() {
    local systemd=packaging/systemd unit
    ROOT=$WORK/headstart
    program headstart
    # headstart-lab has a page of this name.
    rm "$ROOT/usr/share/man/man1/headstart-lab.1"
    put usr/lib/headstart/libheadstart_preload.so "$PREFIX/libheadstart_preload.so"
    strip --strip-unneeded "$ROOT/usr/lib/headstart/libheadstart_preload.so"
    put usr/lib/sysusers.d/headstart.conf $systemd/sysusers.conf
    for unit in $systemd/headstart-*; do
        put "usr/lib/systemd/system/${unit##*/}" "$unit"
    done
    for unit in headstart-edge@ headstart-agent headstart-fastopen@ headstart-careful-resume; do
        put "usr/lib/systemd/system/$unit.service.d/hardening.conf" $systemd/hardening.conf
    done
    put usr/lib/systemd/system/headstart-agent.service.d/socket-group.conf \
        $systemd/socket-group.conf
    for unit in headstart-fastopen@ headstart-careful-resume; do
        put "usr/lib/systemd/system/$unit.service.d/load-bpf.conf" $systemd/load-bpf.conf
    done
    put usr/lib/systemd/user/headstart-agent.service $systemd/user-agent.service
    put etc/headstart/agent.toml packaging/debian/agent.toml
    for unit in docs/*.md KNOWN-LIMITS.md README.md; do
        put "usr/share/doc/headstart/$unit" "$unit"
    done
    for unit in packaging/monitoring/*; do
        put "usr/share/doc/headstart/monitoring/${unit##*/}" "$unit"
    done
    ROOT=$WORK/headstart-lab
    program headstart-lab
    find "$WORK" -path '*/man1/*' -o -name "changelog*" -o -name '*.md' -path '*/doc/*' |
        xargs gzip -9n
}

# What the programs are linked with, as Debian calls it.
depends() {
    mkdir -p "$WORK/shlibs/debian"
    touch "$WORK/shlibs/debian/control"
    (cd "$WORK/shlibs" && dpkg-shlibdeps -O "$@") | sed 's/^shlibs:Depends=//'
}

control() {
    local name=$1 depends=$2 text=$3 root=$WORK/$1
    cat >"$root/DEBIAN/control" <<EOF
Package: $name
Version: $VERSION-$REVISION
Architecture: $ARCH
Maintainer: $MAINTAINER
Installed-Size: $(du -sk --apparent-size --exclude=DEBIAN "$root" | cut -f1)
Depends: $depends
Section: net
Priority: optional
$text
EOF
    (cd "$root" && find usr -type f -print0 | sort -z | xargs -0 md5sum) >"$root/DEBIAN/md5sums"
}

deb() {
    local libraries script
    mkdir "$WORK"/{headstart,headstart-lab}/DEBIAN
    mapfile -t libraries < <(find "$WORK/headstart" -path '*/bin/*' -o -name '*.so')
    control headstart "$(depends "${libraries[@]}"), systemd | systemd-sysusers" \
"Recommends: ca-certificates, iproute2, procps
Suggests: headstart-lab
Description: opens TLS connections over TCP one round trip sooner
 An edge before a TLS server and an agent beside applications send the first
 TLS messages over UDP while TCP connects (TurboTLS), or in the SYN (TCP Fast
 Open with cookies that cannot be used to track). Servers and applications
 stay as they are; where UDP is blocked, connections are ordinary TLS."
    (cd "$WORK/headstart" && find etc -type f -printf '/%p\n') >"$WORK/headstart/DEBIAN/conffiles"
    for script in postinst prerm postrm; do
        install -m 755 "packaging/debian/headstart.$script" "$WORK/headstart/DEBIAN/$script"
    done
    control headstart-lab \
        "$(depends "$WORK/headstart-lab/usr/bin/headstart-lab"), headstart (= $VERSION-$REVISION)" \
"Recommends: iproute2
Suggests: chromium
Description: laboratory of headstart: lab, pageload and demo
 Measures ways of opening connections over emulated networks on this machine,
 records page loads, and simulates and replays them."
    for script in headstart headstart-lab; do
        dpkg-deb --root-owner-group -Zxz "-z${LEVEL:-9}" --threads-max=1 \
            --build "$WORK/$script" "$OUT" >/dev/null
        rm -r "$WORK/$script/DEBIAN"
    done
}

# Archives a folder: by name, of nobody in particular, at the time of the commit.
archive() {
    tar --directory "$1" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --clamp-mtime \
        --owner=0 --group=0 --numeric-owner --format=gnu --create "${@:2}"
}

tarball() {
    local name=headstart-$VERSION-linux-$ARCH
    mkdir "$WORK/$name"
    cp -a "$WORK"/headstart/. "$WORK"/headstart-lab/. "$WORK/$name"
    install -m 644 LICENSE-MIT LICENSE-APACHE docs/install.md "$WORK/$name"
    archive "$WORK" "$name" | xz "-${LEVEL:-9}" --threads=1 >"$OUT/$name.tar.xz"
}

oci() {
    local root=$WORK/image library layout=$WORK/layout
    mkdir -p "$root"/{etc/ssl/certs,usr/bin,usr/lib}
    cp "$WORK/headstart/usr/bin/headstart" "$root/usr/bin"
    cp -a "$WORK/headstart/usr/lib/headstart" "$root/usr/lib"
    # The program's libraries and loader, at the paths that it asks for.
    ldd "$root/usr/bin/headstart" | grep -o '/[^ ]*' | while read -r library; do
        install -D -m 755 "$library" "$root$library"
    done
    cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs"
    echo 'headstart:x:65532:65532::/:/usr/bin/headstart' >"$root/etc/passwd"
    echo 'headstart:x:65532:' >"$root/etc/group"
    # In a store of its own: images of the user stay as they are.
    local podman=(podman --root "$WORK/store" --runroot "$WORK/run" --storage-driver vfs)
    "${podman[@]}" build --quiet --timestamp "$SOURCE_DATE_EPOCH" --tag "headstart:$VERSION" \
        --file packaging/oci/Containerfile "$root" >/dev/null
    "${podman[@]}" save --quiet --format oci-dir --output "$layout" "headstart:$VERSION"
    archive "$layout" . >"$OUT/headstart-$VERSION-oci-$ARCH.tar"
}

# The package of bindings/python, by the same backend for all who build it.
wheel() {
    echo "hatchling==$HATCHLING" >"$WORK/constraint"
    PIP_CONSTRAINT=$WORK/constraint python3 -m pip wheel --quiet --disable-pip-version-check \
        --no-deps --wheel-dir "$OUT" ./bindings/python
}

[ $# -gt 0 ] || set -- all
[ "$*" != all ] || set -- deb tar oci wheel
for what; do
    case $what in
    deb | tar | oci | wheel) ;;
    *) sed -n '2,/^set/s/^# \?//p' "$0" >&2; exit 2 ;;
    esac
done
mkdir -p "$OUT"
files
for what; do
    case $what in
    tar) tarball ;;
    *) "$what" ;;
    esac
done
cd "$OUT"
sha256sum headstart* | tee SHA256SUMS
