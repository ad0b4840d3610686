/// One connection that is asked for, and as whom.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Visit {
    /// Content bytes that are asked for.
    pub bytes: u64,
    /// At which of the server's addresses, counted from 0.
    pub at: usize,
    /// Under which of the server's names; none for the usual one.
    pub name: Option<String>,
    /// In which context: nothing that one is given is used in another. None is one, too.
    pub context: Option<String>,
}

impl Visit {
    /// Visit to the usual name at the first address, in no context.
    #[must_use]
    pub fn new(bytes: u64) -> Self {
        Self { bytes, ..Self::default() }
    }
}
