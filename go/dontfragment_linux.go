package turbotls

import (
	"net"
	"syscall"
)

// setDontFragment sets IP_MTU_DISCOVER and its like for IPv6, of which one fits the socket.
func setDontFragment(conn *net.UDPConn) {
	const ipv6MTUDiscover = 23
	raw, err := conn.SyscallConn()
	if err != nil {
		return
	}
	// W-SIZE-2
	_ = raw.Control(func(fd uintptr) {
		_ = syscall.SetsockoptInt(
			int(fd), syscall.IPPROTO_IP, syscall.IP_MTU_DISCOVER, syscall.IP_PMTUDISC_DO)
		_ = syscall.SetsockoptInt(
			int(fd), syscall.IPPROTO_IPV6, ipv6MTUDiscover, syscall.IP_PMTUDISC_DO)
	})
}
