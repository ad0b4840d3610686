// Package turbotls opens TLS connections a round trip sooner: TurboTLS version 2, as
// docs/draft-headstart-turbotls.md of headstart specifies it. A client sends its ClientHello over
// UDP while TCP connects, and takes the first bytes of the server from there; TCP then takes over
// both streams. Where UDP is not answered, TCP carries TLS from its first byte, as without this
// package.
//
// [Dialer] makes connections for crypto/tls and net/http, [Listener] serves them.
package turbotls

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Edge says where and how a server takes TurboTLS that is configured and not looked up.
type Edge struct {
	Addr string // host:port for TCP; empty for that of the server itself
	Advertisement
}

// Dialer connects to servers, by TurboTLS where a server is known to take it.
//
// The zero value looks servers up in DNS. A Dialer remembers paths and names in memory, within
// bounds; it is safe for concurrent use, and must not be copied.
type Dialer struct {
	// Edges are the servers known without DNS, by "name:port" in lower case.
	Edges map[string]Edge
	// NoDiscovery switches off the queries for HTTPS records.
	NoDiscovery bool
	// DNSServers are asked for HTTPS records, as "address:port"; by default those of
	// /etc/resolv.conf. Addresses come from net.Dialer.Resolver.
	DNSServers []string
	// TCP makes the TCP connections and looks up addresses. Its Timeout counts for each.
	TCP net.Dialer
	// Hold keeps back what comes over UDP: no connection then depends on one edge's memory, and
	// none saves a round trip.
	Hold bool
	// MinGrace is the least time that a connection waits for answers over UDP once TCP is
	// connected; zero for what docs/draft-headstart-turbotls.md says. Paths of microseconds need
	// it.
	MinGrace time.Duration
	// NoSecondSYN leaves lost SYNs to the kernel.
	NoSecondSYN bool
	// Trace, if set, is called for each event, by several goroutines at once. It must not block,
	// nor use the connection.
	Trace func(Event)

	mu    sync.Mutex
	paths map[pathKey]*path
	names map[string]*nameMemory
}

// pathKey is a network, by the client's address in it, and an edge.
type pathKey struct {
	local netip.Addr
	edge  netip.AddrPort
}

// nameMemory is what a Dialer knows of a server name and port.
type nameMemory struct {
	slots  int // that its last flight needed; 0 if not known
	record httpsRecord
	until  time.Time // of the record
}

// Event is something that happened to a connection, for metrics and logs.
type Event struct {
	Kind   EventKind
	Addr   string // host:port, as dialled; of a Listener, the client's address
	Reason string // of a plain or reset connection, or for which a datagram was dropped
	RTT    time.Duration
	Sent   int // datagrams
	Got    int // datagrams that were taken
}

// EventKind names an event.
type EventKind string

// The events of a Dialer, and of a Listener.
const (
	EventJoined    EventKind = "joined"     // TCP continued a session
	EventPlain     EventKind = "plain"      // TCP carries TLS from its first byte
	EventReset     EventKind = "reset"      // a client could not continue its session
	EventSecondSYN EventKind = "second_syn" // was sent

	EventSession  EventKind = "session"  // a ClientHello came over UDP
	EventAttached EventKind = "attached" // a plain stream took over a session
	EventRefused  EventKind = "refused"  // a join
	EventExpired  EventKind = "expired"  // a session that TCP did not take over
	EventDropped  EventKind = "dropped"  // a datagram
)

func trace(f func(Event), e Event) {
	if f != nil {
		f(e)
	}
}

// Transport returns a transport for net/http whose connections this Dialer makes.
func (d *Dialer) Transport() *http.Transport {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DialContext = d.DialContext
	// The handshake begins before TCP is connected, and lasts as much longer.
	transport.TLSHandshakeTimeout += connectTimeout
	return transport
}

// Dial is DialContext without a context.
func (d *Dialer) Dial(network, address string) (net.Conn, error) {
	return d.DialContext(context.Background(), network, address)
}

// DialContext connects to an address "host:port" on a TCP network.
//
// A connection by TurboTLS is returned before TCP is connected, so that its ClientHello can go out:
// what is wrong with TCP, its reads and writes say. The context counts until DialContext returns;
// its deadline counts until TCP is connected.
func (d *Dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	if !strings.HasPrefix(network, "tcp") {
		return nil, fmt.Errorf("turbotls: dial: network %q is not TCP", network)
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("turbotls: dial: %w", err)
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	name := net.JoinHostPort(host, port)
	if edge, ok := d.Edges[name]; ok {
		return d.dialEdge(ctx, network, name, edge)
	}
	if _, err := netip.ParseAddr(host); err == nil || d.NoDiscovery || port != "443" {
		return d.TCP.DialContext(ctx, network, address)
	}
	return d.dialFound(ctx, network, name, host)
}

// dialEdge connects to a configured edge.
func (d *Dialer) dialEdge(
	ctx context.Context, network, name string, edge Edge,
) (net.Conn, error) {
	at := edge.Addr
	if at == "" {
		at = name
	}
	host, portText, err := net.SplitHostPort(at)
	if err != nil {
		return nil, fmt.Errorf("turbotls: dial: %w", err)
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil {
		return nil, fmt.Errorf("turbotls: dial: port of %q: %w", at, err)
	}
	addresses, err := d.resolve(ctx, network, host, uint16(port))
	if err != nil {
		return nil, err
	}
	race := d.startRace(ctx, network, name, addresses)
	return d.open(name, race, edge.Advertisement)
}

// dialFound connects to a name that DNS may say to be an edge. TCP does not wait for that.
func (d *Dialer) dialFound(ctx context.Context, network, name, host string) (net.Conn, error) {
	found := d.findEdge(network, name, host)
	addresses, err := d.resolve(ctx, network, host, 443)
	if err != nil {
		return nil, err
	}
	race := d.startRace(ctx, network, name, addresses)
	wait := time.NewTimer(httpsRecordWait)
	defer wait.Stop()
	select {
	case edge := <-found:
		if edge.serves(addresses[0].Addr()) {
			return d.open(name, race, edge.advert)
		}
	case <-race.connected:
	case <-wait.C:
	case <-ctx.Done():
	}
	select {
	case <-race.connected:
		if race.err != nil {
			return nil, race.err
		}
		return race.conn, nil
	case <-ctx.Done():
		race.stop()
		return nil, &net.OpError{Op: "dial", Net: network, Err: ctx.Err()}
	}
}

func (d *Dialer) resolve(
	ctx context.Context, network, host string, port uint16,
) ([]netip.AddrPort, error) {
	resolver := d.TCP.Resolver
	if resolver == nil {
		resolver = net.DefaultResolver
	}
	addresses, err := resolver.LookupNetIP(ctx, "ip"+strings.TrimPrefix(network, "tcp"), host)
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: network, Err: err}
	}
	all := make([]netip.AddrPort, 0, len(addresses))
	for _, address := range addresses {
		all = append(all, netip.AddrPortFrom(address.Unmap(), port))
	}
	return all, nil
}

// open returns a connection over a race that has begun, by TurboTLS if the path bears it.
func (d *Dialer) open(name string, race *race, advert Advertisement) (net.Conn, error) {
	to := race.addresses[0]
	if advert.UDPPort != 0 {
		to = netip.AddrPortFrom(to.Addr(), advert.UDPPort)
	}
	conn := &Conn{dialer: d, name: name, race: race}
	conn.changed, conn.remote = make(chan struct{}), net.TCPAddrFromAddrPort(race.addresses[0])
	conn.machine = &client{config: clientConfig{earlyData: advert.EarlyData, hold: d.Hold}}
	// W-ID-1
	if _, err := rand.Read(conn.machine.config.key[:]); err != nil {
		race.stop()
		return nil, fmt.Errorf("turbotls: drawing a join key: %w", err)
	}
	// Without a socket for datagrams, the connection is plain.
	if udp, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to)); err == nil {
		setDontFragment(udp)
		local := udp.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap()
		conn.path, conn.slots = d.reserve(pathKey{local, to}, name, advert.Slots)
		if conn.udp = udp; conn.slots == 0 {
			udp.Close()
			conn.udp = nil
		}
	}
	conn.machine.config.slots = conn.slots
	conn.begin()
	return conn, nil
}

// reserve returns the path, and how many slots an opening on it may send.
func (d *Dialer) reserve(key pathKey, name string, advertised int) (*path, int) {
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.pathLocked(key)
	if !p.bears(now) {
		return p, 0
	}
	want, learned := advertised, 0
	if memory := d.names[name]; memory != nil {
		learned = memory.slots
	}
	if learned > want || learned > 0 && p.inFlight >= sequences/2 {
		want = learned
	}
	if want <= 0 || want > slotsMax {
		want = slotsMax
	}
	return p, p.reserve(now, want+1)
}

func (d *Dialer) pathLocked(key pathKey) *path {
	if d.paths == nil {
		d.paths = make(map[pathKey]*path)
	}
	p := d.paths[key]
	if p == nil {
		for other, idle := range d.paths { // any that is not in use makes room
			if len(d.paths) >= pathsMax && idle.inFlight == 0 {
				delete(d.paths, other)
			}
		}
		p = new(path)
		d.paths[key] = p
	}
	return p
}

func (d *Dialer) nameLocked(name string) *nameMemory {
	if d.names == nil {
		d.names = make(map[string]*nameMemory)
	}
	memory := d.names[name]
	if memory == nil {
		for other := range d.names {
			if len(d.names) >= namesMax {
				delete(d.names, other)
			}
		}
		memory = new(nameMemory)
		d.names[name] = memory
	}
	return memory
}

// learnFlight notes how many datagrams a server's flight needs.
func (d *Dialer) learnFlight(name string, bytes int) {
	slots := (bytes + datagramMax - responseHeader - 1) / (datagramMax - responseHeader)
	if slots > slotsMax {
		slots = slotsMax
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.nameLocked(name).slots = slots
}

// race connects TCP to the first address that answers: one by one, and the first of them a second
// time if its SYN seems to be lost.
type race struct {
	dialer    *Dialer
	network   string
	name      string
	addresses []netip.AddrPort
	second    time.Duration // 0: no second SYN
	stop      context.CancelFunc

	// Valid once connected is closed.
	connected chan struct{}
	conn      *net.TCPConn
	to        netip.AddrPort
	syn, at   time.Time // of the connection
	seconds   bool      // a second SYN was sent
	err       error
}

type attempt struct {
	conn   *net.TCPConn
	to     netip.AddrPort
	syn    time.Time
	second bool
	err    error
}

func (d *Dialer) startRace(
	ctx context.Context, network, name string, addresses []netip.AddrPort,
) *race {
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(connectTimeout)
	}
	// Its end is not that of the context, which counts until DialContext returns.
	running, stop := context.WithDeadline(context.Background(), deadline)
	r := &race{
		dialer: d, network: network, name: name, addresses: addresses,
		stop: stop, connected: make(chan struct{}),
	}
	d.mu.Lock()
	p := d.pathLocked(pathKey{edge: addresses[0]})
	if after, ok := p.secondSYN(); ok && !d.NoSecondSYN {
		r.second = after
	}
	d.mu.Unlock()
	go r.run(running)
	return r
}

func (r *race) run(ctx context.Context) {
	attempts := make(chan attempt)
	rest, running := r.addresses, 0
	begin := func(to netip.AddrPort, second bool) {
		running++
		go func() { attempts <- r.dial(ctx, to, second) }()
	}
	next := func() {
		if len(rest) > 0 {
			begin(rest[0], false)
			rest = rest[1:]
		}
	}
	next()
	second, step := stoppedTimer(), time.NewTicker(nextAddressAfter)
	defer step.Stop()
	if r.second > 0 {
		second.Reset(r.second)
	}
	for running > 0 && r.conn == nil {
		select {
		case a := <-attempts:
			if running--; a.err == nil {
				r.win(a)
			} else {
				r.err = a.err
				next()
			}
		case <-second.C:
			r.seconds = true
			trace(r.dialer.Trace, Event{Kind: EventSecondSYN, Addr: r.name})
			begin(r.addresses[0], true)
		case <-step.C:
			next()
		}
	}
	second.Stop()
	r.stop()
	close(r.connected)
	for ; running > 0; running-- {
		if late := <-attempts; late.conn != nil {
			late.conn.Close()
		}
	}
}

func stoppedTimer() *time.Timer {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return t
}

func (r *race) dial(ctx context.Context, to netip.AddrPort, second bool) attempt {
	a := attempt{to: to, syn: time.Now(), second: second}
	var conn net.Conn
	if conn, a.err = r.dialer.TCP.DialContext(ctx, r.network, to.String()); a.err == nil {
		a.conn = conn.(*net.TCPConn) // of a network "tcp..."
	}
	return a
}

func (r *race) win(a attempt) {
	r.conn, r.to, r.syn, r.at, r.err = a.conn, a.to, a.syn, time.Now(), nil
	r.dialer.mu.Lock()
	defer r.dialer.mu.Unlock()
	p := r.dialer.pathLocked(pathKey{edge: r.addresses[0]})
	if p.connects++; r.seconds && !a.second {
		p.vainSYNs++
	}
	p.rtt = r.at.Sub(r.syn)
}
