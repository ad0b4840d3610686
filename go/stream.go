package turbotls

import (
	"net"
	"os"
	"sync"
	"time"
)

// stream is what the connections of both ends have in common: bytes for the application that did
// not come over TCP, and TCP behind them once it is there.
type stream struct {
	mu       sync.Mutex
	incoming []byte
	tcp      net.Conn // what carries the streams, from now on or later
	direct   bool     // TCP has all other bytes for the application,
	skip     int      // behind these
	err      error
	closed   bool
	finished bool          // the application ended its stream
	changed  chan struct{} // closed at each change
	remote   net.Addr      // until TCP is there

	writing sync.Mutex // to TCP, in order

	readEnd, writeEnd     time.Time // deadlines
	readTimer, writeTimer *time.Timer
}

// change does something under the lock, and wakes reads and writes.
func (s *stream) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	s.wake()
}

func (s *stream) wake() {
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *stream) fail(err error) {
	if s.err == nil {
		s.err = err
	}
}

// Read reads bytes of the peer.
func (s *stream) Read(b []byte) (int, error) {
	for {
		s.mu.Lock()
		n := copy(b, s.incoming)
		if s.incoming = s.incoming[n:]; len(s.incoming) == 0 {
			s.incoming = nil
		}
		err := s.errorLocked(s.closed, s.readEnd)
		direct, skip, changed := s.direct, s.skip, s.changed
		s.mu.Unlock()
		switch {
		case n > 0:
			return n, nil
		case err != nil:
			return 0, s.opError("read", err)
		case len(b) == 0:
			return 0, nil
		case direct && skip == 0:
			return s.tcp.Read(b)
		case direct:
			n, err := s.tcp.Read(make([]byte, skip))
			s.change(func() { s.skip -= n })
			if err != nil {
				return 0, err
			}
		default:
			<-changed
		}
	}
}

// errorLocked returns why a read or write fails before TCP is asked.
func (s *stream) errorLocked(closed bool, end time.Time) error {
	switch {
	case closed:
		return net.ErrClosed
	case s.err != nil:
		return s.err
	case !end.IsZero() && !time.Now().Before(end):
		return os.ErrDeadlineExceeded
	}
	return nil
}

func (s *stream) opError(op string, err error) error {
	return &net.OpError{Op: op, Net: "tcp", Source: s.LocalAddr(), Addr: s.RemoteAddr(), Err: err}
}

// LocalAddr returns the local address, which is not known before TCP is connected.
func (s *stream) LocalAddr() net.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tcp == nil {
		return &net.TCPAddr{}
	}
	return s.tcp.LocalAddr()
}

// RemoteAddr returns the address of the peer. Before TCP is connected, that of a server is the
// first that is tried, and that of a client is where its datagrams come from, which proves nothing.
func (s *stream) RemoteAddr() net.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tcp == nil {
		return s.remote
	}
	return s.tcp.RemoteAddr()
}

// SetDeadline sets both deadlines.
func (s *stream) SetDeadline(t time.Time) error {
	_ = s.SetReadDeadline(t)
	return s.SetWriteDeadline(t)
}

// SetReadDeadline sets the time after which reads fail.
func (s *stream) SetReadDeadline(t time.Time) error {
	return s.setDeadline(t, &s.readEnd, &s.readTimer)
}

// SetWriteDeadline sets the time after which writes fail.
func (s *stream) SetWriteDeadline(t time.Time) error {
	return s.setDeadline(t, &s.writeEnd, &s.writeTimer)
}

func (s *stream) setDeadline(t time.Time, end *time.Time, timer **time.Timer) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if *timer != nil {
		(*timer).Stop()
	}
	if *end, *timer = t, nil; !t.IsZero() {
		*timer = time.AfterFunc(time.Until(t), func() { s.change(func() {}) })
	}
	s.wake()
	s.applyDeadlines()
	return nil
}

// applyDeadlines gives TCP the deadlines, where the application reads and writes there.
func (s *stream) applyDeadlines() {
	if s.direct {
		_ = s.tcp.SetReadDeadline(s.readEnd)
	}
	if s.tcp != nil {
		_ = s.tcp.SetWriteDeadline(s.writeEnd)
	}
}
