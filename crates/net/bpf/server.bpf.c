// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * The server of Fast Open with private cookies, at the ingress of an interface. It looks at SYNs to
 * one port, removes every Fast Open option, and hands a SYN with a valid cookie, once per cookie,
 * to a hidden listener that accepts the data without asking for a cookie of the kernel's.
 *
 * The public listener has Fast Open off. Without this program, or whenever it is in doubt, a SYN is
 * an ordinary one: its data are ignored and sent again. It never lets in data that it did not
 * check, and leaves alone packets that it does not understand (fragments, IPv6 extension headers)
 * or that are for others (other Ethernet addresses, VLANs).
 *
 * Needs kernel 5.8 for bpf_ktime_get_boot_ns (and 5.7 for bpf_sk_assign).
 */
#include <stddef.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/in.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "layout.h"
#include "siphash.h"

/* Bytes before the IP header: an Ethernet header (also on loopback), or none (tun, WireGuard). */
#define ETHERNET 14
#define BARE 0

/* The VLAN number in a VLAN tag; zero means a priority without a VLAN (IEEE 802.1Q). */
#define VLAN_NUMBER 0xfff

/* linux/socket.h has these for the kernel only. */
#define AF_INET 2
#define AF_INET6 10

#define IPV4_ADDRESSES 12
#define IPV6_ADDRESSES 8

#define TCP_FLAGS_OFFSET 13
#define TCP_CHECKSUM_OFFSET 16
#define TCP_HEADER 20
#define TCP_FLAG_FIN 0x01
#define TCP_FLAG_SYN 0x02
#define TCP_FLAG_RST 0x04
#define TCP_FLAG_ACK 0x10

/* RFC 9293 section 3.1; RFC 7413 section 4.1.1; RFC 6994 with the number of RFC 7413 appendix A. */
#define OPTION_END 0
#define OPTION_NOP 1
#define OPTION_FAST_OPEN 34
#define OPTION_EXPERIMENT 254
#define EXPERIMENT_HIGH 0xf9
#define EXPERIMENT_LOW 0x89

/* Four bits count the words of a header, and five of those words are not options. */
#define OPTIONS_MAX 40

/*
 * Stands before and between two comparisons of a number that a helper takes as a size. Otherwise
 * clang merges them into one comparison of another register, and the verifier does not see that
 * the number is bounded.
 */
#define KEEP(number) asm volatile("" : "+r"(number))

/* bpf_sk_storage_get and others require a GPL-compatible program; see bpf/README.md. */
char LICENSE[] SEC("license") = "Dual MIT/GPL";

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct setup);
} setup SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct config);
} config SEC(".maps");

/*
 * Spent cookies: expiry by tag. Bit 15 of the expiry selects one of two generations: all cookies
 * that live at one moment expire within 28,800 s, so in at most two periods of 32,768 s, and the
 * map of a period that is over can be emptied as a whole (F-SERVER-5).
 *
 * Not LRU: a full LRU map would forget cookies, and accept them again; these refuse (F-SERVER-3).
 *
 * A million each: 16 MB at once, and 96 bytes for every cookie; only valid cookies get here.
 */
#define SPENT_MAX (1 << 20)
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, SPENT_MAX);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u64);
	__type(value, __u64);
} spent_even SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, SPENT_MAX);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u64);
	__type(value, __u64);
} spent_odd SEC(".maps");

/*
 * Marks (enum listener) that the edge sets on its own sockets. Without them any local user could
 * listen on the hidden port once the edge is gone, and would get the port's connections; and the
 * edge would get those of other programs that listen on the same port of another address.
 */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, __u32);
} listeners SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SERVER_COUNTS);
	__type(key, __u32);
	__type(value, __u64);
} server_stats SEC(".maps");

/*
 * State of the option parser, in a map: the verifier treats values loaded from a map as unknown, so
 * all rounds of the loop look alike to it. On the stack it would follow each value, past a million
 * instructions.
 */
struct scratch {
	__u32 at;      /* offset of the option being read */
	__u32 cookies; /* options of kind 34 and length 18 */
	__u32 touched; /* Fast Open options of any form */
	__u32 reserved;
	__u8 cookie[COOKIE_LEN];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct scratch);
} scratch SEC(".maps");

static __always_inline void count(__u32 what)
{
	__u64 *counter = bpf_map_lookup_elem(&server_stats, &what);

	if (counter)
		* counter += 1;
}

/* A SYN to the protected port. */
struct syn {
	__u64 options_len;
	__u64 client[2]; /* address as in the tag of cookies */
	__u32 addresses; /* offset of both addresses */
	__u32 tcp;       /* offset of the TCP header */
	__u32 options;   /* offset of its options */
	__u32 v6;
};

struct tcp_start {
	__be16 source, dest;
	__be32 seq, ack;
	__u8 offset, flags;
};

/*
 * True if the interface's own network stack gets the packet. A packet for another Ethernet address
 * goes to a bridge, a macvlan or an observer; one with a VLAN tag goes on to that VLAN's interface.
 * Either may be in another network namespace, and would take a socket of this one along.
 */
static __always_inline int is_for_interface(struct __sk_buff *skb, __u32 l3)
{
	if (l3 == BARE)
		return 1;
	return skb->pkt_type == PACKET_HOST &&
	       !(skb->vlan_present && (skb->vlan_tci & VLAN_NUMBER));
}

/* Fills in the SYN; false if it is none. The first bytes of later fragments are no header. */
static __always_inline int find_syn(struct __sk_buff *skb, __u32 l3, __u16 port, struct syn *syn)
{
	struct tcp_start tcp;
	__u32 client4;

	if (skb->protocol == bpf_htons(ETH_P_IP)) {
		__u8 ip[20];

		if (bpf_skb_load_bytes(skb, l3, ip, sizeof(ip)))
			return 0;
		/* A fragmented SYN may have its options in the second fragment. */
		if (ip[9] != IPPROTO_TCP || (ip[6] & 0x3f) | ip[7])
			return 0;
		__builtin_memcpy(&client4, ip + IPV4_ADDRESSES, sizeof(client4));
		/* ::ffff:a.b.c.d, as two little-endian words. */
		syn->client[0] = 0;
		syn->client[1] = 0xffff0000ULL | (__u64)client4 << 32;
		syn->addresses = l3 + IPV4_ADDRESSES;
		syn->tcp = l3 + (ip[0] & 15) * 4;
		syn->v6 = 0;
	} else if (skb->protocol == bpf_htons(ETH_P_IPV6)) {
		__u8 next;

		if (bpf_skb_load_bytes(skb, l3 + 6, &next, sizeof(next)) || next != IPPROTO_TCP)
			return 0;
		/* The first 64 bits: a client changes the other bits by itself (RFC 8981). */
		syn->addresses = l3 + IPV6_ADDRESSES;
		if (bpf_skb_load_bytes(skb, syn->addresses, &syn->client[0], sizeof(__u64)))
			return 0;
		syn->client[1] = 0;
		syn->tcp = l3 + 40;
		syn->v6 = 1;
	} else {
		return 0;
	}
	if (bpf_skb_load_bytes(skb, syn->tcp, &tcp, TCP_FLAGS_OFFSET + 1))
		return 0;
	if (tcp.dest != bpf_htons(port))
		return 0;
	if ((tcp.flags & (TCP_FLAG_SYN | TCP_FLAG_ACK | TCP_FLAG_RST | TCP_FLAG_FIN)) != TCP_FLAG_SYN)
		return 0;
	syn->options = syn->tcp + TCP_HEADER;
	/* If the header is too short, this wraps past OPTIONS_MAX. */
	syn->options_len = (__u64)(tcp.offset >> 4) * 4 - TCP_HEADER;
	return 1;
}

enum strip {
	STRIP_NOTHING, /* the packet is as it was */
	STRIP_DONE,    /* its Fast Open options are gone, its checksum is right */
	STRIP_FAILED,  /* it may be half-changed */
};

/*
 * Replaces all Fast Open options by no-operations, and remembers the cookie (F-SERVER-1).
 *
 * Reads options as the kernel's tcp_parse_options does: it stops at the end-of-list option, at a
 * length below two, and at an option longer than the rest. Options that the kernel does not see do
 * not matter here.
 */
static __always_inline int strip_options(struct __sk_buff *skb, const struct syn *syn,
					 volatile struct scratch *state)
{
	__u8 old[OPTIONS_MAX] = {}, new[OPTIONS_MAX] = {}, nops[OPTIONS_MAX];
	__u64 len = syn->options_len;
	__s64 difference;

	KEEP(len);
	if (len > OPTIONS_MAX)
		return STRIP_NOTHING;
	KEEP(len);
	/* Options come in words. Before Linux 6.8 the verifier learns nothing from "not zero". */
	if (len < 4)
		return STRIP_NOTHING;
	if (bpf_skb_load_bytes(skb, syn->options, old, len))
		return STRIP_NOTHING;
	__builtin_memset(nops, OPTION_NOP, sizeof(nops));
	state->at = 0;
	state->cookies = 0;
	state->touched = 0;

#pragma clang loop unroll(disable)
	for (__u32 round = 0; round < OPTIONS_MAX; round++) {
		__u64 at = state->at, size;
		__u8 head[4] = {};

		if (at >= len || at >= OPTIONS_MAX)
			break;
		/* Via the helper: without CAP_PERFMON no variable index into the stack is allowed. */
		if (bpf_skb_load_bytes(skb, syn->options + at, head, 1) || head[0] == OPTION_END)
			break;
		if (head[0] == OPTION_NOP) {
			state->at = at + 1;
			continue;
		}
		if (at + 2 > len || bpf_skb_load_bytes(skb, syn->options + at, head, 2))
			break;
		size = head[1];
		KEEP(size);
		if (size > OPTIONS_MAX)
			break;
		KEEP(size);
		if (size < 2 || at + size > len)
			break;
		state->at = at + size;
		if (head[0] == OPTION_EXPERIMENT && size >= 4) {
			if (bpf_skb_load_bytes(skb, syn->options + at, head, 4))
				break;
			if (head[2] != EXPERIMENT_HIGH || head[3] != EXPERIMENT_LOW)
				continue;
		} else if (head[0] != OPTION_FAST_OPEN) {
			continue;
		}
		if (head[0] == OPTION_FAST_OPEN && size == COOKIE_LEN + 2) {
			state->cookies += 1;
			if (bpf_skb_load_bytes(skb, syn->options + at + 2, (void *)state->cookie,
					       COOKIE_LEN))
				return STRIP_FAILED;
		}
		state->touched += 1;
		if (bpf_skb_store_bytes(skb, syn->options + at, nops, size, 0))
			return STRIP_FAILED;
	}
	if (!state->touched)
		return STRIP_NOTHING;
	/* Once more: before Linux 5.16 a number that was on the stack in between is unbounded. */
	KEEP(len);
	if (len > OPTIONS_MAX)
		return STRIP_FAILED;
	KEEP(len);
	if (len < 4 || bpf_skb_load_bytes(skb, syn->options, new, len))
		return STRIP_FAILED;
	/* Over all options, as one may begin at an odd offset. */
	difference = bpf_csum_diff((__be32 *)old, OPTIONS_MAX, (__be32 *)new, OPTIONS_MAX, 0);
	if (bpf_l4_csum_replace(skb, syn->tcp + TCP_CHECKSUM_OFFSET, 0, difference, 0))
		return STRIP_FAILED;
	return STRIP_DONE;
}

struct cookie {
	__u64 nonce; /* the two highest bytes are zero */
	__u64 tag;
	__u16 masked;
};

static __always_inline struct cookie read_cookie(const __u8 *bytes)
{
	struct cookie cookie = {};

	__builtin_memcpy(&cookie.nonce, bytes, 6);
	__builtin_memcpy(&cookie.masked, bytes + 6, 2);
	__builtin_memcpy(&cookie.tag, bytes + 8, 8);
	return cookie;
}

/*
 * The expiry of a cookie for this key and client, in unix seconds; 0 if the tag does not match.
 *
 * Its 16 bits denote one moment between 36,735 s ago and COOKIE_LIFE_MAX from now.
 */
static __always_inline __u64 expiry(const struct key *key, const struct cookie *cookie,
				    const struct syn *syn, __u64 now)
{
	__u64 at;
	__u16 low, left;

	/* Zeros are no key: the map's value has them while it is being written or wiped. */
	if (!key->valid || !(key->tag[0] | key->tag[1]))
		return 0;
	low = cookie->masked ^ (__u16)siphash_1(key->mask, cookie->nonce);
	left = low - (__u16)now;
	at = left <= COOKIE_LIFE_MAX ? now + left : now - (__u16)-left;
	if (siphash_4(key->tag, cookie->nonce | (__u64)low << 48, at >> 16, syn->client[0],
		      syn->client[1]) != cookie->tag)
		return 0;
	return at;
}

#define SECOND 1000000000ULL

/* True if the cookie opens this connection; counts the reason if not. */
static __always_inline int take_cookie(const struct setup *setup, const struct config *config,
				       const struct syn *syn, const struct cookie *cookie)
{
	__u64 boot = bpf_ktime_get_boot_ns(), unix_time = boot + config->unix_minus_boot;
	__u64 now = unix_time / SECOND, age = boot - setup->created;
	__u64 created = age < unix_time ? (unix_time - age) / SECOND : 0;
	__u64 tag = cookie->tag, at;
	long error;

	/* Not a loop: siphash.h says why a map is not indexed by a variable. */
	at = expiry(&config->keys[0], cookie, syn, now);
	if (!at)
		at = expiry(&config->keys[1], cookie, syn, now);
	if (!at)
		at = expiry(&config->keys[2], cookie, syn, now);
	if (!at) {
		count(SERVER_FORGED);
		return 0;
	}
	/* With more time left than the configured life, its age is unknown (F-SERVER-2). */
	if (at < now || at - now > config->life || at <= config->swept) {
		count(SERVER_EXPIRED);
		return 0;
	}
	if (at < created + config->life) {
		count(SERVER_EARLY);
		return 0;
	}
	if (at & 0x8000)
		error = bpf_map_update_elem(&spent_odd, &tag, &at, BPF_NOEXIST);
	else
		error = bpf_map_update_elem(&spent_even, &tag, &at, BPF_NOEXIST);
	if (error) {
		count(error == -17 /* EEXIST */ ? SERVER_REPLAYED : SERVER_FULL);
		return 0;
	}
	return 1;
}

/* The ends of the connection that the SYN is to open. */
static __always_inline long read_ends(struct __sk_buff *skb, const struct syn *syn,
				      struct bpf_sock_tuple *ends)
{
	if (syn->v6)
		return bpf_skb_load_bytes(skb, syn->addresses, &ends->ipv6, 32) |
		       bpf_skb_load_bytes(skb, syn->tcp, &ends->ipv6.sport, 4);
	return bpf_skb_load_bytes(skb, syn->addresses, &ends->ipv4, 8) |
	       bpf_skb_load_bytes(skb, syn->tcp, &ends->ipv4.sport, 4);
}

/*
 * True if the packet ends at this machine. Linux drops packets that have a socket when it forwards
 * them to another machine.
 */
static __always_inline int ends_here(struct __sk_buff *skb, const struct syn *syn,
				     const struct bpf_sock_tuple *ends)
{
	struct bpf_fib_lookup route = {};
	long result;

	route.ifindex = skb->ifindex;
	if (syn->v6) {
		route.family = AF_INET6;
		__builtin_memcpy(route.ipv6_src, ends->ipv6.saddr, sizeof(route.ipv6_src));
		__builtin_memcpy(route.ipv6_dst, ends->ipv6.daddr, sizeof(route.ipv6_dst));
	} else {
		route.family = AF_INET;
		route.ipv4_src = ends->ipv4.saddr;
		route.ipv4_dst = ends->ipv4.daddr;
	}
	result = bpf_fib_lookup(skb, &route, sizeof(route), 0);
	return result == BPF_FIB_LKUP_RET_NOT_FWDED || result == BPF_FIB_LKUP_RET_FWD_DISABLED;
}

/*
 * True if the edge's public listener would get the SYN: not another program that listens on this
 * port of another address, nor a connection between the same ends (open, half open, TIME-WAIT).
 */
static __always_inline int is_for_edge(struct __sk_buff *skb, const struct syn *syn,
				       struct bpf_sock_tuple *ends)
{
	struct bpf_sock *sk, *listener;
	__u32 *mark;
	int is = 0;

	if (syn->v6)
		sk = bpf_skc_lookup_tcp(skb, ends, sizeof(ends->ipv6), BPF_F_CURRENT_NETNS, 0);
	else
		sk = bpf_skc_lookup_tcp(skb, ends, sizeof(ends->ipv4), BPF_F_CURRENT_NETNS, 0);
	if (!sk)
		return 0;
	listener = sk->state == BPF_TCP_LISTEN ? bpf_sk_fullsock(sk) : NULL;
	if (listener) {
		mark = bpf_sk_storage_get(&listeners, listener, 0, 0);
		is = mark && *mark == LISTENER_PUBLIC;
	}
	bpf_sk_release(sk);
	return is;
}

/* True if the hidden listener has taken the SYN. */
static __always_inline int give(struct __sk_buff *skb, const struct config *config, int v6)
{
	struct bpf_sock_tuple tuple = {};
	struct bpf_sock *sk;
	__u32 *mark;
	int taken;

	if (v6) {
		tuple.ipv6.daddr[3] = bpf_htonl(1);
		tuple.ipv6.dport = bpf_htons(config->hidden6);
		sk = bpf_sk_lookup_tcp(skb, &tuple, sizeof(tuple.ipv6), BPF_F_CURRENT_NETNS, 0);
	} else {
		tuple.ipv4.daddr = bpf_htonl(0x7f000001);
		tuple.ipv4.dport = bpf_htons(config->hidden4);
		sk = bpf_sk_lookup_tcp(skb, &tuple, sizeof(tuple.ipv4), BPF_F_CURRENT_NETNS, 0);
	}
	if (!sk)
		return 0;
	mark = sk->state == BPF_TCP_LISTEN ? bpf_sk_storage_get(&listeners, sk, 0, 0) : NULL;
	taken = mark && *mark == LISTENER_HIDDEN && !bpf_sk_assign(skb, sk, 0);
	bpf_sk_release(sk);
	return taken;
}

/* Gives the SYN to the hidden listener if it belongs there; else it goes on as it would have. */
static __always_inline void steer(struct __sk_buff *skb, const struct config *config,
				  const struct syn *syn)
{
	struct bpf_sock_tuple ends = {};

	if (!read_ends(skb, syn, &ends) && ends_here(skb, syn, &ends) &&
	    is_for_edge(skb, syn, &ends) && give(skb, config, syn->v6))
		count(SERVER_STEERED);
	else
		count(SERVER_NO_LISTENER);
}

static __always_inline int handle(struct __sk_buff *skb, __u32 l3)
{
	__u32 zero = 0;
	struct setup *own = bpf_map_lookup_elem(&setup, &zero);
	struct config *settings;
	volatile struct scratch *state;
	struct cookie cookie;
	struct syn syn = {};
	__u8 bytes[COOKIE_LEN];
	int stripped;

	/* Every packet of the interface gets this far. */
	if (!own || own->layout != LAYOUT || !is_for_interface(skb, l3) ||
	    !find_syn(skb, l3, own->port, &syn))
		return TC_ACT_UNSPEC;
	count(SERVER_SYN);
	settings = bpf_map_lookup_elem(&config, &zero);
	state = bpf_map_lookup_elem(&scratch, &zero);
	if (!settings || !state)
		return TC_ACT_UNSPEC;
	stripped = strip_options(skb, &syn, state);
	if (stripped == STRIP_FAILED) {
		count(SERVER_FAULT);
		return TC_ACT_SHOT;
	}
	if (stripped == STRIP_NOTHING)
		return TC_ACT_UNSPEC;
	if (state->cookies != 1 || state->touched != 1) {
		count(SERVER_STRIPPED);
		return TC_ACT_UNSPEC;
	}
	__builtin_memcpy(bytes, (void *)state->cookie, COOKIE_LEN);
	cookie = read_cookie(bytes);
	if (take_cookie(own, settings, &syn, &cookie))
		steer(skb, settings, &syn);
	return TC_ACT_UNSPEC;
}

/* aya knows the section by this name only. */
SEC("classifier")
int steer_ethernet(struct __sk_buff *skb)
{
	return handle(skb, ETHERNET);
}

SEC("classifier")
int steer_bare(struct __sk_buff *skb)
{
	return handle(skb, BARE);
}
