//! The advertisement of TurboTLS in a DNS HTTPS record (RFC 9460), read and written.
//!
//! No datagram goes to a host that does not advertise: with the private SvcParamKey [`KEY`], the
//! owner of the name states that UDP packets on the record's port are welcome.

use std::num::{NonZeroU8, NonZeroU16};
use std::{fmt, str::FromStr};

pub use headstart_proto::limits::SLOTS_MAX;

/// SvcParamKey of the advertisement, from the private-use range 65280-65534 (RFC 9460 section
/// 14.3).
pub const KEY: u16 = 65480;

/// Version of the transport that this build speaks.
pub const VERSION: u8 = 2;

/// Slots of an advertisement that names no number: 4.8 kB, a flight with a usual ECDSA chain.
pub const SLOTS_DEFAULT: u8 = 4;

/// Longest advertisement in bytes: the capacity of one character-string of a zone file (RFC 1035).
pub const VALUE_MAX: usize = 255;

/// Offer of an edge to clients that look up its name.
///
/// The text form is a comma-separated list of `key=value`, such as `v=2,slots=6,fop=1,ed=1`. `v` is
/// mandatory, unknown keys are ignored so that later versions can add some, and no key may occur
/// twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Advert {
    /// Version of the transport, [`VERSION`].
    pub version: u8,
    /// Server datagrams that a first flight needs, in 1..=[`SLOTS_MAX`]; a larger number is read
    /// as this one.
    pub slots: u8,
    /// Port of the datagrams, where it is not TCP's.
    pub udp: Option<NonZeroU16>,
    /// True if the edge hands out Fast Open cookies.
    pub fop: bool,
    /// True if early data may go over UDP.
    pub early_data: bool,
}

impl Default for Advert {
    fn default() -> Self {
        Self { version: VERSION, slots: SLOTS_DEFAULT, udp: None, fop: false, early_data: false }
    }
}

impl Advert {
    /// Reads the value of SvcParamKey [`KEY`].
    ///
    /// # Errors
    /// [`AdvertError`]; the name is then treated as one that does not advertise.
    pub fn from_value(value: &[u8]) -> Result<Self, AdvertError> {
        if value.len() > VALUE_MAX {
            return Err(AdvertError::TooLong);
        }
        let pairs = Pairs::parse(value)?;
        // W-DNS-5
        match pairs.get("v") {
            None => return Err(AdvertError::NoVersion),
            Some("2") => {}
            Some(_) => return Err(AdvertError::Unsupported),
        }
        Ok(Self {
            version: VERSION,
            slots: pairs.get("slots").map_or(Ok(SLOTS_DEFAULT), slots)?,
            udp: pairs.get("udp").map(port).transpose()?,
            fop: pairs.get("fop").map_or(Ok(false), switch)?,
            early_data: pairs.get("ed").map_or(Ok(false), switch)?,
        })
    }
}

impl FromStr for Advert {
    type Err = AdvertError;

    fn from_str(text: &str) -> Result<Self, AdvertError> {
        Self::from_value(text.as_bytes())
    }
}

impl fmt::Display for Advert {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v={},slots={}", self.version, self.slots)?;
        if let Some(port) = self.udp {
            write!(f, ",udp={port}")?;
        }
        if self.fop {
            f.write_str(",fop=1")?;
        }
        if self.early_data {
            f.write_str(",ed=1")?;
        }
        Ok(())
    }
}

/// Reason why an advertisement is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdvertError {
    /// Longer than [`VALUE_MAX`].
    TooLong,
    /// Not a list of `key=value` in printable ASCII.
    Syntax,
    /// A key occurs twice.
    Duplicate,
    /// No `v`.
    NoVersion,
    /// A version that this build does not speak.
    Unsupported,
    /// A known key has an invalid value.
    Value,
}

impl fmt::Display for AdvertError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooLong => "longer than 255 bytes",
            Self::Syntax => "not a list of key=value",
            Self::Duplicate => "a key comes twice",
            Self::NoVersion => "no version",
            Self::Unsupported => "version not supported",
            Self::Value => "a value out of range",
        })
    }
}

impl std::error::Error for AdvertError {}

/// The pairs of a well-formed advertisement, each key once.
struct Pairs<'a>(Vec<(&'a str, &'a str)>);

impl<'a> Pairs<'a> {
    fn parse(value: &'a [u8]) -> Result<Self, AdvertError> {
        let text = str::from_utf8(value).map_err(|_| AdvertError::Syntax)?;
        let mut pairs = Self(Vec::new());
        for item in text.split(',') {
            let (key, value) = item.split_once('=').ok_or(AdvertError::Syntax)?;
            if !is_key(key) || !is_plain(value) {
                return Err(AdvertError::Syntax);
            }
            if pairs.get(key).is_some() {
                // W-DNS-3
                return Err(AdvertError::Duplicate);
            }
            pairs.0.push((key, value));
        }
        Ok(pairs)
    }

    fn get(&self, key: &str) -> Option<&'a str> {
        self.0.iter().find(|(known, _)| *known == key).map(|(_, value)| *value)
    }
}

fn is_key(text: &str) -> bool {
    !text.is_empty()
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}

/// Returns true for printable ASCII that needs no escape in a zone file: servers disagree about
/// escapes.
fn is_plain(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_graphic() && !b"\"\\,;()".contains(&b))
}

fn slots(value: &str) -> Result<u8, AdvertError> {
    let slots: NonZeroU8 = number(value)?;
    Ok(slots.get().min(SLOTS_MAX))
}

/// Reads a port that a record may direct datagrams to.
fn port(value: &str) -> Result<NonZeroU16, AdvertError> {
    number(value).and_then(|port| is_permitted(port).then_some(port).ok_or(AdvertError::Value))
}

/// Returns true for ports where no service of another protocol is expected: a record may send the
/// clients of its name to any address.
fn is_permitted(port: NonZeroU16) -> bool {
    // W-DNS-7
    matches!(port.get(), 443 | 1024..)
}

/// Reads a decimal number without a sign or leading zeros.
fn number<N: FromStr>(value: &str) -> Result<N, AdvertError> {
    let number = value.parse().ok().filter(|_| value.starts_with(|c| matches!(c, '1'..='9')));
    number.ok_or(AdvertError::Value)
}

fn switch(value: &str) -> Result<bool, AdvertError> {
    match value {
        "0" => Ok(false),
        "1" => Ok(true),
        _ => Err(AdvertError::Value),
    }
}

/// A whole HTTPS record that publishes an [`Advert`], in ServiceMode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpsRecord {
    /// Name that owns the record; made absolute when written.
    pub owner: String,
    /// Seconds that resolvers may keep it.
    pub ttl: u32,
    /// SvcPriority, at least 1; the lowest is used first.
    pub priority: u16,
    /// TargetName; `.` means the owner.
    pub target: String,
    /// Port of both TCP and UDP.
    pub port: u16,
    /// Protocols of the service besides HTTP/1.1, such as `h2`; if empty, no `alpn` is written.
    pub alpn: Vec<String>,
    /// Offer of the edge.
    pub advert: Advert,
}

impl HttpsRecord {
    /// Formats the record as one line of a zone file, without a line end.
    ///
    /// Uses only the presentation format of RFC 9460 section 2.1 and no escapes: some name servers
    /// cannot read the generic form of RFC 3597 for this type, or escapes inside values.
    ///
    /// # Errors
    /// [`RecordError`] names the field that cannot be written this way.
    pub fn zone_line(&self) -> Result<String, RecordError> {
        let owner = absolute(&self.owner).ok_or(RecordError::Owner)?;
        let target = match self.target.as_str() {
            "." => ".".to_owned(),
            name => absolute(name).ok_or(RecordError::Target)?,
        };
        if self.priority == 0 {
            return Err(RecordError::Priority);
        }
        if self.port == 0 {
            return Err(RecordError::Port);
        }
        if !self.advert.udp.is_none_or(is_permitted) {
            return Err(RecordError::UdpPort);
        }
        let (ttl, priority, port) = (self.ttl, self.priority, self.port);
        let (alpn, advert) = (self.alpn_param()?, self.advert);
        Ok(format!(
            "{owner} {ttl} IN HTTPS {priority} {target} {alpn}port={port} key{KEY}=\"{advert}\""
        ))
    }

    fn alpn_param(&self) -> Result<String, RecordError> {
        if self.alpn.is_empty() {
            return Ok(String::new());
        }
        if self.alpn.iter().any(|id| id.len() > 255 || !is_plain(id)) {
            return Err(RecordError::Alpn);
        }
        Ok(format!("alpn=\"{}\" ", self.alpn.join(",")))
    }
}

/// The field of an [`HttpsRecord`] that cannot be written to a zone file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordError {
    /// The owner is not a host name.
    Owner,
    /// The target is neither `.` nor a host name.
    Target,
    /// Priority 0 is AliasMode, which carries no parameters.
    Priority,
    /// Port 0 cannot be connected to.
    Port,
    /// Clients send no datagrams to this port.
    UdpPort,
    /// A protocol name that would need escapes.
    Alpn,
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Owner => "the owner is not a host name",
            Self::Target => "the target is neither \".\" nor a host name",
            Self::Priority => "priority 0 carries no parameters",
            Self::Port => "port 0 cannot be connected to",
            Self::UdpPort => "clients send datagrams to UDP port 443 or to one from 1024 up",
            Self::Alpn => "a protocol name needs escapes",
        })
    }
}

impl std::error::Error for RecordError {}

/// Returns `name` in lower case with a final dot, if it is a host name.
fn absolute(name: &str) -> Option<String> {
    crate::name::host_name(name).map(|name| format!("{name}."))
}

#[cfg(test)]
#[allow(dead_code)] // others use all of it
#[path = "../../proto/tests/wire_vectors/blocks.rs"]
pub(crate) mod blocks;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> Result<Advert, AdvertError> {
        text.parse()
    }

    #[test]
    fn full_and_shortest() {
        let all = Advert {
            slots: 6,
            udp: NonZeroU16::new(8443),
            fop: true,
            early_data: true,
            version: 2,
        };
        assert_eq!(read("v=2,slots=6,udp=8443,fop=1,ed=1"), Ok(all));
        assert_eq!(read("ed=1,fop=1,udp=8443,slots=6,v=2"), Ok(all));
        assert_eq!(read("v=2"), Ok(Advert::default()));
        assert_eq!(read("v=2,fop=0,ed=0"), Ok(Advert::default()));
    }

    #[test]
    fn unknown_keys_are_ignored() {
        assert_eq!(read("v=2,new-key9=a/b:c,slots=2").unwrap().slots, 2);
    }

    #[test]
    fn slots_at_each_limit() {
        assert_eq!(read("v=2,slots=0"), Err(AdvertError::Value));
        assert_eq!(read("v=2,slots=1").unwrap().slots, 1);
        assert_eq!(read("v=2,slots=14").unwrap().slots, SLOTS_MAX);
        assert_eq!(read("v=2,slots=15").unwrap().slots, SLOTS_MAX);
        assert_eq!(read("v=2,slots=255").unwrap().slots, SLOTS_MAX);
        assert_eq!(read("v=2,slots=256"), Err(AdvertError::Value));
        assert_eq!(read("v=2,slots=+3"), Err(AdvertError::Value));
        assert_eq!(read("v=2,slots=06"), Err(AdvertError::Value));
    }

    // W-DNS-7
    #[test]
    fn the_port_of_datagrams_at_each_limit() {
        assert_eq!(read("v=2").unwrap().udp, None);
        for port in [443, 1024, 65535] {
            assert_eq!(read(&format!("v=2,udp={port}")).unwrap().udp, NonZeroU16::new(port));
        }
        for port in ["0", "53", "442", "444", "1023", "65536", "0443", "+443", "https"] {
            assert_eq!(read(&format!("v=2,udp={port}")), Err(AdvertError::Value), "{port}");
        }
    }

    #[test]
    fn version_is_mandatory_and_two() {
        assert_eq!(read("slots=3"), Err(AdvertError::NoVersion));
        assert_eq!(read("v=1,slots=many"), Err(AdvertError::Unsupported));
        assert_eq!(read("v=02"), Err(AdvertError::Unsupported));
    }

    #[test]
    fn malformed() {
        for text in
            ["", "v", "v=", "=1", "v=2,", ",v=2", "v=2,,ed=1", "v=2, ed=1", "V=1", "v=\"1\""]
        {
            assert_eq!(read(text), Err(AdvertError::Syntax), "{text}");
        }
        assert_eq!(read("v=2,v=2"), Err(AdvertError::Duplicate));
        assert_eq!(read("v=2,x=1,x=2"), Err(AdvertError::Duplicate));
        assert_eq!(read("v=2,fop=yes"), Err(AdvertError::Value));
        assert_eq!(Advert::from_value(b"v=2,x=\xff"), Err(AdvertError::Syntax));
    }

    #[test]
    fn values_say_what_the_vectors_say() {
        for block in blocks::read("adverts.txt") {
            let hex = block.get("hex").map(|_| block.bytes("hex"));
            let value = hex.unwrap_or_else(|| block.text("value").as_bytes().to_vec());
            let expected = block.get("advert").is_none().then(|| Advert {
                version: VERSION,
                slots: block.number("slots"),
                udp: block.get("udp").map(|_| block.number("udp")),
                fop: block.number::<u8>("fop") == 1,
                early_data: block.number::<u8>("ed") == 1,
            });
            assert_eq!(Advert::from_value(&value).ok(), expected, "{block:?}");
        }
    }

    #[test]
    fn length_at_the_limit_and_one_over() {
        let longest = format!("v=2,x={}", "y".repeat(VALUE_MAX - 6));
        assert_eq!(longest.len(), VALUE_MAX);
        assert!(read(&longest).is_ok());
        assert_eq!(read(&format!("{longest}y")), Err(AdvertError::TooLong));
    }

    fn record() -> HttpsRecord {
        HttpsRecord {
            owner: "www.example.com".into(),
            ttl: 300,
            priority: 1,
            target: ".".into(),
            port: 443,
            alpn: vec!["h2".into(), "http/1.1".into()],
            advert: Advert { slots: 6, ..Advert::default() },
        }
    }

    #[test]
    fn zone_line_in_full() {
        assert_eq!(
            record().zone_line().unwrap(),
            "www.example.com. 300 IN HTTPS 1 . alpn=\"h2,http/1.1\" port=443 \
             key65480=\"v=2,slots=6\""
        );
        let short = HttpsRecord { alpn: vec![], target: "Edge.example.net.".into(), ..record() };
        assert_eq!(
            short.zone_line().unwrap(),
            "www.example.com. 300 IN HTTPS 1 edge.example.net. port=443 key65480=\"v=2,slots=6\""
        );
    }

    #[test]
    fn zone_line_refuses_values_it_cannot_write() {
        for (record, error) in [
            (HttpsRecord { owner: "a b".into(), ..record() }, RecordError::Owner),
            (HttpsRecord { owner: "1.2.3.4".into(), ..record() }, RecordError::Owner),
            (HttpsRecord { target: String::new(), ..record() }, RecordError::Target),
            (HttpsRecord { priority: 0, ..record() }, RecordError::Priority),
            (HttpsRecord { port: 0, ..record() }, RecordError::Port),
            (HttpsRecord { alpn: vec!["a,b".into()], ..record() }, RecordError::Alpn),
            (
                HttpsRecord {
                    advert: Advert { udp: NonZeroU16::new(1023), ..Advert::default() },
                    ..record()
                },
                RecordError::UdpPort,
            ),
        ] {
            assert_eq!(record.zone_line(), Err(error));
        }
    }

    /// Parses the line as a name server does: text to record to wire to record.
    #[cfg(feature = "dns")]
    fn through_a_name_server(line: &str) -> hickory_proto::rr::rdata::HTTPS {
        use hickory_proto::{
            rr::{Name, RData, Record, RecordType},
            serialize::{
                binary::{BinDecodable, BinEncodable},
                txt::Parser,
            },
        };
        let origin = Name::from_ascii("example.com.").unwrap();
        let soa = "@ 60 IN SOA ns.example.com. root.example.com. 1 2 3 4 5\n";
        let (_, sets) = Parser::new(format!("{soa}{line}\n"), None, Some(origin)).parse().unwrap();
        let set = sets.values().find(|set| set.record_type() == RecordType::HTTPS).unwrap();
        let record = set.records_without_rrsigs().next().unwrap();
        let bytes = record.to_bytes().unwrap();
        match Record::from_bytes(&bytes).unwrap().data {
            RData::HTTPS(https) => https,
            other => panic!("{other:?}"),
        }
    }

    fn advert() -> impl Strategy<Value = Advert> {
        (1..=SLOTS_MAX, any::<u16>(), any::<bool>(), any::<bool>()).prop_map(
            |(slots, port, fop, early_data)| {
                let udp = NonZeroU16::new(port).filter(|port| is_permitted(*port));
                Advert { version: VERSION, slots, udp, fop, early_data }
            },
        )
    }

    proptest! {
        #[test]
        fn written_adverts_are_read_back(advert in advert()) {
            prop_assert_eq!(read(&advert.to_string()), Ok(advert));
        }

        #[test]
        fn any_bytes_are_survived_and_canonical(
            value in prop::collection::vec(any::<u8>(), 0..300),
        ) {
            if let Ok(advert) = Advert::from_value(&value) {
                prop_assert_eq!(read(&advert.to_string()), Ok(advert));
            }
        }

        #[test]
        fn pair_like_text_is_survived(text in "(v=[0-2],)?((slots|udp|fop|zz)=[0-9]{0,4},?){0,4}") {
            if let Ok(advert) = read(&text) {
                prop_assert!((1..=SLOTS_MAX).contains(&advert.slots));
            }
        }

        #[cfg(feature = "dns")]
        #[test]
        fn a_name_server_reads_the_line_back(
            advert in advert(),
            priority in 1u16..,
            port in 1u16..,
        ) {
            let record = HttpsRecord { priority, port, advert, ..record() };
            let read = through_a_name_server(&record.zone_line().unwrap());
            let service = crate::dns::service::Service::read(&read).unwrap();
            prop_assert_eq!(read.svc_priority, priority);
            prop_assert!(read.target_name.is_root());
            prop_assert_eq!(service.port, Some(port));
            prop_assert_eq!(service.advert, Some(advert));
        }
    }
}
