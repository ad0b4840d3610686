package turbotls

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
)

// sessionID names a session in datagrams. It is a digest of the join key, which only TCP shows.
type sessionID [12]byte

// joinKey is the secret of one connection, drawn by the client.
type joinKey [16]byte

func (k joinKey) id() (id sessionID) {
	// W-ID-2
	digest := sha256.Sum256(k[:])
	copy(id[:], digest[:])
	return id
}

// frameError says why bytes are no frame (docs/draft-headstart-turbotls.md#errors).
type frameError struct {
	kind   string // NotOurs, Version, Length, Sequence, Tag, Offset
	number int    // what was found there, if anything
}

func (e *frameError) Error() string {
	if e.kind == "NotOurs" || e.kind == "Tag" {
		return e.kind
	}
	return fmt.Sprintf("%s(%d)", e.kind, e.number)
}

// request is a datagram from client to server.
type request struct {
	id      sessionID
	seq     uint8
	offset  int
	payload []byte // of the datagram that was parsed
}

// response is a datagram from server to client.
type response struct {
	id      sessionID
	seq     uint8
	tag     uint32
	ack     int
	offset  int
	payload []byte
}

func checkHead(b []byte, kind byte) error {
	switch {
	case len(b) == 0 || b[0] != kind:
		return &frameError{"NotOurs", 0}
	case len(b) == 1:
		return &frameError{"Length", 1}
	case b[1] != version:
		return &frameError{"Version", int(b[1])}
	}
	return nil
}

func uint24(b []byte) int { return int(b[0])<<16 | int(b[1])<<8 | int(b[2]) }

func appendUint24(b []byte, n int) []byte { return append(b, byte(n>>16), byte(n>>8), byte(n)) }

func parseRequest(b []byte) (r request, err error) {
	if err := checkHead(b, typeRequest); err != nil {
		return r, err
	}
	// W-FRAME-1
	if len(b) < requestMin || len(b) > datagramMax {
		return r, &frameError{"Length", len(b)}
	}
	copy(r.id[:], b[2:])
	r.seq, r.offset = b[14], uint24(b[15:])
	length := int(binary.BigEndian.Uint16(b[18:]))
	switch {
	case r.seq >= sequences:
		return r, &frameError{"Sequence", int(r.seq)}
	case length == 0 || requestHeader+length > len(b):
		return r, &frameError{"Length", len(b)}
	case r.offset+length > clientStreamMax:
		return r, &frameError{"Offset", r.offset + length}
	}
	// W-FRAME-2
	r.payload = b[requestHeader : requestHeader+length]
	return r, nil
}

func (r request) marshal() []byte {
	b := make([]byte, 0, datagramMax)
	b = append(b, typeRequest, version)
	b = append(b, r.id[:]...)
	b = append(b, r.seq)
	b = appendUint24(b, r.offset)
	b = append(b, byte(len(r.payload)>>8), byte(len(r.payload)))
	b = append(b, r.payload...)
	if len(b) < requestMin {
		b = append(b, make([]byte, requestMin-len(b))...)
	}
	return b
}

func parseResponse(b []byte) (r response, err error) {
	if err := checkHead(b, typeResponse); err != nil {
		return r, err
	}
	// W-FRAME-3
	if len(b) < responseHeader || len(b) > datagramMax {
		return r, &frameError{"Length", len(b)}
	}
	copy(r.id[:], b[2:])
	r.seq, r.tag = b[14], binary.BigEndian.Uint32(b[15:])
	r.ack, r.offset, r.payload = uint24(b[19:]), uint24(b[22:]), b[responseHeader:]
	switch end := r.offset + len(r.payload); {
	case r.seq >= sequences:
		return r, &frameError{"Sequence", int(r.seq)}
	case r.tag == 0:
		return r, &frameError{"Tag", 0}
	case end > serverStreamMax:
		return r, &frameError{"Offset", end}
	}
	return r, nil
}

func (r response) marshal() []byte {
	b := make([]byte, 0, datagramMax)
	b = append(b, typeResponse, version)
	b = append(b, r.id[:]...)
	b = append(b, r.seq)
	b = binary.BigEndian.AppendUint32(b, r.tag)
	b = appendUint24(b, r.ack)
	b = appendUint24(b, r.offset)
	return append(b, r.payload...)
}

// prefix is the part of a stream that datagrams bring, in pieces by offset. The first byte written
// at an offset stays.
type prefix struct {
	bytes []byte
	have  []bool
	next  int // bytes without a gap, from offset 0
}

// agrees reports whether a piece has the bytes that are stored, wherever some are. Its end is
// bounded by the frame's limits.
func (p *prefix) agrees(offset int, piece []byte) bool {
	for i, b := range piece {
		if at := offset + i; at < len(p.have) && p.have[at] && p.bytes[at] != b {
			return false
		}
	}
	return true
}

func (p *prefix) store(offset int, piece []byte) {
	end := offset + len(piece)
	if grow := end - len(p.bytes); grow > 0 && len(piece) > 0 {
		p.bytes = append(p.bytes, make([]byte, grow)...)
		p.have = append(p.have, make([]bool, grow)...)
	}
	for i, b := range piece {
		if !p.have[offset+i] {
			p.bytes[offset+i], p.have[offset+i] = b, true
		}
	}
	for p.next < len(p.have) && p.have[p.next] {
		p.next++
	}
}

// contiguous returns the bytes without a gap.
func (p *prefix) contiguous() []byte { return p.bytes[:p.next] }

// agreesWith reports whether all stored bytes are those of a stream that begins with b.
func (p *prefix) agreesWith(b []byte) bool {
	for at, have := range p.have {
		if have && (at >= len(b) || p.bytes[at] != b[at]) {
			return false
		}
	}
	return true
}

// recordStart returns where the record begins that holds the byte at offset at, or at itself where
// the stream does not consist of records.
func recordStart(stream []byte, at int) int {
	start := 0
	for {
		head := stream[start:]
		if start >= at || len(head) < recordHeader {
			return start
		}
		length := int(binary.BigEndian.Uint16(head[3:]))
		if head[0] < 20 || head[0] > 24 || head[1] != 3 || length > recordStreamMax {
			return at
		}
		if end := start + recordHeader + length; at < end || end > len(stream) {
			return start
		} else {
			start = end
		}
	}
}

func equalPrefix(b, whole []byte) bool {
	if len(b) > len(whole) {
		b = b[:len(whole)]
	}
	return bytes.Equal(b, whole[:len(b)])
}

// take empties what p points at, and returns what was there.
func take[T any](p *T) T {
	var none T
	taken := *p
	*p = none
	return taken
}
