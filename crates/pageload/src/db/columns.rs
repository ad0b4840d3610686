//! Encodes numbers and texts as columns of bytes: similar values stand together, which lets zstd
//! compress them well.

use std::fmt;

use super::limits::TEXT_BYTES;

/// Writes columns by their number.
#[derive(Debug)]
pub(super) struct Writer(Vec<Vec<u8>>);

/// Reads columns by their number. Each number and text is read once, in the order in which it was
/// written.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    columns: Vec<&'a [u8]>,
    text_bytes: usize,
}

/// Texts of which each shares its beginning with the one before.
///
/// Three columns: how many bytes are shared, how many follow, and these.
#[derive(Debug)]
pub(super) struct Texts {
    column: usize,
    last: String,
}

/// Columns that one [`Texts`] takes.
pub(super) const TEXT_COLUMNS: usize = 3;

/// Reason why columns cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnError {
    /// A column ends too soon.
    Short,
    /// A column has bytes left over.
    Long,
    /// A number is not in its shortest form, or has more than 64 bits.
    Number,
    /// A text shares more bytes than the one before it has, or part of a character.
    Shared,
    /// A text is not UTF-8.
    Text,
    /// The texts together exceed [`TEXT_BYTES`].
    TooMuchText,
}

impl Writer {
    pub(super) fn new(columns: usize) -> Self {
        Self(vec![Vec::new(); columns])
    }

    /// Appends a number as LEB128: seven bits a byte, the lowest first.
    pub(super) fn number(&mut self, column: usize, number: impl Into<u64>) {
        put(&mut self.0[column], number.into());
    }

    pub(super) fn count(&mut self, column: usize, count: usize) {
        put(&mut self.0[column], count as u64);
    }

    pub(super) fn text(&mut self, texts: &mut Texts, text: &str) {
        let shared = texts.shared_with(text);
        self.count(texts.column, shared);
        self.count(texts.column + 1, text.len() - shared);
        self.0[texts.column + 2].extend_from_slice(&text.as_bytes()[shared..]);
        text.clone_into(&mut texts.last);
    }

    /// Returns the length of each column, followed by all columns.
    pub(super) fn finish(self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.0.iter().for_each(|column| put(&mut bytes, column.len() as u64));
        bytes.extend(self.0.into_iter().flatten());
        bytes
    }
}

impl<'a> Reader<'a> {
    /// Splits bytes into `count` columns.
    pub(super) fn new(mut bytes: &'a [u8], columns: usize) -> Result<Self, ColumnError> {
        let lengths: Vec<usize> =
            (0..columns).map(|_| take_count(&mut bytes)).collect::<Result<_, _>>()?;
        let columns =
            lengths.into_iter().map(|length| take(&mut bytes, length)).collect::<Result<_, _>>()?;
        if bytes.is_empty() { Ok(Self { columns, text_bytes: 0 }) } else { Err(ColumnError::Long) }
    }

    pub(super) fn number(&mut self, column: usize) -> Result<u64, ColumnError> {
        take_number(self.column(column)?)
    }

    pub(super) fn count(&mut self, column: usize) -> Result<usize, ColumnError> {
        take_count(self.column(column)?)
    }

    pub(super) fn text<'t>(&mut self, texts: &'t mut Texts) -> Result<&'t str, ColumnError> {
        let shared = self.count(texts.column)?;
        let length = self.count(texts.column + 1)?;
        let rest = take(self.column(texts.column + 2)?, length)?;
        if !texts.last.is_char_boundary(shared) {
            return Err(ColumnError::Shared);
        }
        texts.last.truncate(shared);
        texts.last.push_str(str::from_utf8(rest).map_err(|_| ColumnError::Text)?);
        self.text_bytes = self.text_bytes.saturating_add(texts.last.len());
        if self.text_bytes > TEXT_BYTES { Err(ColumnError::TooMuchText) } else { Ok(&texts.last) }
    }

    /// Checks that all columns were read to their ends.
    pub(super) fn finish(self) -> Result<(), ColumnError> {
        let is_read = self.columns.iter().all(|column| column.is_empty());
        if is_read { Ok(()) } else { Err(ColumnError::Long) }
    }

    fn column(&mut self, column: usize) -> Result<&mut &'a [u8], ColumnError> {
        self.columns.get_mut(column).ok_or(ColumnError::Short)
    }
}

impl Texts {
    /// Reads the columns from this one on.
    pub(super) const fn new(column: usize) -> Self {
        Self { column, last: String::new() }
    }

    fn shared_with(&self, text: &str) -> usize {
        let same = self.last.bytes().zip(text.bytes()).take_while(|(left, right)| left == right);
        let mut shared = same.count();
        while !text.is_char_boundary(shared) {
            shared -= 1;
        }
        shared
    }
}

fn put(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    bytes.push((number & 0x7f) as u8);
}

fn take<'a>(bytes: &mut &'a [u8], length: usize) -> Result<&'a [u8], ColumnError> {
    let (taken, rest) = bytes.split_at_checked(length).ok_or(ColumnError::Short)?;
    *bytes = rest;
    Ok(taken)
}

fn take_count(bytes: &mut &[u8]) -> Result<usize, ColumnError> {
    usize::try_from(take_number(bytes)?).map_err(|_| ColumnError::Number)
}

fn take_number(bytes: &mut &[u8]) -> Result<u64, ColumnError> {
    let mut number = 0u64;
    for shift in (0..64).step_by(7) {
        let byte = take(bytes, 1)?[0];
        let bits = u64::from(byte & 0x7f);
        // Each number has one encoding, so that equal databases are equal files.
        let is_lost = (bits << shift) >> shift != bits;
        let is_padded = shift > 0 && byte == 0;
        if is_lost || is_padded {
            return Err(ColumnError::Number);
        }
        number |= bits << shift;
        if byte & 0x80 == 0 {
            return Ok(number);
        }
    }
    Err(ColumnError::Number)
}

impl fmt::Display for ColumnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short => f.write_str("a column ends too soon"),
            Self::Long => f.write_str("a column has more than belongs there"),
            Self::Number => f.write_str("a number is not written as it should be"),
            Self::Shared => f.write_str("a text shares what is not there"),
            Self::Text => f.write_str("a text is not UTF-8"),
            Self::TooMuchText => write!(f, "texts of more than {TEXT_BYTES} bytes"),
        }
    }
}

impl std::error::Error for ColumnError {}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn numbers_come_back() {
        let numbers = [0, 1, 127, 128, 16_383, 16_384, u64::MAX >> 1, u64::MAX];
        let mut writer = Writer::new(2);
        numbers.iter().for_each(|&number| writer.number(1, number));
        let bytes = writer.finish();
        let mut reader = Reader::new(&bytes, 2).unwrap();
        numbers.iter().for_each(|&number| assert_eq!(reader.number(1), Ok(number)));
        assert_eq!(reader.number(1), Err(ColumnError::Short));
        assert_eq!(reader.number(2), Err(ColumnError::Short));
        reader.finish().unwrap();
    }

    #[test]
    fn numbers_have_one_form() {
        for (bytes, number) in [
            (vec![0x80, 0x01], Ok(128)),
            (vec![0x80, 0x00], Err(ColumnError::Number)),
            (vec![0xff; 9], Err(ColumnError::Short)),
            ([&[0xff; 9][..], &[0x01]].concat(), Ok(u64::MAX)),
            ([&[0xff; 9][..], &[0x02]].concat(), Err(ColumnError::Number)),
            ([&[0xff; 9][..], &[0x81, 0x00]].concat(), Err(ColumnError::Number)),
        ] {
            assert_eq!(take_number(&mut &*bytes), number, "{bytes:x?}");
        }
    }

    #[test]
    fn texts_come_back_and_share_whole_characters() {
        let all = ["", "com.example", "com.example.\u{e4}", "com.example.\u{e5}", "org"];
        let mut writer = Writer::new(TEXT_COLUMNS);
        let mut texts = Texts::new(0);
        all.iter().for_each(|text| writer.text(&mut texts, text));
        let bytes = writer.finish();
        let mut reader = Reader::new(&bytes, TEXT_COLUMNS).unwrap();
        let mut texts = Texts::new(0);
        all.iter().for_each(|text| assert_eq!(reader.text(&mut texts), Ok(*text)));
        reader.finish().unwrap();
    }

    #[test]
    fn a_text_that_shares_more_than_there_is_is_refused() {
        let mut writer = Writer::new(TEXT_COLUMNS);
        writer.number(0, 1u8);
        writer.number(1, 0u8);
        let bytes = writer.finish();
        let mut reader = Reader::new(&bytes, TEXT_COLUMNS).unwrap();
        assert_eq!(reader.text(&mut Texts::new(0)), Err(ColumnError::Shared));
    }

    #[test]
    fn columns_are_read_whole() {
        let mut writer = Writer::new(1);
        writer.number(0, 5u8);
        let bytes = writer.finish();
        assert_eq!(Reader::new(&bytes, 1).unwrap().finish(), Err(ColumnError::Long));
        assert_eq!(Reader::new(&bytes[..1], 1).unwrap_err(), ColumnError::Short);
        assert_eq!(Reader::new(&[&bytes[..], &[0]].concat(), 1).unwrap_err(), ColumnError::Long);
    }
}
