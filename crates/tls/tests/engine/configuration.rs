//! Configurations that cannot be, each with its reason.

use std::time::Duration;

use headstart_proto::limits::COOKIE_LIFE_MAX;
use headstart_testkit::Authority;
use headstart_tls::limits::{EARLY_DATA_MAX, TICKETS_MAX};
use headstart_tls::{
    CertifiedKey, ClientAuth, ClientConfig, ClientContext, ConfigError, CookiePolicy, Read,
    ServerConfig, ServerContext, Trust, Version,
};

use crate::certificates::Certified;
use crate::site::{Pair, Site};

/// Returns the reason why a server that is configured so cannot be.
fn refused(change: impl FnOnce(&mut ServerConfig)) -> Option<ConfigError> {
    let mut config = Site::new().config;
    change(&mut config);
    let error = ServerContext::new(&config).err();
    assert!(error.is_none_or(|error| !error.hint().is_empty() && !error.to_string().is_empty()));
    error
}

#[test]
fn certificates_and_keys_have_to_fit() {
    let authority = Authority::new();
    let (one, other) = (authority.issue(&["a.test"]), authority.issue(&["b.test"]));
    let nameless = authority.issue(&[]).certified();
    let swapped = CertifiedKey::from_pem(&one.chain, &other.key).unwrap();
    let set =
        |certificates: Vec<CertifiedKey>| refused(move |config| config.certificates = certificates);
    assert_eq!(set(Vec::new()), Some(ConfigError::NoCertificate));
    assert!(matches!(set(vec![one.certified(), swapped]), Some(ConfigError::Certificate(1, _))));
    assert_eq!(set(vec![nameless.clone()]), None, "the first may be for no name");
    assert_eq!(set(vec![one.certified(), nameless]), Some(ConfigError::NoNames(1)));
    let twice = set(vec![one.certified(), authority.issue(&["a.test"]).certified()]);
    assert!(matches!(twice, Some(ConfigError::Certificate(1, _))), "two of one kind: {twice:?}");
    assert_eq!(set(vec![one.certified(), other.certified()]), None);
}

#[test]
fn names_are_those_of_the_certificate() {
    let names = ["B.test", "*.a.test", "192.0.2.1", "B.test"];
    let certified = Authority::new().issue(&names).certified();
    assert_eq!(certified.names(), ["*.a.test", "b.test"]);
    assert!(!format!("{certified:?}").contains("PRIVATE"));
}

#[test]
fn a_key_with_a_password_is_refused_without_asking_for_it() {
    let issued = Authority::new().issue(&["a.test"]);
    let key = openssl::pkey::PKey::private_key_from_pem(&issued.key).unwrap();
    let cipher = openssl::symm::Cipher::aes_256_cbc();
    let locked = key.private_key_to_pem_pkcs8_passphrase(cipher, b"secret").unwrap();
    let refused = CertifiedKey::from_pem(&issued.chain, &locked);
    assert!(matches!(refused, Err(ConfigError::Pem(_))), "{refused:?}");
}

#[test]
fn both_sides_of_each_limit() {
    assert_eq!(refused(|config| config.tickets = TICKETS_MAX), None);
    assert_eq!(refused(|config| config.tickets = TICKETS_MAX + 1), Some(ConfigError::Tickets));
    assert_eq!(refused(|config| config.early_data_max = EARLY_DATA_MAX), None);
    let too_much = refused(|config| config.early_data_max = EARLY_DATA_MAX + 1);
    assert_eq!(too_much, Some(ConfigError::EarlyData));
    let too_long = COOKIE_LIFE_MAX + Duration::from_secs(1);
    for (life, refusal) in [
        (Duration::from_secs(1), None),
        (COOKIE_LIFE_MAX, None),
        (Duration::from_millis(999), Some(ConfigError::CookieLife)),
        (too_long, Some(ConfigError::CookieLife)),
    ] {
        assert_eq!(refused(|config| config.cookies = Some(CookiePolicy { life })), refusal);
    }
}

#[test]
fn conflicting_settings_are_refused() {
    let roots = Authority::new().pem();
    let both = refused(|config| {
        config.early_data_max = 1;
        config.client_auth = ClientAuth::Optional(roots.clone());
    });
    assert_eq!(both, Some(ConfigError::EarlyDataAndClientAuth));
    let versions = refused(|config| {
        config.min_version = Version::Tls13;
        config.max_version = Version::Tls12;
    });
    assert_eq!(versions, Some(ConfigError::Versions));
    let nobody = refused(|config| config.client_auth = ClientAuth::Required(Vec::new()));
    assert!(matches!(nobody, Some(ConfigError::Roots(_))));
    assert_eq!(refused(|config| config.alpn = vec![Vec::new()]), Some(ConfigError::Alpn));
}

/// Leaves errors in OpenSSL's queue of this thread, as another library of the program may.
fn leave_errors() {
    openssl::x509::X509::from_der(b"no certificate").unwrap_err().put();
}

#[test]
fn errors_that_others_left_are_not_taken_for_ours() {
    let site = Site::new();
    let mut config = site.config.clone();
    config.groups = Some("nonesuch".to_owned());
    let client = ClientConfig { groups: config.groups.clone(), ..ClientConfig::new(Trust::Anyone) };
    let each: [&dyn Fn() -> Option<ConfigError>; 3] =
        [&|| ServerContext::new(&config).err(), &|| ClientContext::new(&client).err(), &|| {
            CertifiedKey::from_pem(&site.issued[0].chain, b"no key").err()
        }];
    for refused in each {
        let error = refused();
        assert!(error.is_some());
        leave_errors();
        assert_eq!(refused(), error);
    }
}

#[test]
fn errors_that_others_left_fail_no_connection() {
    let site = Site::new();
    leave_errors();
    let client = site.client.connect("a.test", None, false).unwrap();
    leave_errors();
    let mut pair = Pair::new(client, site.accept());
    for _ in 0..4 {
        leave_errors();
        pair.client.handshake().unwrap();
        pair.carry_to_server();
        leave_errors();
        pair.server.handshake().unwrap();
        pair.carry_to_client();
    }
    leave_errors();
    assert_eq!(pair.server.write(b"hello"), Ok(5));
    pair.carry_to_client();
    for expected in [Read::Bytes(5), Read::Wait] {
        leave_errors();
        assert_eq!(pair.client.read(&mut [0; 100]), Ok(expected));
    }
    leave_errors();
    pair.client.close();
    pair.carry_to_server();
    assert_eq!(pair.server.read(&mut [0; 100]), Ok(Read::End));
}

fn error(config: &ClientConfig) -> Option<ConfigError> {
    ClientContext::new(config).err()
}

#[test]
fn clients_are_checked_as_well() {
    let nobody = ClientConfig::new(Trust::Roots(b"nobody".to_vec()));
    assert!(matches!(error(&nobody), Some(ConfigError::Roots(_))));
    let anyone = ClientConfig::new(Trust::Anyone);
    assert_eq!(error(&anyone), None);
    let groups = ClientConfig { groups: Some("nonesuch".to_owned()), ..anyone.clone() };
    assert!(matches!(error(&groups), Some(ConfigError::Groups(_))));
    let authority = Authority::new();
    let (one, other) = (authority.issue(&["a.test"]), authority.issue(&["b.test"]));
    let swapped = CertifiedKey::from_pem(&one.chain, &other.key).unwrap();
    let swapped = ClientConfig { certificate: Some(swapped), ..anyone };
    assert!(matches!(error(&swapped), Some(ConfigError::Certificate(0, _))));
}
