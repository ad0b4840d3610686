package turbotls

import (
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"
)

// Conn is a client's connection that opens by TurboTLS. It is a net.Conn whose two directions may
// be used at once, with deadlines, and with CloseWrite.
type Conn struct {
	stream
	dialer *Dialer
	name   string
	race   *race
	path   *path
	slots  int

	machine *client      // stream.mu guards what changes
	udp     *net.UDPConn // until the opening is over
	opened  bool         // the outcome is known

	flight     atomic.Int64 // bytes of the server before the application's second word
	flightDone atomic.Bool
}

func (c *Conn) begin() {
	if c.udp != nil {
		go c.readUDP(c.udp)
	}
	go c.run()
}

// run follows the opening until TCP carries both streams, or the connection has failed.
func (c *Conn) run() {
	timer := stoppedTimer()
	defer func() { timer.Stop() }()
	connected := c.race.connected
	var lingered time.Time
	for {
		c.mu.Lock()
		pending := c.tcp != nil && len(c.machine.toTCP) > 0
		carried := c.machine.state >= stateJoining && c.tcp != nil
		done := c.err != nil || carried && !pending && (c.direct || c.closed)
		if c.closed && lingered.IsZero() {
			lingered = time.Now().Add(closeLinger)
		}
		if c.closed && (len(c.machine.stream) == 0 && c.tcp == nil ||
			!lingered.IsZero() && time.Now().After(lingered)) {
			done = true
		}
		at, ok := c.machine.timeout()
		if c.closed && (!ok || lingered.Before(at)) {
			at, ok = lingered, true
		}
		changed := c.changed
		c.mu.Unlock()
		if pending && !done {
			c.flush(nil)
			continue
		}
		if done {
			c.finishRun()
			return
		}
		if timer.Stop(); ok {
			timer = time.NewTimer(time.Until(at))
		}
		select {
		case <-connected:
			connected = nil
			c.handleConnected()
		case <-timer.C:
			c.update(func() { c.machine.handleTimeout(time.Now()) })
		case <-changed:
		}
	}
}

// finishRun ends what the opening began.
func (c *Conn) finishRun() {
	c.mu.Lock()
	closed, failed, finished, tcp := c.closed, c.err != nil, c.finished, c.tcp
	if c.udp != nil && (closed || failed) {
		c.udp.Close()
	}
	if !c.opened {
		c.settle()
	}
	c.mu.Unlock()
	switch {
	case tcp == nil:
		c.race.stop()
		go func() { // a connection that comes all the same
			<-c.race.connected
			if c.race.conn != nil {
				c.race.conn.Close()
			}
		}()
	case closed || failed:
		if failed {
			abort(tcp) // the application sees a reset, and so does the server
		}
		tcp.Close()
	case finished:
		finish(tcp)
	}
}

// update does something to the machine, and then what the machine asks for.
func (c *Conn) update(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
	c.afterLocked()
}

func (c *Conn) afterLocked() {
	for _, datagram := range take(&c.machine.datagrams) {
		if c.udp == nil {
			break
		}
		// What the system does not take is lost, but for what ICMP said.
		if _, err := c.udp.Write(datagram); isUnreachable(err) {
			c.machine.handleUnreachable(time.Now())
		}
	}
	c.incoming = append(c.incoming, take(&c.machine.toApp)...)
	switch c.machine.state {
	case stateReset:
		c.fail(&ResetError{c.machine.reset})
		c.settle()
	case stateOpen:
		c.settle()
	}
	c.wake()
}

func isUnreachable(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.EHOSTUNREACH) ||
		errors.Is(err, syscall.ENETUNREACH) || errors.Is(err, syscall.ECONNRESET)
}

// settle notes the outcome of the opening, once.
func (c *Conn) settle() {
	if c.opened {
		return
	}
	c.opened = true
	m := c.machine
	o := c.outcome()
	event := Event{Kind: EventPlain, Addr: c.name, Reason: m.why, RTT: m.timing.rtt,
		Sent: m.seqs, Got: m.answers}
	if m.joined {
		event.Kind = EventJoined
	} else if m.state == stateReset {
		event.Kind, event.Reason = EventReset, string(m.reset)
	} else if m.state != stateOpen {
		event.Reason = "not connected"
	}
	if c.slots > 0 {
		c.dialer.mu.Lock()
		c.path.release(time.Now(), o)
		if m.seqs > 0 && !m.connectedAt.IsZero() && (m.why != "no wait" || m.answers > 0) {
			c.path.learn(time.Now(), o)
		}
		c.dialer.mu.Unlock()
	}
	trace(c.dialer.Trace, event)
	if c.tcp != nil && !c.direct { // wakes the reader of the opening
		_ = c.tcp.SetReadDeadline(time.Unix(1, 0))
	}
	if c.udp != nil {
		wait := time.Duration(0)
		if m.answers == 0 && m.seqs > 0 && m.state == stateOpen {
			wait = lagMax
		}
		_ = c.udp.SetReadDeadline(time.Now().Add(wait))
	}
}

func (c *Conn) outcome() outcome {
	m := c.machine
	answered := m.firstTaken
	if answered.IsZero() {
		answered = m.lateAt
	}
	return outcome{
		timing: m.timing, answered: answered, silence: m.why == "silence", joined: m.joined,
		reset: m.reset, slots: c.slots,
	}
}

func (c *Conn) handleConnected() {
	r := c.race
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.err != nil {
		c.fail(r.err)
		c.afterLocked()
		return
	}
	c.tcp = r.conn
	flight := c.machine.flightAt
	if flight.IsZero() {
		flight = r.at
	}
	var t timing
	if c.path != nil {
		c.dialer.mu.Lock()
		t = c.path.timing(r.syn, flight, r.at)
		c.dialer.mu.Unlock()
	}
	if least := c.dialer.MinGrace; t.grace < least {
		t.grace, t.worthwhile = least, true
	}
	if end := t.due.Add(c.dialer.MinGrace); t.end.Before(end) {
		t.end = end
	}
	same := r.to == r.addresses[0]
	c.machine.handleConnected(time.Now(), same, t)
	if c.machine.state == stateOpen {
		c.direct = true
	} else {
		go c.readTCP(r.conn)
	}
	c.afterLocked()
	c.applyDeadlines()
}

// readTCP reads TCP until the answer to a join, or until the client is plain.
func (c *Conn) readTCP(tcp *net.TCPConn) {
	room := make([]byte, 16<<10)
	for {
		n, err := tcp.Read(room)
		over := false
		c.update(func() {
			if n > 0 {
				c.machine.handleTCP(time.Now(), room[:n])
			}
			switch {
			case err == nil || errors.Is(err, os.ErrDeadlineExceeded):
			case errors.Is(err, io.EOF):
				c.machine.handleTCPEnd()
			default:
				if c.machine.handleTCPBreak(); c.machine.state == stateOpen {
					c.fail(err) // which the system tells once
				}
			}
			if over = c.machine.state >= stateOpen; over {
				// An end shows again in the application's own reads, which skip what TCP repeats.
				c.direct, c.skip = true, c.machine.skip
				c.applyDeadlines()
			}
		})
		if over {
			return
		}
	}
}

// readUDP reads datagrams until the opening is over, and a while longer if none was answered.
func (c *Conn) readUDP(udp *net.UDPConn) {
	defer udp.Close()
	room := make([]byte, datagramMax+1)
	for over := false; !over; {
		n, err := udp.Read(room)
		c.update(func() {
			m := c.machine
			switch {
			case err == nil:
				m.handleDatagram(time.Now(), room[:n])
			case isUnreachable(err):
				m.handleUnreachable(time.Now())
			default:
				over = true
				c.udp = nil
			}
			if over = over || m.state >= stateOpen && (m.answers > 0 || !m.lateAt.IsZero()); over {
				c.learnLate()
			}
		})
	}
}

// learnLate gives the path what came, or did not, after the client went plain.
func (c *Conn) learnLate() {
	m := c.machine
	o := c.outcome()
	if m.answers > 0 || m.state != stateOpen || m.seqs == 0 ||
		o.answered.IsZero() && m.why != "no wait" {
		return
	}
	c.dialer.mu.Lock()
	defer c.dialer.mu.Unlock()
	c.path.learn(time.Now(), o)
}

// flush writes to TCP what the machine has for it, and then more.
func (c *Conn) flush(more []byte) (int, error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	c.mu.Lock()
	first, tcp := take(&c.machine.toTCP), c.tcp
	c.mu.Unlock()
	if len(first) > 0 {
		if _, err := tcp.Write(first); err != nil {
			c.update(func() { c.fail(err) })
			return 0, err
		}
	}
	if len(more) == 0 {
		return 0, nil
	}
	return tcp.Write(more)
}

// Read reads bytes of the server.
func (c *Conn) Read(b []byte) (int, error) {
	n, err := c.stream.Read(b)
	if !c.flightDone.Load() {
		c.flight.Add(int64(n))
	}
	return n, err
}

// Write writes bytes to the server. Before TCP is connected it takes 64 KiB, and then waits.
func (c *Conn) Write(b []byte) (written int, err error) {
	if !c.flightDone.Load() && c.flight.Load() > 0 {
		c.flightDone.Store(true)
		c.dialer.learnFlight(c.name, int(c.flight.Load()))
	}
	for {
		c.mu.Lock()
		err := c.errorLocked(c.closed || c.finished, c.writeEnd)
		carried := c.machine.state >= stateJoining && c.tcp != nil
		if n := writeAheadMax - len(c.machine.stream); err == nil && !carried && n > 0 {
			if n > len(b) {
				n = len(b)
			}
			c.machine.write(time.Now(), b[:n])
			c.afterLocked()
			written, b = written+n, b[n:]
		}
		changed := c.changed
		c.mu.Unlock()
		switch {
		case err != nil:
			return written, c.opError("write", err)
		case carried:
			n, err := c.flush(b)
			return written + n, err
		case len(b) == 0:
			return written, nil
		}
		<-changed
	}
}

// Close closes the connection. What was written goes out first, if TCP connects within 5 s.
func (c *Conn) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return c.opError("close", net.ErrClosed)
	}
	c.closed = true
	direct, tcp := c.direct && len(c.machine.toTCP) == 0, c.tcp
	c.machine.finish(time.Now())
	c.afterLocked()
	c.mu.Unlock()
	if direct {
		return tcp.Close()
	}
	return nil
}

// CloseWrite ends the stream to the server.
func (c *Conn) CloseWrite() error {
	c.mu.Lock()
	if c.closed || c.finished {
		c.mu.Unlock()
		return c.opError("close", net.ErrClosed)
	}
	c.finished = true
	c.machine.finish(time.Now())
	direct, tcp := c.direct, c.tcp
	c.afterLocked()
	c.mu.Unlock()
	if !direct {
		return nil // run does it behind the last byte
	}
	if _, err := c.flush(nil); err != nil {
		return err
	}
	finish(tcp)
	return nil
}
