#!/bin/bash
# What packaging/test.sh runs as root in the container.
set -euo pipefail
cd /root
export DEBIAN_FRONTEND=noninteractive HOME=/root
REQUESTS=${REQUESTS:-2000}
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
        -path '/var/lib/dpkg/*-old' -o -path '/var/lib/systemd' -o -path /var/tmp \) \
        -prune -o -print | sort
}

# Of apt, once and for all.
mkdir -p /var/lib/apt/lists/auxfiles
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 9 \
    -subj /CN=www.example.com -addext subjectAltName=DNS:www.example.com \
    -keyout key.pem -out cert.pem 2>/dev/null

say "up"
ip address add 192.0.2.7/32 dev lo
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
# The page, whoever has port 443, says the address of its client.
site() {
    headstart get --cacert cert.pem --opening "$1" --edge www.example.com=192.0.2.7:443 \
        https://www.example.com/
}
# Asks for the page $1 times, or as long as the file asking is there.
ask() {
    for ((count = 0; count < ${1:-count + 1}; count++)); do
        [ -n "${1:-}" ] || [ -e asking ] || return 0
        # Not HTTP/2: nginx answers its new connections with GOAWAY as it reloads.
        curl --silent --show-error --insecure --http1.1 --max-time 9 --output /dev/null \
            https://192.0.2.7/ 2>>failures || true
        echo >>requests
    done
}
answered() {
    say "$1: $(wc -l <requests) requests, $(wc -l <failures) failed"
    cat failures
    [ ! -s failures ]
    [ "$(wc -l <requests)" -gt 50 ]
    rm requests failures
}
list >before
began=$(date +%s%N)
install ./headstart_*-1_*.deb
up_while_asked() {
    touch asking
    ask &
    headstart up --yes >up
    rm asking
    wait
    answered up
}
up_while_asked
say "from apt install to figures: $((($(date +%s%N) - began) / 1000000)) ms, 2 commands"
grep -E '^(before|after)' up | sed 's/^/== up: /'
grep -q '^before .*(plain)' up
grep -q '^after .*(turbo)$' up
grep -q '^www.example.com. 300 IN HTTPS 1 . alpn="\?h2' up
[ "$(site plain)" = "page for 192.0.2.7" ]
[ "$(site turbo)" = "page for 192.0.2.7" ]
systemctl --quiet is-enabled headstart-edge@up.service headstart-edge@up.socket
fails headstart up --yes

say "restart and upgrade, up"
# Downloads of 50 s, longer than a stop waits, and clients without a pause.
download() {
    curl --silent --show-error --insecure --output "download.$1" https://192.0.2.7/large &
}
is_whole() { cmp "download.$1" /srv/large && rm "download.$1"; }
download 1
for _ in 1 2 3 4; do ask $((REQUESTS / 4)) & done
systemctl restart headstart-edge@up
install ./headstart_*-2_*.deb
download 2
systemctl restart headstart-edge@up
for job in $(jobs -p); do wait "$job"; done
answered "restart and upgrade, up"
is_whole 1
is_whole 2
[ "$(journalctl --unit headstart-edge@up | grep -c "took over")" = 3 ]
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
up_while_asked
[ "$(site plain)" = "page for 192.0.2.7" ]
[ "$(site turbo)" = "page for 192.0.2.7" ]
headstart down
diff -r haproxy.before /etc/haproxy
[ "$(site plain)" = "page for 192.0.2.7" ]
systemctl stop haproxy
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

say "up, and purge"
headstart up --yes --json | grep rtts_to_first_request_byte
headstart up --agent
systemctl --quiet is-active headstart-agent
apt-get purge --yes --quiet headstart >/dev/null
list >after
diff before after
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
for command in $(headstart --help | sed -n '/^Commands:/,/^$/s/^  \([a-z-]*\) .*/\1/p'); do
    [ "$command" = lab ] || [ -s "/usr/share/man/man1/headstart-$command.1.gz" ]
done
dpkg --verify headstart
fails systemctl --quiet is-enabled headstart-edge@www
fails systemctl --quiet is-active headstart-agent

units=(headstart-edge@www.service headstart-edge@www.socket headstart-agent.service
    headstart-fastopen@eth0.service)
systemd-analyze verify --man=no "${units[@]}"
for unit in headstart-edge@www headstart-agent; do
    systemd-analyze security --threshold=16 "$unit" >/dev/null
done
for unit in "${units[@]}"; do
    [[ $unit = *.socket ]] ||
        say "$unit: $(systemd-analyze security "$unit" | tail -n 1 | grep -o 'exposure.*: [0-9.]*')"
done

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
    --setenv XDG_RUNTIME_DIR=$XDG_RUNTIME_DIR --setenv HOME=/nonexistent /lib/systemd/systemd --user
for _ in $(seq 100); do systemctl --quiet is-active manager && break || sleep 0.1; done
systemctl --quiet is-active manager
say "agent of a user: its manager was started $(property NRestarts manager) times again"
user() { HOME=/nonexistent setpriv --reuid daemon --regid daemon --clear-groups "$@"; }
user systemctl --user start headstart-agent
user headstart sessions list
user systemctl --user reload headstart-agent
[ "$(user systemctl --user show --property StatusText --value headstart-agent)" = serving ]
user systemd-analyze --user verify --man=no /usr/lib/systemd/user/headstart-agent.service
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
fails curl --silent --insecure https://127.0.0.1/
[ -e /etc/headstart/www.toml ]
[ ! -e /usr/bin/headstart ] && [ ! -e /usr/bin/headstart-lab ]

say "purge"
apt-get purge --yes --quiet headstart headstart-lab >/dev/null
list >after
diff before after
echo "all of it passed"
