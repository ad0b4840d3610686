package turbotls

import (
	"bytes"
	"math/rand"
	"net/netip"
	"os"
	"sort"
	"strconv"
	"testing"
	"time"
)

// network holds a client and an edge together in virtual time, over UDP that loses, repeats and
// reorders datagrams, and TCP that does not.
type network struct {
	rng    *rand.Rand
	now    time.Time
	later  []happening
	client *clientEnd
	edge   *edgeEnd
	rtt    time.Duration
	jitter time.Duration
	loss   float64
	lastUp time.Time // arrival of TCP's last bytes, which none overtake
	lastDn time.Time

	hello, finished  []byte // the client's words
	flight, response []byte // the server's
	toOrigin, toApp  []byte // what came
	wrote, answered  bool
	flownAt          time.Time // the flight was there
	saidFinished     bool
}

type happening struct {
	at time.Time
	do func()
}

func (n *network) after(d time.Duration, do func()) { n.at(n.now.Add(d), do) }

func (n *network) at(at time.Time, do func()) {
	n.later = append(n.later, happening{at, do})
	sort.SliceStable(n.later, func(i, j int) bool { return n.later[i].at.Before(n.later[j].at) })
}

// datagram has a datagram arrive once, twice or not at all.
func (n *network) datagram(do func()) {
	for n.rng.Float64() >= n.loss {
		n.after(n.rtt/2+time.Duration(n.rng.Int63n(int64(n.jitter)+1)), do)
		if n.rng.Float64() >= n.loss/4 {
			return
		}
	}
}

// segment has bytes arrive over TCP, behind those before.
func (n *network) segment(last *time.Time, do func()) {
	at := n.now.Add(n.rtt / 2)
	if at.Before(*last) {
		at = *last
	}
	*last = at
	n.at(at, do)
}

// settle carries what both ends have to say, and lets their applications speak.
func (n *network) settle(from netip.AddrPort) {
	n.client.now, n.edge.now = n.now, n.now
	n.client.collect()
	n.edge.collect()
	for _, b := range take(&n.client.sent) {
		b := b
		n.datagram(func() { n.edge.edge.handleDatagram(n.now, from, append([]byte{}, b...)) })
	}
	for _, d := range take(&n.edge.sent) {
		d := d
		n.datagram(func() { n.client.client.handleDatagram(n.now, d.bytes) })
	}
	if b := take(&n.client.toTCP); len(b) > 0 {
		n.segment(&n.lastUp, func() { n.edge.tcp(b) })
	}
	if b := take(&n.edge.toTCP); len(b) > 0 {
		n.segment(&n.lastDn, func() { n.client.client.handleTCP(n.now, b) })
	}
	n.toOrigin = append(n.toOrigin, take(&n.edge.toOrig)...)
	n.toApp = append(n.toApp, take(&n.client.toApp)...)
	if !n.wrote && len(n.toOrigin) >= len(n.hello) {
		n.wrote = true
		n.after(time.Millisecond, func() { n.originWrites(n.flight) })
	}
	if !n.answered && len(n.toOrigin) == len(n.hello)+len(n.finished) {
		n.answered = true
		n.after(time.Millisecond, func() { n.originWrites(n.response) })
	}
	if !n.saidFinished && len(n.toApp) >= len(n.flight) {
		n.saidFinished, n.flownAt = true, n.now
		n.after(0, func() { n.client.client.write(n.now, n.finished) })
	}
	if at, ok := n.client.client.timeout(); ok {
		n.at(at, func() { n.client.client.handleTimeout(n.now) })
	}
}

func (n *network) originWrites(b []byte) {
	e := n.edge
	if e.newest == nil || e.newest == e.origin || e.newest.gone {
		e.toTCP = append(e.toTCP, b...)
	} else {
		e.held = append(e.held, b[e.newest.write(b):]...)
	}
}

func words(rng *rand.Rand, most int) (b []byte) {
	for left := 1 + rng.Intn(most); left > 0; {
		n := 1 + rng.Intn(left)
		left -= n
		if n > recordMax {
			n = recordMax
		}
		body := make([]byte, n)
		rng.Read(body)
		b = appendVector(append(b, 23, 3, 3), body)
	}
	return b
}

// bigHello is a ClientHello with padding.
func bigHello(rng *rand.Rand, most int) []byte {
	n := rng.Intn(most)
	body := append([]byte{3, 3}, make([]byte, 32)...)
	rng.Read(body[2:])
	body = append(body, 0, 0, 2, 0x13, 1, 1, 0)
	extensions := joinNames(testName, []string{"h2"})
	extensions = appendExtension(extensions, extSupportedVersions, 2, 3, 4)
	body = appendVector(body, appendExtension(extensions, 21, make([]byte, n)...))
	message := append([]byte{1, 0, byte(len(body) >> 8), byte(len(body))}, body...)
	return appendVector([]byte{22, 3, 1}, message)
}

func newNetwork(seed int64, loss float64) *network {
	rng := rand.New(rand.NewSource(seed))
	n := &network{
		rng: rng, now: epoch, loss: loss, rtt: time.Duration(1+rng.Intn(200)) * ms,
		hello: bigHello(rng, 4000), finished: words(rng, 300),
		flight: words(rng, 30000), response: words(rng, 100000),
	}
	var key joinKey
	rng.Read(key[:])
	n.client = &clientEnd{synAt: n.now, now: n.now, client: &client{config: clientConfig{
		key: key, slots: 1 + rng.Intn(15), hold: rng.Intn(8) == 0,
	}}}
	n.edge = &edgeEnd{now: n.now, answers: true, edge: newEdge(edgeConfig{
		tag: 7, sameAddress: rng.Intn(2) == 0, streams: 64, work: time.Second,
	}, n.now)}
	return n
}

func (n *network) run(t *testing.T, delay, connect time.Duration) {
	from := netip.MustParseAddrPort("192.0.2.1:4000")
	n.edge.stream = &tcpSteps{from: from}
	n.after(delay, func() { n.client.client.write(n.now, n.hello) })
	n.after(connect, func() { n.client.connect(true) })
	for steps := 0; len(n.later) > 0 && steps < 100000; steps++ {
		next := n.later[0]
		n.later = n.later[1:]
		n.now = next.at
		n.client.now, n.edge.now = n.now, n.now
		next.do()
		n.settle(from)
		if len(n.toApp) == len(n.flight)+len(n.response) {
			break
		}
	}
	if want := append(append([]byte{}, n.hello...), n.finished...); !bytes.Equal(n.toOrigin, want) {
		t.Fatalf("the origin got %d bytes of %d", len(n.toOrigin), len(want))
	}
	if want := append(append([]byte{}, n.flight...), n.response...); !bytes.Equal(n.toApp, want) {
		t.Fatalf("the application got %d bytes of %d", len(n.toApp), len(want))
	}
}

// TestLossy has every byte arrive once and in order, whatever UDP does. SEED=n runs one seed.
func TestLossy(t *testing.T) {
	first, last := int64(0), int64(600)
	if text := os.Getenv("SEED"); text != "" {
		first, _ = strconv.ParseInt(text, 10, 64)
		last = first + 1
	}
	for seed := first; seed < last; seed++ {
		n := newNetwork(seed, []float64{0, 0.1, 0.3, 0.7, 1}[seed%5])
		n.jitter = time.Duration(n.rng.Int63n(int64(n.rtt)))
		ok := t.Run(strconv.FormatInt(seed, 10), func(t *testing.T) {
			connect := n.rtt
			if n.rng.Intn(5) == 0 {
				connect += time.Second // a SYN was lost
			}
			n.run(t, time.Duration(n.rng.Int63n(int64(n.rtt))), connect)
		})
		if !ok {
			return
		}
	}
}

// TestRoundTrips has the server's flight there after one round trip, where plain TLS takes two.
func TestRoundTrips(t *testing.T) {
	n := newNetwork(1, 0)
	n.rtt, n.flight = 100*ms, words(n.rng, 4000)
	n.client.client.config.slots, n.client.client.config.hold = 6, false
	n.run(t, 0, n.rtt)
	if took := n.flownAt.Sub(epoch); took > n.rtt+2*ms {
		t.Errorf("%v", took)
	}
	n = newNetwork(1, 1)
	n.rtt, n.flight = 100*ms, words(n.rng, 4000)
	n.run(t, 0, n.rtt)
	if took := n.flownAt.Sub(epoch); took > 2*n.rtt+graceFirstMax+2*ms {
		t.Errorf("silence: %v", took)
	}
}
