/// Takes fields off the front of a structure, checked; numbers are big-endian.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl<'a> Fields<'a> {
    pub(crate) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        let (value, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*value)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        let (value, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u16::from_be_bytes(*value))
    }

    pub(crate) fn vector8(&mut self) -> Option<&'a [u8]> {
        let length = self.u8()?;
        self.take(usize::from(length))
    }

    pub(crate) fn vector16(&mut self) -> Option<&'a [u8]> {
        let length = self.u16()?;
        self.take(usize::from(length))
    }

    /// Takes the next extension of a list (RFC 8446 section 4.2): number and body.
    pub(crate) fn extension(&mut self) -> Option<(u16, &'a [u8])> {
        Some((self.u16()?, self.vector16()?))
    }
}
