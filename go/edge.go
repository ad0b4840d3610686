package turbotls

import (
	"crypto/sha256"
	"net/netip"
	"time"
)

// Reasons for which an edge drops a datagram (docs/draft-headstart-turbotls.md#edge-behavior).
const (
	taken          = ""
	malformed      = "malformed"
	workLimit      = "work_limit"
	notHello       = "not_hello"
	idEnded        = "ended"
	paused         = "paused"
	addressLimit   = "address_limit"
	networkLimit   = "network_limit"
	sessionLimit   = "session_limit"
	foreignAddress = "foreign_address"
	repeated       = "repeated"
	misfit         = "misfit"
	helloRuns      = "hello_runs"
)

type edgeConfig struct {
	tag         uint32
	earlyData   bool
	sameAddress bool
	streams     int           // origin streams that the edge may have
	work        time.Duration // of processors in each second, for handshakes of unproven sessions
}

// edge holds the sessions of one server, without IO:
// docs/draft-headstart-turbotls.md#edge-behavior.
//
// Datagrams and TCP streams go in by the handle methods, and bytes of an origin by write, end and
// breakOff, each with the time. After each, the caller takes and sends datagrams, and takes and does
// events. It calls expire at the time that next says.
type edge struct {
	config    edgeConfig
	paused    bool // no room for another origin stream
	sessions  map[sessionID]*session
	order     []*session // as they came
	running   map[helloHash]*session
	ids       memory[sessionID]
	hellos    memory[helloHash]
	joiners   map[netip.Addr]joiner // by IPv4 address or IPv6 /64
	next      time.Time             // something ends then, or is spared
	budget    time.Duration         // of work, at workAt
	workAt    time.Time
	datagrams []edgeDatagram
	events    []edgeEvent
}

type helloHash [sha256.Size]byte

// joiner counts the sessions of an address that TCP from it took over.
type joiner struct {
	joins int
	last  time.Time
}

type edgeDatagram struct {
	to    netip.AddrPort
	bytes []byte
}

// edgeEvent is something for the origin of a session.
type edgeEvent struct {
	session *session
	start   bool   // of its stream
	bytes   []byte // for it
	end     bool   // the session ended without a join
}

// session is what the edge knows of one session id.
type session struct {
	edge    *edge
	id      sessionID
	from    netip.AddrPort
	address netip.Addr // what counts as one: IPv4, or the /64 of IPv6
	network netip.Addr // the /24 or /48
	began   time.Time
	started time.Time // zero while it gathers
	hash    helloHash
	work    time.Duration

	client prefix
	given  int  // client bytes that the origin has
	early  bool // it gets those behind the ClientHello before the join
	used   [sequences]bool
	slots  []slot

	server []byte
	sent   int // server bytes that went over UDP
	ended  bool
	broken bool
	gone   bool
}

type slot struct {
	seq uint8
	max int // bytes of a response
}

func (s *session) isRunning() bool { return !s.started.IsZero() }

func (s *session) isSpared(now time.Time) bool {
	// W-END-1
	return s.isRunning() && now.Sub(s.started) >= sessionLife
}

func newEdge(config edgeConfig, now time.Time) *edge {
	return &edge{
		config:   config,
		sessions: make(map[sessionID]*session),
		running:  make(map[helloHash]*session),
		ids:      memory[sessionID]{at: make(map[sessionID]time.Time)},
		hellos:   memory[helloHash]{at: make(map[helloHash]time.Time)},
		joiners:  make(map[netip.Addr]joiner),
		budget:   workBurst * config.work,
		workAt:   now,
	}
}

// handleDatagram takes a datagram, and returns why it was dropped, if it was.
func (e *edge) handleDatagram(now time.Time, from netip.AddrPort, b []byte) string {
	e.expire(now)
	r, err := parseRequest(b)
	if err != nil {
		// W-FRAME-4
		return malformed
	}
	from = netip.AddrPortFrom(from.Addr().Unmap(), from.Port())
	s := e.sessions[r.id]
	if s == nil {
		if reason := e.admit(now, from.Addr(), r); reason != taken {
			return reason
		}
		s = &session{edge: e, id: r.id, from: from, began: now}
		s.address, s.network = prefixes(from.Addr())
		e.sessions[r.id] = s
		e.order = append(e.order, s)
		e.dueAt(s.deadline())
	}
	switch {
	// W-ADMIT-4
	case s.from != from:
		return foreignAddress
	// W-ADMIT-5
	case s.used[r.seq]:
		return repeated
	// W-STREAM-2
	case !s.client.agrees(r.offset, r.payload):
		return misfit
	}
	s.client.store(r.offset, r.payload)
	// W-ADMIT-6
	s.used[r.seq] = true
	// W-SIZE-1
	max := amplification * len(b)
	if max > datagramMax {
		max = datagramMax
	}
	s.slots = append(s.slots, slot{r.seq, max})
	if !s.isRunning() {
		return e.examine(now, s)
	}
	s.giveEarly()
	s.answer()
	return taken
}

// admit decides about the first datagram of a session, and makes room for it.
func (e *edge) admit(now time.Time, from netip.Addr, r request) string {
	if !e.hasWork(now) {
		return workLimit
	}
	if r.offset == 0 {
		if _, err := parseHello(r.payload); err != nil && err != errIncomplete {
			return notHello
		}
	}
	if e.ids.has(now, r.id) {
		return idEnded
	}
	if e.paused {
		return paused
	}
	address, network := prefixes(from)
	addressMax, networkMax := e.limits(now, address)
	if n, _ := e.find(func(s *session) bool {
		// W-ADMIT-1
		return s.address == address && !s.isSpared(now)
	}); n >= addressMax {
		return addressLimit
	}
	if n, _ := e.find(func(s *session) bool {
		// W-ADMIT-2
		return s.network == network && !s.isSpared(now)
	}); n >= networkMax {
		return networkLimit
	}
	gathering, oldest := e.find(func(s *session) bool { return !s.isRunning() })
	full := len(e.sessions) >= e.sessionsMax()
	if gathering >= gatheringMax || full && gathering > 0 {
		e.forget(oldest)
	} else if full {
		// W-ADMIT-3
		_, spared := e.find(func(s *session) bool { return s.isSpared(now) })
		if spared == nil {
			return sessionLimit
		}
		e.end(now, spared)
	}
	return taken
}

func (e *edge) sessionsMax() int {
	if quarter := e.config.streams / streamsPerSession; quarter < sessionsMax {
		return quarter
	}
	return sessionsMax
}

// find counts the sessions that match, and returns the oldest of them: the first that started, or
// that came.
func (e *edge) find(match func(*session) bool) (n int, oldest *session) {
	for _, s := range e.order {
		if !match(s) {
			continue
		}
		if n++; oldest == nil || s.started.Before(oldest.started) {
			oldest = s
		}
	}
	return n, oldest
}

// prefixes returns what counts as one address and as one network.
func prefixes(a netip.Addr) (address, network netip.Addr) {
	a = a.Unmap().WithZone("")
	bits := [2]int{32, 24}
	if a.Is6() {
		bits = [2]int{64, 48}
	}
	one, _ := a.Prefix(bits[0])
	many, _ := a.Prefix(bits[1])
	return one.Addr(), many.Addr()
}

// limits returns how many sessions an address and its network may have.
func (e *edge) limits(now time.Time, of netip.Addr) (address, network int) {
	address, network = sessionsPerAddress, sessionsPerNetwork
	if j := e.joiners[of]; now.Sub(j.last) < memoryLife {
		if address += j.joins; address > sessionsPerJoiner {
			address = sessionsPerJoiner
		}
	}
	if address > network {
		network = address
	}
	return address, network
}

// noteJoin counts a session that TCP from its own address took over.
func (e *edge) noteJoin(now time.Time, s *session, from netip.Addr) {
	e.budget += s.work
	if own, _ := prefixes(from); own != s.address {
		return
	}
	for address, j := range e.joiners {
		if len(e.joiners) >= joinersMax && now.Sub(j.last) >= memoryLife {
			delete(e.joiners, address)
		}
	}
	j := e.joiners[s.address]
	if now.Sub(j.last) >= memoryLife {
		j.joins = 0
	}
	if len(e.joiners) < joinersMax || j.joins > 0 {
		e.joiners[s.address] = joiner{j.joins + 1, now}
	}
}

// hasWork reports whether there is processor time for one more handshake.
func (e *edge) hasWork(now time.Time) bool {
	e.budget += time.Duration(float64(e.config.work) * now.Sub(e.workAt).Seconds())
	e.workAt = now
	if most := workBurst * e.config.work; e.budget > most {
		e.budget = most
	}
	return e.budget >= handshakeWork
}

// examine reads the stream of a gathering session, and starts it once its ClientHello is there.
func (e *edge) examine(now time.Time, s *session) string {
	hello, err := parseHello(s.client.contiguous())
	switch {
	// W-RUN-1
	case err == errIncomplete:
		return taken
	case err != nil:
		e.forget(s)
		return notHello
	}
	hash := helloHash(sha256.Sum256(s.client.bytes[:hello.end]))
	switch {
	// W-RUN-2
	case e.running[hash] != nil || e.hellos.has(now, hash):
		e.forget(s)
		return helloRuns
	case e.paused:
		return paused
	case !e.hasWork(now):
		return workLimit
	}
	e.start(now, s, hello.end, hash)
	return taken
}

func (e *edge) start(now time.Time, s *session, end int, hash helloHash) {
	e.makeRoom(now, s)
	s.started, s.hash, s.work = now, hash, handshakeWork
	e.budget -= s.work
	e.running[hash] = s
	e.dueAt(now.Add(sessionLife))
	// W-RUN-4, W-RUN-5
	s.early = e.config.earlyData && !e.config.sameAddress && e.ids.isComplete(now) &&
		e.hellos.isComplete(now)
	e.hellos.add(now, hash)
	// W-RUN-3
	s.respond(nil)
	s.given = end
	e.events = append(e.events, edgeEvent{
		session: s, start: true, bytes: append([]byte{}, s.client.bytes[:end]...),
	})
	s.giveEarly()
}

// makeRoom evicts spared sessions of the address or network of one that begins to run.
func (e *edge) makeRoom(now time.Time, s *session) {
	addressMax, networkMax := e.limits(now, s.address)
	_ = e.evict(now, addressMax, func(o *session) bool { return o.address == s.address }) ||
		e.evict(now, networkMax, func(o *session) bool { return o.network == s.network })
}

// evict ends the oldest spared session of those that match, if they are too many.
func (e *edge) evict(now time.Time, most int, match func(*session) bool) bool {
	n, _ := e.find(match)
	_, oldest := e.find(func(s *session) bool { return match(s) && s.isSpared(now) })
	if n <= most || oldest == nil {
		return false
	}
	e.end(now, oldest)
	return true
}

// giveEarly gives the origin client bytes behind the ClientHello, where that may be.
func (s *session) giveEarly() {
	if s.early {
		s.give()
	}
}

func (s *session) give() {
	if rest := s.client.contiguous()[s.given:]; len(rest) > 0 && !s.broken {
		s.edge.events = append(s.edge.events, edgeEvent{
			session: s, bytes: append([]byte{}, rest...),
		})
	}
	s.given = s.client.next
}

// answer answers slots, oldest first, with the bytes that have not been sent (W-REPLY-1).
func (s *session) answer() {
	for len(s.slots) > 0 && s.sent < len(s.server) {
		rest := s.server[s.sent:]
		if most := s.slots[0].max - responseHeader; len(rest) > most {
			rest = rest[:most]
		}
		s.respond(rest)
		s.sent += len(rest)
	}
}

func (s *session) respond(payload []byte) {
	// W-SEQ-2
	first := s.slots[0]
	s.slots = s.slots[1:]
	// W-REPLY-2, W-TAG-2
	r := response{s.id, first.seq, s.edge.config.tag, s.client.next, s.sent, payload}
	s.edge.datagrams = append(s.edge.datagrams, edgeDatagram{s.from, r.marshal()})
}

// write takes bytes of the origin, as many as there is room for.
func (s *session) write(b []byte) int {
	if s.gone || s.ended {
		return 0
	}
	if room := serverStreamMax - len(s.server); len(b) > room {
		b = b[:room]
	}
	s.server = append(s.server, b...)
	s.answer()
	return len(b)
}

// finish is the end of the origin's stream, or its reset.
func (s *session) finish(now time.Time, broken bool) {
	if s.gone || s.ended {
		return
	}
	// W-REPLY-3
	s.ended, s.broken = true, broken
	if broken && len(s.server) == 0 {
		s.edge.hellos.add(now, s.hash)
		s.edge.forget(s)
	} else if s.isSpared(now) {
		s.edge.end(now, s)
	}
}

// forget removes a session without remembering its id.
func (e *edge) forget(s *session) {
	s.gone = true
	delete(e.sessions, s.id)
	if s.isRunning() {
		delete(e.running, s.hash)
	}
	for i, other := range e.order {
		if other == s {
			e.order = append(e.order[:i], e.order[i+1:]...)
			break
		}
	}
}

// remember removes a session that ended or was taken over: its id and ClientHello stay for 10 s.
func (e *edge) remember(now time.Time, s *session) {
	// W-END-2
	e.ids.add(now, s.id)
	if s.isRunning() {
		e.hellos.add(now, s.hash)
	}
	e.forget(s)
}

// end ends a running session without a join.
func (e *edge) end(now time.Time, s *session) {
	e.remember(now, s)
	e.events = append(e.events, edgeEvent{session: s, end: true})
}

// deadline returns when time ends the session.
func (s *session) deadline() time.Time {
	switch {
	case !s.isRunning():
		return s.began.Add(gatheringLife)
	case s.ended:
		return s.started.Add(sessionLife)
	}
	return s.started.Add(sparedLife)
}

func (e *edge) dueAt(at time.Time) {
	if e.next.IsZero() || at.Before(e.next) {
		e.next = at
	}
}

// expire ends the sessions whose time has come, and spared ones if they are too many.
func (e *edge) expire(now time.Time) {
	if e.next.IsZero() || now.Before(e.next) {
		return
	}
	for _, s := range append([]*session(nil), e.order...) {
		switch {
		case now.Before(s.deadline()):
		case s.isRunning():
			e.end(now, s)
		default:
			e.forget(s)
		}
	}
	for e.evict(now, e.sessionsMax()/2, func(s *session) bool { return s.isSpared(now) }) {
	}
	e.next = time.Time{}
	for _, s := range e.order {
		if spared := s.started.Add(sessionLife); s.isRunning() && now.Before(spared) {
			e.dueAt(spared)
		} else {
			e.dueAt(s.deadline())
		}
	}
}

// memory holds what ended a short time ago, oldest first, and at most memoryMax of it.
type memory[K comparable] struct {
	at       map[K]time.Time
	queue    []remembered[K]
	complete time.Time // from then on, nothing is missing that was forgotten early
}

type remembered[K comparable] struct {
	key K
	at  time.Time
}

func (m *memory[K]) has(now time.Time, key K) bool {
	at, ok := m.at[key]
	return ok && now.Sub(at) < memoryLife
}

func (m *memory[K]) isComplete(now time.Time) bool { return !now.Before(m.complete) }

func (m *memory[K]) add(now time.Time, key K) {
	for len(m.queue) > 0 &&
		(now.Sub(m.queue[0].at) >= memoryLife || len(m.queue) >= memoryMax) {
		// A key that was added again later stays until that entry leaves.
		if first := m.queue[0]; m.at[first.key] == first.at {
			delete(m.at, first.key)
			m.complete = first.at.Add(memoryLife)
		}
		m.queue = m.queue[1:]
	}
	m.at[key] = now
	m.queue = append(m.queue, remembered[K]{key, now})
}
