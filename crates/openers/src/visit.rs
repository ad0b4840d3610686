/// One connection to make, and its identity.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Visit {
    /// Content bytes that are asked for.
    pub bytes: u64,
    /// Index of the server's address, from 0.
    pub at: usize,
    /// Name of the server; none for the usual one.
    pub name: Option<String>,
    /// Context: contexts share no sessions or cookies. `None` is a context, too.
    pub context: Option<String>,
}

impl Visit {
    /// Visit to the usual name at the first address, in no context.
    pub fn new(bytes: u64) -> Self {
        Self { bytes, ..Self::default() }
    }
}
