package turbotls

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"time"
)

// ListenConfig is how a Listener serves. The zero value suits a server in front of which no other
// edge and no balancer stands.
type ListenConfig struct {
	// EarlyData gives TLS early data that came over UDP to the application at once; only where
	// this listener alone serves the name, and with AnyAddress.
	EarlyData bool
	// AnyAddress lets TCP take over a session from another address than its datagrams came from.
	// Without it, RemoteAddr of a connection from which more than a ClientHello was read is proven.
	AnyAddress bool
	// HelloTimeout bounds the time until the ClientHello of a TCP stream is there; 2 min if zero.
	HelloTimeout time.Duration
	// Trace, if set, is called for each event. It must not block, nor use the listener.
	Trace func(Event)
}

// Listener accepts TLS connections over TCP, and by TurboTLS over UDP and TCP. Its connections
// carry TLS, for tls.NewListener or http.Server.ServeTLS.
type Listener struct {
	config ListenConfig
	tcp    net.Listener
	udp    *net.UDPConn

	mu     sync.Mutex
	edge   *edge
	conns  map[*session]*serverConn
	starts map[net.Conn]struct{} // TCP streams of which the ClientHello is awaited
	wake   chan struct{}         // there is another time to wait for
	closed chan struct{}

	fromUDP chan net.Conn // has room for whatever the edge starts
	fromTCP chan net.Conn
	failed  chan error
	once    sync.Once
	hellos  chan struct{} // one for each stream in starts, which it bounds
}

// Listen listens on TCP and UDP of an address. Datagrams are answered from the address that the
// system chooses: on a host with several, name one.
func Listen(address string, config ListenConfig) (*Listener, error) {
	tcp, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("turbotls: %w", err)
	}
	at, err := net.ResolveUDPAddr("udp", tcp.Addr().String())
	if err != nil {
		tcp.Close()
		return nil, fmt.Errorf("turbotls: %w", err)
	}
	udp, err := net.ListenUDP("udp", at)
	if err != nil {
		tcp.Close()
		return nil, fmt.Errorf("turbotls: %w", err)
	}
	return NewListener(tcp, udp, config)
}

// NewListener serves sockets that are there already, and closes them when it is closed.
func NewListener(tcp net.Listener, udp *net.UDPConn, config ListenConfig) (*Listener, error) {
	var tag [4]byte
	for tag == [4]byte{} {
		// W-TAG-3
		if _, err := rand.Read(tag[:]); err != nil {
			return nil, fmt.Errorf("turbotls: drawing a route tag: %w", err)
		}
	}
	if config.HelloTimeout == 0 {
		config.HelloTimeout = helloTimeoutDefault
	}
	setDontFragment(udp)
	l := &Listener{
		config: config, tcp: tcp, udp: udp,
		edge: newEdge(edgeConfig{
			tag:         binary.BigEndian.Uint32(tag[:]),
			earlyData:   config.EarlyData,
			sameAddress: !config.AnyAddress,
			streams:     streamsDefault,
			work:        time.Second / workShare * time.Duration(runtime.GOMAXPROCS(0)),
		}, time.Now()),
		conns:   make(map[*session]*serverConn),
		starts:  make(map[net.Conn]struct{}),
		wake:    make(chan struct{}, 1),
		closed:  make(chan struct{}),
		fromUDP: make(chan net.Conn, acceptBacklog),
		fromTCP: make(chan net.Conn),
		failed:  make(chan error, 2),
		hellos:  make(chan struct{}, pendingHellosMax),
	}
	go l.readUDP()
	go l.acceptTCP()
	go l.expire()
	return l, nil
}

// Accept returns the next connection.
func (l *Listener) Accept() (net.Conn, error) {
	closed := &net.OpError{Op: "accept", Net: "tcp", Addr: l.Addr(), Err: net.ErrClosed}
	if isClosed(l.closed) {
		return nil, closed
	}
	select {
	case conn := <-l.fromUDP:
		return conn, nil
	case conn := <-l.fromTCP:
		return conn, nil
	case err := <-l.failed:
		return nil, err
	case <-l.closed:
		return nil, closed
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Addr returns the address of TCP.
func (l *Listener) Addr() net.Addr { return l.tcp.Addr() }

// Close stops listening. Connections that were accepted go on; sessions that TCP has not taken over
// do not.
func (l *Listener) Close() error {
	err := net.ErrClosed
	l.once.Do(func() {
		close(l.closed)
		l.udp.Close()
		err = l.tcp.Close()
		l.update(func(now time.Time) {
			for tcp := range l.starts {
				tcp.Close()
			}
			for len(l.edge.order) > 0 {
				if s := l.edge.order[0]; s.isRunning() {
					l.edge.end(now, s)
				} else {
					l.edge.forget(s)
				}
			}
		})
	})
	return err
}

// update does something to the edge, and then what the edge asks for.
func (l *Listener) update(f func(now time.Time)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.edge.paused = len(l.fromUDP) == cap(l.fromUDP)
	before := l.edge.next
	f(time.Now())
	for _, event := range take(&l.edge.events) {
		l.handleEvent(event)
	}
	for _, datagram := range take(&l.edge.datagrams) {
		_, _ = l.udp.WriteToUDPAddrPort(datagram.bytes, datagram.to) // or it is lost
	}
	if l.edge.next != before {
		select {
		case l.wake <- struct{}{}:
		default:
		}
	}
}

func (l *Listener) handleEvent(event edgeEvent) {
	s := event.session
	if event.start {
		conn := newServerConn(l, net.TCPAddrFromAddrPort(s.from))
		conn.session = s
		l.conns[s] = conn
		l.fromUDP <- conn // has room: the edge is paused without
		trace(l.config.Trace, Event{Kind: EventSession, Addr: s.from.String()})
	}
	conn := l.conns[s]
	if conn == nil {
		return
	}
	conn.change(func() {
		conn.incoming = append(conn.incoming, event.bytes...)
		if event.end {
			conn.fail(errExpired)
		}
	})
	if event.end {
		delete(l.conns, s)
		trace(l.config.Trace, Event{Kind: EventExpired, Addr: s.from.String()})
	}
}

func (l *Listener) readUDP() {
	room := make([]byte, datagramMax+1)
	for {
		n, from, err := l.udp.ReadFromUDPAddrPort(room)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // ICMP, of a client that is gone
			continue
		}
		l.update(func(now time.Time) {
			if reason := l.edge.handleDatagram(now, from, room[:n]); reason != taken {
				trace(l.config.Trace, Event{
					Kind: EventDropped, Addr: from.String(), Reason: reason,
				})
			}
		})
	}
}

// expire lets time pass for the sessions.
func (l *Listener) expire() {
	timer := stoppedTimer()
	for {
		l.mu.Lock()
		at := l.edge.next
		l.mu.Unlock()
		if timer.Stop(); !at.IsZero() {
			timer = time.NewTimer(time.Until(at))
		}
		select {
		case <-timer.C:
			l.update(l.edge.expire)
		case <-l.wake:
		case <-l.closed:
			timer.Stop()
			return
		}
	}
}

func (l *Listener) acceptTCP() {
	for {
		conn, err := l.tcp.Accept()
		if err != nil {
			var temporary interface{ Temporary() bool }
			if errors.As(err, &temporary) && temporary.Temporary() {
				time.Sleep(10 * time.Millisecond) // too many open files, mostly
				continue
			}
			l.failed <- err
			return
		}
		select {
		case l.hellos <- struct{}{}:
			go func() {
				defer func() { <-l.hellos }()
				l.update(func(time.Time) {
					if l.starts[conn] = struct{}{}; isClosed(l.closed) {
						conn.Close()
					}
				})
				l.serveTCP(conn)
			}()
		case <-l.closed:
			conn.Close()
			return
		}
	}
}

// serveTCP reads the start of a TCP stream, and hands it to Accept or to the session it takes over.
func (l *Listener) serveTCP(tcp net.Conn) {
	_ = tcp.SetReadDeadline(time.Now().Add(l.config.HelloTimeout))
	first, hello, err := readStart(tcp, nil)
	l.update(func(time.Time) { delete(l.starts, tcp) })
	if err != nil {
		tcp.Close()
		return
	}
	if hello != nil {
		if join, ok := readJoin(hello); ok {
			rest := first[hello.end:]
			if !l.takeJoin(tcp, join, rest) {
				return
			}
			if first, hello, err = readStart(tcp, rest); err != nil {
				tcp.Close()
				return
			}
		}
	}
	_ = tcp.SetReadDeadline(time.Time{})
	if hello != nil && l.attach(tcp, first, hello.end) {
		return
	}
	conn := newServerConn(l, tcp.RemoteAddr())
	// W-PLAIN-4
	conn.incoming, conn.tcp, conn.direct = first, tcp, true
	trace(l.config.Trace, Event{Kind: EventPlain, Addr: tcp.RemoteAddr().String()})
	select {
	case l.fromTCP <- conn:
	case <-l.closed:
		tcp.Close()
	}
}

// readStart reads until the ClientHello at the start of a stream is there. A stream that begins
// otherwise, or ends before, has none.
func readStart(tcp net.Conn, first []byte) ([]byte, *clientHello, error) {
	room := make([]byte, 4096)
	for {
		hello, err := parseHello(first)
		if err == nil {
			return first, hello, nil
		}
		if err != errIncomplete {
			return first, nil, nil
		}
		n, err := tcp.Read(room)
		first = append(first, room[:n]...)
		if errors.Is(err, io.EOF) {
			return first, nil, nil // the application reads the end by itself
		}
		if err != nil {
			return nil, nil, err
		}
	}
}

func addrOf(tcp net.Conn) netip.Addr {
	if address, ok := tcp.RemoteAddr().(*net.TCPAddr); ok {
		return address.AddrPort().Addr().Unmap()
	}
	return netip.Addr{}
}

// takeJoin answers a join. It returns true if another stream follows, for the caller.
func (l *Listener) takeJoin(tcp net.Conn, j join, rest []byte) (anew bool) {
	var h handover
	var result joinResult
	var conn *serverConn
	l.update(func(now time.Time) {
		h, result = l.edge.handleJoin(now, addrOf(tcp), j)
		conn = l.takeConn(h)
	})
	event := Event{Kind: EventJoined, Addr: tcp.RemoteAddr().String()}
	switch result {
	case joinRefused:
		event.Kind = EventRefused
		trace(l.config.Trace, event)
		// W-ANSWER-3
		_, _ = tcp.Write(joinRefusal)
		finish(tcp)
		drain(tcp)
		return false
	case joinAnew:
		_, _ = tcp.Write(h.toTCP) // an error shows again in reads
		return true
	}
	trace(l.config.Trace, event)
	_ = tcp.SetReadDeadline(time.Time{})
	conn.attach(tcp, h, rest)
	return false
}

// attach lets a stream that begins with a ClientHello take over the session of that, if one runs.
func (l *Listener) attach(tcp net.Conn, first []byte, end int) bool {
	var h handover
	var ok bool
	var conn *serverConn
	l.update(func(now time.Time) {
		if h, ok = l.edge.handlePlain(now, addrOf(tcp), first[:end]); ok {
			conn = l.takeConn(h)
		}
	})
	if ok {
		trace(l.config.Trace, Event{Kind: EventAttached, Addr: tcp.RemoteAddr().String()})
		conn.attach(tcp, h, first)
	}
	return ok
}

// takeConn takes the connection of a session that TCP took over, with what the session had for it.
func (l *Listener) takeConn(h handover) *serverConn {
	if h.session == nil {
		return nil
	}
	for _, event := range take(&l.edge.events) {
		l.handleEvent(event)
	}
	conn := l.conns[h.session]
	delete(l.conns, h.session)
	return conn
}

// errExpired is the error of a connection whose client did not come over TCP.
var errExpired = errors.New("turbotls: the client's TCP connection did not come")

// serverConn is a connection of a Listener. It begins with a session, and TCP takes over, or with a
// TCP stream.
type serverConn struct {
	stream
	listener *Listener
	session  *session // of which Listener.mu guards all
}

func newServerConn(l *Listener, remote net.Addr) *serverConn {
	return &serverConn{
		listener: l, stream: stream{remote: remote, changed: make(chan struct{})},
	}
}

// attach lets TCP carry both streams on.
func (c *serverConn) attach(tcp net.Conn, h handover, rest []byte) {
	skipped := h.skip
	if skipped > len(rest) {
		skipped = len(rest)
	}
	// What the session has comes first, then what the application could not write yet.
	c.writing.Lock()
	defer c.writing.Unlock()
	_ = tcp.SetWriteDeadline(time.Now().Add(joinTimeout))
	_, err := tcp.Write(h.toTCP)
	if err != nil || h.broken {
		abort(tcp)
		c.change(func() { c.fail(errExpired) })
		return
	}
	if h.ended {
		finish(tcp)
	}
	gone := false
	c.change(func() {
		c.incoming = append(c.incoming, rest[skipped:]...)
		c.skip, c.tcp, c.direct, gone = h.skip-skipped, tcp, true, c.closed
		c.applyDeadlines()
	})
	if gone {
		go drain(tcp)
	}
}

func abort(tcp net.Conn) {
	if t, ok := tcp.(*net.TCPConn); ok {
		_ = t.SetLinger(0)
	}
	tcp.Close()
}

func finish(tcp net.Conn) {
	if t, ok := tcp.(interface{ CloseWrite() error }); ok {
		_ = t.CloseWrite()
	}
}

// drain closes a connection behind what was written, and does not reset it for unread bytes.
func drain(tcp net.Conn) {
	_ = tcp.SetReadDeadline(time.Now().Add(closeDrain))
	_, _ = io.CopyN(io.Discard, tcp, clientStreamMax)
	tcp.Close()
}

// Write writes bytes to the client. Before TCP takes over, 20 KiB have room.
func (c *serverConn) Write(b []byte) (written int, err error) {
	for {
		c.mu.Lock()
		err := c.errorLocked(c.closed || c.finished, c.writeEnd)
		tcp, changed := c.tcp, c.changed
		c.mu.Unlock()
		switch {
		case err != nil:
			return written, c.opError("write", err)
		case tcp != nil:
			c.writing.Lock()
			defer c.writing.Unlock()
			n, err := tcp.Write(b)
			return written + n, err
		}
		c.listener.update(func(time.Time) {
			n := c.session.write(b)
			written, b = written+n, b[n:]
		})
		if len(b) == 0 {
			return written, nil
		}
		<-changed
	}
}

// SetLinger is that of net.TCPConn, once TCP carries the streams: after 0, Close resets.
func (c *serverConn) SetLinger(sec int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if tcp, ok := c.tcp.(*net.TCPConn); ok {
		return tcp.SetLinger(sec)
	}
	return nil
}

// CloseWrite ends the stream to the client.
func (c *serverConn) CloseWrite() error { return c.end(false) }

// Close closes the connection. What was written before TCP takes over stays for that.
func (c *serverConn) Close() error { return c.end(true) }

func (c *serverConn) end(both bool) error {
	var tcp net.Conn
	again := false
	c.change(func() {
		again = c.closed || c.finished && !both
		c.finished = true
		c.closed, tcp = c.closed || both, c.tcp
	})
	switch {
	case again:
		return c.opError("close", net.ErrClosed)
	case tcp != nil && both:
		return tcp.Close()
	case tcp != nil:
		c.writing.Lock()
		defer c.writing.Unlock()
		finish(tcp)
	default:
		c.listener.update(func(now time.Time) {
			s := c.session
			s.finish(now, both && len(s.server) == 0)
			if s.gone {
				delete(c.listener.conns, s)
			}
		})
	}
	return nil
}
