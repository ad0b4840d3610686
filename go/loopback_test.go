package turbotls

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

const testName = "www.example.com"

// must returns what came without an error.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// identity makes a certificate for testName, with so many bytes more, and who trusts it.
func identity(t testing.TB, ballast int) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject: pkix.Name{
			CommonName: testName, Organization: []string{strings.Repeat("x", ballast)},
		},
		NotBefore: time.Now().Add(-time.Hour),
		NotAfter:  time.Now().Add(time.Hour),
		DNSNames:  []string{testName},
		IsCA:      true, BasicConstraintsValid: true,
	}
	der := must(x509.CreateCertificate(rand.Reader, template, template, key.Public(), key))
	leaf := must(x509.ParseCertificate(der))
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, pool
}

// events collects what Trace is called with.
type events struct {
	mu  sync.Mutex
	all []Event
}

func (e *events) add(event Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, event)
}

// await returns the first event of one of some kinds.
func (e *events) await(t testing.TB, kinds ...EventKind) Event {
	t.Helper()
	for {
		e.mu.Lock()
		for _, event := range e.all {
			for _, kind := range kinds {
				if event.Kind == kind {
					e.mu.Unlock()
					return event
				}
			}
		}
		e.mu.Unlock()
		time.Sleep(time.Millisecond)
	}
}

// awaitJoin waits for the outcome of an opening, which has to be a join.
func (e *events) awaitJoin(t testing.TB) {
	t.Helper()
	if event := e.await(t, EventJoined, EventPlain, EventReset); event.Kind != EventJoined {
		t.Errorf("%+v", event)
	}
}

// server is a TLS server that echoes, behind a Listener.
type server struct {
	listener *Listener
	events   events
	pool     *x509.CertPool
}

func newServer(t testing.TB, config ListenConfig, ballast int) *server {
	t.Helper()
	return newServerAt(t, "127.0.0.1:0", config, ballast)
}

func newServerAt(t testing.TB, address string, config ListenConfig, ballast int) *server {
	t.Helper()
	certificate, pool := identity(t, ballast)
	s := &server{pool: pool}
	config.Trace = s.events.add
	for try := 0; ; try++ {
		listener, err := Listen(address, config)
		if err == nil {
			s.listener = listener
			break
		}
		if try == 20 { // another has the port on UDP
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { s.listener.Close() })
	tlsListener := tls.NewListener(s.listener, &tls.Config{
		Certificates: []tls.Certificate{certificate},
	})
	go echoAll(tlsListener)
	return s
}

// tcpAfter is a net.Dialer whose connections begin once done is closed.
func tcpAfter(done <-chan struct{}) net.Dialer {
	return net.Dialer{Control: func(string, string, syscall.RawConn) error {
		<-done
		return nil
	}}
}

// testDialer is a Dialer whose TCP begins once the application has written: on loopback it would
// mostly be connected before.
type testDialer struct {
	Dialer
	wrote chan struct{}
	once  sync.Once
}

func newDialer(address string, advert Advertisement, events *events) *testDialer {
	d := &testDialer{wrote: make(chan struct{})}
	d.Edges = map[string]Edge{testName + ":443": {address, advert}}
	d.TCP = tcpAfter(d.wrote)
	d.MinGrace, d.NoSecondSYN = 5*time.Second, true // machines that run tests are busy
	d.Trace = events.add
	return d
}

func (d *testDialer) Dial(network, address string) (net.Conn, error) {
	return d.DialContext(context.Background(), network, address)
}

func (d *testDialer) DialContext(
	ctx context.Context, network, address string,
) (net.Conn, error) {
	conn, err := d.Dialer.DialContext(ctx, network, address)
	return testConn{conn, d}, err
}

func (d *testDialer) Transport() *http.Transport {
	transport := d.Dialer.Transport()
	transport.DialContext = d.DialContext
	return transport
}

// testConn tells its dialer that it was written to.
type testConn struct {
	net.Conn
	dialer *testDialer
}

func (c testConn) Write(b []byte) (int, error) {
	defer c.dialer.once.Do(func() { close(c.dialer.wrote) })
	return c.Conn.Write(b)
}

func (s *server) dialer(events *events, advert Advertisement) *testDialer {
	return newDialer(s.listener.Addr().String(), advert, events)
}

// echoAll sends clients of a TLS listener what they send, until the listener is closed.
func echoAll(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			_, _ = io.Copy(conn, conn)
			_ = conn.(*tls.Conn).CloseWrite()
		}()
	}
}

func (s *server) echo(t testing.TB, dialer *testDialer, text []byte) {
	t.Helper()
	raw := must(dialer.Dial("tcp", testName+":443"))
	defer raw.Close()
	echoTLS(t, raw, s.pool, text)
}

func echoTLS(t testing.TB, raw net.Conn, pool *x509.CertPool, text []byte) {
	t.Helper()
	conn := tls.Client(raw, &tls.Config{ServerName: testName, RootCAs: pool})
	if err := conn.Handshake(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_, _ = conn.Write(text)
		_ = conn.CloseWrite()
	}()
	got, err := io.ReadAll(conn)
	if err != nil || !bytes.Equal(got, text) {
		t.Fatalf("%d bytes of %d, %v", len(got), len(text), err)
	}
}

func TestJoin(t *testing.T) {
	for _, size := range []int{0, 1, 1 << 20} {
		for _, ballast := range []int{0, 5000, 30000} {
			t.Run(fmt.Sprint(size, "+", ballast), func(t *testing.T) {
				s := newServer(t, ListenConfig{}, ballast)
				var events events
				dialer := s.dialer(&events, Advertisement{Slots: 6})
				s.echo(t, dialer, bytes.Repeat([]byte("x"), size))
				events.awaitJoin(t)
				s.events.await(t, EventJoined)
			})
		}
	}
}

// TestAddresses joins over IPv6, and over IPv4 at a socket for both.
func TestAddresses(t *testing.T) {
	for listen, host := range map[string]string{"[::1]:0": "::1", ":0": "127.0.0.1"} {
		t.Run(listen, func(t *testing.T) {
			if probe, err := net.Listen("tcp", "[::1]:0"); err != nil {
				t.Skip(err)
			} else {
				probe.Close()
			}
			s := newServerAt(t, listen, ListenConfig{}, 0)
			var events events
			_, port, _ := net.SplitHostPort(s.listener.Addr().String())
			dialer := newDialer(net.JoinHostPort(host, port), Advertisement{}, &events)
			s.echo(t, dialer, []byte("hello"))
			events.awaitJoin(t)
		})
	}
}

// TestSecondConnection has the first SYN be slow: the second one wins.
func TestSecondConnection(t *testing.T) {
	s := newServer(t, ListenConfig{}, 0)
	var events events
	dialer := s.dialer(&events, Advertisement{})
	dialer.NoSecondSYN = false
	var syns atomic.Int32
	dialer.TCP.Control = func(string, string, syscall.RawConn) error {
		if syns.Add(1) == 1 {
			events.await(t, EventJoined, EventPlain, EventReset)
		}
		<-dialer.wrote
		return nil
	}
	s.echo(t, dialer, []byte("hello"))
	events.await(t, EventSecondSYN)
	events.awaitJoin(t)
}

// TestNextAddress has nobody listen at the first address: TCP goes on to the next, and what went to
// the first over UDP is given up.
func TestNextAddress(t *testing.T) {
	s := newServer(t, ListenConfig{}, 0)
	var events events
	dialer := s.dialer(&events, Advertisement{})
	at := netip.MustParseAddrPort(s.listener.Addr().String())
	mute, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 2)})
	if err != nil {
		t.Skip(err)
	}
	defer mute.Close()
	closed := mute.LocalAddr().(*net.UDPAddr).AddrPort()
	race := dialer.startRace(context.Background(), "tcp", testName, []netip.AddrPort{closed, at})
	raw := must(dialer.open(testName, race, Advertisement{Slots: 4}))
	defer raw.Close()
	echoTLS(t, testConn{raw, dialer}, s.pool, []byte("hello"))
	if event := events.await(t, EventPlain); event.Reason != "another address" {
		t.Errorf("%+v", event)
	}
}

// TestFallback opens connections where UDP is answered by nobody, or by ICMP.
func TestFallback(t *testing.T) {
	for _, silent := range []bool{true, false} {
		t.Run(fmt.Sprint(silent), func(t *testing.T) {
			s := newServer(t, ListenConfig{}, 0)
			mute := must(net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}))
			defer mute.Close()
			port := uint16(mute.LocalAddr().(*net.UDPAddr).Port)
			want := "silence"
			if !silent {
				mute.Close()
				want = "unreachable"
			}
			var events events
			dialer := s.dialer(&events, Advertisement{UDPPort: port})
			if silent {
				dialer.MinGrace = 100 * time.Millisecond
			}
			s.echo(t, dialer, []byte("hello"))
			if event := events.await(t, EventPlain); event.Reason != want &&
				runtime.GOOS == "linux" {
				t.Errorf("%+v", event)
			}
			s.events.await(t, EventPlain)
			if !silent {
				return
			}
			// The path is avoided now.
			events.all = nil
			s.echo(t, dialer, []byte("hello"))
			if event := events.await(t, EventPlain); event.Reason != "not offered" {
				t.Errorf("%+v", event)
			}
		})
	}
}

// TestHold takes over the session as a plain stream: nothing is delivered before TCP brings it.
func TestHold(t *testing.T) {
	s := newServer(t, ListenConfig{}, 0)
	var events events
	dialer := s.dialer(&events, Advertisement{})
	dialer.Hold = true
	s.echo(t, dialer, []byte("hello"))
	s.events.await(t, EventAttached)
	if event := events.await(t, EventPlain); event.Got == 0 {
		t.Errorf("%+v", event)
	}
}

// TestFastTCP connects before the ClientHello is written.
func TestFastTCP(t *testing.T) {
	s := newServer(t, ListenConfig{}, 0)
	var events events
	dialer := s.dialer(&events, Advertisement{})
	dialer.TCP = net.Dialer{}
	raw := must(dialer.Dial("tcp", testName+":443"))
	defer raw.Close()
	if event := events.await(t, EventPlain); event.Reason != "not offered" {
		t.Errorf("%+v", event)
	}
	echoTLS(t, raw, s.pool, []byte("hello"))
}

// freeAddress returns an address at which nobody listens.
func freeAddress() string {
	free := must(net.Listen("tcp", "127.0.0.1:0"))
	defer free.Close()
	return free.Addr().String()
}

func TestRefusedTCP(t *testing.T) {
	dialer := &Dialer{Edges: map[string]Edge{testName + ":443": {Addr: freeAddress()}}}
	conn := must(dialer.Dial("tcp", testName+":443"))
	defer conn.Close()
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("%v", err)
	}
	if _, err := conn.Write([]byte{22}); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("%v", err)
	}
}

func TestDeadlines(t *testing.T) {
	s := newServer(t, ListenConfig{}, 0)
	dialer := s.dialer(new(events), Advertisement{})
	conn := must(dialer.Dial("tcp", testName+":443"))
	defer conn.Close()
	read := func() error {
		_, err := conn.Read(make([]byte, 1))
		return err
	}
	_ = conn.SetReadDeadline(time.Now().Add(-time.Second))
	if err := read(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("connecting, past: %v", err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
	if err := read(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("connecting: %v", err)
	}
	_ = conn.SetReadDeadline(time.Time{})
	echoTLS(t, conn, s.pool, []byte("hello"))

	ended := make(chan struct{})
	defer close(ended)
	dialer.TCP = tcpAfter(ended)
	waiting := must(dialer.Dial("tcp", testName+":443"))
	done := make(chan error)
	go func() {
		_, err := waiting.Read(make([]byte, 1))
		done <- err
	}()
	waiting.Close()
	if err := <-done; !errors.Is(err, net.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}

func TestHTTP2(t *testing.T) {
	certificate, pool := identity(t, 0)
	var serverEvents, clientEvents events
	listener := must(Listen("127.0.0.1:0", ListenConfig{Trace: serverEvents.add}))
	server := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, "%s from %s", r.Proto, r.RemoteAddr)
		}),
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}},
	}
	go func() { _ = server.ServeTLS(listener, "", "") }()
	defer server.Close()
	dialer := newDialer(listener.Addr().String(), Advertisement{}, &clientEvents)
	transport := dialer.Transport()
	transport.TLSClientConfig = &tls.Config{RootCAs: pool}
	client := &http.Client{Transport: transport}
	response := must(client.Get("https://" + testName + "/"))
	body, err := io.ReadAll(response.Body)
	response.Body.Close()
	if err != nil || !strings.HasPrefix(string(body), "HTTP/2.0 from 127.0.0.1") {
		t.Errorf("%s, %v", body, err)
	}
	clientEvents.awaitJoin(t)
	transport.CloseIdleConnections()
}

// TestCancel gives up while TCP connects.
func TestCancel(t *testing.T) {
	dialer := &Dialer{DNSServers: []string{"127.0.0.1:1"}}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := dialer.DialContext(ctx, "tcp", "localhost:443"); err == nil {
		t.Error("it connected")
	}
}

// TestLeaks counts the goroutines that connections leave behind.
func TestLeaks(t *testing.T) {
	s := newServer(t, ListenConfig{}, 0)
	dialer := s.dialer(new(events), Advertisement{})
	s.echo(t, dialer, []byte("hello"))
	before := runtime.NumGoroutine()
	for i := 0; i < 5; i++ {
		s.echo(t, dialer, []byte("hello"))
		conn := must(dialer.Dial("tcp", testName+":443"))
		conn.Close()
	}
	for runtime.NumGoroutine() > before { // the test's time bounds it
		time.Sleep(10 * time.Millisecond)
	}
}

// TestEarlyData has bytes behind the ClientHello go over UDP, and be answered there: crypto/tls
// sends no early data, so this is no TLS but for its records.
func TestEarlyData(t *testing.T) {
	var events events
	listener := must(Listen("127.0.0.1:0", ListenConfig{EarlyData: true, AnyAddress: true}))
	defer listener.Close()
	hello := vectors(t, "hellos")[0].bytes(t, "bytes")
	early := append([]byte{23, 3, 3, 1, 0}, bytes.Repeat([]byte("e"), 256)...)
	advert := Advertisement{Slots: 4, EarlyData: true}
	dialer := newDialer(listener.Addr().String(), advert, &events)
	wrote := make(chan struct{})
	dialer.TCP = tcpAfter(wrote)
	client := must(dialer.Dial("tcp", testName+":443"))
	defer client.Close()
	for _, text := range [][]byte{hello, early} {
		if _, err := client.Write(text); err != nil {
			t.Fatal(err)
		}
	}
	close(wrote)
	server := must(listener.Accept())
	defer server.Close()
	got := make([]byte, len(hello)+len(early))
	if _, err := io.ReadFull(server, got); err != nil || !bytes.HasSuffix(got, early) {
		t.Fatal(err)
	}
	// More than UDP carries, and an end behind it.
	answer := bytes.Repeat(append([]byte{23, 3, 3, 0x10, 0}, make([]byte, 4096)...), 20)
	go func() {
		_, _ = server.Write(answer)
		_ = server.(*serverConn).CloseWrite()
	}()
	if got, err := io.ReadAll(client); err != nil || !bytes.Equal(got, answer) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	events.awaitJoin(t)
}

// TestListenerClose ends what waits: Accept, sessions, and streams without a ClientHello.
func TestListenerClose(t *testing.T) {
	before := runtime.NumGoroutine()
	listener := must(Listen("127.0.0.1:0", ListenConfig{}))
	idle := must(net.Dial("tcp", listener.Addr().String()))
	defer idle.Close()
	udp := must(net.Dial("udp", listener.Addr().String()))
	defer udp.Close()
	key := joinKey{1}
	hello := vectors(t, "hellos")[0].bytes(t, "bytes")
	_, _ = udp.Write(request{key.id(), 0, 0, hello}.marshal())
	conn := must(listener.Accept())
	listener.Close()
	if _, err := listener.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("accept: %v", err)
	}
	if _, err := io.ReadAll(conn); !errors.Is(err, errExpired) {
		t.Errorf("session: %v", err)
	}
	if _, err := idle.Read(make([]byte, 1)); err == nil {
		t.Error("the stream without a ClientHello goes on")
	}
	for runtime.NumGoroutine() > before {
		time.Sleep(10 * time.Millisecond)
	}
}

// TestBreak has TCP be reset by what is no edge, while the client waits: the application sees that.
func TestBreak(t *testing.T) {
	tcp := must(net.Listen("tcp", "127.0.0.1:0"))
	defer tcp.Close()
	mute := must(net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}))
	defer mute.Close()
	go func() {
		if conn, err := tcp.Accept(); err == nil {
			abort(conn)
		}
	}()
	port := uint16(mute.LocalAddr().(*net.UDPAddr).Port)
	dialer := newDialer(tcp.Addr().String(), Advertisement{UDPPort: port}, new(events))
	conn := must(dialer.Dial("tcp", testName+":443"))
	defer conn.Close()
	_, _ = conn.Write(vectors(t, "hellos")[0].bytes(t, "bytes"))
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("%v", err)
	}
}

// TestRefusal refuses a join with bytes behind it: the alert and the end arrive, and no reset.
func TestRefusal(t *testing.T) {
	listener := must(Listen("127.0.0.1:0", ListenConfig{}))
	defer listener.Close()
	conn := must(net.Dial("tcp", listener.Addr().String()))
	defer conn.Close()
	record := join{key: joinKey{1}, tag: 2, clientOffset: 3, serverOffset: 4}.marshal("", nil)
	_, _ = conn.Write(append(record, make([]byte, 8000)...))
	if got, err := io.ReadAll(conn); err != nil || !bytes.Equal(got, joinRefusal) {
		t.Errorf("%x, %v", got, err)
	}
}

// TestRepeatedBytes has TCP repeat more bytes than come with the acceptance of a join.
func TestRepeatedBytes(t *testing.T) {
	listener := must(net.Listen("tcp", "127.0.0.1:0"))
	defer listener.Close()
	tcp := must(net.Dial("tcp", listener.Addr().String()))
	defer tcp.Close()
	edge := must(listener.Accept())
	defer edge.Close()
	now := time.Now()
	c := &Conn{
		stream:  stream{changed: make(chan struct{}), tcp: tcp},
		machine: &client{state: stateJoining, firstWrite: now, joinedAt: now, delivered: 3000, asked: 3000},
		opened:  true, dialer: &Dialer{},
	}
	_, _ = edge.Write(c.machine.config.key.accept(0))
	c.readTCP(tcp.(*net.TCPConn))
	_, _ = edge.Write(append(bytes.Repeat([]byte("x"), 3000), "more"...))
	got := make([]byte, 4)
	if _, err := io.ReadFull(c, got); err != nil || string(got) != "more" {
		t.Errorf("%q, %v", got, err)
	}
}
