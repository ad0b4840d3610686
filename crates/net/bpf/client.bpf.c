// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * The client of Fast Open with private cookies: writes a cookie that the application chose into the
 * SYN of one connection. Attached to a cgroup; whoever is in it needs no privilege to use it.
 *
 * The application sets the cookie by setsockopt, sets TCP_FASTOPEN_NO_COOKIE (or the kernel writes
 * an option of its own, which leaves no room), and sends with MSG_FASTOPEN. Not attached,
 * setsockopt says ENOPROTOOPT.
 *
 * A cookie is on the wire once: it is wiped when the SYN that carries it is written, so that a
 * retransmission, which the kernel sends without data, has none.
 *
 * Kernel 5.10 (TCP header options from sock_ops).
 */
#include <stddef.h>
#include <linux/bpf.h>
#include <linux/in.h>
#include <bpf/bpf_helpers.h>

#include "layout.h"

#define TCP_FLAG_SYN 0x02
#define TCP_FLAG_ACK 0x10

/* RFC 7413 section 4.1.1. */
#define OPTION_FAST_OPEN 34
#define OPTION_LEN (COOKIE_LEN + 2)

/* Bytes of a socket option that these programs are shown at least: the smallest page. */
#define SHOWN 4096

/* A length that says: the kernel's own handler is not to be asked. */
#define HANDLED -1

/* bpf_sk_storage_get and others are for GPL-compatible programs; see bpf/README.md. */
char LICENSE[] SEC("license") = "Dual MIT/GPL";

struct cookie {
	__u8 bytes[COOKIE_LEN];
	__u32 state;
	__u32 reserved;
};

/* In the sockets themselves, so it ends with them and nobody else's can be reached. */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct cookie);
} cookies SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, CLIENT_COUNTS);
	__type(key, __u32);
	__type(value, __u64);
} client_stats SEC(".maps");

static __always_inline void count(__u32 what)
{
	__u64 *counter = bpf_map_lookup_elem(&client_stats, &what);

	if (counter)
		* counter += 1;
}

/* The cookie of the socket, if it waits to be sent. */
static __always_inline struct cookie *ready_cookie(struct bpf_sock_ops *ops)
{
	struct bpf_sock *sk = ops->sk;
	struct cookie *cookie;

	if (!sk)
		return NULL;
	cookie = bpf_sk_storage_get(&cookies, sk, 0, 0);
	return cookie && cookie->state == STATE_READY ? cookie : NULL;
}

static __always_inline void ask_for_options(struct bpf_sock_ops *ops)
{
	bpf_sock_ops_cb_flags_set(ops, ops->bpf_sock_ops_cb_flags | BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG);
}

/* From here on the connection costs what it costs without this program. */
static __always_inline void ask_no_more(struct bpf_sock_ops *ops)
{
	bpf_sock_ops_cb_flags_set(ops, ops->bpf_sock_ops_cb_flags & ~BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG);
}

static __always_inline int is_syn(struct bpf_sock_ops *ops)
{
	return (ops->skb_tcp_flags & (TCP_FLAG_SYN | TCP_FLAG_ACK)) == TCP_FLAG_SYN;
}

/* Says how much room the option needs. The header is not built yet: the length is the data's. */
static __always_inline void reserve(struct bpf_sock_ops *ops)
{
	if (!is_syn(ops)) {
		/* Asked without a packet too, for the size of segments: not before the SYN is out. */
		if (ops->state != BPF_TCP_SYN_SENT)
			ask_no_more(ops);
		return;
	}
	if (!ready_cookie(ops))
		return;
	if (!ops->skb_len) {
		/* An ordinary connect, or the kernel had reason to leave the data out: not spent in vain. */
		count(CLIENT_NO_DATA);
		return;
	}
	if (bpf_reserve_hdr_opt(ops, OPTION_LEN, 0))
		count(CLIENT_NO_ROOM);
}

static __always_inline void write_option(struct bpf_sock_ops *ops)
{
	__u8 option[OPTION_LEN] = { OPTION_FAST_OPEN, OPTION_LEN };
	struct cookie *cookie;

	if (is_syn(ops)) {
		cookie = ready_cookie(ops);
		if (cookie) {
			__builtin_memcpy(option + 2, cookie->bytes, COOKIE_LEN);
			if (!bpf_store_hdr_opt(ops, option, sizeof(option), 0))
				count(CLIENT_SENT);
			/* Spent in any case: it may be on the wire. */
			__builtin_memset(cookie->bytes, 0, COOKIE_LEN);
			cookie->state = STATE_SENT;
		}
	}
	ask_no_more(ops);
}

SEC("sockops")
int fop_sockops(struct bpf_sock_ops *ops)
{
	switch (ops->op) {
	case BPF_SOCK_OPS_TCP_CONNECT_CB:
		if (ready_cookie(ops))
			ask_for_options(ops);
		break;
	case BPF_SOCK_OPS_HDR_OPT_LEN_CB:
		reserve(ops);
		break;
	case BPF_SOCK_OPS_WRITE_HDR_OPT_CB:
		write_option(ops);
		break;
	}
	return 1;
}

/*
 * Leaves an option to the kernel. Of one longer than a page a program is shown the beginning, and
 * must say by a length of zero that it changed nothing: else Linux before 6.5 refuses it with
 * EFAULT, for all processes of the cgroup (prog_cgroup_sockopt.rst of the kernel). Tables of
 * iptables are that long.
 */
static __always_inline int leave(struct bpf_sockopt *ctx)
{
	if (ctx->optlen > SHOWN)
		ctx->optlen = 0;
	return 1;
}

/* Takes a cookie. Sockets that are not plain TCP (MPTCP writes its SYN from an inner socket) get
 * what they get without this program: ENOPROTOOPT. */
SEC("cgroup/setsockopt")
int fop_setsockopt(struct bpf_sockopt *ctx)
{
	__u8 *value = ctx->optval, *end = ctx->optval_end;
	struct bpf_sock *sk = ctx->sk;
	struct cookie *cookie;

	if (ctx->level != SOL_FOP || ctx->optname != SO_COOKIE)
		return leave(ctx);
	if (!sk || sk->protocol != IPPROTO_TCP)
		return leave(ctx);
	/* The same program has it already, from a cgroup below. */
	if (ctx->optlen == HANDLED)
		return 1;
	if (ctx->optlen != COOKIE_LEN || value + COOKIE_LEN > end)
		return 0;
	cookie = bpf_sk_storage_get(&cookies, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (!cookie)
		return 0;
	__builtin_memcpy(cookie->bytes, value, COOKIE_LEN);
	cookie->state = STATE_READY;
	/* The kernel's own handler knows nothing of this level. */
	ctx->optlen = HANDLED;
	return 1;
}

/* Tells what became of it. */
SEC("cgroup/getsockopt")
int fop_getsockopt(struct bpf_sockopt *ctx)
{
	__u8 *value = ctx->optval, *end = ctx->optval_end;
	struct bpf_sock *sk = ctx->sk;
	struct cookie *cookie;

	if (ctx->level != SOL_FOP || ctx->optname != SO_STATE)
		return leave(ctx);
	if (!sk || sk->protocol != IPPROTO_TCP)
		return leave(ctx);
	/* Nobody answers to this level but the same program, from a cgroup below. */
	if (!ctx->retval)
		return 1;
	if (value + sizeof(__u32) > end)
		return 0;
	cookie = bpf_sk_storage_get(&cookies, sk, 0, 0);
	* (__u32 *)value = cookie ? cookie->state : STATE_NONE;
	ctx->optlen = sizeof(__u32);
	/* Or clang makes one store of the two, across fields, which the verifier refuses. */
	asm volatile("" ::: "memory");
	ctx->retval = 0;
	return 1;
}
