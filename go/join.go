package turbotls

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
)

// join is the record with which TCP takes over a session (docs/draft-headstart-turbotls.md#join).
type join struct {
	key          joinKey
	tag          uint32
	clientOffset int
	serverOffset int
}

// derive is H(n, x): what looks random in a join and in its answer (W-JOIN-2).
func (k joinKey) derive(n byte, x ...byte) [32]byte {
	text := append([]byte{}, k[:]...)
	text = append(text, "headstart"...)
	text = append(text, n)
	return sha256.Sum256(append(text, x...))
}

// fields returns the ten bytes of route tag and offsets, not masked.
func (j join) fields() []byte {
	b := binary.BigEndian.AppendUint32(nil, j.tag)
	return appendUint24(appendUint24(b, j.clientOffset), j.serverOffset)
}

func (k joinKey) mask(fields []byte) []byte {
	mask := k.derive(1)
	masked := make([]byte, len(fields))
	for i := range fields {
		masked[i] = fields[i] ^ mask[i]
	}
	return masked
}

// marshal returns the record, with the name and the protocols of the connection's own ClientHello.
func (j join) marshal(name string, protocols []string) []byte {
	random, session, share := j.key.derive(0, j.fields()...), j.key.derive(2), j.key.derive(3)
	age, binder := j.key.derive(4), j.key.derive(5)

	extensions := joinNames(name, protocols)
	extensions = appendExtension(extensions, extGroups, 0, 2, 0, 0x1d)
	extensions = appendExtension(extensions, extSignatures, 0, 6, 4, 3, 8, 4, 4, 1)
	extensions = appendExtension(extensions, extSupportedVersions, 2, 3, 4)
	extensions = appendExtension(extensions, extPSKModes, 1, 1)
	keyShare := append([]byte{0, 36, 0, 0x1d, 0, 32}, share[:]...)
	extensions = appendExtension(extensions, extKeyShare, keyShare...)
	extensions = appendExtension(extensions, extEarlyData)

	head := append([]byte{3, 3}, random[:]...)
	head = append(append(head, 32), session[:]...)
	head = append(head, 0, 6, 0x13, 1, 0x13, 2, 0x13, 3, 1, 0)

	// Around the identity: headers of record, message and extension, both lists, age and binder.
	around := recordHeader + 4 + len(head) + 2 + len(extensions) + 4 + 2 + 2 + 4 + 2 + 1 + len(binder)
	length := joinRecordMax - around
	if length > joinIdentityMax {
		length = joinIdentityMax
	}
	identity := append(j.key[:], j.key.mask(j.fields())...)
	for x := byte(0); len(identity) < length; x++ {
		padding := j.key.derive(6, x)
		identity = append(identity, padding[:]...)
	}
	psk := appendVector(nil, append(appendVector(nil, identity[:length]), age[:4]...))
	psk = appendVector(psk, append([]byte{byte(len(binder))}, binder[:]...))
	extensions = appendExtension(extensions, extPreSharedKey, psk...)

	body := appendVector(head, extensions)
	message := append([]byte{1, 0, byte(len(body) >> 8), byte(len(body))}, body...)
	// W-JOIN-1
	return appendVector([]byte{22, 3, 1}, message)
}

// joinNames returns the extensions server_name and ALPN, each if there is one and it has room.
func joinNames(name string, protocols []string) []byte {
	var extensions, list []byte
	if name != "" {
		entry := appendVector([]byte{0}, []byte(name))
		extensions = appendExtension(nil, extServerName, appendVector(nil, entry)...)
	}
	for _, protocol := range protocols {
		list = append(append(list, byte(len(protocol))), protocol...)
	}
	if len(protocols) > 0 {
		both := appendExtension(extensions, extALPN, appendVector(nil, list)...)
		if len(both) <= joinNamesMax {
			return both
		}
	}
	return extensions
}

// appendVector appends a length of two bytes and the content.
func appendVector(b, content []byte) []byte {
	return append(append(b, byte(len(content)>>8), byte(len(content))), content...)
}

func appendExtension(b []byte, id uint16, content ...byte) []byte {
	return appendVector(append(b, byte(id>>8), byte(id)), content)
}

// readJoin returns the join that a ClientHello is, if it is one (W-JOIN-3).
func readJoin(hello *clientHello) (j join, ok bool) {
	if !hello.earlyData || len(hello.identities) != 1 ||
		len(hello.identities[0]) < joinIdentityMin {
		return j, false
	}
	identity := hello.identities[0]
	copy(j.key[:], identity)
	fields := j.key.mask(identity[16:joinIdentityMin])
	j.tag = binary.BigEndian.Uint32(fields)
	j.clientOffset, j.serverOffset = uint24(fields[4:]), uint24(fields[7:])
	return j, hello.random == j.key.derive(0, fields...)
}

// answerHead begins every acceptance of a join.
var answerHead = []byte{22, 3, 3, 0, 0x80, 2, 0, 0, 0x7c, 3, 3}

// joinRefusal is the alert handshake_failure.
var joinRefusal = []byte{21, 3, 3, 0, 2, 2, 40}

// accept returns the answer that accepts a join: the server stream follows from the offset.
func (k joinKey) accept(serverOffset int) []byte {
	offset := appendUint24(nil, serverOffset)
	// W-ANSWER-1
	check, mask, session, share := k.derive(9, offset...), k.derive(8), k.derive(2), k.derive(7)
	b := append([]byte{}, answerHead...)
	for i := range offset {
		b = append(b, offset[i]^mask[i])
	}
	b = append(append(b, check[3:]...), 32)
	b = append(b, session[:]...)
	b = append(b, 0x13, 1, 0, 0, 0x34, 0, 0x2b, 0, 2, 3, 4, 0, 0x33, 0, 36, 0, 0x1d, 0, 32)
	b = append(b, share[:]...)
	return append(b, 0, 0x29, 0, 2, 0, 0)
}

// verdict is what the first bytes from a server say to a join.
type verdict int

const (
	answerIncomplete verdict = iota
	answerAccepted
	answerRefused
)

// readAnswer reads the answer to a join; with an acceptance comes the server offset.
func (k joinKey) readAnswer(b []byte) (verdict, int) {
	if !equalPrefix(b, answerHead) {
		return answerRefused, 0
	}
	if len(b) < answerLen {
		return answerIncomplete, 0
	}
	mask := k.derive(8)
	offset := uint24([]byte{b[11] ^ mask[0], b[12] ^ mask[1], b[13] ^ mask[2]})
	// W-ANSWER-4
	if !bytes.Equal(b[:answerLen], k.accept(offset)) {
		return answerRefused, 0
	}
	return answerAccepted, offset
}
