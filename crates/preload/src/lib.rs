//! Stands between an unmodified program and its OpenSSL 3, by `LD_PRELOAD`: before a handshake it asks the agent for a
//! session (`GET /ticket`, docs/managed.md), and leaves there what the server hands out.
//!
//! docs/applications.md says for whom. The rules, each of which keeps one program from lowering what another checks:
//!
//! * Only clients that verify (`SSL_VERIFY_PEER`) without callbacks of their own, by the system's roots and no others,
//!   without CRLs, stapling or a client certificate, for a server name, with TLS 1.3. Others are left alone.
//! * A session is left with the agent only if its certificate is good for that name **by the library's own check**
//!   against the system's roots: programs like curl check names where nobody sees it, and others trust more.
//! * A ticket goes to the agent or to the program, never to both; the first of a connection to the agent. A program
//!   that offers a session of its own is not given another.
//! * Whatever fails is silent, and the handshake is what it would have been. The agent has 5 ms for an answer.
//!
//! What is interposed: `SSL_connect` and `SSL_do_handshake`, where a session is taken; `SSL_set_session` and
//! `SSL_CTX_sess_set_new_cb`, to know what the program does itself; and what has no getter: roots, protocols,
//! session id contexts, callbacks. Each call goes on to the function that its caller would have got without us, which is
//! found by the return address: Python and Ruby load libssl where `RTLD_NEXT` does not see it, and a process can
//! have two of them. Only x86-64 and arm64 have the few instructions for that; elsewhere nothing is interposed.

// Elsewhere nobody asks.
#[cfg_attr(not(target_env = "gnu"), allow(dead_code))]
mod link;
#[cfg_attr(not(target_env = "gnu"), allow(dead_code))]
mod query;
#[cfg(all(target_os = "linux", target_env = "gnu", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod sys;
