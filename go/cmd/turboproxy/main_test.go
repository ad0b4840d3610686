package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"headstart/turbotls"
)

// must returns what came without an error.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// echo starts a server that returns what it gets, and a proxy.
func echo(t *testing.T) (server, agent string) {
	t.Helper()
	listener := must(net.Listen("tcp", "127.0.0.1:0"))
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(conn, conn)
				conn.Close()
			}()
		}
	}()
	edges := make(map[string]turbotls.Edge)
	if err := addEdge(edges, "www.example.com="+listener.Addr().String()+",slots=6"); err != nil {
		t.Fatal(err)
	}
	own, open, err := proxy("127.0.0.1:0", &turbotls.Dialer{Edges: edges})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { own.Close() })
	go func() { _ = serve(own, open) }()
	return listener.Addr().String(), own.Addr().String()
}

func exchange(t *testing.T, conn net.Conn, in io.Reader) {
	t.Helper()
	text := bytes.Repeat([]byte("text"), 50000)
	go func() {
		_, _ = conn.Write(text)
		_ = conn.(*net.TCPConn).CloseWrite()
	}()
	if got, err := io.ReadAll(in); err != nil || !bytes.Equal(got, text) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

func TestSOCKS(t *testing.T) {
	server, proxy := echo(t)
	address := must(net.ResolveTCPAddr("tcp", server))
	name := "www.example.com"
	for _, request := range []string{
		"\x05\x01\x00\x01" + string(address.IP.To4()) +
			string([]byte{byte(address.Port >> 8), byte(address.Port)}),
		"\x05\x01\x00\x03" + string(rune(len(name))) + name + "\x01\xbb",
	} {
		conn := must(net.Dial("tcp", proxy))
		defer conn.Close()
		fmt.Fprint(conn, "\x05\x02\x02\x00", request)
		answer := make([]byte, 12)
		if _, err := io.ReadFull(conn, answer); err != nil || answer[1] != 0 || answer[3] != 0 {
			t.Fatal(answer, err)
		}
		exchange(t, conn, conn)
	}
}

func TestConnect(t *testing.T) {
	server, proxy := echo(t)
	for _, target := range []string{server, "www.example.com:443"} {
		conn := must(net.Dial("tcp", proxy))
		defer conn.Close()
		fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", target, target)
		in := bufio.NewReader(conn)
		response, err := http.ReadResponse(in, nil)
		if err != nil || response.StatusCode != http.StatusOK {
			t.Fatal(response, err)
		}
		exchange(t, conn, in)
	}
}

func TestRefusals(t *testing.T) {
	_, proxy := echo(t)
	for request, want := range map[string]string{
		"GET / HTTP/1.1\r\nHost: a\r\n\r\n": "HTTP/1.1 502",
		"\x05\x01\x02":                      "\x05\xff",
		"\x05\x01\x00\x05\x02\x00\x01":      "\x05\x00\x05\x01",
	} {
		conn := must(net.Dial("tcp", proxy))
		defer conn.Close()
		fmt.Fprint(conn, request)
		answer, _ := io.ReadAll(conn)
		if !strings.HasPrefix(string(answer), want) {
			t.Errorf("%q: %q", request, answer)
		}
	}
}
