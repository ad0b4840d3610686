//! Counters of the server's program.

/// Counts of the server's program since it was attached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// SYNs to the protected port.
    pub syns: u64,
    /// Cookie taken, SYN given to the hidden listener.
    pub steered: u64,
    /// Cookie that was taken before.
    pub replayed: u64,
    /// Valid cookie, but no room to remember it.
    pub full: u64,
    /// Cookie past its expiry.
    pub expired: u64,
    /// Cookie of another key or client, or no cookie at all.
    pub forged: u64,
    /// Cookie that was minted before the maps were made.
    pub early: u64,
    /// Cookie taken, but the SYN has no listener of the edge: no hidden listener, a public one of
    /// another program, an existing connection, or a destination on another machine.
    pub no_listener: u64,
    /// Fast Open options of any other form, taken out.
    pub stripped: u64,
    /// SYNs dropped because a kernel helper failed half-way.
    pub faults: u64,
}

impl Stats {
    /// Each counter with its stable name.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
        [
            ("syns", self.syns),
            ("steered", self.steered),
            ("replayed", self.replayed),
            ("full", self.full),
            ("expired", self.expired),
            ("forged", self.forged),
            ("early", self.early),
            ("no_listener", self.no_listener),
            ("stripped", self.stripped),
            ("faults", self.faults),
        ]
        .into_iter()
    }
}
