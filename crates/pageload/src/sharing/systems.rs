//! Autonomous systems that announce addresses.

use std::io::{BufRead, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv4Subnets, Ipv6Net, Ipv6Subnets};
use prefix_trie::PrefixMap;

use super::error::AsError;
use super::limits::{LINE_MAX, PREFIXES};
use crate::input::unpacked_by;

/// Maximum characters of a wrong line that an error shows.
const SHOWN: usize = 60;

/// Autonomous systems by prefix, asked by longest match.
///
/// Reads, line by line and told apart by themselves:
/// * `PREFIX,AS` with anything behind it, such as MaxMind's GeoLite2 ASN blocks (CSV);
/// * `ADDRESS<tab>LENGTH<tab>AS`, the pfx2as files of RouteViews by CAIDA;
/// * `FIRST<tab>LAST<tab>AS` with anything behind it, the ip2asn files of iptoasn.com.
///
/// `AS64500` and `64500` are the same; of several (`64500_64501`, `{64500,64501}`) the first
/// counts; AS 0 is none. Empty lines, those that begin with `#` or `;`, and a heading are passed
/// over.
#[derive(Debug, Default)]
pub struct AsTable {
    v4: PrefixMap<Ipv4Net, u32>,
    v6: PrefixMap<Ipv6Net, u32>,
}

impl AsTable {
    /// Reads a table.
    ///
    /// # Errors
    /// A line has none of the forms, or there are too many or no prefixes.
    pub fn read(mut input: impl BufRead) -> Result<Self, AsError> {
        if let Some(program) = unpacked_by(input.fill_buf()?) {
            return Err(AsError::Compressed(program));
        }
        let mut table = Self::default();
        let mut line = Vec::new();
        let mut may_be_heading = true;
        for number in 1.. {
            line.clear();
            if input.by_ref().take(LINE_MAX).read_until(b'\n', &mut line)? == 0 {
                break;
            }
            if line.len() as u64 == LINE_MAX && line.last() != Some(&b'\n') {
                return Err(AsError::LongLine(number));
            }
            // Names of organizations may be in any encoding; they do not count.
            let text = String::from_utf8_lossy(&line);
            let text = text.trim();
            if text.is_empty() || text.starts_with(['#', ';']) {
                continue;
            }
            match (Line::read(text), may_be_heading) {
                (Some(line), _) => table.insert(line)?,
                (None, true) => {}
                (None, false) => return Err(wrong(number, text)),
            }
            may_be_heading = false;
        }
        if table.is_empty() { Err(AsError::Empty) } else { Ok(table) }
    }

    /// Returns the autonomous system of an address, by longest prefix match.
    pub fn system(&self, address: IpAddr) -> Option<u32> {
        match address.to_canonical() {
            IpAddr::V4(address) => self.v4.get_lpm(&address.into()).map(|(_, number)| *number),
            IpAddr::V6(address) => self.v6.get_lpm(&address.into()).map(|(_, number)| *number),
        }
    }

    /// Returns the number of prefixes.
    pub fn len(&self) -> usize {
        self.v4.len() + self.v6.len()
    }

    /// Returns true if there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn insert(&mut self, Line { block, number }: Line) -> Result<(), AsError> {
        if number == 0 {
            return Ok(());
        }
        match block {
            Block::Prefix(IpNet::V4(net)) => self.insert_v4(net, number),
            Block::Prefix(IpNet::V6(net)) => self.insert_v6(net, number),
            Block::V4(first, last) => {
                Ipv4Subnets::new(first, last, 0).try_for_each(|net| self.insert_v4(net, number))
            }
            Block::V6(first, last) => {
                Ipv6Subnets::new(first, last, 0).try_for_each(|net| self.insert_v6(net, number))
            }
        }
    }

    fn insert_v4(&mut self, net: Ipv4Net, number: u32) -> Result<(), AsError> {
        self.v4.insert(net.trunc(), number);
        self.check()
    }

    fn insert_v6(&mut self, net: Ipv6Net, number: u32) -> Result<(), AsError> {
        self.v6.insert(net.trunc(), number);
        self.check()
    }

    fn check(&self) -> Result<(), AsError> {
        if self.len() <= PREFIXES { Ok(()) } else { Err(AsError::TooMany) }
    }
}

/// Contents of a line.
#[derive(Debug, PartialEq, Eq)]
struct Line {
    block: Block,
    number: u32,
}

#[derive(Debug, PartialEq, Eq)]
enum Block {
    Prefix(IpNet),
    V4(Ipv4Addr, Ipv4Addr),
    V6(Ipv6Addr, Ipv6Addr),
}

impl Line {
    fn read(text: &str) -> Option<Self> {
        let separator = if text.contains('\t') { '\t' } else { ',' };
        let mut fields = text.split(separator).map(|field| field.trim().trim_matches('"'));
        let first = fields.next()?;
        if let Ok(net) = first.parse() {
            let number = number(fields.next()?)?;
            return Some(Self { block: Block::Prefix(net), number });
        }
        let (first, second): (IpAddr, _) = (first.parse().ok()?, fields.next()?);
        let block = match (first, second.parse::<IpAddr>()) {
            (IpAddr::V4(first), Ok(IpAddr::V4(last))) if first <= last => Block::V4(first, last),
            (IpAddr::V6(first), Ok(IpAddr::V6(last))) if first <= last => Block::V6(first, last),
            (_, Ok(_)) => return None,
            (_, Err(_)) => Block::Prefix(IpNet::new(first, second.parse().ok()?).ok()?),
        };
        Some(Self { block, number: number(fields.next()?)? })
    }
}

/// Returns the first number of a field.
fn number(field: &str) -> Option<u32> {
    let field = field.trim_start_matches('{');
    let field = field.strip_prefix("AS").or_else(|| field.strip_prefix("as")).unwrap_or(field);
    field.split(['_', ',', '}']).next()?.parse().ok()
}

fn wrong(number: u64, text: &str) -> AsError {
    AsError::Line { number, text: text.chars().take(SHOWN).collect() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn table(text: &str) -> AsTable {
        AsTable::read(text.as_bytes()).unwrap()
    }

    fn error(text: &str) -> String {
        AsTable::read(text.as_bytes()).unwrap_err().to_string()
    }

    fn system(table: &AsTable, address: &str) -> Option<u32> {
        table.system(address.parse().unwrap())
    }

    #[test]
    fn the_longest_prefix_counts() {
        let table = table("10.0.0.0/8,1\n10.1.0.0/16,2\n10.1.2.0/24,3\n2001:db8::/32,4\n");
        assert_eq!(table.len(), 4);
        assert_eq!(system(&table, "10.1.2.3"), Some(3));
        assert_eq!(system(&table, "10.1.3.3"), Some(2));
        assert_eq!(system(&table, "10.2.2.3"), Some(1));
        assert_eq!(system(&table, "11.0.0.1"), None);
        assert_eq!(system(&table, "::ffff:10.1.2.3"), Some(3));
        assert_eq!(system(&table, "2001:db8::1"), Some(4));
        assert_eq!(system(&table, "2001:db9::1"), None);
    }

    #[test]
    fn the_forms_of_csv() {
        let maxmind = "network,autonomous_system_number,autonomous_system_organization\n\
                       192.0.2.0/24,64500,\"Example, Inc.\"\n\"198.51.100.0/24\",\"AS64501\",x\n";
        let table = table(maxmind);
        assert_eq!(system(&table, "192.0.2.1"), Some(64500));
        assert_eq!(system(&table, "198.51.100.255"), Some(64501));
    }

    #[test]
    fn the_form_of_routeviews() {
        let table = table("1.0.0.0\t24\t13335\n1.0.4.0\t22\t38803_2519\n2001:db8::\t32\t{7,8}\n");
        assert_eq!(system(&table, "1.0.0.1"), Some(13335));
        assert_eq!(system(&table, "1.0.7.255"), Some(38803));
        assert_eq!(system(&table, "2001:db8:1::"), Some(7));
    }

    #[test]
    fn the_form_of_iptoasn() {
        let table = table(
            "1.0.0.0\t1.0.0.255\t13335\tUS\tCLOUDFLARENET\n1.0.1.0\t1.0.3.255\t0\tNone\tNot \
                routed\n\
             10.0.0.3\t10.0.0.6\t5\tXX\tX\n2001:db8::\t2001:db8::ffff\t9\tXX\tX\n",
        );
        assert_eq!(system(&table, "1.0.0.200"), Some(13335));
        assert_eq!(system(&table, "1.0.2.1"), None);
        let inside = ["10.0.0.2", "10.0.0.3", "10.0.0.5", "10.0.0.6", "10.0.0.7"];
        let systems = inside.map(|address| system(&table, address));
        assert_eq!(systems, [None, Some(5), Some(5), Some(5), None]);
        assert_eq!(system(&table, "2001:db8::ff"), Some(9));
    }

    #[test]
    fn comments_and_host_bits_do_no_harm() {
        let table = table("# comment\n\n; another\n192.0.2.77/24,AS1\r\n");
        assert_eq!(system(&table, "192.0.2.1"), Some(1));
    }

    #[test]
    fn wrong_lines_are_named() {
        assert_eq!(error("192.0.2.0/24,1\nx,2\n"), "line 2 is no prefix with an AS: \"x,2\"");
        for line in ["192.0.2.0/33,1", "192.0.2.0/24", "192.0.2.0/24,x", "192.0.2.0\t33\t1"] {
            assert!(error(&format!("::/0,1\n{line}\n")).starts_with("line 2 is no"), "{line}");
        }
        assert!(error("::/0,1\n192.0.2.2\t192.0.2.1\t1\n").starts_with("line 2 is no"));
        assert!(error("::/0,1\n192.0.2.2\t::1\t1\n").starts_with("line 2 is no"));
        assert_eq!(error(""), "there is no prefix in it");
        assert_eq!(error("prefix,asn\n"), "there is no prefix in it");
        let long = format!("::/0,1\n{}", "x".repeat(70_000));
        assert_eq!(error(&long), "line 2 has more than 65536 bytes");
        let packed = AsTable::read([0x1f, 0x8b, 8].as_slice()).unwrap_err();
        assert!(packed.hint().contains("zcat"), "{}", packed.hint());
    }

    proptest! {
        #[test]
        fn it_says_what_a_search_through_all_prefixes_says(
            lines in prop::collection::vec((any::<u32>(), 0u8..=32, 1u32..9), 1..40),
            asked: u32,
        ) {
            let nets: Vec<(Ipv4Net, u32)> = lines
                .iter()
                .map(|(bits, length, number)| {
                    (Ipv4Net::new(Ipv4Addr::from(*bits), *length).unwrap().trunc(), *number)
                })
                .collect();
            let lines = nets.iter().map(|(net, number)| format!("{net},{number}\n"));
            let address = Ipv4Addr::from(asked);
            let table = table(&lines.collect::<String>());
            // Also near a prefix: a random address is in few.
            for address in [address, nets[0].0.addr(), nets[0].0.broadcast()] {
                let has = nets.iter().filter(|(net, _)| net.contains(&address));
                // If a prefix is repeated, the last line counts.
                let longest = has.max_by_key(|(net, _)| net.prefix_len());
                prop_assert_eq!(table.system(address.into()), longest.map(|(_, number)| *number));
            }
        }

        #[test]
        fn nothing_makes_it_panic(text in "[0-9a-fA-Fx:./,\t_{}\n ]{0,200}") {
            let _ = AsTable::read(text.as_bytes());
        }
    }
}
