//! Every arm on loopback, in this process and as programs, and the sites. What they cost in round
//! trips is measured apart.
#![allow(clippy::unwrap_used)] // a test may panic, its helper functions too

mod loopback;
mod programs;
mod site;
