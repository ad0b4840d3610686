//! Logins for an upstream proxy that keeps contexts apart, as Tor does by user name and password.

use std::fmt;

use headstart_net::Context;
use headstart_net::upstream::Credentials;
use openssl::base64::encode_block;
use openssl::sha::Sha256;
use zeroize::Zeroizing;

/// Bytes of the secret, as many as the hash has.
const SECRET: usize = 32;

/// Makes a login of each context: the same for each connection of it, and of nobody else.
///
/// The proxy learns neither users nor labels, and nothing that is the same after a restart: the
/// login is a hash with a secret of this process. The secret is never written anywhere.
pub(crate) struct Isolation {
    secret: Zeroizing<[u8; SECRET]>,
}

impl Default for Isolation {
    fn default() -> Self {
        Self { secret: Zeroizing::new(rand::random()) }
    }
}

impl fmt::Debug for Isolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Isolation(..)")
    }
}

impl Isolation {
    /// The login of a context. A connection that may share nothing has one of its own.
    pub(crate) fn credentials(&self, context: &Context) -> Option<Credentials> {
        let [user, password] = [b'u', b'p'].map(|purpose| self.word(purpose, context));
        Credentials::new(user.as_bytes(), password.as_bytes())
    }

    fn word(&self, purpose: u8, context: &Context) -> Zeroizing<String> {
        let hash = if context.is_shared() { self.hash(purpose, context) } else { rand::random() };
        Zeroizing::new(encode_block(&hash))
    }

    /// All fields but the last have one length, so nothing else hashes the same.
    fn hash(&self, purpose: u8, context: &Context) -> [u8; SECRET] {
        let mut hash = Sha256::new();
        hash.update(&*self.secret);
        hash.update(&[purpose, u8::from(context.label.is_some())]);
        hash.update(&context.uid.unwrap_or_default().to_be_bytes());
        hash.update(context.label.as_deref().unwrap_or_default().as_bytes());
        hash.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contexts_are_kept_apart_and_keep_together() {
        let isolation = Isolation::default();
        let contexts = [
            (1000, None),
            (1001, None),
            (1000, Some("")),
            (1000, Some("work")),
            (1000, Some("home")),
        ];
        for (at, one) in contexts.into_iter().enumerate() {
            for (other_at, other) in contexts.into_iter().enumerate() {
                let [one, other] = [one, other].map(|(uid, label)| Context {
                    uid: Some(uid),
                    label: label.map(str::to_owned),
                });
                let is_same = isolation.credentials(&one) == isolation.credentials(&other);
                assert_eq!(is_same, at == other_at, "{one:?} {other:?}");
            }
        }
    }

    #[test]
    fn what_may_share_nothing_has_a_login_of_its_own() {
        let isolation = Isolation::default();
        let [one, other] = [(); 2].map(|()| isolation.credentials(&Context::UNKNOWN).unwrap());
        assert_ne!(one, other);
    }

    #[test]
    fn a_restart_leaves_nothing_in_common() {
        let [one, other] =
            [(); 2].map(|()| Isolation::default().credentials(&Context::user(1)).unwrap());
        assert_ne!(one, other);
    }
}
