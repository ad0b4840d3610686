package turbotls

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// block is one block of a file of vectors.
type block struct {
	file string
	line int
	keys map[string]string
}

// vectors reads the blocks of a file in docs/vectors.
func vectors(t testing.TB, name string) []block {
	t.Helper()
	text := must(os.ReadFile(filepath.Join("..", "docs", "vectors", name+".txt")))
	var blocks []block
	var last string
	open := false
	for i, line := range strings.Split(string(text), "\n") {
		switch {
		case strings.HasPrefix(line, "#"):
		case line == "":
			open = false
		case line[0] == ' ':
			blocks[len(blocks)-1].keys[last] += " " + strings.TrimSpace(line)
		default:
			if !open {
				blocks = append(blocks, block{name, i + 1, map[string]string{}})
				open = true
			}
			key, value, ok := strings.Cut(line, " =")
			if !ok {
				t.Fatalf("%s:%d: %q", name, i+1, line)
			}
			last = key
			blocks[len(blocks)-1].keys[key] = strings.TrimPrefix(value, " ")
		}
	}
	return blocks
}

func (b block) String() string {
	return fmt.Sprintf("%s:%d: %s", b.file, b.line, b.keys["note"])
}

func (b block) bytes(t testing.TB, key string) []byte {
	t.Helper()
	out := []byte{}
	for _, word := range strings.Fields(b.keys[key]) {
		digits, times, repeated := strings.Cut(word, "*")
		n := 1
		if repeated {
			n, _ = strconv.Atoi(times)
		}
		one, err := hex.DecodeString(digits)
		if err != nil {
			t.Fatalf("%v: %v", b, err)
		}
		out = append(out, bytes.Repeat(one, n)...)
	}
	return out
}

func (b block) number(t testing.TB, key string) int {
	t.Helper()
	n, err := strconv.Atoi(b.keys[key])
	if err != nil {
		t.Fatalf("%v: %s: %v", b, key, err)
	}
	return n
}

func (b block) key(t testing.TB) (key joinKey) {
	copy(key[:], b.bytes(t, "key"))
	return key
}

func (b block) join(t testing.TB) join {
	return join{
		key:          b.key(t),
		tag:          uint32(beUint(b.bytes(t, "tag"))),
		clientOffset: b.number(t, "client_offset"),
		serverOffset: b.number(t, "server_offset"),
	}
}

func beUint(b []byte) (n uint64) {
	for _, digit := range b {
		n = n<<8 | uint64(digit)
	}
	return n
}

func TestFrames(t *testing.T) {
	for _, file := range []string{"frames", "lenient"} {
		for _, b := range vectors(t, file) {
			raw := b.bytes(t, "bytes")
			var id sessionID
			copy(id[:], b.bytes(t, "id"))
			var emitted []byte
			switch b.keys["frame"] {
			case "request":
				want := request{id, uint8(b.number(t, "seq")), b.number(t, "offset"),
					b.bytes(t, "payload")}
				got, err := parseRequest(raw)
				if err != nil || got.id != want.id || got.seq != want.seq ||
					got.offset != want.offset || !bytes.Equal(got.payload, want.payload) {
					t.Errorf("%v: %v, %v", b, got, err)
				}
				emitted = want.marshal()
			case "response":
				want := response{id, uint8(b.number(t, "seq")), uint32(beUint(b.bytes(t, "tag"))),
					b.number(t, "ack"), b.number(t, "offset"), b.bytes(t, "payload")}
				got, err := parseResponse(raw)
				if err != nil || got.id != want.id || got.seq != want.seq || got.tag != want.tag ||
					got.ack != want.ack || got.offset != want.offset ||
					!bytes.Equal(got.payload, want.payload) {
					t.Errorf("%v: %v, %v", b, got, err)
				}
				emitted = want.marshal()
			default: // between the edges of a fleet, which this package is no part of
				continue
			}
			if bytes.Equal(emitted, raw) != (file == "frames") {
				t.Errorf("%v: emitted %x", b, emitted)
			}
		}
	}
}

func TestErrors(t *testing.T) {
	for _, b := range vectors(t, "errors") {
		var err error
		switch b.keys["frame"] {
		case "request":
			_, err = parseRequest(b.bytes(t, "bytes"))
		case "response":
			_, err = parseResponse(b.bytes(t, "bytes"))
		default:
			continue
		}
		if err == nil || err.Error() != b.keys["error"] {
			t.Errorf("%v: %v, not %v", b, err, b.keys["error"])
		}
	}
}

func TestIDs(t *testing.T) {
	for _, b := range vectors(t, "ids") {
		if id := b.key(t).id(); !bytes.Equal(id[:], b.bytes(t, "id")) {
			t.Errorf("%v: %x", b, id)
		}
	}
}

func TestJoins(t *testing.T) {
	for _, b := range vectors(t, "joins") {
		want, raw := b.join(t), b.bytes(t, "bytes")
		got := want.marshal(b.keys["name"], strings.Fields(b.keys["alpn"]))
		if !bytes.Equal(got, raw) {
			t.Errorf("%v:\n%x, not\n%x", b, got, raw)
		}
		if len(raw) > joinRecordMax {
			t.Errorf("%v: %d bytes", b, len(raw))
		}
	}
}

func TestJoinsRead(t *testing.T) {
	for _, b := range append(vectors(t, "joins_read"), vectors(t, "joins")...) {
		raw := b.bytes(t, "bytes")
		hello, err := parseHello(raw)
		if err != nil || hello.end != len(raw) {
			t.Errorf("%v: %v", b, err)
			continue
		}
		got, ok := readJoin(hello)
		if none := b.keys["join"] == "none"; ok == none || !none && got != b.join(t) {
			t.Errorf("%v: %v %v", b, got, ok)
		}
	}
}

func TestAnswers(t *testing.T) {
	for _, b := range vectors(t, "answers") {
		key, raw := b.key(t), b.bytes(t, "bytes")
		verdict, offset := key.readAnswer(raw)
		got := [...]string{"incomplete", fmt.Sprint("accepted ", offset), "refused"}[verdict]
		if got != b.keys["answer"] {
			t.Errorf("%v: %v, not %v", b, got, b.keys["answer"])
		}
	}
}

func TestHellos(t *testing.T) {
	for _, b := range vectors(t, "hellos") {
		hello, err := parseHello(b.bytes(t, "bytes"))
		if err != nil {
			if err.Error() != b.keys["hello"] {
				t.Errorf("%v: %v, not %v", b, err, b.keys["hello"])
			}
			continue
		}
		got := fmt.Sprintf("complete %d %s %s", hello.end, hello.name,
			strings.Join(hello.protocols, " "))
		want := fmt.Sprintf("%s %s %s", b.keys["hello"], b.keys["name"], b.keys["alpn"])
		if ascii := b.keys["alpn"]; got != want && !strings.Contains(ascii, "*") {
			t.Errorf("%v: %q, not %q", b, got, want)
		}
	}
}

func TestAdverts(t *testing.T) {
	for _, b := range vectors(t, "adverts") {
		value := b.keys["value"]
		if b.keys["hex"] != "" {
			value = string(b.bytes(t, "hex"))
		}
		advert, err := ParseAdvertisement(value)
		if void := b.keys["advert"] == "void"; (err != nil) != void {
			t.Errorf("%v: %q: %v", b, value, err)
		} else if void {
			continue
		}
		want := Advertisement{Slots: b.number(t, "slots"), EarlyData: b.keys["ed"] == "1"}
		if b.keys["udp"] != "" {
			want.UDPPort = uint16(b.number(t, "udp"))
		}
		if advert != want {
			t.Errorf("%v: %v, not %v", b, advert, want)
		}
	}
}
