//! Certificates that a client does not accept.

use headstart_testkit::{Authority, DAY, Issued, P256};
use headstart_tls::{CertificateFault, Fault, TlsError, Trust};

use crate::certificates::Certified;
use crate::site::Site;

/// Returns the verdict of a client that asks for `name` on a server with this certificate, and the
/// alert that the server gets.
fn verdict(site: &mut Site, name: &str, shown: &Issued) -> (CertificateFault, u8) {
    site.reconfigure(|config| config.certificates = vec![shown.certified()]);
    let (client, server) = site.pair(name, None).clash();
    let Err(error @ TlsError::Certificate(fault, _)) = client else { panic!("{client:?}") };
    assert_eq!(error.fault(), Fault::Peer);
    let Err(TlsError::Alert(alert)) = server else { panic!("{server:?}") };
    (fault, alert)
}

#[test]
fn each_fault_has_its_name() {
    let mut site = Site::new();
    let [expired, early] = [-30 * DAY..-DAY, DAY..30 * DAY]
        .map(|valid| site.authority.issue_for(&P256, &["a.test"], valid));
    assert_eq!(verdict(&mut site, "a.test", &expired), (CertificateFault::Expired, 45));
    assert_eq!(verdict(&mut site, "a.test", &early).0, CertificateFault::NotYetValid);
    let other = site.authority.issue(&["b.test"]);
    assert_eq!(verdict(&mut site, "a.test", &other).0, CertificateFault::Name);
    let foreign = Authority::new().issue(&["a.test"]);
    assert_eq!(verdict(&mut site, "a.test", &foreign), (CertificateFault::Untrusted, 48));
}

#[test]
fn wildcards_are_one_whole_label() {
    let mut site = Site::new();
    let star = site.authority.issue(&["*.a.test"]);
    assert_eq!(verdict(&mut site, "a.test", &star).0, CertificateFault::Name);
    assert_eq!(verdict(&mut site, "y.x.a.test", &star).0, CertificateFault::Name);
    let partial = site.authority.issue(&["x*.a.test"]);
    assert_eq!(verdict(&mut site, "xy.a.test", &partial).0, CertificateFault::Name);
    site.reconfigure(|config| config.certificates = vec![star.certified()]);
    site.pair("x.a.test", None).shake().unwrap();
}

#[test]
fn addresses_are_checked_as_addresses() {
    let mut site = Site::new();
    let issued = site.authority.issue(&["192.0.2.7", "2001:db8::7"]);
    assert_eq!(verdict(&mut site, "192.0.2.8", &issued).0, CertificateFault::Name);
    for address in ["192.0.2.7", "2001:db8::7", "[2001:db8::7]"] {
        site.pair(address, None).shake().unwrap();
    }
}

#[test]
fn who_trusts_anyone_accepts_all() {
    let mut site = Site::new();
    let worst = Authority::new().issue_for(&P256, &["b.test"], -30 * DAY..-DAY);
    site.reconfigure(|config| config.certificates = vec![worst.certified()]);
    site.reconfigure_client(|config| config.trust = Trust::Anyone);
    site.pair("a.test", None).shake().unwrap();
}
