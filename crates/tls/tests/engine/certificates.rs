//! Certificates made for a test, as the engine takes them.

use headstart_testkit::Issued;
use headstart_tls::CertifiedKey;

pub(crate) trait Certified {
    fn certified(&self) -> CertifiedKey;
}

impl Certified for Issued {
    fn certified(&self) -> CertifiedKey {
        CertifiedKey::from_pem(&self.chain, &self.key).unwrap()
    }
}
