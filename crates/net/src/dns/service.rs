//! Chooses an HTTPS record of a set, and reads it (RFC 9460).

use hickory_resolver::proto::rr::{
    Name,
    rdata::svcb::{SVCB, SvcParamKey, SvcParamValue},
};
use std::net::IpAddr;

use super::ADDRESSES_MAX;
use crate::advert::{self, Advert};

/// Keys that a record may declare mandatory and still be used: mandatory, alpn, no-default-alpn,
/// port, ipv4hint, ipv6hint.
///
/// Not `ech` (5), which is up to the TLS client behind us, and not our own key: a mandatory
/// advertisement would lock out all other clients.
const UNDERSTOOD: [u16; 6] = [0, 1, 2, 3, 4, 6];

/// Instruction that a set of HTTPS records gives to us.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// No record, or none that we may use.
    Nothing,
    /// Query this name instead (AliasMode).
    Alias(Name),
    /// Connect to this service.
    Service(Service),
}

impl Choice {
    /// Chooses among the records of one set, as received.
    ///
    /// One malformed record spoils the set (RFC 9460 section 2.2), and one in AliasMode rules out
    /// the others (section 2.4.1). The lowest priority wins even if only a later record advertises:
    /// its owner decided so. Among equals `pick(n)` selects an index below n.
    pub(super) fn among(records: &[&SVCB], pick: impl Fn(usize) -> usize) -> Self {
        if !records.iter().all(|record| is_well_formed(record)) {
            return Self::Nothing;
        }
        let aliases: Vec<_> = records.iter().filter(|record| record.svc_priority == 0).collect();
        if !aliases.is_empty() {
            return aliases
                .get(pick(aliases.len()))
                .map_or(Self::Nothing, |record| Self::Alias(record.target_name.clone()));
        }
        let usable: Vec<_> = records
            .iter()
            .filter_map(|record| Some((record.svc_priority, Service::read(record)?)))
            .collect();
        let Some(lowest) = usable.iter().map(|(priority, _)| *priority).min() else {
            return Self::Nothing;
        };
        // W-DNS-2
        let mut best: Vec<_> = usable.into_iter().filter(|(p, _)| *p == lowest).collect();
        let index = pick(best.len());
        if index < best.len() { Self::Service(best.swap_remove(index).1) } else { Self::Nothing }
    }
}

/// One record in ServiceMode that we can use.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Service {
    /// TargetName; the root stands for the owner.
    pub(crate) target: Name,
    /// Port of TCP and UDP, if it is not the default.
    pub(crate) port: Option<u16>,
    /// Addresses that the record gives for its target.
    pub(crate) hints: Vec<IpAddr>,
    /// The advertisement, if we understand it.
    pub(crate) advert: Option<Advert>,
}

impl Service {
    /// Reads `record`; `None` if it is not compatible with us (RFC 9460 section 8).
    pub(crate) fn read(record: &SVCB) -> Option<Self> {
        if !mandatory_is_met(record) || !offers_tcp(record) {
            return None;
        }
        let mut service = Self {
            target: record.target_name.clone(),
            port: None,
            hints: Vec::new(),
            advert: None,
        };
        for (key, value) in &record.svc_params {
            service.read_param(u16::from(*key), value);
        }
        (service.port != Some(0)).then_some(service)
    }

    fn read_param(&mut self, key: u16, value: &SvcParamValue) {
        match value {
            SvcParamValue::Port(port) => self.port = Some(*port),
            SvcParamValue::Ipv4Hint(hint) => {
                self.hints.extend(hint.0.iter().take(ADDRESSES_MAX).map(|a| IpAddr::V4(a.0)));
            }
            SvcParamValue::Ipv6Hint(hint) => {
                self.hints.extend(hint.0.iter().take(ADDRESSES_MAX).map(|a| IpAddr::V6(a.0)));
            }
            SvcParamValue::Unknown(bytes) if key == advert::KEY => {
                self.advert = Advert::from_value(&bytes.0)
                    .inspect_err(|error| tracing::debug!(%error, "advertisement not used"))
                    .ok();
            }
            _ => {}
        }
    }
}

/// Checks what the decoder leaves unchecked of RFC 9460 sections 2.2, 7 and 8.
fn is_well_formed(record: &SVCB) -> bool {
    record.svc_params.iter().all(|(_, value)| match value {
        SvcParamValue::Mandatory(list) => is_increasing(&list.0),
        SvcParamValue::Alpn(ids) => !ids.0.is_empty() && ids.0.iter().all(|id| !id.is_empty()),
        SvcParamValue::Ipv4Hint(hint) => !hint.0.is_empty(),
        SvcParamValue::Ipv6Hint(hint) => !hint.0.is_empty(),
        _ => true,
    })
}

/// Returns true if the keys strictly increase and `mandatory` is not among them (section 8).
fn is_increasing(keys: &[SvcParamKey]) -> bool {
    let mut last = 0;
    keys.iter().all(|key| {
        let key = u16::from(*key);
        std::mem::replace(&mut last, key) < key
    })
}

/// Returns true if every mandatory key is understood and present (sections 2.4.3 and 8).
fn mandatory_is_met(record: &SVCB) -> bool {
    let present: Vec<_> = record.svc_params.iter().map(|(key, _)| u16::from(*key)).collect();
    record.svc_params.iter().all(|(_, value)| match value {
        SvcParamValue::Mandatory(list) => list.0.iter().all(|key| {
            let key = u16::from(*key);
            UNDERSTOOD.contains(&key) && present.contains(&key)
        }),
        _ => true,
    })
}

/// Returns true if the service is available over TCP: by default, or by a protocol other than
/// HTTP/3 (section 7.1). `no-default-alpn` without `alpn` contradicts itself.
fn offers_tcp(record: &SVCB) -> bool {
    let without_default =
        record.svc_params.iter().any(|(_, v)| matches!(v, SvcParamValue::NoDefaultAlpn));
    let named = record.svc_params.iter().find_map(|(_, value)| match value {
        SvcParamValue::Alpn(ids) => Some(ids.0.iter().any(|id| !id.starts_with("h3"))),
        _ => None,
    });
    !without_default || named.unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advert::blocks;
    use hickory_resolver::proto::{
        rr::{
            RData, Record,
            rdata::{
                A,
                svcb::{Alpn, IpHint, Mandatory, Unknown},
            },
        },
        serialize::binary::BinDecodable,
    };

    fn name(text: &str) -> Name {
        Name::from_ascii(text).unwrap()
    }

    fn key(value: &SvcParamValue) -> SvcParamKey {
        match value {
            SvcParamValue::Mandatory(_) => SvcParamKey::Mandatory,
            SvcParamValue::Alpn(_) => SvcParamKey::Alpn,
            SvcParamValue::NoDefaultAlpn => SvcParamKey::NoDefaultAlpn,
            SvcParamValue::Port(_) => SvcParamKey::Port,
            SvcParamValue::Ipv4Hint(_) => SvcParamKey::Ipv4Hint,
            SvcParamValue::EchConfigList(_) => SvcParamKey::EchConfigList,
            SvcParamValue::Ipv6Hint(_) => SvcParamKey::Ipv6Hint,
            SvcParamValue::Unknown(_) => SvcParamKey::Key(advert::KEY),
        }
    }

    fn record(priority: u16, target: &str, params: Vec<SvcParamValue>) -> SVCB {
        let params = params.into_iter().map(|value| (key(&value), value)).collect();
        SVCB::new(priority, name(target), params)
    }

    fn advertise(text: &str) -> SvcParamValue {
        SvcParamValue::Unknown(Unknown(text.as_bytes().to_vec()))
    }

    fn mandatory(keys: &[u16]) -> SvcParamValue {
        SvcParamValue::Mandatory(Mandatory(
            keys.iter().map(|key| SvcParamKey::from(*key)).collect(),
        ))
    }

    fn alpn(ids: &[&str]) -> SvcParamValue {
        SvcParamValue::Alpn(Alpn(ids.iter().map(|id| (*id).to_owned()).collect()))
    }

    fn chosen(records: &[SVCB]) -> Choice {
        Choice::among(&records.iter().collect::<Vec<_>>(), |_| 0)
    }

    fn chosen_port(records: &[SVCB]) -> Option<u16> {
        match chosen(records) {
            Choice::Service(service) => service.port,
            other => panic!("{other:?}"),
        }
    }

    // W-DNS-2
    #[test]
    fn lowest_priority_wins_even_without_advertisement() {
        let far = record(2, ".", vec![SvcParamValue::Port(2), advertise("v=2")]);
        let near = record(1, ".", vec![SvcParamValue::Port(1)]);
        assert_eq!(chosen_port(&[far, near]), Some(1));
    }

    /// Reads an HTTPS record of the root with this data; `None` if it is malformed.
    fn decoded(rdata: &[u8]) -> Option<SVCB> {
        let length = u16::try_from(rdata.len()).unwrap().to_be_bytes();
        let head = [0, 0, 65, 0, 1, 0, 0, 0, 60];
        match Record::from_bytes(&[&head[..], &length, rdata].concat()).ok()?.data {
            RData::HTTPS(https) => Some(https.0),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn sets_say_what_the_vectors_say() {
        for block in &blocks::read("https_records.txt") {
            block.expect_names(&["rdata", "rdata2?", "then", "slots?"]);
            let names = ["rdata", "rdata2"].into_iter().filter(|name| block.get(name).is_some());
            let set: Option<Vec<_>> = names.map(|name| decoded(&block.bytes(name))).collect();
            let then = match set.map_or(Choice::Nothing, |set| chosen(&set)) {
                Choice::Alias(target) => format!("alias {target}"),
                Choice::Service(Service {
                    target,
                    port: None | Some(443),
                    advert: Some(advert),
                    ..
                }) => {
                    assert_eq!(advert.slots, block.number::<u8>("slots"), "{block:?}");
                    format!("offer {target}")
                }
                Choice::Service(_) | Choice::Nothing => "nothing".to_owned(),
            };
            assert_eq!(then, block.text("then"), "{block:?}");
        }
    }

    #[test]
    fn equals_are_picked_from() {
        let set = [1u16, 2, 3].map(|port| record(7, ".", vec![SvcParamValue::Port(port)]));
        let refs: Vec<_> = set.iter().collect();
        let Choice::Service(service) = Choice::among(&refs, |n| n - 1) else { panic!() };
        assert_eq!(service.port, Some(3));
    }

    #[test]
    fn alias_rules_out_services() {
        let service = record(1, ".", vec![advertise("v=2")]);
        let alias = record(0, "edge.example.", vec![]);
        assert_eq!(chosen(&[service, alias]), Choice::Alias(name("edge.example.")));
    }

    #[test]
    fn unknown_mandatory_keys_rule_a_record_out() {
        let usable = record(2, ".", vec![SvcParamValue::Port(2)]);
        for keys in [&[5][..], &[7], &[advert::KEY], &[4]] {
            let mut params = vec![mandatory(keys)];
            if keys != [4] {
                params.push(advertise("v=2"));
            }
            let strict = record(1, ".", params);
            assert_eq!(Service::read(&strict), None, "{keys:?}");
            assert_eq!(chosen_port(&[strict, usable.clone()]), Some(2), "{keys:?}");
        }
    }

    #[test]
    fn known_mandatory_keys_are_accepted() {
        let port = SvcParamValue::Port(8443);
        let set = record(1, ".", vec![mandatory(&[1, 3]), alpn(&["h2"]), port, advertise("v=2")]);
        assert_eq!(Service::read(&set).unwrap().advert, Some(Advert::default()));
    }

    #[test]
    fn one_malformed_record_spoils_the_set() {
        let good = record(1, ".", vec![advertise("v=2")]);
        let port = SvcParamValue::Port(1);
        for bad in [
            record(9, ".", vec![mandatory(&[3, 3]), port.clone()]),
            record(9, ".", vec![mandatory(&[3, 1]), alpn(&["h2"]), port.clone()]),
            record(9, ".", vec![mandatory(&[0])]),
            record(9, ".", vec![alpn(&[])]),
            record(9, ".", vec![SvcParamValue::Ipv4Hint(IpHint(vec![]))]),
        ] {
            assert_eq!(chosen(&[good.clone(), bad.clone()]), Choice::Nothing, "{bad}");
        }
    }

    #[test]
    fn only_services_over_tcp_are_used() {
        let none = SvcParamValue::NoDefaultAlpn;
        assert!(Service::read(&record(1, ".", vec![alpn(&["h3"])])).is_some());
        assert!(Service::read(&record(1, ".", vec![alpn(&["h3"]), none.clone()])).is_none());
        assert!(Service::read(&record(1, ".", vec![alpn(&["h3", "h2"]), none.clone()])).is_some());
        assert!(Service::read(&record(1, ".", vec![none])).is_none());
    }

    #[test]
    fn a_malformed_advertisement_is_ignored() {
        for text in ["v=1", "", "v=2,v=2"] {
            assert_eq!(Service::read(&record(1, ".", vec![advertise(text)])).unwrap().advert, None);
        }
    }

    #[test]
    fn hints_are_bounded_and_port_zero_refused() {
        let many = (0..=255).map(|n| A::new(192, 0, 2, n)).collect();
        let hinted = record(1, ".", vec![SvcParamValue::Ipv4Hint(IpHint(many))]);
        assert_eq!(Service::read(&hinted).unwrap().hints.len(), ADDRESSES_MAX);
        assert_eq!(Service::read(&record(1, ".", vec![SvcParamValue::Port(0)])), None);
    }

    #[test]
    fn an_empty_set_gives_nothing() {
        assert_eq!(chosen(&[]), Choice::Nothing);
    }
}
