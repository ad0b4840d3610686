/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * What the BPF programs and crates/net/src/fastopen/layout.rs share: numbers, and the bytes of map
 * values. All integers are little-endian; build.sh builds for little-endian processors only.
 *
 * Whoever changes anything of Fast Open here counts LAYOUT up, in both files: a program refuses
 * maps of another one. CAREFUL_LAYOUT is the same for Careful Resume.
 */
#ifndef HEADSTART_LAYOUT_H
#define HEADSTART_LAYOUT_H

#include <linux/types.h>

#define LAYOUT 2

/* The cookie: nonce 6 | masked expiry 2 | tag 8 (docs/fop.md). */
#define COOKIE_LEN 16

/* Seconds that a cookie lives at most: limits::COOKIE_LIFE_MAX of crates/proto. */
#define COOKIE_LIFE_MAX 28800

/* The client's interface: setsockopt(fd, SOL_FOP, SO_COOKIE, 16 bytes), getsockopt(fd, SOL_FOP,
 * SO_STATE, u32). The level spells "FOP": far from all levels that the kernel has or may get. */
#define SOL_FOP 0x464f50
#define SO_COOKIE 1
#define SO_STATE 2

/* What became of a socket's cookie. */
enum cookie_state {
	STATE_NONE,  /* none was set */
	STATE_READY, /* waits for a SYN with data */
	STATE_SENT,  /* went out in a SYN, and was wiped here */
};

/* Counters of the client's programs. */
enum client_count {
	CLIENT_SENT,    /* SYNs with a cookie */
	CLIENT_NO_ROOM, /* SYNs whose other options left no room for one */
	CLIENT_NO_DATA, /* SYNs without data, which get none */
	CLIENT_COUNTS,
};

/* Keys of three epochs, so that servers need not change keys in the same instant. */
#define KEYS 3

struct key {
	__u64 tag[2];
	__u64 mask[2];
	__u32 valid;
	__u32 reserved;
};

/* Written once, by the loader. */
struct setup {
	__u32 layout;
	__u16 port; /* protected port, host byte order */
	__u16 reserved;
	/* ns since boot: cookies that were minted before are refused. Not by the clock, which may
	 * have been wrong then: at boot it often is. */
	__u64 created;
};

/* Written by the edge, which needs no privilege for it. All zero: no cookie is taken. */
struct config {
	__u64 unix_minus_boot; /* ns: unix time less the time since boot */
	__u64 swept;           /* unix seconds: cookies that expire until then are refused */
	__u32 life;            /* seconds that cookies are minted for */
	__u16 hidden4;         /* port of the hidden listener on 127.0.0.1, host byte order; 0: none */
	__u16 hidden6;         /* the same on ::1 */
	struct key keys[KEYS];
};

/* Marks of the edge's listeners. */
enum listener {
	LISTENER_HIDDEN = 1, /* takes data in SYNs, which are given to it here */
	LISTENER_PUBLIC = 2, /* the one that clients know: its SYNs may be given to the other */
};

/* Counters of the server's program, one or two for each SYN to the protected port. */
enum server_count {
	SERVER_SYN,         /* all of them */
	SERVER_STEERED,     /* cookie taken, SYN given to the hidden listener */
	SERVER_REPLAYED,    /* cookie taken before */
	SERVER_FULL,        /* cookie valid, but no room to remember it */
	SERVER_EXPIRED,     /* cookie past its expiry, or with more life left than cookies have */
	SERVER_FORGED,      /* cookie of another key or client, or no cookie at all */
	SERVER_EARLY,       /* cookie minted before the maps were made */
	SERVER_NO_LISTENER, /* cookie taken, but no edge listens for this SYN */
	SERVER_STRIPPED,    /* Fast Open options of any other form, or several cookies */
	SERVER_FAULT,       /* dropped half-changed, as a helper failed */
	SERVER_COUNTS,
};

/* The interface of Careful Resume: setsockopt(fd, SOL_CAREFUL, NAME, u32). The level spells "CRE".
 * SO_JUMP: segments with which an unused connection begins. SO_CLAMP: the most that its window and
 * its slow start may reach. SO_PROBE: says whether this process may use the others. */
#define CAREFUL_LAYOUT 1
#define SOL_CAREFUL 0x435245
#define SO_JUMP 1
#define SO_CLAMP 2
#define SO_PROBE 3

/* Twice the largest jump, at 1,448 bytes a segment: JUMP_MAX of crates/proto/src/careful.rs. */
#define JUMP_SEGMENTS_MAX 2048

/* Written once, by the loader. */
struct careful_setup {
	__u32 layout;
	__u32 owner; /* the user whose processes may ask, beside root */
};

_Static_assert(sizeof(struct careful_setup) == 8, "as in layout.rs");
_Static_assert(sizeof(struct key) == 40, "as in layout.rs");
_Static_assert(sizeof(struct setup) == 16, "as in layout.rs");
_Static_assert(sizeof(struct config) == 144, "as in layout.rs");

#endif
