/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * SipHash-2-4 (Aumasson and Bernstein, 2012) over whole little-endian words, as many as there are
 * bytes of eight in every message here.
 *
 * Unrolled by hand: the verifier takes a loop over an array on the stack for variable indexing,
 * which it refuses to a loader without CAP_PERFMON.
 */
#ifndef HEADSTART_SIPHASH_H
#define HEADSTART_SIPHASH_H

#include <linux/types.h>

#define SIP_ROTATE(x, bits) (((x) << (bits)) | ((x) >> (64 - (bits))))

#define SIP_ROUND(s)                                          \
	do {                                                  \
		(s).a += (s).b;                               \
		(s).b = SIP_ROTATE((s).b, 13) ^ (s).a;        \
		(s).a = SIP_ROTATE((s).a, 32);                \
		(s).c += (s).d;                               \
		(s).d = SIP_ROTATE((s).d, 16) ^ (s).c;        \
		(s).a += (s).d;                               \
		(s).d = SIP_ROTATE((s).d, 21) ^ (s).a;        \
		(s).c += (s).b;                               \
		(s).b = SIP_ROTATE((s).b, 17) ^ (s).c;        \
		(s).c = SIP_ROTATE((s).c, 32);                \
	} while (0)

#define SIP_WORD(s, word)              \
	do {                           \
		(s).d ^= (word);       \
		SIP_ROUND(s);          \
		SIP_ROUND(s);          \
		(s).a ^= (word);       \
	} while (0)

struct sip {
	__u64 a, b, c, d;
};

static __always_inline struct sip sip_start(const __u64 *key)
{
	struct sip s = {
		.a = 0x736f6d6570736575ULL ^ key[0],
		.b = 0x646f72616e646f6dULL ^ key[1],
		.c = 0x6c7967656e657261ULL ^ key[0],
		.d = 0x7465646279746573ULL ^ key[1],
	};
	return s;
}

/* The last word has the length of the message in its highest byte; no byte is left over. */
static __always_inline __u64 sip_finish(struct sip s, __u64 bytes)
{
	__u64 last = bytes << 56;

	SIP_WORD(s, last);
	s.c ^= 0xff;
	SIP_ROUND(s);
	SIP_ROUND(s);
	SIP_ROUND(s);
	SIP_ROUND(s);
	return s.a ^ s.b ^ s.c ^ s.d;
}

static __always_inline __u64 siphash_1(const __u64 *key, __u64 word)
{
	struct sip s = sip_start(key);

	SIP_WORD(s, word);
	return sip_finish(s, 8);
}

static __always_inline __u64 siphash_4(const __u64 *key, __u64 w0, __u64 w1, __u64 w2, __u64 w3)
{
	struct sip s = sip_start(key);

	SIP_WORD(s, w0);
	SIP_WORD(s, w1);
	SIP_WORD(s, w2);
	SIP_WORD(s, w3);
	return sip_finish(s, 32);
}

#endif
