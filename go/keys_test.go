package turbotls

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
	"net/netip"
	"strconv"
	"testing"
)

// The vectors of a fleet and of cookies, which this package has not, against the text:
// docs/draft-headstart-turbotls.md#fleets-of-edges, docs/fop.md sections 1 and 2.

// hkdf derives 32 bytes (RFC 5869).
func hkdf(secret []byte, info string) []byte {
	mac := func(key []byte, text ...byte) []byte {
		h := hmac.New(sha256.New, key)
		h.Write(text)
		return h.Sum(nil)
	}
	extracted := mac([]byte("headstart key ring 1"), secret...)
	return mac(extracted, append([]byte(info), 1)...)
}

func sipHash(key, text []byte) uint64 {
	k0, k1 := binary.LittleEndian.Uint64(key), binary.LittleEndian.Uint64(key[8:])
	v := [4]uint64{k0 ^ 0x736f6d6570736575, k1 ^ 0x646f72616e646f6d,
		k0 ^ 0x6c7967656e657261, k1 ^ 0x7465646279746573}
	rounds := func(n int) {
		for ; n > 0; n-- {
			v[0], v[2] = v[0]+v[1], v[2]+v[3]
			v[1], v[3] = bits.RotateLeft64(v[1], 13)^v[0], bits.RotateLeft64(v[3], 16)^v[2]
			v[0] = bits.RotateLeft64(v[0], 32)
			v[2], v[0] = v[2]+v[1], v[0]+v[3]
			v[1], v[3] = bits.RotateLeft64(v[1], 17)^v[2], bits.RotateLeft64(v[3], 21)^v[0]
			v[2] = bits.RotateLeft64(v[2], 32)
		}
	}
	last := append(append([]byte{}, text...), make([]byte, 7-len(text)%8)...)
	last = append(last, byte(len(text)))
	for ; len(last) > 0; last = last[8:] {
		word := binary.LittleEndian.Uint64(last)
		v[3] ^= word
		rounds(2)
		v[0] ^= word
	}
	v[2] ^= 0xff
	rounds(4)
	return v[0] ^ v[1] ^ v[2] ^ v[3]
}

func TestSipHash(t *testing.T) {
	for _, b := range vectors(t, "siphash") {
		got := sipHash(b.bytes(t, "key"), b.bytes(t, "message"))
		if want := binary.LittleEndian.Uint64(b.bytes(t, "hash")); got != want {
			t.Errorf("%v: %x", b, got)
		}
	}
}

func TestRouteTags(t *testing.T) {
	for _, b := range vectors(t, "route_tags") {
		plain := uint32(b.number(t, "number"))<<22 | uint32(b.number(t, "start"))
		mask := uint32(sipHash(b.bytes(t, "key"), b.bytes(t, "id"))) & (1<<30 - 1)
		tag := uint32(b.number(t, "epoch"))%4<<30 | (plain ^ mask)
		if tag == 0 {
			tag = 0xffffffff
		}
		if uint64(tag) != beUint(b.bytes(t, "tag")) {
			t.Errorf("%v: %x", b, tag)
		}
	}
}

// cookie is section 1 of docs/fop.md.
func cookie(tagKey, maskKey, nonce []byte, expiry uint64, client string) []byte {
	address := netip.MustParseAddr(client).As16()
	if !netip.MustParseAddr(client).Unmap().Is4() {
		copy(address[8:], make([]byte, 8))
	}
	mask := sipHash(maskKey, append(append([]byte{}, nonce...), 0, 0))
	text := append([]byte{}, nonce...)
	text = binary.LittleEndian.AppendUint16(text, uint16(expiry))
	text = binary.LittleEndian.AppendUint64(text, expiry>>16)
	tag := sipHash(tagKey, append(text, address[:]...))
	b := append([]byte{}, nonce...)
	b = binary.LittleEndian.AppendUint16(b, uint16(expiry)^uint16(mask))
	return binary.LittleEndian.AppendUint64(b, tag)
}

func TestKeys(t *testing.T) {
	for _, b := range vectors(t, "keys") {
		secret := b.bytes(t, "secret")
		for name, info := range map[string]string{
			"ticket_cipher": "ticket cipher", "ticket_mac": "ticket mac",
			"ticket_name": "ticket name", "fop_tag": "fop tag", "fop_mask": "fop mask",
			"route_mask": "route mask",
		} {
			if got := hkdf(secret, info); !bytes.Equal(got, b.bytes(t, name)) {
				t.Errorf("%v: %s: %x", b, info, got)
			}
		}
		got := cookie(hkdf(secret, "fop tag")[:16], hkdf(secret, "fop mask")[:16],
			b.bytes(t, "nonce"), uint64(b.number(t, "expiry")), b.keys["client"])
		if !bytes.Equal(got, b.bytes(t, "cookie")) {
			t.Errorf("%v: %x", b, got)
		}
	}
}

func TestCookies(t *testing.T) {
	for _, b := range vectors(t, "cookies") {
		expiry := must(strconv.ParseUint(b.keys["expiry"], 10, 64))
		got := cookie(b.bytes(t, "tag_key"), b.bytes(t, "mask_key"), b.bytes(t, "nonce"),
			expiry, b.keys["client"])
		if !bytes.Equal(got, b.bytes(t, "cookie")) {
			t.Errorf("%v: %x", b, got)
		}
	}
}
