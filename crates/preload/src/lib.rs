//! Stands between an unmodified program and its OpenSSL 3, by `LD_PRELOAD`: before a handshake it asks the agent for a
//! session (`GET /ticket`, docs/managed.md), and leaves there what the server hands out.
//!
//! docs/applications.md says for whom, and why it is safe. The rules, each of which keeps one program from lowering what
//! another checks:
//!
//! * Only clients that verify (`SSL_VERIFY_PEER`) for a server name, with TLS 1.3, without stapling, certificate transparency,
//!   a verification or keys of their own, or a client certificate. Others are left alone.
//! * A session is left with the agent only if OpenSSL's own verification found nothing, whatever callbacks of the program
//!   say, and the certificate is good for the name. The server's chain goes along with it.
//! * **A session is offered only after the connection that is to resume it has verified that chain itself**: by its own roots,
//!   parameters and host name, and then by its own callbacks. So a resumption skips nothing that it would have checked.
//! * Whoever listens at the socket could be any server: it has to be the user, root, or the owner of the socket's directory.
//! * A ticket goes to the agent or to the program, never to both; the first of a connection to the agent. A program
//!   that offers a session of its own is not given another.
//! * Whatever fails is silent, and the handshake is what it would have been. The agent has 5 ms for an answer, twice for a
//!   connection; one that lets them pass is not asked for a second.
//!
//! What is interposed: `SSL_connect` and `SSL_do_handshake`, where a session is taken, and `SSL_set_connect_state`, for those
//! who begin by writing; `SSL_set_session` and the callback for new sessions, to know what the program does itself; and
//! what has no getter: protocols, session id contexts, callbacks; and the callback for what happens in a connection, in front of
//! which ours stays until a session that was offered is verified. Each call goes on to the function that its caller would
//! have got without us, which is found by the return address: Python and Ruby load libssl where `RTLD_NEXT` does not
//! see it, and a process can have two of them. Only x86-64 and arm64 have the few instructions for that; elsewhere
//! nothing is interposed.
//!
//! No lock is waited for, and nothing is kept open: a fork, at any moment, has nothing in common with its parent.

// Elsewhere nobody asks.
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
