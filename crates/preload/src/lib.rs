//! Interposes between an unmodified program and its OpenSSL 3, by `LD_PRELOAD`: before a handshake
//! it asks the agent for a session (`GET /ticket`, docs/managed.md), and afterwards leaves the
//! server's new session there.
//!
//! docs/applications.md says for which programs, and why it is safe. Each of these rules keeps one
//! program from weakening the checks of another:
//!
//! * Only clients that verify (`SSL_VERIFY_PEER`) for a server name, with TLS 1.3, without
//!   stapling, certificate transparency, a verification or keys of their own, or a client
//!   certificate. Others are left alone.
//! * A session is left with the agent only if OpenSSL's own verification succeeded, regardless of
//!   the program's callbacks, and the certificate is valid for the name. The server's chain goes
//!   along with it.
//! * **A session is offered only after the connection that is to resume it has verified that chain
//!   itself**: by its own roots, parameters and host name, and then by its own callbacks. A
//!   resumption therefore skips none of its checks.
//! * The process that listens at the socket could impersonate any server: its user has to be this
//!   user, root, or the one named in `HEADSTART_AGENT_UID`.
//! * A ticket goes to the agent or to the program, never to both; the first one of a connection
//!   goes to the agent. A program that offers its own session gets no other.
//! * Every failure is silent, and the handshake then proceeds as it would have. The agent has 5 ms
//!   for an answer, twice for each connection; after a timeout it is not asked for one second.
//!
//! The interposed functions are `SSL_connect` and `SSL_do_handshake`, where a session is taken, and
//! `SSL_set_connect_state`, for programs that begin by writing; `SSL_set_session` and the callback
//! for new sessions, to know the program's own use of sessions; settings without a getter:
//! protocols, session id contexts, callbacks; and the info callback, in front of which ours stays
//! until an offered session is verified. Each call goes on to the function that its caller would
//! have reached without us. The return address identifies that function: Python and Ruby load
//! libssl where `RTLD_NEXT` does not see it, and a process can have two copies. Only x86-64 and
//! arm64 have the few instructions for that; elsewhere nothing is interposed.
//!
//! No lock is waited for, and nothing is kept open: a fork, at any moment, shares nothing with its
//! parent.

// On other platforms nothing calls it.
#[cfg_attr(not(target_env = "gnu"), allow(dead_code))]
mod link;
#[cfg_attr(not(target_env = "gnu"), allow(dead_code))]
mod query;
#[cfg(all(
    target_os = "linux",
    target_env = "gnu",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]
mod sys;
