// Turboproxy is an agent for programs that know proxies: it takes SOCKS5 and HTTP's CONNECT on one
// port, and opens the connections that they ask for by TurboTLS where the server takes it. With
// -origin it is an edge: it takes TurboTLS, and passes TLS on to that server.
package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"math"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"time"

	"headstart/turbotls"
)

const (
	connectionsMax = 1024             // two sockets and 64 KiB each
	requestMax     = 64 << 10         // bytes of a client's request
	requestTimeout = 10 * time.Second // for that
	dialTimeout    = 30 * time.Second
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("turboproxy: ")
	dialer := &turbotls.Dialer{Edges: make(map[string]turbotls.Edge)}
	listen := flag.String("listen", "127.0.0.1:1080", "`address` for SOCKS5 and CONNECT")
	servers := flag.String("dns", "", "DNS `servers` for HTTPS records, ADDRESS:PORT,...")
	verbose := flag.Bool("v", false, "log each connection")
	origin := flag.String("origin", "", "be an edge before the TLS server at this `address`")
	early := flag.Bool("early-data", false, "with -origin: take early data over UDP")
	flag.BoolVar(&dialer.Hold, "hold", false, "keep back what comes over UDP until TCP brings it")
	flag.BoolVar(&dialer.NoDiscovery, "no-discovery", false, "use the edges of -edge alone")
	flag.Func("edge", "server known to take TurboTLS, `NAME=HOST:PORT[,slots=6...]`; repeatable",
		func(text string) error { return addEdge(dialer.Edges, text) })
	flag.Parse()
	if flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	if *servers != "" {
		dialer.DNSServers = strings.Split(*servers, ",")
	}
	if *verbose {
		dialer.Trace = func(e turbotls.Event) {
			log.Printf("%s %s %s rtt=%v sent=%d got=%d", e.Addr, e.Kind, e.Reason, e.RTT, e.Sent, e.Got)
		}
	}
	start := func() (net.Listener, opener, error) { return proxy(*listen, dialer) }
	if *origin != "" {
		start = func() (net.Listener, opener, error) { return edge(*listen, *origin, *early) }
	}
	listener, open, err := start()
	if err != nil {
		log.Fatal(err)
	}
	log.Printf("listening on %s", listener.Addr())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	go func() {
		<-ctx.Done()
		listener.Close()
	}()
	if err := serve(listener, open); ctx.Err() == nil {
		log.Fatal(err)
	}
}

// addEdge takes NAME=HOST:PORT and the keys of an advertisement.
func addEdge(edges map[string]turbotls.Edge, text string) error {
	name, rest, ok := strings.Cut(text, "=")
	if !ok {
		return fmt.Errorf("%q is not NAME=HOST:PORT", text)
	}
	address, keys, more := strings.Cut(rest, ",")
	value := "v=2"
	if more {
		value += "," + keys
	}
	advert, err := turbotls.ParseAdvertisement(value)
	if err != nil {
		return err
	}
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	edge := turbotls.Edge{Addr: address, Advertisement: advert}
	edges[net.JoinHostPort(strings.ToLower(name), "443")] = edge
	edges[net.JoinHostPort(strings.ToLower(name), port)] = edge
	return nil
}

// An opener does what one client of a listener is there for.
type opener func(client net.Conn) error

func proxy(listen string, dialer *turbotls.Dialer) (net.Listener, opener, error) {
	listener, err := net.Listen("tcp", listen)
	return listener, func(client net.Conn) error { return handle(client.(*net.TCPConn), dialer) }, err
}

func edge(listen, origin string, early bool) (net.Listener, opener, error) {
	config := turbotls.ListenConfig{EarlyData: early, AnyAddress: early}
	listener, err := turbotls.Listen(listen, config)
	return listener, func(client net.Conn) error {
		server, err := net.DialTimeout("tcp", origin, dialTimeout)
		if err != nil {
			return err
		}
		defer server.Close()
		return relay(server.(*net.TCPConn), server, client)
	}, err
}

func serve(listener net.Listener, open opener) error {
	places := make(chan struct{}, connectionsMax)
	for {
		places <- struct{}{}
		client, err := listener.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer func() { <-places }()
			defer client.Close()
			if err := open(client); err != nil {
				log.Printf("%v: %v", client.RemoteAddr(), err)
			}
		}()
	}
}

// handle serves one client: SOCKS5 if its first byte says so.
func handle(client *net.TCPConn, dialer *turbotls.Dialer) error {
	_ = client.SetReadDeadline(time.Now().Add(requestTimeout))
	limited := &io.LimitedReader{R: client, N: requestMax}
	in := bufio.NewReader(limited)
	first, err := in.Peek(1)
	if err != nil {
		return nil // it said nothing
	}
	answer := answerConnect
	var target string
	if first[0] == 5 {
		answer = answerSOCKS
		target, err = readSOCKS(in, client)
	} else {
		target, err = readConnect(in)
	}
	if err != nil {
		_, _ = client.Write(answer(false))
		return err
	}
	_ = client.SetReadDeadline(time.Time{})
	limited.N = math.MaxInt64
	ctx, stop := context.WithTimeout(context.Background(), dialTimeout)
	server, err := dialer.DialContext(ctx, "tcp", target)
	stop()
	if err != nil {
		_, _ = client.Write(answer(false))
		return err
	}
	defer server.Close()
	if _, err := client.Write(answer(true)); err != nil {
		return nil
	}
	return relay(client, in, server)
}

// relay copies both ways between tcp, whose bytes it reads from in, and peer, until both have ended
// or one has failed.
func relay(tcp *net.TCPConn, in io.Reader, peer net.Conn) error {
	up := make(chan error, 1)
	go func() {
		_, err := io.Copy(peer, in)
		if err == nil {
			err = peer.(interface{ CloseWrite() error }).CloseWrite()
		}
		if err != nil {
			if p, ok := peer.(interface{ SetLinger(int) error }); ok {
				_ = p.SetLinger(0) // a reset passes as one
			}
			peer.Close() // ends the other direction, too
		}
		up <- err
	}()
	_, err := io.Copy(tcp, peer)
	if err == nil {
		_ = tcp.CloseWrite()
	} else {
		_ = tcp.SetLinger(0) // a reset passes as one
		tcp.Close()
	}
	if other := <-up; err == nil {
		err = other
	}
	return err
}

// readConnect reads a request for CONNECT (RFC 9110, section 9.3.6).
func readConnect(in *bufio.Reader) (target string, err error) {
	request, err := http.ReadRequest(in)
	if err != nil {
		return "", err
	}
	if request.Method != http.MethodConnect {
		return "", fmt.Errorf("method %s, not CONNECT", request.Method)
	}
	return request.Host, nil
}

func answerConnect(ok bool) []byte {
	if !ok {
		return []byte("HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
	}
	return []byte("HTTP/1.1 200 OK\r\n\r\n")
}

// readSOCKS reads the greeting and the request of SOCKS5 (RFC 1928): CONNECT without a password.
func readSOCKS(in *bufio.Reader, out io.Writer) (target string, err error) {
	read := func(n int) []byte {
		b := make([]byte, n)
		if err == nil {
			_, err = io.ReadFull(in, b)
		}
		return b
	}
	methods := read(int(read(2)[1]))
	if err == nil && !strings.ContainsRune(string(methods), 0) {
		_, _ = out.Write([]byte{5, 0xff})
		return "", fmt.Errorf("SOCKS client that wants a password")
	}
	if err == nil {
		_, err = out.Write([]byte{5, 0})
	}
	head := read(4)
	if err == nil && (head[0] != 5 || head[1] != 1) {
		return "", fmt.Errorf("SOCKS version %d, command %d", head[0], head[1])
	}
	var host string
	switch head[3] {
	case 1:
		host = net.IP(read(4)).String()
	case 3:
		host = string(read(int(read(1)[0])))
	case 4:
		host = net.IP(read(16)).String()
	default:
		return "", fmt.Errorf("SOCKS address of type %d", head[3])
	}
	port := read(2)
	return net.JoinHostPort(host, fmt.Sprint(int(port[0])<<8|int(port[1]))), err
}

func answerSOCKS(ok bool) []byte {
	status := byte(0)
	if !ok {
		status = 1
	}
	return []byte{5, status, 0, 1, 0, 0, 0, 0, 0, 0}
}
