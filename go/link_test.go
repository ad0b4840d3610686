package turbotls

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"sort"
	"testing"
	"time"
)

const linkName = "www.four.test"

// TestLink measures net/http through an edge over a link, which crates/measure/tests/link/go.rs
// makes: it prints what it finds, and that test judges. HEADSTART_LINK is the edge's address.
func TestLink(t *testing.T) {
	edge := os.Getenv("HEADSTART_LINK")
	if edge == "" {
		t.Skip("HEADSTART_LINK names no edge")
	}
	pem := must(os.ReadFile(os.Getenv("HEADSTART_LINK_CA")))
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	turbo := &Dialer{Edges: map[string]Edge{linkName + ":443": {Addr: edge}}, NoDiscovery: true}
	plain := func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, edge)
	}
	arms := []func(context.Context, string, string) (net.Conn, error){plain, turbo.DialContext}
	for _, run := range []struct {
		name, path string
		http2      bool
		rounds     int
		whole      bool
	}{
		{"http1", "/small", false, 15, false},
		{"http2", "/small", true, 15, false},
		{"huge", "/huge", false, 3, true},
	} {
		times := make([][]time.Duration, len(arms))
		for round := 0; round < run.rounds; round++ {
			for arm, dial := range arms {
				first, whole := fetch(t, dial, pool, run.path, run.http2)
				if run.whole {
					first = whole
				}
				times[arm] = append(times[arm], first)
			}
		}
		fmt.Printf("figures %s", run.name)
		for _, arm := range times {
			sort.Slice(arm, func(i, j int) bool { return arm[i] < arm[j] })
			fmt.Printf(" %.6f", arm[len(arm)/2].Seconds())
		}
		fmt.Println()
	}
}

// fetch opens a connection, and returns the times to the first byte of the response and to its end.
func fetch(
	t *testing.T, dial func(context.Context, string, string) (net.Conn, error),
	pool *x509.CertPool, path string, http2 bool,
) (first, whole time.Duration) {
	t.Helper()
	transport := &http.Transport{
		DialContext: dial, TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: http2,
	}
	defer transport.CloseIdleConnections()
	begun := time.Now()
	trace := &httptrace.ClientTrace{GotFirstResponseByte: func() { first = time.Since(begun) }}
	ctx := httptrace.WithClientTrace(context.Background(), trace)
	request := must(http.NewRequestWithContext(ctx, "GET", "https://"+linkName+path, nil))
	response := must(transport.RoundTrip(request))
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		t.Fatal(err)
	}
	if (response.ProtoMajor == 2) != http2 || response.StatusCode != 200 {
		t.Fatalf("%s %s", response.Proto, response.Status)
	}
	return first, time.Since(begun)
}
