package turbotls

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"
)

// Types of resource records, and keys of RFC 9460.
const (
	typeCNAME = 5
	typeOPT   = 41
	typeHTTPS = 65

	svcMandatory     = 0
	svcALPN          = 1
	svcNoDefaultALPN = 2
	svcPort          = 3
	svcIPv4Hint      = 4
	svcECH           = 5
	svcIPv6Hint      = 6
	svcKnownMax      = svcIPv6Hint // all keys up to it but ech may be mandatory
)

var errDNS = errors.New("malformed DNS message")

// httpsRecord is what the HTTPS record of a name says.
type httpsRecord struct {
	found  bool // an advertisement
	target string
	advert Advertisement
	alias  bool // to look at target
	ttl    time.Duration
}

// foundEdge is the answer to the search for an edge.
type foundEdge struct {
	found   bool
	all     bool         // the record is of the name itself
	targets []netip.Addr // addresses of another target
	advert  Advertisement
}

// serves reports whether the advertisement is for an address.
func (f foundEdge) serves(address netip.Addr) bool {
	if !f.found || f.all {
		return f.found
	}
	for _, target := range f.targets {
		if target.Unmap() == address {
			return true
		}
	}
	return false
}

// findEdge looks up what the HTTPS record of a host says, in memory or DNS. An answer that comes too
// late for this connection is there for the next.
func (d *Dialer) findEdge(network, name, host string) <-chan foundEdge {
	found := make(chan foundEdge, 1)
	now := time.Now()
	d.mu.Lock()
	memory := d.nameLocked(name)
	record, fresh := memory.record, now.Before(memory.until)
	d.mu.Unlock()
	go func() {
		ctx, stop := context.WithTimeout(context.Background(), 2*dnsTimeout)
		defer stop()
		if !fresh {
			record, _ = d.lookupHTTPS(ctx, host) // an error is no advertisement
			d.mu.Lock()
			memory := d.nameLocked(name)
			memory.record, memory.until = record, now.Add(clamp(record.ttl, adverTTLMin, adverTTLMax))
			d.mu.Unlock()
		}
		edge := foundEdge{found: record.found, all: record.target == host, advert: record.advert}
		if edge.found && !edge.all {
			addresses, _ := d.resolve(ctx, network, record.target, 0)
			for _, address := range addresses {
				edge.targets = append(edge.targets, address.Addr())
			}
		}
		found <- edge
	}()
	return found
}

// lookupHTTPS follows aliases from a host to the record with an advertisement, if there is one.
func (d *Dialer) lookupHTTPS(ctx context.Context, host string) (record httpsRecord, err error) {
	servers := d.DNSServers
	if len(servers) == 0 {
		servers = systemServers()
	}
	name := host
	for i := 0; i <= aliasesMax; i++ {
		err = errors.New("turbotls: no DNS server is known")
		for _, server := range servers {
			if record, err = queryHTTPS(ctx, server, name); err == nil {
				break
			}
		}
		if err != nil || !record.alias {
			break
		}
		name = record.target
	}
	if record.found && record.target == "" {
		record.target = name
	}
	record.found = record.found && !record.alias
	return record, err
}

// systemServers reads /etc/resolv.conf; systems without that need Dialer.DNSServers.
func systemServers() (servers []string) {
	text, err := os.ReadFile("/etc/resolv.conf")
	if err != nil {
		return nil
	}
	for _, line := range strings.Split(string(text), "\n") {
		if words := strings.Fields(line); len(words) > 1 && words[0] == "nameserver" {
			servers = append(servers, net.JoinHostPort(words[1], "53"))
		}
	}
	return servers
}

// queryHTTPS asks one server, by UDP and, if the answer is cut, by TCP.
func queryHTTPS(ctx context.Context, server, name string) (record httpsRecord, err error) {
	query, err := makeQuery(uint16(rand.Uint32()), name)
	if err != nil {
		return record, err
	}
	for _, network := range []string{"udp", "tcp"} {
		message, err := exchangeDNS(ctx, network, server, query)
		if err != nil {
			return record, fmt.Errorf("turbotls: asking %s for HTTPS of %s: %w", server, name, err)
		}
		if cut := message[2]&2 != 0; !cut || network == "tcp" {
			return parseHTTPS(message, name)
		}
	}
	return record, nil
}

// exchangeDNS returns the first message of the server that answers the query.
func exchangeDNS(ctx context.Context, network, server string, query []byte) ([]byte, error) {
	framed := query
	ctx, stop := context.WithTimeout(ctx, dnsTimeout)
	defer stop()
	conn, err := new(net.Dialer).DialContext(ctx, network, server)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		select {
		case <-ctx.Done():
			_ = conn.SetDeadline(time.Unix(1, 0))
		case <-ended:
		}
	}()
	if network == "tcp" {
		framed = appendVector(nil, query)
	}
	if _, err := conn.Write(framed); err != nil {
		return nil, err
	}
	message := make([]byte, dnsMessageMax)
	for {
		n := 0
		if network == "tcp" {
			if _, err = io.ReadFull(conn, message[:2]); err == nil {
				n = int(binary.BigEndian.Uint16(message)) % len(message)
				_, err = io.ReadFull(conn, message[:n])
			}
		} else {
			n, err = conn.Read(message)
		}
		if err != nil || answers(message[:n], query) {
			return message[:n], err
		}
	}
}

// makeQuery returns a query for HTTPS with EDNS, whose OPT record is the last eleven bytes.
func makeQuery(id uint16, name string) ([]byte, error) {
	b := []byte{byte(id >> 8), byte(id), 1, 0, 0, 1, 0, 0, 0, 0, 0, 1}
	for _, label := range strings.Split(strings.TrimSuffix(name, "."), ".") {
		if len(label) == 0 || len(label) > 63 {
			return nil, fmt.Errorf("turbotls: %q is no host name", name)
		}
		b = append(append(b, byte(len(label))), label...)
	}
	b = append(b, 0, 0, typeHTTPS, 0, 1)
	if len(b) > 12+255+4 {
		return nil, fmt.Errorf("turbotls: %q is too long for a host name", name)
	}
	return append(b, 0, 0, typeOPT, datagramMax>>8, datagramMax&0xff, 0, 0, 0, 0, 0, 0), nil
}

// answers reports whether a message answers the query: id, and the question.
func answers(message, query []byte) bool {
	question := query[12 : len(query)-11]
	return len(message) >= 12+len(question) && message[0] == query[0] && message[1] == query[1] &&
		message[2]&0x80 != 0 && binary.BigEndian.Uint16(message[4:]) == 1 &&
		bytes.EqualFold(message[12:12+len(question)], question)
}

// parseHTTPS reads the answer to a query for HTTPS: the record of the lowest priority, behind
// CNAMEs, or none if that one has no advertisement for us (W-DNS-2).
func parseHTTPS(message []byte, name string) (record httpsRecord, err error) {
	if code := message[3] & 15; code != 0 && code != 3 {
		return record, fmt.Errorf("turbotls: DNS answers with code %d", code)
	}
	_, at, ok := readName(message, 12)
	at += 4
	owner, best, void := strings.ToLower(name), 1<<16, false
	for n := binary.BigEndian.Uint16(message[6:]); ok && n > 0; n-- {
		var rr resourceRecord
		if rr, at, ok = readRecord(message, at); !ok {
			break
		}
		if rr.owner != owner {
			continue
		}
		switch rr.kind {
		case typeCNAME:
			if owner, _, ok = readName(message, rr.at); record.ttl == 0 || rr.ttl < record.ttl {
				record.ttl = rr.ttl
			}
		case typeHTTPS:
			priority, r, usable, whole := readService(rr.data)
			if void = void || !whole; !usable || priority >= best {
				continue
			}
			best = priority
			if !r.alias && !r.found {
				r = httpsRecord{}
			} else if r.target == "" {
				r.target = owner
			}
			r.ttl = rr.ttl
			if record.ttl > 0 && record.ttl < r.ttl {
				r.ttl = record.ttl
			}
			record = r
		}
	}
	if !ok {
		return httpsRecord{}, errDNS
	}
	if void {
		return httpsRecord{ttl: record.ttl}, nil
	}
	if record.target == owner && owner != name {
		record.target = strings.ToLower(name) // addresses of the name follow the same CNAMEs
	}
	return record, nil
}

type resourceRecord struct {
	owner string
	kind  int
	ttl   time.Duration
	at    int // of its data
	data  []byte
}

func readRecord(message []byte, at int) (rr resourceRecord, next int, ok bool) {
	if rr.owner, at, ok = readName(message, at); !ok {
		return rr, at, false
	}
	r := reader{rest: message[at:]}
	rr.kind = r.number(2)
	r.take(2)
	rr.ttl = time.Duration(r.number(4)&0x7fffffff) * time.Second
	rr.data = r.vector(2)
	next = len(message) - len(r.rest)
	rr.at = next - len(rr.data)
	return rr, next, !r.bad
}

// readName reads a name in lower case, and returns where the message goes on behind it.
func readName(message []byte, at int) (name string, next int, ok bool) {
	var labels []string
	jumped := false
	for length := 0; ; {
		if at >= len(message) {
			return "", 0, false
		}
		n := int(message[at])
		switch {
		case n == 0:
			if !jumped {
				next = at + 1
			}
			return strings.ToLower(strings.Join(labels, ".")), next, true
		case n&0xc0 == 0xc0 && at+1 < len(message):
			to := (n&0x3f)<<8 | int(message[at+1])
			if !jumped {
				next = at + 2
			}
			if jumped = true; to >= at { // backwards alone, so it ends
				return "", 0, false
			}
			at = to
			continue
		case n > 63 || at+1+n > len(message) || length+n > 254:
			return "", 0, false
		}
		labels = append(labels, string(message[at+1:at+1+n]))
		length += n + 1
		at += n + 1
	}
}

// readService reads an HTTPS record: whether it is usable, an alias or a service over TCP of which
// the mandatory keys are known and there, and whether it is whole; one that is not voids its set. An
// advertisement counts as found only in one for the port that was asked for.
func readService(data []byte) (priority int, r httpsRecord, usable, whole bool) {
	if len(data) < 3 {
		return 0, r, false, false
	}
	priority = int(binary.BigEndian.Uint16(data))
	target, at, ok := readName(data[2:], 0)
	if !ok {
		return 0, r, false, false
	}
	if r.target = target; priority == 0 {
		r.alias = target != ""
		return 0, r, r.alias, true
	}
	params := reader{rest: data[2+at:]}
	values, last := make(map[int][]byte), -1
	for len(params.rest) > 0 && !params.bad {
		key, value := params.number(2), params.vector(2)
		if key <= last || !isParamWhole(key, value) {
			return 0, r, false, false
		}
		values[key], last = value, key
	}
	if params.bad {
		return 0, r, false, false
	}
	for list := values[svcMandatory]; len(list) > 0; list = list[2:] {
		key := int(binary.BigEndian.Uint16(list))
		if _, there := values[key]; !there || key > svcKnownMax || key == svcECH {
			return 0, r, false, true
		}
	}
	port := 443
	if value, ok := values[svcPort]; ok {
		port = int(binary.BigEndian.Uint16(value))
	}
	_, tcp := values[svcNoDefaultALPN]
	tcp = !tcp
	for list := (reader{rest: values[svcALPN]}); len(list.rest) > 0; {
		tcp = !strings.HasPrefix(string(list.vector(1)), "h3") || tcp
	}
	if port == 0 || !tcp {
		return 0, r, false, true
	}
	advert, err := ParseAdvertisement(string(values[advertisedKey]))
	r.advert, r.found = advert, err == nil && port == 443
	return priority, r, true, true
}

// isParamWhole reports whether the value of a SvcParam has the format of its key.
func isParamWhole(key int, value []byte) bool {
	switch key {
	case svcMandatory:
		last := svcMandatory
		for ; len(value) >= 2; value = value[2:] {
			key := int(binary.BigEndian.Uint16(value))
			if key <= last {
				return false
			}
			last = key
		}
		return len(value) == 0 && last > svcMandatory
	case svcALPN:
		list := reader{rest: value}
		for len(list.rest) > 0 && !list.bad {
			list.bad = len(list.vector(1)) == 0 || list.bad
		}
		return len(value) > 0 && !list.bad
	case svcNoDefaultALPN:
		return len(value) == 0
	case svcPort:
		return len(value) == 2
	case svcIPv4Hint:
		return len(value) > 0 && len(value)%4 == 0
	case svcIPv6Hint:
		return len(value) > 0 && len(value)%16 == 0
	}
	return true
}
