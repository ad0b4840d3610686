//! The server's BPF program on single packets, without a network: `BPF_PROG_TEST_RUN`.
//!
//! Needs root and unshare. Enabled by HEADSTART_TEST_NET=1; then it fails if it cannot run. `cargo
//! test --test fastopen_bpf -- options` runs the checks whose names contain a word.

#![allow(clippy::unwrap_used)]

#[allow(dead_code)] // the vectors of frames use all of it
#[path = "../../../proto/tests/wire_vectors/blocks.rs"]
mod blocks;
mod cookies;
mod frame;
mod options;
mod packets;
mod program;
#[allow(dead_code)] // the other test uses all of it
#[path = "../fastopen_support/mod.rs"]
mod support;

use std::process::ExitCode;

use support::Check;

/// Checks by name.
const CHECKS: &[Check] = &[
    ("vectors", cookies::vectors),
    ("taken_once", cookies::taken_once),
    ("taken_once_by_two_processors", cookies::taken_once_by_two_processors),
    ("three_keys", cookies::three_keys),
    ("zeros_are_no_key", cookies::zeros_are_no_key),
    ("no_keys", cookies::no_keys),
    ("addresses_of_ipv6", cookies::addresses_of_ipv6),
    ("life", cookies::life),
    ("older_than_the_maps", cookies::older_than_the_maps),
    ("clock", cookies::clock),
    ("spent_full", cookies::spent_full),
    ("sweep", cookies::sweep),
    ("swept_by_another_edge", cookies::swept_by_another_edge),
    ("another_map_for_spent", cookies::another_map_for_spent),
    ("generations", cookies::generations),
    ("options_fast_open_forms", options::fast_open_forms),
    ("options_several", options::several),
    ("options_odd_offsets", options::odd_offsets),
    ("options_end_of_list", options::end_of_list),
    ("options_bad_lengths", options::bad_lengths),
    ("options_all_no_operations", options::all_no_operations),
    ("options_others", options::others),
    ("packets_not_looked_at", packets::not_looked_at),
    ("packets_for_others", packets::for_others),
    ("packets_fragments", packets::fragments),
    ("packets_ipv6_extension_headers", packets::ipv6_extension_headers),
    ("packets_ipv4_options", packets::ipv4_options),
    ("packets_short", packets::short),
    ("packets_bare", packets::bare),
];

fn main() -> ExitCode {
    support::run(CHECKS)
}
