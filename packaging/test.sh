#!/usr/bin/env bash
# Installs the packages on fresh Debians, uses, upgrades, removes and purges them there, and types
# docs/tutorial.md into two others:
#
#   packaging/test.sh            as root; PREFIX as for packaging/build.sh; SUITE: of Debian
#
# A fresh Debian is a container that systemd boots, whatever runs as process 1 here. Needs
# mmdebstrap, systemd-container, pip and podman; the image is left out without podman, unless
# HEADSTART_TEST_NET=1. What is downloaded once stays in target/packages-test.
set -euo pipefail
cd "$(dirname "$0")/.."

for tool in mmdebstrap systemd-nspawn; do
    type -P $tool >/dev/null ||
        { echo "no $tool: apt install mmdebstrap systemd-container" >&2; exit 2; }
done
formats=(deb tar wheel)
if type -P podman >/dev/null; then
    formats+=(oci)
elif [ "${HEADSTART_TEST_NET:-}" = 1 ]; then
    echo "no podman: apt install podman" >&2
    exit 2
else
    echo "note: no podman: no image is made"
fi
HEADSTART=$(realpath "${PREFIX:-target/release}")/headstart
KEPT=$(realpath -m "${CARGO_TARGET_DIR:-target}")/packages-test
SUITE=${SUITE:-bookworm}
PACKAGES=systemd,apache2,ca-certificates,caddy,curl,haproxy,nginx,openssh-server,openssl,procps
PACKAGES+=,xz-utils
FRESH=$KEPT/$SUITE-$(cksum <<<"$PACKAGES" | cut -d' ' -f1).tar
mkdir -p "$KEPT"
[ -e "$FRESH" ] || {
    mmdebstrap --quiet --variant=minbase --include="$PACKAGES" \
        --customize-hook='systemctl --root="$1" --quiet disable apache2 caddy' \
        "$SUITE" "$KEPT/fresh.tar"
    mv "$KEPT/fresh.tar" "$FRESH"
}

WORK=$(mktemp -d -p /var/tmp)
trap 'rm -rf "$WORK"' EXIT
export LEVEL=0
REVISION=1 OUT=$WORK/packages packaging/build.sh deb >/dev/null
for place in packages again; do
    REVISION=2 OUT=$WORK/$place packaging/build.sh "${formats[@]}" >/dev/null
done
for package in "$WORK"/again/headstart*; do
    cmp "$package" "$WORK/packages/${package##*/}"
done
wheel=$(basename "$WORK"/packages/headstart-*-py3-none-any.whl)
grep -qF "$wheel" "$WORK/packages/SHA256SUMS"
PYTHONPATH=$WORK/packages/$wheel python3 -c "import headstart.agent"

say() { echo "== $*"; }

# Makes a fresh Debian at $1, with the files that follow in /root.
fresh() {
    mkdir "$1"
    tar --directory "$1" --extract --file "$FRESH"
    cp "${@:2}" "$1/root"
}

# Boots the Debian at $1, and runs test-inside.sh there with the other arguments.
boot() {
    cat >"$1/etc/systemd/system/check.service" <<EOF
[Unit]
SuccessAction=exit
FailureAction=exit
[Service]
Type=oneshot
ExecStart=/bin/bash /root/test-inside.sh ${*:2}
StandardOutput=file:/root/log
StandardError=inherit
[Install]
WantedBy=multi-user.target
EOF
    systemctl --quiet --root="$1" enable check.service
    # As on a machine, root may copy the sockets of other processes, and load BPF programs.
    timeout 900 systemd-nspawn --quiet --register=no --keep-unit --boot --private-network \
        --system-call-filter="pidfd_open pidfd_getfd bpf" --capability=CAP_BPF \
        --machine=headstart-packages --directory="$1" </dev/null >"$WORK/boot" 2>&1 || true
    tail -n 1 "$1/root/log" | grep -qx "all of it passed" || {
        tail -n 20 "$WORK/boot"
        cat "$1/root/log"
        exit 1
    }
    grep '^== ' "$1/root/log"
}

# Runs the image with the options that docs/install.md names, and fetches a page from it.
image() {
    local podman=(podman --root "$WORK/store" --runroot "$WORK/run" --storage-driver vfs
        --cgroup-manager cgroupfs)
    local file image size place=$WORK/site runtime container space count options
    file=$(echo "$WORK"/packages/headstart-*-oci-*.tar)
    size=$(stat --format %s "$file")
    say "image: $((size / 1000000)) MB"
    [ "$size" -le 30000000 ]
    image=$("${podman[@]}" load --quiet --input "$file")
    image=${image#*: }
    [ -e "$("${podman[@]}" image mount "$image")/usr/lib/headstart/libheadstart_preload.so" ]
    "${podman[@]}" image unmount --all >/dev/null

    read -ra options <<<"$(sed -n 's/^podman run \(.*\) \\$/\1/p' docs/install.md)"
    # Limits that root can set within another container, too.
    options+=(--ulimit nofile=4096:4096 --ulimit nproc=1024:1024 --network none)
    for runtime in crun runc ""; do
        [ "$runtime" ] || { say "image: not run here: $(tail -n 1 "$WORK/why")"; return; }
        "${podman[@]}" --runtime $runtime run "${options[@]}" "$image" --version \
            >"$WORK/why" 2>&1 && break
    done
    mkdir "$place"
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 9 \
        -subj /CN=www.example.com -addext subjectAltName=DNS:www.example.com \
        -keyout "$place/key.pem" -out "$place/cert.pem" 2>/dev/null
    chown 65532 "$place/key.pem"
    container=$("${podman[@]}" --runtime "$runtime" run --detach "${options[@]}" \
        --volume "$place:/site:ro" "$image" edge --origin http://127.0.0.1:8080 \
        --cert /site/cert.pem --key /site/key.pem)
    space=/proc/$("${podman[@]}" inspect --format '{{.State.Pid}}' "$container")/ns/net
    echo "page of a container" >"$place/page"
    nsenter --net="$space" python3 -m http.server --bind 127.0.0.1 --directory "$place" 8080 \
        >/dev/null 2>&1 &
    # Edge and server start.
    for ((count = 0; count < 100; count++)); do
        nsenter --net="$space" "$HEADSTART" get --cacert "$place/cert.pem" --opening turbo \
            --edge www.example.com=127.0.0.1:443 https://www.example.com/page \
            >"$WORK/page" 2>"$WORK/why" && cmp --silent "$WORK/page" "$place/page" && break
        sleep 0.1
    done
    kill $!
    "${podman[@]}" --runtime "$runtime" logs "$container" >>"$WORK/why" 2>&1
    "${podman[@]}" --runtime "$runtime" rm --force --time 0 "$container" >/dev/null
    cmp "$WORK/page" "$place/page" || { cat "$WORK/why"; return 1; }
    say "image: a page by $runtime, ${options[*]}"
}
[[ ${formats[*]} != *oci* ]] || image

# Where systemd does not run, the package installs, and `headstart up` says what is left to do.
plain_chroot() {
    local root=$WORK/chroot status=0
    fresh "$root" "$WORK"/packages/headstart_*-2_*.deb
    mkdir -p "$root/var/lib/apt/lists/auxfiles"
    in_there() { DEBIAN_FRONTEND=noninteractive chroot "$root" "$@"; }
    in_there sh -c "apt-get install --yes --quiet --no-install-recommends /root/*.deb" \
        >/dev/null 2>&1
    in_there id headstart >/dev/null
    in_there headstart up --yes 2>"$WORK/said" || status=$?
    [ "$status" = 2 ]
    grep -q "systemd does not run here" "$WORK/said"
    grep -q "headstart edge --origin 127.0.0.1:8443 --proxy-protocol, if" "$WORK/said"
    in_there apt-get purge --yes --quiet headstart >/dev/null 2>&1
    say "plain chroot: $(tr '\n' ' ' <"$WORK/said")"
}
plain_chroot

fresh "$WORK/tarball" "$WORK"/packages/headstart-*-linux-*.tar.xz packaging/test-inside.sh \
    docs/install.md
boot "$WORK/tarball" tarball
rm -r "$WORK/tarball"
fresh "$WORK/root" "$WORK"/packages/*.deb packaging/test-inside.sh
boot "$WORK/root" packages

packaging/tutorial.py "$FRESH" "$WORK"/packages/headstart_*-2_*.deb
