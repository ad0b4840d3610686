//! ClientHellos, as far as an edge reads them.

/// Size of each.
pub(crate) const HELLO: usize = 100;

/// Returns a ClientHello with this random value and a padding extension.
pub(crate) fn hello(random: [u8; 8]) -> Vec<u8> {
    let padding = HELLO - 56;
    let mut bytes = vec![22, 3, 1];
    bytes.extend(length16(HELLO - 5));
    bytes.extend([1, 0]);
    bytes.extend(length16(HELLO - 9));
    bytes.extend([3, 3]);
    bytes.extend([0; 24]);
    bytes.extend(random);
    bytes.extend([0, 0, 2, 0x13, 1, 1, 0]);
    bytes.extend(length16(padding + 4));
    bytes.extend([0, 21]);
    bytes.extend(length16(padding));
    bytes.resize(HELLO, 0);
    bytes
}

fn length16(value: usize) -> [u8; 2] {
    u16::try_from(value).unwrap().to_be_bytes()
}
