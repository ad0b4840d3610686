//! headstart
fn main() {}
