//! Numbers and map values shared with the BPF programs: `bpf/layout.h`, in the same order.

use headstart_proto::cookie::COOKIE_LEN;

use super::stats::Stats;

/// Version, incremented with every change; programs and maps of another layout are refused.
pub(super) const LAYOUT: u32 = 2;

/// Socket option level and names of the client's program.
pub(super) const SOL_FOP: i32 = 0x46_4f50;
pub(super) const SO_COOKIE: i32 = 1;
pub(super) const SO_STATE: i32 = 2;

/// Values of [`SO_STATE`].
pub(super) const STATE_READY: u32 = 1;
pub(super) const STATE_SENT: u32 = 2;

/// Names of the pins, which are those of maps and programs.
pub(super) const SETUP: &str = "setup";
pub(super) const CONFIG: &str = "config";
pub(super) const LISTENERS: &str = "listeners";
pub(super) const SPENT: [&str; 2] = ["spent_even", "spent_odd"];
pub(super) const SERVER_STATS: &str = "server_stats";
pub(super) const CLIENT_STATS: &str = "client_stats";

/// Version and map of the program of Careful Resume, whose value is a version and a user.
const CAREFUL_LAYOUT: u32 = 1;
pub(super) const CAREFUL_SETUP: &str = "careful_setup";

/// The single key of an array with one element.
pub(super) const FIRST: [u8; 4] = [0; 4];

/// Values that mark the edge's listeners: `enum listener`.
pub(super) const HIDDEN: [u8; 4] = 1_u32.to_le_bytes();
pub(super) const PUBLIC: [u8; 4] = 2_u32.to_le_bytes();

/// Key epochs known at one time: previous, current, next.
pub(super) const KEYS: usize = 3;

const KEY_LEN: usize = 40;
const SETUP_LEN: usize = 16;
const CONFIG_LEN: usize = 24 + KEYS * KEY_LEN;
const CAREFUL_SETUP_LEN: usize = 8;

/// `struct setup`, written by the loader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Setup {
    pub(super) layout: u32,
    pub(super) port: u16,
    /// Nanoseconds since boot; wraps below zero for maps that should count as older than that.
    pub(super) created: u64,
}

impl Setup {
    pub(super) fn to_bytes(self) -> [u8; SETUP_LEN] {
        let mut bytes = [0; SETUP_LEN];
        let fields = self.layout.to_le_bytes().into_iter();
        let fields = fields.chain(self.port.to_le_bytes()).chain([0; 2]);
        fill(&mut bytes, fields.chain(self.created.to_le_bytes()));
        bytes
    }

    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let (layout, rest) = bytes.split_first_chunk()?;
        let (port, rest) = rest.split_first_chunk()?;
        let created = rest.get(2..)?.first_chunk()?;
        (bytes.len() == SETUP_LEN).then_some(Self {
            layout: u32::from_le_bytes(*layout),
            port: u16::from_le_bytes(*port),
            created: u64::from_le_bytes(*created),
        })
    }
}

/// `struct config` without its keys, written by the edge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Config {
    /// Unix time minus time since boot, in nanoseconds; wraps as the kernel's sum does.
    pub(super) unix_minus_boot: u64,
    /// Unix time in seconds; cookies that expire before it are forgotten.
    pub(super) swept: u64,
    /// Lifetime for which cookies are minted, in seconds.
    pub(super) life: u32,
    /// Port of the hidden listener on 127.0.0.1.
    pub(super) hidden4: u16,
    /// Port of the hidden listener on ::1.
    pub(super) hidden6: u16,
}

/// Encodes `struct careful_setup`: the user whose processes may set windows.
pub(super) fn careful_setup(owner: u32) -> [u8; CAREFUL_SETUP_LEN] {
    let mut bytes = [0; CAREFUL_SETUP_LEN];
    fill(&mut bytes, CAREFUL_LAYOUT.to_le_bytes().into_iter().chain(owner.to_le_bytes()));
    bytes
}

/// Returns that user; `None` for another layout.
pub(super) fn careful_owner(bytes: &[u8]) -> Option<u32> {
    let (layout, rest) = bytes.split_first_chunk()?;
    let owner = <[u8; 4]>::try_from(rest).ok()?;
    (u32::from_le_bytes(*layout) == CAREFUL_LAYOUT).then(|| u32::from_le_bytes(owner))
}

/// The secrets of one epoch: of the tag and of the mask.
pub(super) type KeyBytes = ([u8; 16], [u8; 16]);

impl Config {
    /// Encodes the value of the map; the caller wipes it.
    pub(super) fn to_bytes(self, keys: &[Option<KeyBytes>; KEYS]) -> [u8; CONFIG_LEN] {
        let mut bytes = [0; CONFIG_LEN];
        let numbers = self.unix_minus_boot.to_le_bytes().into_iter();
        let numbers = numbers.chain(self.swept.to_le_bytes()).chain(self.life.to_le_bytes());
        let numbers = numbers.chain(self.hidden4.to_le_bytes()).chain(self.hidden6.to_le_bytes());
        fill(&mut bytes, numbers.chain(keys.iter().flat_map(key_bytes)));
        bytes
    }

    /// Parses all but the keys, and counts the valid keys.
    pub(super) fn parse(bytes: &[u8]) -> Option<(Self, usize)> {
        let (unix_minus_boot, rest) = bytes.split_first_chunk()?;
        let (swept, rest) = rest.split_first_chunk()?;
        let (life, rest) = rest.split_first_chunk()?;
        let (hidden4, rest) = rest.split_first_chunk()?;
        let (hidden6, keys) = rest.split_first_chunk()?;
        let config = Self {
            unix_minus_boot: u64::from_le_bytes(*unix_minus_boot),
            swept: u64::from_le_bytes(*swept),
            life: u32::from_le_bytes(*life),
            hidden4: u16::from_le_bytes(*hidden4),
            hidden6: u16::from_le_bytes(*hidden6),
        };
        let keys = keys.chunks_exact(KEY_LEN);
        let valid = keys.filter(|key| key.get(32).is_some_and(|valid| *valid != 0)).count();
        (bytes.len() == CONFIG_LEN).then_some((config, valid))
    }
}

fn key_bytes(key: &Option<KeyBytes>) -> [u8; KEY_LEN] {
    let mut bytes = [0; KEY_LEN];
    if let Some((tag, mask)) = key {
        fill(&mut bytes, tag.iter().chain(mask).copied().chain([1]));
    }
    bytes
}

/// Sums each counter over the processors.
pub(super) fn sums(counters: impl IntoIterator<Item = Vec<u8>>) -> Vec<u64> {
    counters.into_iter().map(|values| sum(&values)).collect()
}

fn sum(values: &[u8]) -> u64 {
    let (values, _) = values.as_chunks::<8>();
    values.iter().map(|value| u64::from_le_bytes(*value)).fold(0, u64::wrapping_add)
}

/// `enum server_count`.
pub(super) const SERVER_COUNTS: u32 = 10;

pub(super) fn server_stats(counts: &[u64]) -> Stats {
    let mut all = [0; SERVER_COUNTS as usize];
    all.iter_mut().zip(counts).for_each(|(to, count)| *to = *count);
    let [syns, steered, replayed, full, expired, forged, early, no_listener, stripped, faults] =
        all;
    Stats { syns, steered, replayed, full, expired, forged, early, no_listener, stripped, faults }
}

/// `enum client_count`.
pub(super) const CLIENT_COUNTS: u32 = 3;

fn fill(bytes: &mut [u8], with: impl IntoIterator<Item = u8>) {
    for (to, from) in bytes.iter_mut().zip(with) {
        *to = from;
    }
}

/// A cookie goes to the kernel unchanged.
const _: () = assert!(COOKIE_LEN == 16);

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a number from the text of the header.
    fn defined(name: &str) -> u64 {
        let header = include_str!("../../bpf/layout.h");
        let line = format!("#define {name} ");
        let value = header.lines().find_map(|text| text.strip_prefix(&line)).unwrap().trim();
        match value.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16).unwrap(),
            None => value.parse().unwrap(),
        }
    }

    #[test]
    fn numbers_match_the_header() {
        assert_eq!(defined("LAYOUT"), LAYOUT.into());
        assert_eq!(defined("CAREFUL_LAYOUT"), CAREFUL_LAYOUT.into());
        assert_eq!(defined("COOKIE_LEN"), COOKIE_LEN as u64);
        assert_eq!(defined("KEYS"), KEYS as u64);
        let life = headstart_proto::limits::COOKIE_LIFE_MAX;
        assert_eq!(defined("COOKIE_LIFE_MAX"), life.as_secs());
        for (name, value) in
            [("SOL_FOP", SOL_FOP), ("SO_COOKIE", SO_COOKIE), ("SO_STATE", SO_STATE)]
        {
            assert_eq!(defined(name), u64::try_from(value).unwrap(), "{name}");
        }
        let header = include_str!("../../bpf/layout.h");
        for (name, size) in [
            ("struct key", KEY_LEN),
            ("struct setup", SETUP_LEN),
            ("struct config", CONFIG_LEN),
            ("struct careful_setup", CAREFUL_SETUP_LEN),
        ] {
            assert!(header.contains(&format!("sizeof({name}) == {size},")), "{name}");
        }
        for (name, mark) in [("LISTENER_HIDDEN", HIDDEN), ("LISTENER_PUBLIC", PUBLIC)] {
            let mark = u32::from_le_bytes(mark);
            assert!(header.contains(&format!("\t{name} = {mark},")), "{name}");
        }
    }

    /// Returns the header's names of the counters with this prefix, in lower case.
    fn counters(prefix: &str) -> Vec<String> {
        let header = include_str!("../../bpf/layout.h");
        let words = header.split(|c: char| !c.is_ascii_uppercase() && c != '_');
        let mut names: Vec<_> = words.filter_map(|word| word.strip_prefix(prefix)).collect();
        assert_eq!(names.pop(), Some("COUNTS"));
        names.into_iter().map(str::to_ascii_lowercase).collect()
    }

    #[test]
    fn counters_have_the_order_of_the_header() {
        let stats = server_stats(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
        let ours: Vec<_> = stats.iter().map(|(name, _)| name).collect();
        let theirs = counters("SERVER_");
        let theirs: Vec<_> = theirs
            .iter()
            .map(|name| name.replace("fault", "faults").replace("syn", "syns"))
            .collect();
        assert_eq!(ours, theirs);
        assert_eq!(
            stats.iter().map(|(_, count)| count).collect::<Vec<_>>(),
            (0..10).collect::<Vec<_>>()
        );
        assert_eq!(ours.len(), SERVER_COUNTS as usize);
        assert_eq!(counters("CLIENT_"), ["sent", "no_room", "no_data"]);
        assert_eq!(CLIENT_COUNTS, 3);
    }

    #[test]
    fn values_come_back_from_their_bytes() {
        let setup = Setup { layout: 7, port: 443, created: u64::MAX - 5 };
        assert_eq!(Setup::parse(&setup.to_bytes()), Some(setup));
        assert_eq!(Setup::parse(&[0; SETUP_LEN - 1]), None);
        assert_eq!(Setup::parse(&[0; SETUP_LEN + 1]), None);
        let config =
            Config { unix_minus_boot: u64::MAX, swept: 2, life: 3600, hidden4: 4, hidden6: 6 };
        let keys = [None, Some(([1; 16], [2; 16])), None];
        let bytes = config.to_bytes(&keys);
        assert_eq!(Config::parse(&bytes), Some((config, 1)));
        assert_eq!(bytes[64..64 + 33], [&[1; 16][..], &[2; 16], &[1]].concat());
        assert_eq!(Config::parse(&bytes[1..]), None);
        let bytes = careful_setup(1000);
        assert_eq!(careful_owner(&bytes), Some(1000));
        assert_eq!(careful_owner(&bytes[..7]), None);
        let mut other = bytes;
        other[0] += 1;
        assert_eq!(careful_owner(&other), None, "another version's");
    }

    #[test]
    fn counters_of_all_processors_are_summed() {
        let values = [1_u64, 2, 3].map(u64::to_le_bytes).concat();
        assert_eq!(sums([values, Vec::new()]), [6, 0]);
    }
}
