#!/usr/bin/env bash
# Installs the packages on a fresh Debian, uses, upgrades, removes and purges them there, and types
# docs/tutorial.md into two others:
#
#   packaging/test.sh            as root; PREFIX as for packaging/build.sh; SUITE: of Debian;
#                                REQUESTS: while an edge restarts (2000)
#
# The fresh Debian is a container that systemd boots, whatever runs as process 1 here. Needs
# mmdebstrap and systemd-container; with podman it also makes the image. What is downloaded once
# stays in target/packages-test.
set -euo pipefail
cd "$(dirname "$0")/.."

for tool in mmdebstrap systemd-nspawn; do
    type -P $tool >/dev/null ||
        { echo "no $tool: apt install mmdebstrap systemd-container" >&2; exit 2; }
done
KEPT=$(realpath -m "${CARGO_TARGET_DIR:-target}")/packages-test
SUITE=${SUITE:-bookworm}
PACKAGES=systemd,ca-certificates,curl,haproxy,nginx,openssh-server,openssl,procps
FRESH=$KEPT/$SUITE-$(cksum <<<"$PACKAGES" | cut -d' ' -f1).tar
mkdir -p "$KEPT"
[ -e "$FRESH" ] || {
    mmdebstrap --quiet --variant=minbase --include="$PACKAGES" "$SUITE" "$KEPT/fresh.tar"
    mv "$KEPT/fresh.tar" "$FRESH"
}

WORK=$(mktemp -d -p /var/tmp)
trap 'rm -rf "$WORK"' EXIT
export LEVEL=0
for revision in 1 2; do
    REVISION=$revision OUT=$WORK/packages packaging/build.sh deb >/dev/null
done
# Again, and equal.
REVISION=2 OUT=$WORK/again packaging/build.sh deb >/dev/null
for package in "$WORK"/again/*.deb; do
    cmp "$package" "$WORK/packages/${package##*/}"
done

if type -P podman >/dev/null; then
    OUT=$WORK/packages packaging/build.sh oci >/dev/null
    podman=(podman --root "$WORK/store" --runroot "$WORK/run" --storage-driver vfs)
    loaded=$("${podman[@]}" load --quiet --input "$WORK"/packages/headstart-*-oci-*.tar)
    # Not run: many systems cannot within another container.
    image=$("${podman[@]}" image mount "${loaded#*: }")
    echo "== image: $(chroot --userspec=65532:65532 "$image" /usr/bin/headstart --version)"
    "${podman[@]}" image unmount --all >/dev/null
fi

mkdir "$WORK/root"
tar --directory "$WORK/root" --extract --file "$FRESH"
cp "$WORK"/packages/*.deb packaging/test-inside.sh "$WORK/root/root"
cat >"$WORK/root/etc/systemd/system/check.service" <<EOF
[Unit]
SuccessAction=exit
FailureAction=exit
[Service]
Type=oneshot
Environment=REQUESTS=${REQUESTS:-2000}
ExecStart=/bin/bash /root/test-inside.sh
StandardOutput=file:/root/log
StandardError=inherit
[Install]
WantedBy=multi-user.target
EOF
systemctl --quiet --root="$WORK/root" enable check.service
# As on a machine, root may copy the sockets of other processes.
timeout 900 systemd-nspawn --quiet --register=no --keep-unit --boot --private-network \
    --system-call-filter="pidfd_open pidfd_getfd" --machine=headstart-packages \
    --directory="$WORK/root" </dev/null >"$WORK/boot" 2>&1 || true
tail -n 1 "$WORK/root/root/log" | grep -qx "all of it passed" || {
    tail -n 20 "$WORK/boot"
    cat "$WORK/root/root/log"
    exit 1
}
grep '^== ' "$WORK/root/root/log"

packaging/tutorial.py "$FRESH" "$WORK"/packages/headstart_*-2_*.deb
