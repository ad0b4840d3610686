package turbotls

import (
	"bytes"
	"net/netip"
	"testing"
	"time"
)

// seed adds to the corpus the bytes that files of vectors have for key.
func seed(f *testing.F, key string, files ...string) {
	for _, file := range files {
		for _, b := range vectors(f, file) {
			if _, ok := b.keys[key]; ok {
				f.Add(b.bytes(f, key))
			}
		}
	}
}

// FuzzDatagram gives an edge and a client any datagrams: the first byte of each, times five, is its
// length.
func FuzzDatagram(f *testing.F) {
	seed(f, "bytes", "frames", "lenient", "errors")
	hello := vectors(f, "hellos")[0].bytes(f, "bytes")
	f.Fuzz(func(t *testing.T, b []byte) {
		if r, err := parseRequest(b); err == nil {
			again, err := parseRequest(r.marshal())
			if err != nil || again.seq != r.seq || !bytes.Equal(again.payload, r.payload) {
				t.Fatal(again, err)
			}
		}
		if r, err := parseResponse(b); err == nil && !bytes.Equal(r.marshal(), b) {
			t.Fatal(r)
		}
		now := time.Unix(1000, 0)
		from := netip.MustParseAddrPort("192.0.2.1:4000")
		e := newEdge(edgeConfig{tag: 1, earlyData: true, streams: 64, work: time.Second}, now)
		var key joinKey
		c := &client{config: clientConfig{key: key, slots: 4}}
		c.write(now, hello)
		got := 0
		for i := 0; len(b) > 0 && i < 40; i++ {
			n := int(b[0]) * 5
			if n > len(b) {
				n = len(b)
			}
			e.handleDatagram(now, from, b[:n])
			c.handleDatagram(now, b[:n])
			got += n
			b = b[n:]
			if n == 0 {
				break
			}
		}
		sent := 0
		for _, datagram := range take(&e.datagrams) {
			sent += len(datagram.bytes)
		}
		if sent > amplification*got {
			t.Fatal(sent, "bytes for", got)
		}
	})
}

func FuzzHello(f *testing.F) {
	seed(f, "bytes", "hellos", "joins", "joins_read")
	f.Fuzz(func(t *testing.T, b []byte) {
		hello, err := parseHello(b)
		if err != nil {
			return
		}
		if hello.end > len(b) || hello.end > clientStreamMax {
			t.Fatal(hello.end)
		}
		// A join with the same names can be read, and fits, whatever they are.
		j := join{key: joinKey{1}, tag: 2, clientOffset: 3, serverOffset: 4}
		record := j.marshal(hello.name, hello.protocols)
		again, err := parseHello(record)
		if err != nil || len(record) > joinRecordMax || again.name != hello.name {
			t.Fatal(len(record), err)
		}
		if got, ok := readJoin(again); !ok || got != j {
			t.Fatal(got)
		}
		if _, err := parseHello(b[:hello.end-1]); err != errIncomplete {
			t.Fatal("one byte less:", err)
		}
	})
}

func FuzzJoin(f *testing.F) {
	seed(f, "bytes", "joins", "joins_read")
	f.Fuzz(func(t *testing.T, b []byte) {
		hello, err := parseHello(b)
		if err != nil {
			return
		}
		if j, ok := readJoin(hello); ok {
			now := time.Unix(1000, 0)
			e := newEdge(edgeConfig{tag: 1, streams: 64}, now)
			_, result := e.handleJoin(now, netip.MustParseAddr("192.0.2.1"), j)
			fromStart := j.clientOffset == 0 && j.serverOffset == 0
			if fromStart != (result == joinAnew) {
				t.Fatal(j, result)
			}
		}
	})
}

func FuzzAnswer(f *testing.F) {
	seed(f, "bytes", "answers")
	f.Fuzz(func(t *testing.T, b []byte) {
		key := joinKey{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}
		verdict, offset := key.readAnswer(b)
		if verdict == answerAccepted && !bytes.HasPrefix(b, key.accept(offset)) {
			t.Fatal(offset)
		}
	})
}

func FuzzAdvert(f *testing.F) {
	for _, b := range vectors(f, "adverts") {
		f.Add(b.keys["value"])
	}
	f.Fuzz(func(t *testing.T, value string) {
		if a, err := ParseAdvertisement(value); err == nil && (a.Slots < 1 || a.Slots > slotsMax) {
			t.Fatal(a)
		}
	})
}

func FuzzDNS(f *testing.F) {
	f.Add(dnsAnswer(testName, rr(typeHTTPS, service(1, "", "v=2,slots=6"))))
	f.Add(dnsAnswer(testName, rr(typeHTTPS, service(0, "other.example", ""))))
	f.Fuzz(func(t *testing.T, b []byte) {
		if answers(b, must(makeQuery(7, testName))) {
			_, _ = parseHTTPS(b, testName)
		}
	})
}
