package turbotls

import (
	"fmt"
	"time"
)

// clientConfig configures one opening.
type clientConfig struct {
	key       joinKey
	slots     int // including one for the acknowledgement; 0: nothing goes over UDP
	earlyData bool
	hold      bool // deliver server bytes from TCP alone
}

type clientState int

const (
	stateConnecting clientState = iota
	stateWaiting
	stateJoining
	stateOpen
	stateReset
)

// ResetReason says why an opening failed although plain TLS might not have.
type ResetReason string

// Reasons for which a client resets a connection (docs/draft-headstart-turbotls.md#client-states).
const (
	ResetRefused  ResetReason = "refused"
	ResetProtocol ResetReason = "protocol error"
	ResetLost     ResetReason = "lost"
	ResetTooLate  ResetReason = "too late"
)

// client is the client's side of one opening, without IO:
// docs/draft-headstart-turbotls.md#client-behavior.
//
// Events go in by write, finish and the handle methods, each with the time. After each, the caller
// takes and sends datagrams and toTCP, gives the application toApp, and calls handleTimeout at the
// time that timeout returns. TCP is not written to before toTCP has something.
type client struct {
	config clientConfig
	state  clientState
	joined bool        // in stateOpen: by a join; false if plain
	why    string      // reason, if plain
	reset  ResetReason // in stateReset

	stream      []byte // client stream from offset 0, until TCP has taken over
	hello       *clientHello
	notTLS      bool
	finished    bool
	sent        int // bytes of the stream that went over UDP
	seqs        int // sequence numbers used
	answered    [sequences]bool
	answers     int
	firstWrite  time.Time
	flightAt    time.Time
	unreachable bool

	server    prefix // server stream, from UDP
	tag       uint32
	ack       int
	delivered int  // bytes of the server stream that the application has
	dropUDP   bool // an edge may begin another stream

	connectedAt time.Time
	timing      timing
	firstTaken  time.Time // arrival of the first response taken; zero if none was
	lastTaken   time.Time
	lateAt      time.Time // arrival of the first response, if the client was plain by then

	joinedAt time.Time
	asked    int    // server offset in the join
	skip     int    // bytes that TCP repeats
	answer   []byte // to the join, so far

	datagrams [][]byte
	toTCP     []byte
	toApp     []byte
}

// timing is how long an opening waits for datagrams, from the memory of its path; known once TCP is
// connected.
type timing struct {
	rtt        time.Duration
	grace      time.Duration
	due        time.Time // when the first answer should be there
	end        time.Time // of the wait for that
	worthwhile bool      // to wait at all
}

func (c *client) sentEarly() bool { return c.hello != nil && c.sent > c.hello.end }

// write takes bytes from the application.
func (c *client) write(now time.Time, b []byte) {
	if c.firstWrite.IsZero() && len(b) > 0 {
		c.firstWrite = now
	}
	switch c.state {
	// W-STATE-6
	case stateConnecting, stateWaiting:
		c.stream = append(c.stream, b...)
		if c.state == stateConnecting {
			c.send(now)
		}
		c.decide(now)
	case stateJoining, stateOpen:
		c.toTCP = append(c.toTCP, b...)
	}
}

// finish takes the end of the application's stream.
func (c *client) finish(now time.Time) {
	c.finished = true
	c.decide(now)
}

// send sends the flight and its slots once the ClientHello is whole, and early data as it comes.
func (c *client) send(now time.Time) {
	// W-SEND-1, W-SEND-2, W-SEND-5
	if c.config.slots <= 0 || c.notTLS || !c.connectedAt.IsZero() {
		return
	}
	if c.hello == nil {
		hello, err := parseHello(c.stream)
		if err != nil {
			c.notTLS = err != errIncomplete
			return
		}
		c.hello, c.flightAt = hello, now
		// W-SEND-3
		end := hello.end
		if c.config.earlyData {
			end = len(c.stream)
		}
		c.sendUpTo(end)
		c.sendSlots()
	} else if c.config.earlyData {
		c.sendUpTo(len(c.stream))
	}
}

// sendUpTo sends the stream up to an offset, or until sequence numbers run out.
func (c *client) sendUpTo(end int) {
	if end > clientStreamMax {
		end = clientStreamMax
	}
	for c.sent < end && c.seqs < sequences {
		next := c.sent + requestPayloadMax
		if next > end {
			next = end
		}
		c.sendPiece(c.sent, next)
		c.sent = next
	}
}

// sendSlots sends a piece of the ClientHello again in each slot, backwards from its end (W-SEND-4).
func (c *client) sendSlots() {
	end := c.hello.end
	for n := 0; n < c.config.slots && c.seqs < sequences; n++ {
		start := end - pieceLen
		if start < 0 {
			start = 0
		}
		c.sendPiece(start, end)
		if end = start; end == 0 {
			end = c.hello.end
		}
	}
}

func (c *client) sendPiece(start, end int) {
	// W-SEQ-1
	piece := request{c.config.key.id(), uint8(c.seqs), start, c.stream[start:end]}
	c.datagrams = append(c.datagrams, piece.marshal())
	c.seqs++
}

// handleDatagram takes a datagram from the edge's address.
func (c *client) handleDatagram(now time.Time, b []byte) {
	r, err := parseResponse(b)
	// W-TAKE-1
	if err != nil || r.id != c.config.key.id() || int(r.seq) >= c.seqs {
		return
	}
	// W-STATE-16: also if the timer is late, since the edge forgets the session all the same.
	if !now.Before(c.firstWrite.Add(sessionGiveUp)) {
		c.decide(now)
	}
	switch {
	case c.state == stateOpen && !c.joined && c.firstTaken.IsZero():
		if c.lateAt.IsZero() {
			c.lateAt = now
		}
		return
	case c.state == stateOpen || c.state == stateReset:
		return
	// W-TAKE-2, W-TAKE-3, W-TAKE-4
	case c.answers > 0 && r.tag != c.tag, r.ack > c.sent, c.answered[r.seq],
		!c.server.agrees(r.offset, r.payload):
		return
	}
	c.tag, c.answered[r.seq] = r.tag, true
	c.answers++
	if c.firstTaken.IsZero() {
		c.firstTaken = now
	}
	c.lastTaken = now
	if r.ack > c.ack {
		c.ack = r.ack
	}
	if c.dropUDP {
		return
	}
	c.server.store(r.offset, r.payload)
	c.deliver()
	c.decide(now)
}

// deliver gives the application the server bytes that UDP brought in order, once TCP is connected.
func (c *client) deliver() {
	// W-STATE-1, W-STATE-11
	if c.state == stateConnecting || c.config.hold || c.dropUDP {
		return
	}
	c.toApp = append(c.toApp, c.server.contiguous()[c.delivered:]...)
	c.delivered = c.server.next
}

// handleUnreachable takes an ICMP error for the datagrams.
func (c *client) handleUnreachable(now time.Time) {
	// W-STATE-15
	if c.seqs > 0 && c.answers == 0 {
		c.unreachable = true
		c.decide(now)
	}
}

// handleConnected takes the news that TCP is connected: to the address that the datagrams went to,
// if same is true.
func (c *client) handleConnected(now time.Time, same bool, timing timing) {
	if c.state != stateConnecting {
		return
	}
	c.connectedAt, c.timing = now, timing
	switch {
	case c.seqs == 0:
		c.plain("not offered")
	case !same:
		// W-STATE-2
		c.giveUp(now, "another address")
	case now.Sub(c.firstWrite) >= sessionGiveUp:
		// W-STATE-3
		c.giveUp(now, "late")
	default:
		c.state = stateWaiting
		c.deliver()
		c.decide(now)
	}
}

// decide applies the table of WAITING: the first row that matches.
func (c *client) decide(now time.Time) {
	if c.state != stateWaiting {
		return
	}
	if c.answers > 0 {
		if len(c.stream) > c.sent || c.finished || c.answers == c.seqs || c.config.hold ||
			!now.Before(c.waitEnd()) {
			c.takeOver(now)
		}
		return
	}
	switch {
	case c.unreachable:
		c.giveUp(now, "unreachable")
	case !c.timing.worthwhile:
		c.giveUp(now, "no wait")
	case !now.Before(c.waitEnd()):
		c.giveUp(now, "silence")
	}
}

// waitEnd returns the time at which the wait for datagrams ends (W-STATE-16).
func (c *client) waitEnd() time.Time {
	end := c.timing.end
	if c.answers > 0 {
		end = c.answeredEnd()
	}
	if last := c.firstWrite.Add(sessionGiveUp); last.Before(end) {
		return last
	}
	return end
}

// answeredEnd returns the time at which the wait for more ends, after a first answer.
func (c *client) answeredEnd() time.Time {
	due, grace := c.timing.due, c.timing.grace
	end := due.Add(2 * grace)
	if c.lastTaken.Before(due.Add(grace)) {
		end = due.Add(grace)
		if c.lastTaken.After(due) {
			end = c.lastTaken.Add(grace)
		}
	}
	// The first server bytes may take a round trip.
	if trip := c.connectedAt.Add(c.timing.rtt); len(c.server.bytes) == 0 && trip.After(end) {
		return trip
	}
	return end
}

// timeout returns the time at which to call handleTimeout, if there is one.
func (c *client) timeout() (time.Time, bool) {
	switch {
	case c.state == stateWaiting:
		return c.waitEnd(), true
	case c.state == stateJoining:
		return c.joinEnd(), true
	}
	return time.Time{}, false
}

func (c *client) handleTimeout(now time.Time) {
	// W-STATE-14
	if c.state == stateJoining && !now.Before(c.joinEnd()) {
		c.fail(ResetLost)
	}
	c.decide(now)
}

// joinEnd returns the time at which the wait for the answer to the join ends.
//
// A client that has delivered server bytes must be answered while the edge still remembers the
// session, even as one that ended. So if a late timer delayed the join, the wait is not extended.
func (c *client) joinEnd() time.Time {
	begin := c.joinedAt
	if latest := c.firstWrite.Add(sessionGiveUp); c.asked > 0 && latest.Before(begin) {
		begin = latest
	}
	return begin.Add(joinTimeout)
}

// giveUp goes plain, unless the origin may have acted on early data (W-STATE-4, W-STATE-5).
func (c *client) giveUp(now time.Time, why string) {
	switch {
	case !c.sentEarly():
		c.plain(why)
	case now.Sub(c.firstWrite) >= earlyGiveUp:
		c.fail(ResetTooLate)
	default:
		c.join(now)
	}
}

func (c *client) takeOver(now time.Time) {
	// W-STATE-7
	if c.delivered > 0 || c.sentEarly() {
		c.join(now)
	} else {
		c.plain("nothing delivered")
	}
}

// plain lets TCP carry the client stream from its start (W-STATE-9).
func (c *client) plain(why string) {
	c.state, c.why = stateOpen, why
	c.toTCP, c.stream = append(c.toTCP, c.stream...), nil
	c.server = prefix{}
}

func (c *client) join(now time.Time) {
	clientOffset := 0
	if c.delivered > 0 {
		// W-JOIN-4
		clientOffset = recordStart(c.stream, c.ack)
	}
	// W-STATE-10
	c.state, c.joinedAt, c.asked = stateJoining, now, c.delivered
	c.dropUDP = c.asked == 0
	// W-TAG-1
	record := join{c.config.key, c.tag, clientOffset, c.asked}
	c.toTCP = append(c.toTCP, record.marshal(c.hello.name, c.hello.protocols)...)
	c.toTCP, c.stream = append(c.toTCP, c.stream[clientOffset:]...), nil
}

func (c *client) fail(reason ResetReason) {
	c.state, c.reset = stateReset, reason
	c.toTCP, c.stream = nil, nil
}

// handleTCP takes bytes from TCP.
func (c *client) handleTCP(now time.Time, b []byte) {
	// W-STATE-14: also if the timer is late.
	if c.state == stateJoining {
		c.handleTimeout(now)
	}
	switch c.state {
	case stateWaiting:
		if c.noEdge(); c.state == stateOpen {
			c.toApp = append(c.toApp, b...)
		}
	case stateOpen:
		c.handleServerStream(b)
	case stateJoining:
		c.answer = append(c.answer, b...)
		verdict, offset := c.config.key.readAnswer(c.answer)
		switch {
		// W-STATE-13
		case verdict == answerRefused:
			c.fail(ResetRefused)
		case verdict == answerIncomplete:
		// W-STATE-12
		case offset > c.asked || c.asked-offset >= recordStreamMax+recordHeader:
			c.fail(ResetProtocol)
		default:
			c.state, c.joined, c.skip = stateOpen, true, c.delivered-offset
			rest := c.answer[answerLen:]
			c.answer, c.server = nil, prefix{}
			c.handleServerStream(rest)
		}
	}
}

// handleServerStream takes server bytes from TCP, and delivers those that UDP did not bring before.
func (c *client) handleServerStream(b []byte) {
	// W-STREAM-1
	skipped := c.skip
	if skipped > len(b) {
		skipped = len(b)
	}
	c.skip -= skipped
	c.toApp = append(c.toApp, b[skipped:]...)
}

// noEdge handles a peer that sends or ends before the client does, as no edge would: the client
// goes plain, or resets if it is too late for that.
func (c *client) noEdge() {
	if c.delivered > 0 || c.sentEarly() {
		// W-STATE-8
		c.fail(ResetProtocol)
	} else {
		c.plain("no edge")
	}
}

// handleTCPEnd takes the end of TCP's server stream.
func (c *client) handleTCPEnd() {
	switch c.state {
	case stateWaiting:
		c.noEdge()
	case stateJoining:
		c.fail(ResetRefused)
	}
}

// handleTCPBreak takes a reset of TCP.
func (c *client) handleTCPBreak() {
	switch c.state {
	case stateWaiting:
		c.noEdge()
	case stateJoining:
		c.fail(ResetLost)
	}
}

// ResetError is the failure of a connection that had to continue its session and could not.
type ResetError struct{ Reason ResetReason }

func (e *ResetError) Error() string {
	return fmt.Sprintf("turbotls: connection reset: %s", e.Reason)
}
