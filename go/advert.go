package turbotls

import (
	"fmt"
	"strconv"
	"strings"
)

// Advertisement is what an edge offers, as DNS says it
// (docs/draft-headstart-turbotls.md#advertisement).
type Advertisement struct {
	Slots     int    // datagrams that a first flight of the server needs, 1 to 14
	UDPPort   uint16 // of the datagrams; 0 if it is the port of TCP
	EarlyData bool   // may go over UDP
}

// ParseAdvertisement reads the value of the private SvcParamKey 65480, such as "v=2,slots=6".
func ParseAdvertisement(value string) (Advertisement, error) {
	advert := Advertisement{Slots: slotsDefault}
	if len(value) == 0 || len(value) > advertisementMax {
		return advert, fmt.Errorf("turbotls: an advertisement of %d bytes", len(value))
	}
	seen := make(map[string]bool)
	for _, pair := range strings.Split(value, ",") {
		key, content, _ := strings.Cut(pair, "=")
		// W-DNS-3
		if seen[key] || !isAdvertKey(key) || !isAdvertValue(content) || !advert.set(key, content) {
			return advert, fmt.Errorf("turbotls: %q in the advertisement", pair)
		}
		seen[key] = true
	}
	if !seen["v"] {
		return advert, fmt.Errorf("turbotls: no version in the advertisement")
	}
	return advert, nil
}

func isAdvertKey(key string) bool {
	return key != "" && strings.Trim(key, "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
}

func isAdvertValue(value string) bool {
	for i := 0; i < len(value); i++ {
		if value[i] < '!' || value[i] > '~' || strings.IndexByte(`"\,;()`, value[i]) >= 0 {
			return false
		}
	}
	return value != ""
}

// set takes a known key, and reports whether its value is one that it may have (W-DNS-4).
func (a *Advertisement) set(key, value string) bool {
	switch key {
	case "v":
		// W-DNS-5
		return value == "2"
	case "slots":
		slots, ok := decimal(value, 255)
		if a.Slots = slots; slots > slotsMax {
			a.Slots = slotsMax
		}
		return ok
	case "udp":
		port, ok := decimal(value, 65535)
		a.UDPPort = uint16(port)
		// W-DNS-7
		return ok && (port == 443 || port >= 1024)
	case "ed":
		a.EarlyData = value == "1"
		return value == "0" || value == "1"
	case "fop": // cookies for Fast Open, which this package does not have
		return value == "0" || value == "1"
	}
	return true
}

// decimal reads a number from 1 to max without leading zeros.
func decimal(text string, max uint64) (int, bool) {
	n, err := strconv.ParseUint(text, 10, 32)
	return int(n), err == nil && n >= 1 && n <= max && text[0] != '0' && text[0] != '+'
}
