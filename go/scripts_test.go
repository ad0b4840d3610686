package turbotls

import (
	"bytes"
	"fmt"
	"net/netip"
	"testing"
	"time"
)

// scripts splits a file of vectors where each configuration begins.
func scripts(t *testing.T, name string) (scripts [][]block) {
	for _, b := range vectors(t, name) {
		if b.keys["step"] == "config" {
			scripts = append(scripts, nil)
		}
		scripts[len(scripts)-1] = append(scripts[len(scripts)-1], b)
	}
	return scripts
}

// clientEnd drives a client in virtual time.
type clientEnd struct {
	client *client
	path   path
	synAt  time.Time
	now    time.Time
	sent   [][]byte
	toTCP  []byte
	toApp  []byte
}

func newClientEnd(t *testing.T, b block) *clientEnd {
	now := time.Unix(1000, 0)
	slots := b.number(t, "slots")
	return &clientEnd{synAt: now, now: now, client: &client{config: clientConfig{
		key: b.key(t), slots: slots, earlyData: b.keys["early_data"] == "yes",
		hold: b.keys["hold"] == "yes",
	}}}
}

func (e *clientEnd) collect() {
	e.sent = append(e.sent, take(&e.client.datagrams)...)
	e.toTCP = append(e.toTCP, take(&e.client.toTCP)...)
	e.toApp = append(e.toApp, take(&e.client.toApp)...)
}

func (e *clientEnd) connect(same bool) {
	flight := e.client.flightAt
	if flight.IsZero() {
		flight = e.synAt
	}
	e.client.handleConnected(e.now, same, e.path.timing(e.synAt, flight, e.now))
}

func (e *clientEnd) wait(until time.Time) {
	for {
		at, ok := e.client.timeout()
		if !ok || at.After(until) {
			break
		}
		e.now = at
		e.client.handleTimeout(at)
	}
	e.now = until
}

// step does or checks one step; it returns whether the step is one of a client's.
func (e *clientEnd) step(t *testing.T, b block) bool {
	raw := b.bytes(t, "bytes")
	switch b.keys["step"] {
	case "app writes":
		e.client.write(e.now, raw)
	case "client gets":
		e.client.handleDatagram(e.now, raw)
	case "app finishes":
		e.client.finish(e.now)
	case "unreachable":
		e.client.handleUnreachable(e.now)
	case "tcp connects":
		e.connect(b.keys["address"] != "other")
	case "grace ends":
		at, ok := e.client.timeout()
		if !ok {
			t.Fatalf("%v: no timer", b)
		}
		e.wait(at)
	case "wait":
		e.wait(e.now.Add(time.Duration(b.number(t, "ms")) * time.Millisecond))
	case "tcp gets":
		e.client.handleTCP(e.now, raw)
	case "tcp ends":
		e.client.handleTCPEnd()
	case "tcp breaks":
		e.client.handleTCPBreak()
	case "client sends", "client drops":
		if times := b.keys["times"]; times != "" {
			if n := b.number(t, "times"); len(e.sent) < n {
				t.Fatalf("%v: %d datagrams", b, len(e.sent))
			} else {
				e.sent = e.sent[n:]
			}
			break
		}
		if len(e.sent) == 0 || !bytes.Equal(e.sent[0], raw) {
			t.Fatalf("%v: %x", b, e.sent)
		}
		e.sent = e.sent[1:]
	case "app gets":
		expect(t, b, &e.toApp, raw)
	case "client tcp":
		expect(t, b, &e.toTCP, raw)
	case "client is plain":
		if e.client.state != stateOpen || e.client.joined {
			t.Fatalf("%v: %v", b, e.client.state)
		}
	case "client resets":
		if e.client.state != stateReset || string(e.client.reset) != b.keys["reason"] {
			t.Fatalf("%v: %v %q", b, e.client.state, e.client.reset)
		}
	default:
		return false
	}
	e.collect()
	return true
}

func (e *clientEnd) nothing(t *testing.T, b block) {
	if len(e.sent)+len(e.toTCP)+len(e.toApp) > 0 {
		t.Fatalf("%v: %x, tcp %x, app %x", b, e.sent, e.toTCP, e.toApp)
	}
}

func expect(t *testing.T, b block, got *[]byte, want []byte) {
	t.Helper()
	if !bytes.HasPrefix(*got, want) {
		t.Fatalf("%v:\n%x, not\n%x", b, *got, want)
	}
	*got = (*got)[len(want):]
}

// scriptEnd is one end of a connection that a script drives.
type scriptEnd interface {
	step(t *testing.T, b block) bool
	nothing(t *testing.T, b block)
}

// run takes the steps of a script, after which nothing may be left.
func run(t *testing.T, end scriptEnd, steps []block) {
	t.Helper()
	for _, b := range steps {
		if !end.step(t, b) {
			if b.keys["step"] != "nothing" {
				t.Fatalf("%v: %s", b, b.keys["step"])
			}
			end.nothing(t, b)
		}
	}
	end.nothing(t, steps[len(steps)-1])
}

func TestClientScripts(t *testing.T) {
	for _, file := range []string{"client_ignores", "client_states"} {
		for _, script := range scripts(t, file) {
			t.Run(file+"/"+script[0].keys["note"], func(t *testing.T) {
				run(t, newClientEnd(t, script[0]), script[1:])
			})
		}
	}
}

// edgeEnd drives an edge in virtual time, with an origin behind it.
type edgeEnd struct {
	edge    *edge
	now     time.Time
	sent    []edgeDatagram
	toOrig  []byte
	toTCP   []byte
	ends    int
	tcpEnds []string
	answers bool // to joins are checked as bytes

	newest *session
	held   []byte    // what the origin could not write yet
	origin *session  // of which TCP took over
	stream *tcpSteps // the newest TCP stream
}

// tcpSteps is a TCP stream at the edge.
type tcpSteps struct {
	from  netip.AddrPort
	open  bool // behind its ClientHello
	anew  bool // behind a join that began it
	skip  int
	first []byte
}

func newEdgeEnd(t *testing.T, b block) *edgeEnd {
	now := time.Unix(1000, 0)
	config := edgeConfig{
		tag:         uint32(beUint(b.bytes(t, "tag"))),
		earlyData:   b.keys["early_data"] == "yes",
		sameAddress: b.keys["same_address"] == "yes",
		streams:     1 << 20,
		work:        time.Second,
	}
	if b.keys["origin_streams"] != "" {
		config.streams = b.number(t, "origin_streams")
	}
	if b.keys["work"] != "" {
		config.work = time.Duration(b.number(t, "work")) * time.Microsecond
	}
	return &edgeEnd{edge: newEdge(config, now), now: now}
}

func (e *edgeEnd) collect() {
	e.sent = append(e.sent, take(&e.edge.datagrams)...)
	for _, event := range take(&e.edge.events) {
		if event.start {
			e.newest, e.held = event.session, nil
		}
		e.toOrig = append(e.toOrig, event.bytes...)
		if event.end {
			e.ends++
		}
	}
}

func (e *edgeEnd) handOver(h handover) {
	e.toTCP = append(e.toTCP, h.toTCP...)
	e.stream.open, e.stream.skip = true, h.skip
	if h.session == nil {
		return
	}
	e.collect()
	e.origin = h.session
	e.toTCP = append(e.toTCP, e.held...)
	e.held = nil
	if h.broken {
		e.tcpEnds = append(e.tcpEnds, "reset")
	} else if h.ended {
		e.tcpEnds = append(e.tcpEnds, "finished")
	}
}

// tcp takes bytes of the newest TCP stream; it returns whether it is a join, and what becomes of it.
func (e *edgeEnd) tcp(raw []byte) (then string) {
	s := e.stream
	if s.open {
		n := s.skip
		if n > len(raw) {
			n = len(raw)
		}
		s.skip -= n
		e.toOrig = append(e.toOrig, raw[n:]...)
		return ""
	}
	s.first = append(s.first, raw...)
	hello, err := parseHello(s.first)
	if err == errIncomplete {
		return ""
	}
	rest := s.first
	s.first = nil
	if err != nil {
		s.open = true
		e.toOrig = append(e.toOrig, rest...)
		return "new"
	}
	if join, ok := readJoin(hello); ok && !s.anew {
		h, result := e.edge.handleJoin(e.now, s.from.Addr(), join)
		switch result {
		case joinRefused:
			return "refused"
		case joinAnew:
			if s.anew = true; e.answers {
				e.toTCP = append(e.toTCP, h.toTCP...)
			}
			return fmt.Sprint("accepted 0", e.tcp(rest[hello.end:]))
		}
		verdict, offset := join.key.readAnswer(h.toTCP[:answerLen])
		if verdict != answerAccepted {
			return "wrong"
		}
		if !e.answers {
			h.toTCP = h.toTCP[answerLen:]
		}
		e.handOver(h)
		e.tcp(rest[hello.end:])
		return fmt.Sprint("accepted ", offset)
	}
	if h, ok := e.edge.handlePlain(e.now, s.from.Addr(), rest[:hello.end]); ok {
		e.handOver(h)
		e.tcp(rest)
		return "attached"
	}
	s.open = true
	e.toOrig = append(e.toOrig, rest...)
	return "new"
}

func (e *edgeEnd) step(t *testing.T, b block) bool {
	raw := b.bytes(t, "bytes")
	switch b.keys["step"] {
	case "datagram":
		e.datagrams(t, b, raw)
	case "wait":
		e.now = e.now.Add(time.Duration(b.number(t, "ms")) * time.Millisecond)
		e.edge.expire(e.now)
	case "pause":
		e.edge.paused = b.keys["pause"] == "yes"
	case "edge sends", "edge drops":
		if len(e.sent) == 0 || !bytes.Equal(e.sent[0].bytes, raw) ||
			b.keys["to"] != "" && e.sent[0].to.String() != b.keys["to"] {
			t.Fatalf("%v: %v", b, e.sent)
		}
		e.sent = e.sent[1:]
	case "origin gets":
		expect(t, b, &e.toOrig, raw)
	case "origin writes":
		if e.newest == nil || e.newest == e.origin || e.newest.gone {
			e.toTCP = append(e.toTCP, raw...)
		} else {
			n := e.newest.write(raw)
			e.held = append(e.held, raw[n:]...)
		}
	case "origin ends", "origin breaks":
		e.newest.finish(e.now, b.keys["step"] == "origin breaks")
	case "session ends":
		if e.ends == 0 {
			t.Fatalf("%v: it does not", b)
		}
		e.ends--
	case "join", "plain":
		e.stream = &tcpSteps{from: netip.MustParseAddrPort(b.keys["from"])}
		e.toTCP = nil
		if got := e.tcp(raw); got != b.keys["then"] {
			t.Fatalf("%v: %s, not %s", b, got, b.keys["then"])
		}
	case "client tcp":
		e.tcp(raw)
	case "edge tcp":
		expect(t, b, &e.toTCP, raw)
	case "tcp ends":
		if len(e.tcpEnds) == 0 || e.tcpEnds[0] != b.keys["how"] {
			t.Fatalf("%v: %v", b, e.tcpEnds)
		}
		e.tcpEnds = e.tcpEnds[1:]
	default:
		return false
	}
	e.collect()
	return true
}

func (e *edgeEnd) datagrams(t *testing.T, b block, raw []byte) {
	from := netip.MustParseAddrPort(b.keys["from"])
	times := 1
	if b.keys["times"] != "" {
		times = b.number(t, "times")
	}
	for ; times > 0; times-- {
		result := e.edge.handleDatagram(e.now, from, append([]byte{}, raw...))
		if result == taken {
			result = "taken"
		}
		if result != b.keys["result"] {
			t.Fatalf("%v: %s, not %s", b, result, b.keys["result"])
		}
		if times > 1 {
			raw[13]++
		}
		if b.keys["addresses"] == "yes" {
			from = netip.AddrPortFrom(from.Addr().Next(), from.Port())
		}
	}
}

func (e *edgeEnd) nothing(t *testing.T, b block) {
	if len(e.sent)+len(e.toOrig)+len(e.toTCP)+e.ends+len(e.tcpEnds) > 0 {
		t.Fatalf("%v: sent %v, origin %x, tcp %x, %d end, %v", b, e.sent, e.toOrig, e.toTCP,
			e.ends, e.tcpEnds)
	}
}

func TestEdgeScripts(t *testing.T) {
	for _, file := range []string{"drops", "limits", "join_table"} {
		for _, script := range scripts(t, file) {
			t.Run(file+"/"+script[0].keys["note"], func(t *testing.T) {
				run(t, newEdgeEnd(t, script[0]), script[1:])
			})
		}
	}
}

// TestForgottenEarly fills the memory of ids (W-RUN-5, W-TAKEOVER-9).
func TestForgottenEarly(t *testing.T) {
	now, from := time.Unix(1000, 0), netip.MustParseAddrPort("192.0.2.1:4000")
	e := newEdge(edgeConfig{tag: 1, earlyData: true, streams: 1 << 20, work: time.Second}, now)
	joined := func(n int) joinResult {
		_, result := e.handleJoin(now, from.Addr(), join{key: joinKey{byte(n), byte(n >> 8), byte(n >> 16)}})
		return result
	}
	for n := 0; n <= memoryMax; n++ {
		if joined(n) != joinAnew {
			t.Fatalf("join %d was refused", n)
		}
	}
	if joined(0) != joinRefused {
		t.Error("a join is accepted that may have been forgotten")
	}
	hello := vectors(t, "hellos")[0].bytes(t, "bytes")
	early := append(append([]byte{}, hello...), "early"...)
	for _, want := range []int{len(hello), len(early)} {
		early[11]++ // of the random: another ClientHello
		id, given := sessionID{early[11]}, 0
		if reason := e.handleDatagram(now, from, request{id, 0, 0, early}.marshal()); reason != taken {
			t.Fatal(reason)
		}
		for _, event := range take(&e.events) {
			given += len(event.bytes)
		}
		if given != want {
			t.Errorf("the origin got %d bytes, not %d", given, want)
		}
		now = now.Add(memoryLife)
	}
	if joined(memoryMax+1) != joinAnew {
		t.Error("a join is refused though nothing is missing")
	}
}

// TestExchanges holds a client and an edge together, as the files say.
func TestExchanges(t *testing.T) {
	for _, name := range []string{"exchange", "exchange_early_data", "exchange_overlap",
		"exchange_early_data_restarted", "exchange_gap", "exchange_pieces", "exchange_restarted",
		"exchange_silence"} {
		t.Run(name, func(t *testing.T) {
			steps := vectors(t, name)
			client, edge := newClientEnd(t, steps[0]), newEdgeEnd(t, steps[0])
			edge.answers = true
			from := netip.MustParseAddrPort("192.0.2.1:4000")
			edge.stream = &tcpSteps{from: from}
			for _, b := range steps[1:] {
				raw := b.bytes(t, "bytes")
				switch step := b.keys["step"]; {
				case step == "nothing":
					client.nothing(t, b)
					edge.nothing(t, b)
				case step == "edge restarts":
					edge = newEdgeEnd(t, steps[0])
					edge.answers, edge.stream = true, &tcpSteps{from: from}
				case step == "edge tcp":
					expect(t, b, &edge.toTCP, raw)
					client.client.handleTCP(client.now, raw)
					client.collect()
				case client.step(t, b):
					if step == "client sends" {
						edge.edge.handleDatagram(edge.now, from, raw)
					} else if step == "client tcp" {
						edge.tcp(raw)
					}
					edge.collect()
				case edge.step(t, b):
					if step == "edge sends" {
						client.client.handleDatagram(client.now, raw)
						client.collect()
					}
				default:
					t.Fatalf("%v: %s", b, step)
				}
			}
			client.nothing(t, steps[len(steps)-1])
			edge.nothing(t, steps[len(steps)-1])
		})
	}
}

// A process that stood still for eight seconds finds the datagram before its timer.
func TestLateTimer(t *testing.T) {
	begun := time.Unix(1000, 0)
	for late, joins := range map[time.Duration]bool{8*time.Second - 1: true, 8 * time.Second: false} {
		c := &client{config: clientConfig{slots: 1}}
		c.write(begun, vectors(t, "hellos")[0].bytes(t, "bytes"))
		end := begun.Add(75 * time.Millisecond)
		wait := timing{due: end, end: end, worthwhile: true}
		c.handleConnected(begun.Add(50*time.Millisecond), true, wait)
		answer := response{id: c.config.key.id(), tag: 1, payload: []byte("flight")}
		c.handleDatagram(begun.Add(late), answer.marshal())
		if (c.state == stateJoining) != joins || (len(c.toApp) > 0) != joins {
			t.Fatalf("%v: state %v, %q to the application", late, c.state, c.toApp)
		}
		if c.handleTCP(begun.Add(128*time.Second), []byte("late")); joins && c.reset != ResetLost {
			t.Fatalf("the answer came too late: %v", c.reset)
		}
	}
}
