use headstart_testkit::hello::CraftedHello;

/// Size of each ClientHello.
pub(crate) const HELLO: usize = 100;

/// Offset in the client stream where the ClientHello has ended.
pub(crate) const BEHIND_HELLO: u32 = 100;

/// Returns a ClientHello with this random value.
pub(crate) fn hello(random: [u8; 8]) -> Vec<u8> {
    let mut hello = CraftedHello::sized(HELLO);
    hello.random[24..].copy_from_slice(&random);
    hello.stream()
}
