//! Fast Open with private cookies on the real kernel: client, server and a link that loses and
//! duplicates exact packets, each in a network namespace; the tests inspect every packet of the
//! client.
//!
//! Needs root, cgroup2, unshare, setpriv and ip. Enabled by HEADSTART_TEST_NET=1; then it fails if
//! it cannot run. `cargo test --test fastopen -- valid` runs the checks whose names contain a word.

#![allow(clippy::unwrap_used)]

mod alter;
mod attaching;
mod boxes;
mod client;
mod connector;
mod extension;
mod faults;
mod others;
mod packet;
mod refused;
mod server;
#[allow(dead_code)] // the other test uses all of it
#[path = "../fastopen_support/mod.rs"]
mod support;
mod tun;
mod unprivileged;
mod valid;
mod world;

use std::process::ExitCode;

use support::Check;

/// Checks by name.
const CHECKS: &[Check] = &[
    ("valid_ipv4", valid::ipv4),
    ("valid_ipv6", valid::ipv6),
    ("valid_at_another_server_address", valid::another_server_address),
    ("valid_over_loopback", valid::over_loopback),
    ("valid_over_tun", tun::over_tun),
    ("valid_more_than_a_syn_holds", valid::more_than_a_syn_holds),
    ("refused_replayed", refused::replayed),
    ("refused_expired", refused::expired),
    ("refused_of_another_client", refused::of_another_client),
    ("refused_garbage", refused::garbage),
    ("refused_of_a_retired_key", refused::of_a_retired_key),
    ("refused_clock_stepped", refused::clock_stepped),
    ("refused_of_another_form", refused::of_another_form),
    ("refused_behind_extension_headers", refused::behind_extension_headers),
    ("refused_spent_full", refused::spent_full),
    ("refused_in_fragments", refused::in_fragments),
    ("fault_syn_lost", faults::syn_lost),
    ("fault_syn_ack_lost", faults::syn_ack_lost),
    ("fault_syn_doubled", faults::syn_doubled),
    ("fault_option_stripped", faults::option_stripped),
    ("fault_syn_data_dropped", faults::syn_data_dropped),
    ("fault_detached_in_mid_flight", faults::detached_in_mid_flight),
    ("fault_no_hidden_listener", faults::no_hidden_listener),
    ("fault_impostor_on_the_hidden_port", faults::impostor_on_the_hidden_port),
    ("fault_queue_full", faults::queue_full),
    ("fault_syn_cookies_forced", faults::syn_cookies_forced),
    ("fault_syn_cookies_forced_later", faults::syn_cookies_forced_later),
    ("other_ordinary_connections", others::ordinary_connections),
    ("other_kernel_fast_open", others::kernel_fast_open),
    ("other_detached_kernel_fast_open", others::detached_kernel_fast_open),
    ("other_detached_private_cookie", others::detached_private_cookie),
    ("other_cookie_in_a_syn_ack", others::cookie_in_a_syn_ack),
    ("other_no_room", others::no_room),
    ("other_direct_to_the_hidden_port", others::direct_to_the_hidden_port),
    ("other_server_on_the_port", others::another_server_on_the_port),
    ("other_on_for_all_listeners", others::on_for_all_listeners),
    ("other_in_time_wait", others::in_time_wait),
    ("other_forwarded_syn", others::forwarded_syn),
    ("client_cookie_needs_data", client::cookie_needs_data),
    ("client_not_plain_tcp", client::not_plain_tcp),
    ("client_long_options_of_others", client::long_options_of_others),
    ("client_attached_twice", client::attached_twice),
    ("client_detached", client::detached),
    ("client_switched_off", client::switched_off),
    ("connector_tickets_open_once", connector::tickets_open_once),
    ("connector_made_up_cookies_of_another_user", connector::made_up_cookies_of_another_user),
    ("connector_syn_lost", connector::syn_lost),
    ("connector_syn_late", connector::syn_late),
    ("connector_syn_reset", connector::syn_reset),
    ("connector_syn_prohibited", connector::syn_prohibited),
    ("connector_option_stripped", connector::option_stripped),
    ("connector_part_acknowledged", connector::part_acknowledged),
    ("connector_cookies_by_the_extension", extension::cookies_by_the_extension),
    ("connector_address_gone_and_back", connector::address_gone_and_back),
    ("connector_switched_off", connector::switched_off),
    ("connector_switched_off_meanwhile", connector::switched_off_or_detached_meanwhile),
    ("attach_again", attaching::repeated_attach),
    ("attach_after_a_kill", attaching::after_a_kill),
    ("attach_at_the_same_time", attaching::at_the_same_time),
    ("attach_directories_of_others", attaching::directories_of_others),
    ("attach_refusals", attaching::refusals),
    ("attach_other_interfaces", attaching::other_interfaces),
    ("unprivileged_both_sides", unprivileged::both_sides),
    ("unprivileged_denied", unprivileged::denied),
    ("helper_with_capabilities", unprivileged::helper_with_capabilities),
    ("helper_without_cgroup2", unprivileged::helper_without_cgroup2),
];

fn main() -> ExitCode {
    match unprivileged::role() {
        Some(role) => role.play(),
        None => support::run(CHECKS),
    }
}
