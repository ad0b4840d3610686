package turbotls

import (
	"context"
	"encoding/binary"
	"net"
	"testing"
	"time"
)

func dnsName(name string) (b []byte) {
	query := must(makeQuery(0, name))
	return query[12 : len(query)-15]
}

// service is the data of an HTTPS record with an advertisement, or of an alias.
func service(priority uint16, target, value string) []byte {
	b := binary.BigEndian.AppendUint16(nil, priority)
	if target == "" {
		b = append(b, 0)
	} else {
		b = append(b, dnsName(target)...)
	}
	if value != "" {
		b = appendVector(append(b, 0, 1), []byte("\x02h2")) // alpn
		b = appendVector(append(b, advertisedKey>>8, advertisedKey&0xff), []byte(value))
	}
	return b
}

// rr is a record of the name that was asked for.
func rr(kind uint16, data []byte) []byte {
	b := []byte{0xc0, 12, byte(kind >> 8), byte(kind), 0, 1, 0, 0, 0, 60}
	return appendVector(b, data)
}

func dnsAnswer(name string, records ...[]byte) []byte {
	return answerTo(must(makeQuery(7, name)), false, records...)
}

func answerTo(query []byte, cut bool, records ...[]byte) []byte {
	b := append([]byte{}, query[:len(query)-11]...)
	b[2], b[3], b[7], b[11] = 0x81, 0x80, byte(len(records)), 0
	if cut {
		b[2] |= 2
		b[7] = 0
		return b
	}
	for _, record := range records {
		b = append(b, record...)
	}
	return b
}

func TestParseHTTPS(t *testing.T) {
	other := append(dnsName("other.example"), rr(typeHTTPS, service(1, "", "v=2"))[2:]...)
	for name, test := range map[string]struct {
		records [][]byte
		want    httpsRecord
	}{
		"none": {nil, httpsRecord{}},
		"of the name": {
			[][]byte{rr(typeHTTPS, service(1, "", "v=2,slots=6"))},
			httpsRecord{found: true, target: testName, advert: Advertisement{Slots: 6}},
		},
		"of another target": {
			[][]byte{rr(typeHTTPS, service(1, "svc.example", "v=2"))},
			httpsRecord{found: true, target: "svc.example", advert: Advertisement{Slots: 4}},
		},
		"an alias": {
			[][]byte{rr(typeHTTPS, service(0, "other.example", ""))},
			httpsRecord{alias: true, target: "other.example"},
		},
		"behind a CNAME": {
			[][]byte{rr(typeCNAME, dnsName("other.example")), other},
			httpsRecord{found: true, target: testName, advert: Advertisement{Slots: 4}},
		},
		"of a name nobody asked for": {[][]byte{other}, httpsRecord{}},
	} {
		got, err := parseHTTPS(dnsAnswer(testName, test.records...), testName)
		got.ttl = 0
		if err != nil || got != test.want {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

func TestHTTPSRecords(t *testing.T) {
	for _, b := range vectors(t, "https_records") {
		var records [][]byte
		for _, name := range []string{"rdata", "rdata2"} {
			if b.keys[name] != "" {
				records = append(records, rr(typeHTTPS, b.bytes(t, name)))
			}
		}
		got, err := parseHTTPS(dnsAnswer(testName, records...), testName)
		then := "nothing"
		switch {
		case err != nil:
			t.Errorf("%v: %v", b, err)
		case got.alias:
			then = "alias " + got.target + "."
		case got.found && got.target == testName:
			then = "offer ."
		case got.found:
			then = "offer " + got.target + "."
		}
		if then != b.keys["then"] || got.found && got.advert.Slots != b.number(t, "slots") {
			t.Errorf("%v: %s %+v", b, then, got)
		}
	}
}

// dnsServer answers queries by UDP, cut if told to, and by TCP.
func dnsServer(t *testing.T, cut bool, records ...[]byte) string {
	t.Helper()
	tcp := must(net.Listen("tcp", "127.0.0.1:0"))
	udp, err := net.ListenPacket("udp", tcp.Addr().String())
	if err != nil {
		t.Skip(err) // another has the port
	}
	t.Cleanup(func() { tcp.Close(); udp.Close() })
	go func() {
		room := make([]byte, 1500)
		for {
			n, from, err := udp.ReadFrom(room)
			if err != nil {
				return
			}
			_, _ = udp.WriteTo(answerTo(room[:n], cut, records...), from)
		}
	}()
	go func() {
		for {
			conn, err := tcp.Accept()
			if err != nil {
				return
			}
			room := make([]byte, 1500)
			n, _ := conn.Read(room)
			_, _ = conn.Write(appendVector(nil, answerTo(room[2:n], false, records...)))
			conn.Close()
		}
	}()
	return tcp.Addr().String()
}

func TestLookup(t *testing.T) {
	for _, cut := range []bool{false, true} {
		server := dnsServer(t, cut, rr(typeHTTPS, service(1, "", "v=2,slots=6,ed=1")))
		d := &Dialer{DNSServers: []string{server}}
		record, err := d.lookupHTTPS(context.Background(), testName)
		want := Advertisement{Slots: 6, EarlyData: true}
		if err != nil || !record.found || record.advert != want || record.ttl != time.Minute {
			t.Errorf("%+v, %v", record, err)
		}
	}
}

// TestDiscovery finds an edge at a name that is in /etc/hosts, by a record of a DNS server.
func TestDiscovery(t *testing.T) {
	server := dnsServer(t, false, rr(typeHTTPS, service(1, "", "v=2")))
	d := &Dialer{DNSServers: []string{server}}
	edge := <-d.findEdge("tcp4", "localhost:443", "localhost")
	addresses, err := d.resolve(context.Background(), "tcp4", "localhost", 443)
	if err != nil || !edge.serves(addresses[0].Addr()) {
		t.Fatalf("%+v, %v", edge, err)
	}
	edge = <-d.findEdge("tcp4", "localhost:443", "localhost") // of memory
	if !edge.found {
		t.Errorf("%+v", edge)
	}
}
