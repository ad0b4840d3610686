//! Client and server of the core with an application, an origin and a network, in one thread and
//! virtual time.
//!
//! * `every_loss`: every subset of lost datagrams, and reorderings, duplications, delays.
//! * `late_hello`: a ClientHello that the application writes some time after the SYN left.
//! * `loss`: how often a ClientHello gets through random loss.
//! * `timelines`: one snapshot per path, compared with the ledger of round trips.
//! * `random`: properties of arbitrary runs. A failure prints the shrunk case; `PROPTEST_RNG_SEED`
//!   repeats a run.
//! * `faults`: misbehaving peers and forged packets at the client alone.

mod every_loss;
mod faults;
mod late_hello;
mod loss;
mod random;
mod sim;
mod timelines;
