//go:build linux

package turbotls

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"math/rand"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// product returns the reference implementation, which HEADSTART_BIN names.
func product(t *testing.T) string {
	t.Helper()
	path := os.Getenv("HEADSTART_BIN")
	if path == "" {
		t.Skip("HEADSTART_BIN names no headstart")
	}
	return path
}

// startEdge runs `headstart edge` with these options, and returns its address.
func startEdge(t *testing.T, options ...string) string {
	t.Helper()
	address := ownAddress()
	edge := exec.Command(product(t), append([]string{"edge", "--listen", address}, options...)...)
	path := filepath.Join(t.TempDir(), "log")
	log := must(os.Create(path))
	defer log.Close()
	edge.Stdout, edge.Stderr = log, log
	if err := edge.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = edge.Process.Kill()
		_ = edge.Wait()
		if t.Failed() {
			text, _ := os.ReadFile(path)
			t.Logf("%s", text)
		}
	})
	// Its TCP port is open a while before its UDP port.
	for i := 0; i < 1000; i++ {
		if text, _ := os.ReadFile(path); bytes.Contains(text, []byte(": ready")) {
			return address
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("the edge does not start")
	return ""
}

// origin is a TLS server without TurboTLS that echoes.
func origin(t *testing.T, ballast int) (address string, pool *x509.CertPool) {
	t.Helper()
	certificate, pool := identity(t, ballast)
	listener := must(tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		Certificates: []tls.Certificate{certificate},
	}))
	t.Cleanup(func() { listener.Close() })
	go echoAll(listener)
	return listener.Addr().String(), pool
}

// TestInteropHold takes over the session of the edge by the ClientHello: the edge counts that.
func TestInteropHold(t *testing.T) {
	to, pool := origin(t, 0)
	metrics := ownAddress()
	address := startEdge(t, "--origin", to, "--metrics", metrics)
	var events events
	dialer := newDialer(address, Advertisement{}, &events)
	dialer.Hold = true
	raw := must(dialer.Dial("tcp", testName+":443"))
	defer raw.Close()
	echoTLS(t, raw, pool, []byte("hello"))
	if event := events.await(t, EventPlain); event.Got == 0 {
		t.Errorf("%+v", event)
	}
	lines := metricLines(metrics)
	for _, line := range lines {
		if strings.Contains(line, `"attached"`) && strings.HasSuffix(line, " 1") {
			return
		}
	}
	t.Errorf("%q", lines)
}

// metricLines returns what an edge shows of its metrics.
func metricLines(address string) []string {
	response := must(http.Get("http://" + address + "/metrics"))
	defer response.Body.Close()
	return strings.Split(string(must(io.ReadAll(response.Body))), "\n")
}

// ownAddress returns an address on a host that no other program is likely to have, so that none
// takes the port meanwhile.
func ownAddress() string {
	host := net.IPv4(127, 79, byte(rand.Intn(256)), byte(1+rand.Intn(254)))
	free := must(net.Listen("tcp", host.String()+":0"))
	defer free.Close()
	return free.Addr().String()
}

// pemFiles writes a certificate and its key.
func pemFiles(t *testing.T, certificate tls.Certificate) (cert, key string) {
	t.Helper()
	der := must(x509.MarshalPKCS8PrivateKey(certificate.PrivateKey))
	cert, key = filepath.Join(t.TempDir(), "cert.pem"), filepath.Join(t.TempDir(), "key.pem")
	for path, block := range map[string]*pem.Block{
		cert: {Type: "CERTIFICATE", Bytes: certificate.Certificate[0]},
		key:  {Type: "PRIVATE KEY", Bytes: der},
	} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

// TestInteropTerminating asks an edge that speaks TLS itself, by HTTP/2.
func TestInteropTerminating(t *testing.T) {
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "for ", r.Header.Get("X-Forwarded-For"))
	}))
	defer web.Close()
	certificate, pool := identity(t, 3000)
	cert, key := pemFiles(t, certificate)
	address := startEdge(t, "--origin", web.URL, "--cert", cert, "--key", key)
	var events events
	dialer := newDialer(address, Advertisement{Slots: 6}, &events)
	transport := dialer.Transport()
	transport.TLSClientConfig = &tls.Config{RootCAs: pool}
	defer transport.CloseIdleConnections()
	response := must((&http.Client{Transport: transport}).Get("https://" + testName + "/"))
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil || string(body) != "for 127.0.0.1" || response.ProtoMajor != 2 {
		t.Errorf("%s %s %v", response.Proto, body, err)
	}
	events.awaitJoin(t)
}

// outcomes counts the datagrams that an edge got, by what it did with them.
func outcomes(metrics string) map[string]string {
	counts := make(map[string]string)
	for _, line := range metricLines(metrics) {
		const name = `headstart_udp_datagrams_total{direction="to_server",outcome="`
		if rest := strings.TrimPrefix(line, name); rest != line {
			outcome, count, _ := strings.Cut(rest, `"} `)
			counts[outcome] = count
		}
	}
	return counts
}

// TestInteropHellos has both read ClientHellos in which bytes were changed: two readers that
// disagree are a hole. SEED=n runs another choice.
func TestInteropHellos(t *testing.T) {
	to, _ := origin(t, 0)
	metrics := ownAddress()
	address := startEdge(t, "--origin", to, "--metrics", metrics,
		"--max-unproven-handshakes", "100000")
	edge := must(net.ResolveUDPAddr("udp", address))
	seed, _ := strconv.ParseInt(os.Getenv("SEED"), 10, 64)
	rng := rand.New(rand.NewSource(seed))
	var hellos [][]byte
	for _, file := range []string{"hellos", "joins", "joins_read"} {
		for _, b := range vectors(t, file) {
			if raw := b.bytes(t, "bytes"); len(raw) > 0 && len(raw) <= requestPayloadMax {
				hellos = append(hellos, raw)
			}
		}
	}
	before := outcomes(metrics)
	for i := 0; i < 200; i++ {
		hello := append([]byte{}, hellos[rng.Intn(len(hellos))]...)
		for changes := 1 + rng.Intn(3); changes > 0; changes-- {
			hello[rng.Intn(len(hello))] ^= 1 << uint(rng.Intn(8))
		}
		if len(hello) > 40 { // none runs twice
			rng.Read(hello[20:30])
		}
		var key joinKey
		rng.Read(key[:])
		// From a network of its own, so that no limit is met.
		from := &net.UDPAddr{IP: net.IPv4(127, 1, byte(i), 1)}
		udp := must(net.DialUDP("udp", from, edge))
		_, _ = udp.Write(request{key.id(), 0, 0, hello}.marshal())
		theirs := ""
		for theirs == "" {
			after := outcomes(metrics)
			for outcome, count := range after {
				if before[outcome] != count {
					theirs = outcome
				}
			}
			before = after
		}
		_, err := parseHello(hello)
		if refused := err != nil && err != errIncomplete; refused != (theirs == notHello) {
			t.Errorf("%s, not %v: %x", theirs, err, hello)
		}
		if err == nil && theirs == "accepted" {
			_ = udp.SetReadDeadline(time.Now().Add(10 * time.Second))
			if _, err := udp.Read(make([]byte, datagramMax)); err != nil {
				t.Errorf("no answer to %x: %v", hello, err)
			}
		}
		udp.Close()
	}
}
