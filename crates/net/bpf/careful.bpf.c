// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * The sender of Careful Resume (RFC 9959): sets the congestion window of a TCP connection, which
 * Linux lets no process do by itself. Attached to a cgroup; answers to the processes of one user.
 *
 * It decides nothing: crates/proto/src/careful.rs has the phases, and says which window when.
 *
 * Kernel 5.15 (bpf_setsockopt from programs of setsockopt).
 */
#include <stddef.h>
#include <linux/bpf.h>
#include <linux/in.h>
#include <linux/tcp.h>
#include <bpf/bpf_helpers.h>

#include "layout.h"

/* Bytes of a socket option that these programs are shown at least: the smallest page. */
#define SHOWN 4096

/* A length that says: the kernel's own handler is not to be asked. */
#define HANDLED -1

/* The name of a congestion control, as long as TCP_CA_NAME_MAX of the kernel. */
union name {
	char text[16];
	__u64 words[2];
};

#define CUBIC {.text = "cubic"}
#define RENO {.text = "reno"}
#define BBR {.text = "bbr"}

/* bpf_setsockopt and others are for GPL-compatible programs; see bpf/README.md. */
char LICENSE[] SEC("license") = "Dual MIT/GPL";

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct careful_setup);
} careful_setup SEC(".maps");

static __always_inline int is_owner(void)
{
	__u32 first = 0, user = (__u32)bpf_get_current_uid_gid();
	struct careful_setup *setup = bpf_map_lookup_elem(&careful_setup, &first);

	return setup && setup->layout == CAREFUL_LAYOUT && (user == 0 || user == setup->owner);
}

static __always_inline int set(struct bpf_sock *sk, int name, __u32 value)
{
	return bpf_setsockopt(sk, IPPROTO_TCP, name, &value, sizeof(value));
}

static __always_inline int is_same(const union name *one, const union name *other)
{
	return one->words[0] == other->words[0] && one->words[1] == other->words[1];
}

static __always_inline int choose(struct bpf_sock *sk, union name *control)
{
	return bpf_setsockopt(sk, IPPROTO_TCP, TCP_CONGESTION, control, sizeof(*control));
}

/*
 * Has the kernel derive the pacing rate from the window that was just set, of which there is no
 * other way: cubic and reno do so with each acknowledgement, and none has come. BBR does when it
 * starts, so it starts here, and the socket's own algorithm takes over at once.
 */
static __always_inline int renew_pacing(struct bpf_sock *sk, union name *own)
{
	union name bbr = BBR, reno = RENO;

	/* Or the kernel sees no change. */
	if (is_same(own, &bbr) && choose(sk, &reno))
		return -1;
	return choose(sk, &bbr) || choose(sk, own);
}

/*
 * Tells whether the socket's congestion control, which is read here, bears to be left and chosen
 * again: others may have state, or be gone by then.
 */
static __always_inline int may_change(struct bpf_sock *sk, union name *own)
{
	union name cubic = CUBIC, reno = RENO, bbr = BBR;

	if (bpf_getsockopt(sk, IPPROTO_TCP, TCP_CONGESTION, own, sizeof(*own)))
		return 0;
	return is_same(own, &cubic) || is_same(own, &reno) || is_same(own, &bbr);
}

/*
 * Sets the window with which a connection begins to send, which is larger than the one it has; the
 * kernel refuses it once the connection has sent.
 */
static __always_inline int jump(struct bpf_sock *sk, __u32 segments)
{
	struct bpf_tcp_sock *tcp = bpf_tcp_sock(sk);
	union name own = {};
	__u32 before;

	if (!tcp || !may_change(sk, &own))
		return 0;
	before = tcp->snd_cwnd;
	if (segments <= before || segments > JUMP_SEGMENTS_MAX || set(sk, TCP_BPF_IW, segments))
		return 0;
	if (!renew_pacing(sk, &own))
		return 1;
	/* A window that is not paced would leave in one burst. */
	set(sk, TCP_BPF_IW, before);
	return 0;
}

/* Leaves an option to the kernel, as the client's program does. */
static __always_inline int leave(struct bpf_sockopt *ctx)
{
	if (ctx->optlen > SHOWN)
		ctx->optlen = 0;
	return 1;
}

SEC("cgroup/setsockopt")
int careful_setsockopt(struct bpf_sockopt *ctx)
{
	__u8 *value = ctx->optval, *end = ctx->optval_end;
	struct bpf_sock *sk = ctx->sk;
	int done;
	__u32 segments;

	if (ctx->level != SOL_CAREFUL)
		return leave(ctx);
	if (!sk || sk->protocol != IPPROTO_TCP)
		return leave(ctx);
	/* The same program has done it already, from a cgroup below. */
	if (ctx->optlen == HANDLED)
		return 1;
	if (ctx->optlen != sizeof(segments) || value + sizeof(segments) > end || !is_owner())
		return 0;
	segments = *(__u32 *)value;
	if (ctx->optname == SO_JUMP)
		done = jump(sk, segments);
	else if (ctx->optname == SO_CLAMP)
		done = !set(sk, TCP_BPF_SNDCWND_CLAMP, segments);
	else
		done = ctx->optname == SO_PROBE;
	/* The kernel's own handler knows nothing of this level. */
	if (done)
		ctx->optlen = HANDLED;
	return done;
}
