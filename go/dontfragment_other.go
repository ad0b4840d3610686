//go:build !linux

package turbotls

import "net"

// setDontFragment does nothing: paths carry 1,280 bytes mostly.
func setDontFragment(*net.UDPConn) {}
