//! PNG pictures (W3C PNG, third edition) of a given size in bytes.

use std::io::Write;

use flate2::write::ZlibEncoder;
use flate2::{Compression, Crc};

use super::content::Numbers;

const SIGNATURE: &[u8; 8] = b"\x89PNG\r\n\x1a\n";

/// Bytes of a chunk without its data: length, name and checksum.
const CHUNK: usize = 12;

/// Bytes of the chunk with width, height and form.
const HEADER: usize = CHUNK + 13;

/// Returns the cost of stored bytes in deflate: zlib's own, and five for each block, which are of
/// 16 kB at least.
const fn stored(bytes: usize) -> usize {
    16 + (bytes / 16_000 + 1) * 5
}

/// A picture of so many bytes: sky over ground, with noise of its name. At least 350 bytes make
/// one.
pub(super) fn png(name: &str, bytes: usize) -> Vec<u8> {
    let others = SIGNATURE.len() + HEADER + 3 * CHUNK;
    let room = bytes.saturating_sub(others + stored(bytes));
    let (width, height) = dimensions(room);
    let mut png = SIGNATURE.to_vec();
    let mut header = Vec::new();
    header.extend(u32::try_from(width).unwrap_or(1).to_be_bytes());
    header.extend(u32::try_from(height).unwrap_or(1).to_be_bytes());
    header.extend([8, 2, 0, 0, 0]); // eight bits each of red, green and blue
    chunk(&mut png, b"IHDR", &header);
    chunk(&mut png, b"IDAT", &compressed(&rows(name, width, height)));
    let rest = bytes.saturating_sub(png.len() + 2 * CHUNK);
    // Ancillary, private, safe to copy (section 5.4).
    chunk(&mut png, b"paDd", &vec![0; rest]);
    chunk(&mut png, b"IEND", &[]);
    png
}

/// Four to three, as far as the bytes allow: a row has three for each pixel, and one more.
fn dimensions(room: usize) -> (usize, usize) {
    let width = (room * 4 / 9).isqrt().max(1);
    (width, (room / (1 + 3 * width)).max(1))
}

fn rows(name: &str, width: usize, height: usize) -> Vec<u8> {
    let mut numbers = Numbers::from_name(name);
    let tint = [numbers.byte() / 3, numbers.byte() / 3, numbers.byte() / 3];
    let ground = height * 3 / 5;
    let mut rows = Vec::with_capacity(height * (1 + 3 * width));
    for y in 0..height {
        rows.push(0); // no filter
        let share = u8::try_from(y * 120 / height).unwrap_or(u8::MAX);
        let base = if y < ground { [90, 130, 200] } else { [60, 110, 50] };
        for _ in 0..width {
            let noise = numbers.byte() / 16;
            rows.extend(base.iter().zip(tint).map(|(base, tint)| {
                (base + noise).saturating_add(tint / 2).saturating_add(share / 4)
            }));
        }
    }
    rows
}

/// Stored as it is: so a picture's size in pixels says its size in bytes.
fn compressed(rows: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::none());
    // Writing to memory cannot fail.
    let written = encoder.write_all(rows).and_then(|()| encoder.finish());
    written.unwrap_or_default()
}

fn chunk(png: &mut Vec<u8>, name: &[u8; 4], data: &[u8]) {
    png.extend(u32::try_from(data.len()).unwrap_or(u32::MAX).to_be_bytes());
    png.extend(name);
    png.extend(data);
    let mut crc = Crc::new();
    crc.update(name);
    crc.update(data);
    png.extend(crc.sum().to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_are_as_large_as_asked() {
        for bytes in [350, 351, 400, 2200, 2300, 16_384, 65_000, 205_000, 1_000_000] {
            let png = png("a", bytes);
            assert_eq!(png.len(), bytes);
            assert!(png.ends_with(b"IEND\xae\x42\x60\x82"));
        }
        assert_ne!(png("a", 900), png("b", 900));
    }
}
