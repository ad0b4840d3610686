//! Fonts (OpenType 1.9) of a given size in bytes, with one letter in them.

/// Design units of an em.
const EM: u16 = 1000;

/// Glyphs: the one for what the font has not, and a box for `A`.
const GLYPHS: u16 = 2;

/// Sum that a whole font must have.
const MAGIC_SUM: u32 = 0xb1b0_afba;

/// Where `head` keeps what makes up for the sum.
const ADJUSTMENT: usize = 8;

/// A font of so many bytes, which are more than 1,000; a table that programs skip takes what is
/// left.
pub(super) fn ttf(bytes: usize) -> Vec<u8> {
    let without = build(0).len();
    build(bytes.saturating_sub(without))
}

fn build(padding: usize) -> Vec<u8> {
    // In the order of their names, as the directory demands.
    let tables: [(&[u8; 4], Vec<u8>); 11] = [
        (b"OS/2", os2()),
        (b"cmap", cmap()),
        (b"glyf", [glyph(), glyph()].concat()),
        (b"head", head()),
        (b"hhea", hhea()),
        (b"hmtx", words(&[600, 50, 600, 50])),
        (b"loca", words(&[0, 18, 36])),
        (b"maxp", maxp()),
        (b"name", words(&[0, 0, 6])),
        (b"post", post()),
        (b"zpad", vec![0; padding]),
    ];
    // 128 / 16 is the largest power of two below the number of tables, 2^3.
    let mut font = [vec![0, 1, 0, 0], words(&[11, 128, 3, 48])].concat();
    let mut body = Vec::new();
    let begin = font.len() + 16 * tables.len();
    let mut head_at = 0;
    for (name, table) in &tables {
        let at = begin + body.len();
        if *name == b"head" {
            head_at = at;
        }
        font.extend(*name);
        font.extend(sum(table).to_be_bytes());
        font.extend(number(at).to_be_bytes());
        font.extend(number(table.len()).to_be_bytes());
        body.extend(table);
        // The last table need not be aligned, so a font may have any size.
        if *name != b"zpad" {
            body.resize(body.len().next_multiple_of(4), 0);
        }
    }
    font.extend(body);
    let adjustment = MAGIC_SUM.wrapping_sub(sum(&font)).to_be_bytes();
    if let Some(place) = font.get_mut(head_at + ADJUSTMENT..head_at + ADJUSTMENT + 4) {
        place.copy_from_slice(&adjustment);
    }
    font
}

fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

fn sum(bytes: &[u8]) -> u32 {
    bytes
        .chunks(4)
        .map(|chunk: &[u8]| {
            let mut word = [0; 4];
            word.iter_mut().zip(chunk).for_each(|(to, from)| *to = *from);
            u32::from_be_bytes(word)
        })
        .fold(0, u32::wrapping_add)
}

fn words(words: &[u16]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// Number as a signed word.
const fn minus(number: u16) -> u16 {
    number.wrapping_neg()
}

fn head() -> Vec<u8> {
    [
        vec![0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0x5f, 0x0f, 0x3c, 0xf5],
        words(&[3, EM]),
        vec![0; 16], // made and changed in 1904
        words(&[50, 0, 550, 700, 0, 8, 2, 0, 0]),
    ]
    .concat()
}

fn hhea() -> Vec<u8> {
    let tail = [800, minus(200), 0, 600, 50, 50, 550, 1, 0, 0, 0, 0, 0, 0, 0, GLYPHS];
    [vec![0, 1, 0, 0], words(&tail)].concat()
}

fn maxp() -> Vec<u8> {
    [vec![0, 1, 0, 0], words(&[GLYPHS, 4, 1, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0])].concat()
}

fn post() -> Vec<u8> {
    [vec![0, 3, 0, 0, 0, 0, 0, 0], words(&[minus(75), 50]), vec![0; 20]].concat()
}

/// A box: one contour of four points on the curve, in words; with two bytes, so that it is of whole
/// words of four.
fn glyph() -> Vec<u8> {
    [
        words(&[1, 50, 0, 550, 700, 3, 0]),
        vec![1; 4],
        words(&[50, 500, 0, minus(500)]),
        words(&[0, 0, 700, 0]),
        vec![0; 2],
    ]
    .concat()
}

/// `A` is glyph 1 (format 4).
fn cmap() -> Vec<u8> {
    let letter = u16::from(b'A');
    let segments = [letter, u16::MAX, 0, letter, u16::MAX, minus(letter - 1), 1, 0, 0];
    [words(&[0, 1, 3, 1, 0, 12]), words(&[4, 32, 0, 4, 4, 1, 0]), words(&segments)].concat()
}

fn os2() -> Vec<u8> {
    let letter = u16::from(b'A');
    [
        words(&[4, 600, 400, 5, 0, 650, 700, 0, 140, 650, 700, 0, 480, 50, 260, 0]),
        vec![0; 10],      // PANOSE
        vec![0, 0, 0, 1], // Basic Latin
        vec![0; 12],
        b"none".to_vec(),
        words(&[0x40, letter, letter, 800, minus(200), 0, 800, 200]),
        vec![0, 0, 0, 1, 0, 0, 0, 0], // Latin 1
        words(&[500, 700, 0, 32, 1]),
    ]
    .concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fonts_are_as_large_as_asked_and_add_up() {
        for bytes in [1200, 28_000, 34_002, 41_000] {
            let font = ttf(bytes);
            assert_eq!(font.len(), bytes);
            assert_eq!(sum(&font), MAGIC_SUM);
        }
        assert_eq!((head().len(), hhea().len(), maxp().len(), post().len()), (54, 36, 32, 32));
        assert_eq!((os2().len(), cmap().len(), glyph().len()), (96, 44, 36));
    }
}
