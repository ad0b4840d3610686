#!/bin/bash
# What packaging/test.sh runs as root in the container: `packages` or `tarball`.
set -euo pipefail
cd /root
export DEBIAN_FRONTEND=noninteractive HOME=/root
failed() {
    journalctl --no-pager -n 40 -u "headstart*" -u manager
    echo "line $1 failed: $2"
}
set -E
trap 'failed "$LINENO" "$BASH_COMMAND"' ERR

say() { echo "== $*"; }
install() { apt-get install --yes --quiet --no-install-recommends "$@" >/dev/null; }
fails() { if "$@"; then false; fi; }
property() { systemctl show --property "$1" --value "$2"; }

# All files but those that logs, caches and running services change. systemctl makes the folder, and
# removes it when it is empty.
list() {
    mkdir -p /etc/systemd/system/sockets.target.wants
    find / -xdev \( -path /root -o -path /tmp -o -path /var/log -o -path /var/cache -o \
        -path '/var/lib/dpkg/*-old' -o -path /var/lib/systemd -o -path /var/lib/apache2 -o \
        -path /var/lib/caddy -o -path /var/tmp \) \
        -prune -o -print | sort
}

# All that a purge leaves is the users.
left_are_users() {
    local file
    list >after
    diff before after
    for file in passwd group; do
        grep -v "^headstart\(-agent\)\?:" "/etc/$file" | diff "$file.before" -
        [ "$(grep -c "^headstart" "/etc/$file")" = 2 ]
    done
    # Fails if there is none.
    { systemctl list-unit-files --no-legend "headstart*" || true; } | diff /dev/null -
    # A unit stays loaded until its last worker has ended.
    while systemctl list-units --all --no-legend "headstart*" | grep -q .; do sleep 0.1; done
}

# Of apt, once and for all.
mkdir -p /var/lib/apt/lists/auxfiles
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 9 \
    -subj /CN=www.example.com -addext subjectAltName=DNS:www.example.com \
    -keyout key.pem -out cert.pem 2>/dev/null

ip address add 192.0.2.7/32 dev lo
# The page, whoever has port 443, says the address of its client.
site() {
    headstart get --cacert cert.pem --opening "$1" --edge www.example.com=192.0.2.7:443 \
        https://www.example.com/
}
if [ "$1" = tarball ]; then
    # Types the block behind a line of docs/install.md.
    typed() {
        sed -n "/$1/,/^\`\`\`$/p" install.md | sed '1,/^```sh/d;/^```/d' >block
        [ -s block ]
        bash -e block
    }
    typed "^The tarball is the same elsewhere"
    cat >/etc/nginx/conf.d/site.conf <<'EOF'
server {
    listen 8443 ssl proxy_protocol;
    ssl_certificate /root/cert.pem;
    ssl_certificate_key /root/key.pem;
    location / { return 200 "page for $proxy_protocol_addr\n"; }
}
EOF
    systemctl restart nginx
    typed "^Nothing is started"
    [ "$(site turbo)" = "page for 192.0.2.7" ]
    systemctl --quiet is-enabled headstart-edge@www
    say "tarball: a page, as docs/install.md has it"
    echo "all of it passed"
    exit
fi

say "up"
cat >/etc/nginx/conf.d/site.conf <<'EOF'
server {
    listen 443 ssl http2 default_server;
    listen [::]:443 ssl http2 default_server; # both
    ssl_certificate /root/cert.pem;
    ssl_certificate_key /root/key.pem;
    location / { return 200 "page for $remote_addr\n"; }
    location = /large { root /srv; limit_rate 60k; }
}
EOF
head -c 3000000 /dev/urandom >/srv/large
systemctl restart nginx
cp -a /etc/nginx nginx.before
# Runs a command while four clients ask for the page, 200 times a second if the machine can.
while_asked() {
    local began=$EPOCHREALTIME clients=() enough count seconds
    rm -f answers failures
    touch answers
    for _ in 1 2 3 4; do
        # Not HTTP/2: nginx answers its new connections with GOAWAY as it reloads.
        stdbuf -oL curl --silent --show-error --insecure --http1.1 --max-time 9 --rate 50/s \
            --no-sessionid --header "Connection: close" --output /dev/null \
            --write-out '%{http_code}\n' "https://192.0.2.7/?[1-1000000]" \
            >>answers 2>>failures &
        clients+=($!)
    done
    "${@:2}"
    enough=$(($(wc -l <answers) + 100))
    until [ "$(wc -l <answers)" -ge $enough ]; do sleep 0.1; done
    kill "${clients[@]}"
    wait "${clients[@]}" || true
    count=$(wc -l <answers)
    seconds=$(((${EPOCHREALTIME/./} - ${began/./}) / 1000000))
    say "$1: $count requests in $seconds s, of $((200 * seconds)) asked for;" \
        "$(wc -l <failures) failed"
    cat failures
    [ ! -s failures ]
    [ "$(sort -u answers)" = 200 ]
}
list >before
cp /etc/passwd passwd.before
cp /etc/group group.before
began=$(date +%s%N)
commands=0
counted() {
    commands=$((commands + 1))
    "$@"
}
bring_up() { counted headstart up --yes >up; }
counted install ./headstart_*-1_*.deb
while_asked up bring_up
say "from apt install to figures: $((($(date +%s%N) - began) / 1000000)) ms, $commands commands"
[ $commands -le 3 ]
grep -E '^(before|after)' up | sed 's/^/== up: /'
grep -q '^before .*(plain)' up
grep -q '^after .*(turbo)$' up
grep -q '^www.example.com. 300 IN HTTPS 1 . alpn="\?h2' up
[ "$(site plain)" = "page for 192.0.2.7" ]
[ "$(site turbo)" = "page for 192.0.2.7" ]
systemctl --quiet is-enabled headstart-edge@up.service headstart-edge@up.socket
fails headstart up --yes

say "restart, upgrade and reinstall, up"
# Downloads of 50 s, longer than a stop waits.
download() {
    curl --silent --show-error --insecure --output "download.$1" https://192.0.2.7/large &
    downloads+=($!)
}
is_whole() { cmp "download.$1" /srv/large && rm "download.$1"; }
downloads=()
replace() {
    systemctl restart headstart-edge@up
    install ./headstart_*-2_*.deb
    download 2
    systemctl restart headstart-edge@up
    install --reinstall ./headstart_*-2_*.deb
    # The clients ask until both are whole: some ten thousand times.
    wait "${downloads[@]}"
}
download 1
while_asked "restart, upgrade and reinstall, up" replace
is_whole 1
is_whole 2
[ "$(journalctl --unit headstart-edge@up | grep -c "took over")" = 4 ]
systemctl --quiet is-active headstart-edge@up
[ "$(site turbo)" = "page for 192.0.2.7" ]
systemctl --quiet is-enabled headstart-edge@up.service headstart-edge@up.socket

say "down"
began=$(date +%s%N)
headstart down
say "down: $((($(date +%s%N) - began) / 1000000)) ms"
diff -r nginx.before /etc/nginx
[ "$(site plain)" = "page for 192.0.2.7" ]
fails systemctl --quiet is-active headstart-edge@up.service headstart-edge@up.socket
fails headstart down

say "up, before HAProxy"
systemctl stop nginx
cat cert.pem key.pem >both.pem
cat >/etc/haproxy/haproxy.cfg <<'EOF'
defaults
    mode http
    timeout client 9s
    timeout server 9s
    timeout connect 9s
frontend site
    bind :443 ssl crt /root/both.pem alpn h2,http/1.1
    bind :::443 v6only ssl crt /root/both.pem alpn h2,http/1.1
    http-request return status 200 content-type text/plain lf-string "page for %ci\n"
EOF
cp -a /etc/haproxy haproxy.before
systemctl restart haproxy
while_asked "up, before HAProxy" bring_up
[ "$(site plain)" = "page for 192.0.2.7" ]
[ "$(site turbo)" = "page for 192.0.2.7" ]
headstart down
diff -r haproxy.before /etc/haproxy
[ "$(site plain)" = "page for 192.0.2.7" ]
systemctl stop haproxy

say "up, before Apache"
cp -a /etc/apache2 apache2.before
a2enmod --quiet ssl remoteip >/dev/null
cat >/etc/apache2/sites-enabled/site.conf <<'EOF'
LogFormat "page for %a" address
<VirtualHost *:443>
    SSLEngine on
    SSLCertificateFile /root/cert.pem
    SSLCertificateKeyFile /root/key.pem
    CustomLog /var/log/apache2/site.log address
</VirtualHost>
EOF
systemctl start apache2
fails headstart up --yes 2>said
grep -q "Listen 127.0.0.1:8443 https; <VirtualHost \*:8443>; RemoteIPProxyProtocol On" said
sed -i 's/Listen 443/Listen 127.0.0.1:8443 https/' /etc/apache2/ports.conf
sed -i 's/<VirtualHost .*/<VirtualHost *:8443>\nRemoteIPProxyProtocol On/' \
    /etc/apache2/sites-enabled/site.conf
systemctl restart apache2
headstart up --yes --server 127.0.0.1:8443 --proxy-protocol
site turbo | grep -q "It works"
headstart down
systemctl stop apache2
[ "$(tail -n 1 /var/log/apache2/site.log)" = "page for 192.0.2.7" ]
rm -r /etc/apache2
mv apache2.before /etc/apache2

say "up, before Caddy"
cp -a /etc/caddy caddy.before
cp cert.pem key.pem /etc/caddy
chown caddy /etc/caddy/key.pem
# Of Caddy 2.7 and later.
if caddy list-modules | grep -q '^caddy.listeners.proxy_protocol$'; then
    wrapper="servers {
        listener_wrappers {
            proxy_protocol {
                allow 127.0.0.1/32
            }
            tls
        }
    }" options=(--proxy-protocol) seen=192.0.2.7
else
    say "up, before Caddy: version $(caddy version) has no proxy_protocol"
    wrapper='' options=() seen=127.0.0.1
fi
cat >/etc/caddy/Caddyfile <<EOF
{
    admin off
    https_port 8443
    default_bind 127.0.0.1
    $wrapper
}
www.example.com {
    tls /etc/caddy/cert.pem /etc/caddy/key.pem
    log {
        output file /var/log/caddy/site.log
    }
    respond "page for {remote_host}"
}
EOF
systemctl start caddy
headstart up --yes --name www.example.com --server 127.0.0.1:8443 "${options[@]}" >up
hidden="hide clients' addresses from it, for want of --proxy-protocol"
[ "$(grep -c "$hidden" up)" = $((${#options[@]} == 0)) ]
[ "$(site turbo)" = "page for $seen" ]
headstart down
systemctl stop caddy
grep -q "\"remote_ip\":\"$seen\"" /var/log/caddy/site.log
rm -r /etc/caddy
mv caddy.before /etc/caddy
systemctl start nginx

say "up, where the edge does not start"
dropin=/run/systemd/system/headstart-edge@up.service.d
mkdir -p $dropin
printf '[Service]\nExecStart=\nExecStart=/bin/false\n' >$dropin/fails.conf
systemctl daemon-reload
fails headstart up --yes
diff -r nginx.before /etc/nginx
[ "$(site plain)" = "page for 192.0.2.7" ]
rm -r $dropin
systemctl daemon-reload

say "up, where UDP port 443 is taken"
systemd-run --quiet --unit http3 --socket-property ListenDatagram=0.0.0.0:443 /bin/true
fails headstart up --yes 2>said
grep -q "another program has UDP port 443" said
systemctl stop http3.socket
diff -r nginx.before /etc/nginx
[ ! -e /etc/headstart/up.toml ]
[ ! -e /etc/headstart/up.json ]
fails systemctl --quiet is-active headstart-edge@up.service headstart-edge@up.socket
[ "$(site plain)" = "page for 192.0.2.7" ]

say "up, and purge"
for ((count = 1; ; count++)); do
    headstart up --yes >up
    ! grep -qE '^after +1\.0[0-9] round trips .*\(turbo\)$' up || break
    # A busy machine adds milliseconds of its own.
    grep '^after' up
    [ $count -lt 5 ]
    headstart down
    while ss --listening --tcp --no-header 'sport = 8443' | grep -q .; do sleep 0.1; done
done
say "up, without load: $(grep '^after' up)"
headstart up --agent
systemctl --quiet is-active headstart-agent
apt-get purge --yes --quiet headstart >/dev/null
left_are_users
diff -r nginx.before /etc/nginx
[ "$(curl --silent --insecure https://192.0.2.7/)" = "page for 192.0.2.7" ]
rm /etc/nginx/conf.d/site.conf

# Two origins: the one that is asked tells its name.
for port in 8443 8444; do
    cat >"/etc/nginx/conf.d/$port.conf" <<EOF
server {
    listen 127.0.0.1:$port ssl;
    ssl_certificate /root/cert.pem;
    ssl_certificate_key /root/key.pem;
    location / { return 200 "page of $port\n"; }
}
EOF
done
systemctl restart nginx
configure() { echo "edge.origin = \"127.0.0.1:$1\"" >/etc/headstart/www.toml; }
page() {
    headstart get --cacert cert.pem --edge www.example.com=127.0.0.1:443 "$@" \
        https://www.example.com/
}

list >before
began=$(date +%s%N)
install ./headstart_*-1_*.deb
configure 8443
systemctl start headstart-edge@www
[ "$(page)" = "page of 8443" ]
say "from apt install to the first page: $((($(date +%s%N) - began) / 1000000)) ms"
page --explain 2>&1 | grep -i turbotls

headstart --version
mkdir pages
headstart man --dir pages
# That of headstart-lab is in its own package.
rm pages/headstart-lab.1
for page in pages/*; do
    [ -s "/usr/share/man/man1/${page#pages/}.gz" ]
done
dpkg --verify headstart
fails systemctl --quiet is-enabled headstart-edge@www
fails systemctl --quiet is-active headstart-agent

units=(headstart-edge@www.service headstart-edge@www.socket headstart-agent.service
    headstart-fastopen@eth0.service headstart-careful-resume.service)
systemd-analyze verify --man=no "${units[@]}"
exposure() {
    systemd-analyze --no-pager "${@:2}" security "$1" |
        sed -n 's/.*exposure level.*: \([0-9.]*\) .*/\1/p'
}
for unit in headstart-edge@www headstart-agent headstart-fastopen@lo headstart-careful-resume; do
    systemd-analyze security --threshold=16 $unit >/dev/null
done
user_unit=/usr/lib/systemd/user/headstart-agent.service
exposed="$(exposure headstart-edge@www) for the edge, $(exposure headstart-agent) for the agent,"
exposed+=" $(exposure headstart-fastopen@lo) for \`fastopen\`,"
exposed+=" $(XDG_RUNTIME_DIR=/run exposure $user_unit --user --offline=yes)"
exposed+=" for the agent of one user"
say "exposure: $exposed"
# Other versions of systemd count otherwise.
! grep -q bookworm /etc/os-release ||
    zcat /usr/share/doc/headstart/docs/install.md.gz | tr -s '\n ' ' ' | grep -qF "$exposed"

say "fastopen"
# As on a machine.
mount -o remount,rw /sys
mkdir -p /sys/fs/bpf
mount -t bpf bpf /sys/fs/bpf
# Fails as long as the client's program is not attached.
attached() { { headstart fastopen status || true; } | grep "^server *port 443 on lo "; }
systemctl start headstart-fastopen@lo
attached
systemctl stop headstart-fastopen@lo
fails attached

say "careful-resume"
systemctl start headstart-careful-resume
headstart careful-resume status | grep "of user $(id -u headstart)$"
# It may find other things, too.
check_windows() {
    setpriv --reuid "$1" --regid "$(id -g "$1")" --clear-groups \
        headstart edge --check --careful-resume --listen 127.0.0.1:0 --origin 127.0.0.1:8443 || true
}
check_windows headstart | grep "the window of a connection can be set"
check_windows nobody | grep "no window can be set"
systemctl stop headstart-careful-resume
fails headstart careful-resume status
umount /sys/fs/bpf

say "edge: no capabilities, and a read-only file system"
systemd-run --quiet --unit bare --property Type=notify --property NotifyAccess=all \
    unshare --mount bash -ec 'mount -o remount,bind,ro /
        if touch /root/written; then exit 1; fi
        exec setpriv --reuid nobody --regid nogroup --clear-groups --inh-caps=-all \
            --bounding-set=-all --no-new-privs \
            headstart edge --listen 192.0.2.7:8443 --origin 127.0.0.1:8443'
[ "$(grep -c "^Cap.*:\s0*$" "/proc/$(property MainPID bare)/status")" = 5 ]
[ "$(headstart get --cacert cert.pem --opening turbo --edge www.example.com=192.0.2.7:8443 \
    https://www.example.com/)" = "page of 8443" ]
systemctl stop bare

say "edge: reload"
[ "$(property StatusText headstart-edge@www)" = serving ]
configure 8444
systemctl reload headstart-edge@www
[ "$(page)" = "page of 8444" ]
echo 'edge.origins = 1' >/etc/headstart/www.toml
systemctl reload headstart-edge@www
[[ $(property StatusText headstart-edge@www) = "configuration kept: "* ]]
[ "$(page)" = "page of 8444" ]
configure 8443

say "edge: restarts without the socket"
for action in restart stop start restart; do
    systemctl $action headstart-edge@www
    [ "$(page)" = "page of 8443" ]
done
[ "$(journalctl --unit headstart-edge@www | grep -c "took over")" = 3 ]

say "edge: sockets"
systemctl stop headstart-edge@www
# Its worker waits some seconds for another one.
while page >/dev/null 2>&1; do sleep 0.1; done
systemctl start headstart-edge@www.socket
[ "$(page)" = "page of 8443" ]
systemctl --quiet is-active headstart-edge@www

say "agent"
echo 'edge = ["www.example.com=127.0.0.1:443"]' >>/etc/headstart/agent.toml
systemctl start headstart-agent
curl --silent --show-error --cacert cert.pem --proxy socks5h://127.0.0.1:1080 \
    https://www.example.com/ | grep "page of 8443"
systemctl reload headstart-agent
HEADSTART_AGENT_UID=$(id -u headstart-agent) \
    headstart sessions list --socket /run/headstart-agent/socket

say "agent of a user"
# The worker as well, whose port is needed.
systemctl kill headstart-agent
systemctl stop headstart-agent
export XDG_RUNTIME_DIR=/run/manager
# A manager that begins before its control group is the user's ends, and is started again.
systemd-run --quiet --no-block --unit manager --property Type=notify --property Delegate=yes \
    --property Restart=on-failure --property RestartSec=200ms \
    --property User=daemon --property RuntimeDirectory=manager \
    --setenv XDG_RUNTIME_DIR=$XDG_RUNTIME_DIR --setenv HOME=$XDG_RUNTIME_DIR \
    /lib/systemd/systemd --user
for _ in $(seq 100); do systemctl --quiet is-active manager && break || sleep 0.1; done
systemctl --quiet is-active manager
say "agent of a user: its manager was started $(property NRestarts manager) times again"
user() { HOME=$XDG_RUNTIME_DIR setpriv --reuid daemon --regid daemon --clear-groups "$@"; }
user headstart up --agent | grep "^headstart run -- COMMAND$"
user systemctl --user --quiet is-enabled headstart-agent
user headstart sessions list
user systemctl --user reload headstart-agent
[ "$(user systemctl --user show --property StatusText --value headstart-agent)" = serving ]
user systemd-analyze --user verify --man=no "$user_unit"
user headstart down --agent
fails user systemctl --user --quiet is-active headstart-agent
fails user systemctl --user --quiet is-enabled headstart-agent
systemctl stop manager
systemctl start headstart-agent

say "a process that hangs is replaced"
dropin=/run/systemd/system/headstart-agent.service.d
mkdir -p $dropin
printf '[Service]\nWatchdogSec=1\nRestartSec=0\n' >$dropin/soon.conf
systemctl daemon-reload
systemctl restart headstart-agent
kill -STOP "$(pgrep --parent "$(property MainPID headstart-agent)")"
until [ "$(property NRestarts headstart-agent)" -gt 0 ]; do
    sleep 0.1
done
rm -r $dropin
systemctl daemon-reload

say "headstart-lab"
install ./headstart-lab_*-1_*.deb
headstart lab list >/dev/null
zcat /usr/share/man/man1/headstart-lab.1.gz | grep -q headstart-lab

say "upgrade"
systemctl --quiet enable headstart-edge@www.socket headstart-agent
before=$(property MainPID headstart-edge@www)
touch upgrading
while [ -e upgrading ]; do
    page >/dev/null || touch refused
done &
install ./headstart_*-2_*.deb ./headstart-lab_*-2_*.deb
rm upgrading
wait
[ ! -e refused ]
[ "$(property MainPID headstart-edge@www)" != "$before" ]
grep -q www.example.com /etc/headstart/agent.toml
[ "$(page)" = "page of 8443" ]

say "remove"
apt-get remove --yes --quiet headstart >/dev/null
fails systemctl --quiet is-active headstart-edge@www headstart-edge@www.socket headstart-agent
# The workers have their signal, and end a moment later.
while curl --silent --insecure --max-time 9 https://127.0.0.1/ >/dev/null; do sleep 0.1; done
[ -e /etc/headstart/www.toml ]
[ ! -e /usr/bin/headstart ]
[ ! -e /usr/bin/headstart-lab ]

say "purge"
apt-get purge --yes --quiet headstart headstart-lab >/dev/null
left_are_users
say "purge: the users headstart and headstart-agent stay"
echo "all of it passed"
