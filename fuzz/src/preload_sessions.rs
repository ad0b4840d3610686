//! Sessions that the preload library gets from the agent, with the chains of their servers.
//!
//! OpenSSL is that of the system, which the library uses, too.
#![allow(unsafe_code)]

#[allow(dead_code)]
#[path = "../../crates/preload/src/sys/api.rs"]
mod api;
#[allow(dead_code)]
#[path = "../../crates/preload/src/sys/chain.rs"]
mod chain;
#[path = "../../crates/preload/src/sys/once.rs"]
mod once;

use api::{Api, api};
use chain::{Offered, with_chain};

/// Any bytes as a session and its chain: what is read is written and read the same, nothing of it
/// stays behind, and no more is written than the agent takes.
pub fn preload_sessions(bytes: &[u8]) {
    let api = openssl();
    let Some(offered) = Offered::read(api, bytes) else { return };
    assert!(bytes.ends_with(offered.encoded));
    let Some(written) = with_chain(api, offered.session.get(), offered.encoded) else { return };
    assert!(written.len() <= 16 * 1024);
    let again = Offered::read(api, &written).expect("what is written is read");
    assert_eq!(again.encoded, offered.encoded);
    assert_eq!(with_chain(api, again.session.get(), again.encoded), Some(written.clone()));
    // SAFETY: stacks of certificates, which are only counted.
    let [count, before] =
        [&again, &offered].map(|one| unsafe { (api.OPENSSL_sk_num)(one.chain.get()) });
    assert_eq!(count, before);
}

/// Returns the functions of OpenSSL 3, which has to be loaded for that.
fn openssl() -> &'static Api {
    if let Some(api) = api() {
        return api;
    }
    // SAFETY: the name is NUL-terminated, and the library stays loaded.
    let handle = unsafe { libc::dlopen(c"libssl.so.3".as_ptr(), libc::RTLD_NOW) };
    assert!(!handle.is_null(), "no OpenSSL 3 on this system");
    api().expect("OpenSSL 3")
}
