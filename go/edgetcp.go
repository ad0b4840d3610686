package turbotls

import (
	"crypto/sha256"
	"net/netip"
	"time"
)

// handover is what becomes of a TCP stream that took over a session.
type handover struct {
	session *session
	toTCP   []byte // the answer, and the server bytes that are stored
	skip    int    // bytes of the client's TCP stream that the origin has or was just given
	ended   bool   // the origin's stream ends behind these bytes
	broken  bool   // or breaks off
}

// joinResult says what an edge answers to a join.
type joinResult int

const (
	joinRefused  joinResult = iota
	joinAccepted            // the session continues on TCP
	joinAnew                // accepted from 0, and another stream follows
)

// handleJoin decides about a join: docs/draft-headstart-turbotls.md#arrival-of-a-join. The handover is of an accepted one.
func (e *edge) handleJoin(now time.Time, from netip.Addr, j join) (handover, joinResult) {
	e.expire(now)
	from = from.Unmap()
	id := j.key.id()
	s := e.sessions[id]
	known := s != nil && s.isRunning() && (j.tag == 0 || j.tag == e.config.tag)
	if known && !(e.config.sameAddress && from != s.from.Addr()) {
		// W-TAKEOVER-4
		if j.clientOffset > s.client.next || j.serverOffset > s.sent {
			return handover{}, joinRefused
		}
		return e.handOver(now, s, from, j), joinAccepted
	}
	ended := e.ids.has(now, id)
	// W-TAKEOVER-3
	if known {
		e.end(now, s)
	} else if s != nil && !s.isRunning() {
		e.remember(now, s)
	}
	// W-TAKEOVER-9
	forgotten := !known && e.config.earlyData && !e.ids.isComplete(now)
	// W-TAKEOVER-1, W-TAKEOVER-2
	if ended || forgotten || j.clientOffset != 0 || j.serverOffset != 0 {
		return handover{}, joinRefused
	}
	e.ids.add(now, id)
	return handover{toTCP: j.key.accept(0)}, joinAnew
}

// handOver ends a session whose streams continue on TCP.
func (e *edge) handOver(now time.Time, s *session, from netip.Addr, j join) handover {
	// W-ANSWER-2
	start := recordStart(s.server, j.serverOffset)
	h := e.take(now, s, from)
	// W-TAKEOVER-7
	h.toTCP = append(j.key.accept(start), h.toTCP[start:]...)
	// W-TAKEOVER-8
	h.skip -= j.clientOffset
	return h
}

// take ends a session that TCP takes over from the start of both streams.
func (e *edge) take(now time.Time, s *session, from netip.Addr) handover {
	s.give()
	// W-TAKEOVER-6
	e.noteJoin(now, s, from)
	e.remember(now, s)
	return handover{
		session: s, toTCP: s.server, skip: s.client.next, ended: s.ended, broken: s.broken,
	}
}

// handlePlain decides about a TCP stream that begins with a ClientHello which is no join: section
// 6.5. It returns whether the stream takes over a session; otherwise it is an ordinary connection.
func (e *edge) handlePlain(now time.Time, from netip.Addr, hello []byte) (handover, bool) {
	e.expire(now)
	from = from.Unmap()
	hash := helloHash(sha256.Sum256(hello))
	s := e.running[hash]
	// W-PLAIN-1, W-PLAIN-3
	if s != nil && s.from.Addr() == from {
		return e.take(now, s, from), true
	}
	// W-PLAIN-2
	e.hellos.add(now, hash)
	for _, other := range e.order {
		if !other.isRunning() && other.from.Addr() == from && other.client.agreesWith(hello) {
			e.forget(other)
			break
		}
	}
	return handover{}, false
}
