package turbotls

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"strings"
)

// Refusals of a stream that cannot begin with a ClientHello
// (docs/draft-headstart-turbotls.md#reading-a-clienthello).
var (
	errNotTLS    = errors.New("NotTls")
	errNotHello  = errors.New("NotHello")
	errTooLarge  = errors.New("TooLarge")
	errMalformed = errors.New("Malformed")

	// errIncomplete says that the stream may still become a ClientHello.
	errIncomplete = errors.New("incomplete")
)

// TLS extensions.
const (
	extServerName        = 0
	extGroups            = 10
	extSignatures        = 13
	extALPN              = 16
	extPreSharedKey      = 41
	extEarlyData         = 42
	extSupportedVersions = 43
	extPSKModes          = 45
	extKeyShare          = 51
)

// clientHello is what both ends read of a ClientHello.
type clientHello struct {
	end       int // offset of the stream behind its last record
	name      string
	protocols []string

	random     [32]byte
	earlyData  bool
	identities [][]byte
}

// parseHello reads the ClientHello at the start of a stream. Its error is errIncomplete, or one of
// the refusals above.
func parseHello(stream []byte) (*clientHello, error) {
	message, end, err := joinRecords(stream)
	if err != nil {
		return nil, err
	}
	hello := &clientHello{end: end}
	if !hello.read(reader{rest: message[4:]}) {
		return nil, errMalformed
	}
	return hello, nil
}

// joinRecords returns the first handshake message of the stream, with its header, and the offset
// behind the record in which it ends.
func joinRecords(stream []byte) (message []byte, end int, err error) {
	need := 4
	for at := 0; ; {
		head := stream[at:]
		if len(head) > 0 && head[0] != 22 || len(head) > 1 && head[1] != 3 {
			return nil, 0, errNotTLS
		}
		if len(head) < recordHeader {
			return nil, 0, incompleteAt(stream)
		}
		length := int(binary.BigEndian.Uint16(head[3:]))
		if length == 0 || length > recordMax {
			return nil, 0, errMalformed
		}
		body := head[recordHeader:]
		if len(body) > length {
			body = body[:length]
		}
		message = append(message, body...)
		if len(message) > 0 && message[0] != 1 {
			return nil, 0, errNotHello
		}
		if len(message) >= 4 {
			need = 4 + uint24(message[1:])
			if recordHeader+need > clientStreamMax {
				return nil, 0, errTooLarge
			}
		}
		at += recordHeader + length
		switch {
		case len(message) > need:
			return nil, 0, errMalformed
		case len(body) < length:
			return nil, 0, incompleteAt(stream)
		case len(message) < need:
			continue
		// W-HELLO-1
		case at > clientStreamMax:
			return nil, 0, errTooLarge
		}
		return message, at, nil
	}
}

// incompleteAt returns the error for a stream without the end of its ClientHello: what has not
// ended where it must end at last never does.
func incompleteAt(stream []byte) error {
	if len(stream) >= clientStreamMax {
		return errTooLarge
	}
	return errIncomplete
}

func (h *clientHello) read(body reader) bool {
	body.take(2)
	copy(h.random[:], body.take(32))
	session, suites, compression := body.vector(1), body.vector(2), body.vector(1)
	if len(session) > 32 || len(suites) == 0 || len(suites)%2 != 0 || len(compression) == 0 {
		return false
	}
	// W-HELLO-3
	if body.isDone() { // TLS 1.2 without extensions
		return true
	}
	list := reader{rest: body.vector(2)}
	return body.isDone() && h.readExtensions(list)
}

func (h *clientHello) readExtensions(list reader) bool {
	seen := make(map[int]bool)
	for len(list.rest) > 0 {
		id, content := list.number(2), reader{rest: list.vector(2)}
		// W-HELLO-2
		if list.bad || seen[id] || seen[extPreSharedKey] || !h.readExtension(id, content) {
			return false
		}
		seen[id] = true
	}
	return !list.bad
}

func (h *clientHello) readExtension(id int, content reader) bool {
	switch id {
	case extServerName:
		return h.readNames(content)
	case extALPN:
		list := reader{rest: content.vector(2)}
		if len(list.rest) == 0 {
			return false
		}
		for len(list.rest) > 0 {
			name := list.vector(1)
			if len(name) == 0 {
				return false
			}
			h.protocols = append(h.protocols, string(name))
		}
		return content.isDone() && !list.bad
	case extSupportedVersions:
		list := content.vector(1)
		return content.isDone() && len(list) > 0 && len(list)%2 == 0
	case extEarlyData:
		h.earlyData = true
		return content.isDone()
	case extPreSharedKey:
		return h.readIdentities(content)
	}
	return true
}

func (h *clientHello) readNames(content reader) (ok bool) {
	list := reader{rest: content.vector(2)}
	ok = len(list.rest) > 0
	for hosts := 0; len(list.rest) > 0 && ok; {
		kind, name := list.number(1), list.vector(2)
		if kind != 0 {
			continue
		}
		if hosts++; hosts > 1 {
			return false
		}
		h.name, ok = readHostName(string(name))
	}
	return ok && content.isDone() && !list.bad
}

// readHostName returns a host name in lower case without a trailing dot; none for an address.
func readHostName(name string) (string, bool) {
	name = strings.TrimSuffix(name, ".")
	if _, err := netip.ParseAddr(name); err == nil && !strings.Contains(name, "%") {
		return "", true
	}
	if len(name) == 0 || len(name) > 253 {
		return "", false
	}
	for _, label := range strings.Split(name, ".") {
		if len(label) == 0 || len(label) > 63 {
			return "", false
		}
		for i := 0; i < len(label); i++ {
			c := label[i] | 0x20
			letter := label[i] >= 'A' && c >= 'a' && c <= 'z'
			digit := label[i] >= '0' && label[i] <= '9'
			if !letter && !digit && label[i] != '-' && label[i] != '_' {
				return "", false
			}
		}
	}
	return strings.ToLower(name), true
}

func (h *clientHello) readIdentities(content reader) bool {
	list, binders := reader{rest: content.vector(2)}, reader{rest: content.vector(2)}
	count := 0
	for ; len(list.rest) > 0; list.take(4) {
		identity := list.vector(2)
		if len(identity) == 0 {
			return false
		}
		h.identities = append(h.identities, identity)
	}
	for ; len(binders.rest) > 0; count++ {
		if len(binders.vector(1)) < 32 {
			return false
		}
	}
	return content.isDone() && !list.bad && !binders.bad && count > 0 && count == len(h.identities)
}

// reader takes bytes, numbers and vectors from the front of what is left. Where too little is left,
// it turns bad, and gives zeros.
type reader struct {
	rest []byte
	bad  bool
}

func (r *reader) take(n int) []byte {
	if n > len(r.rest) {
		*r = reader{bad: true}
		return make([]byte, n)
	}
	taken := r.rest[:n:n]
	r.rest = r.rest[n:]
	return taken
}

func (r *reader) number(bytes int) (n int) {
	for _, b := range r.take(bytes) {
		n = n<<8 | int(b)
	}
	return n
}

// vector takes a length of some bytes, and so many bytes.
func (r *reader) vector(lengthBytes int) []byte { return r.take(r.number(lengthBytes)) }

// isDone reports whether everything was there, and nothing is left.
func (r *reader) isDone() bool { return !r.bad && len(r.rest) == 0 }
