//! The edge and the agent as processes, curl and nginx beside them, on emulated links: what an
//! application sees, and what it costs in round trips.
//!
//! Needs network namespaces (root, or a system that allows user namespaces) and curl, nginx, nft
//! and tcpdump: switched on by HEADSTART_TEST_NET=1, and then it fails if it cannot run.
//! `cargo test --test link -- dns` runs the checks whose names contain the word.
//!
//! It has a `main` of its own because a user namespace can be entered only before there are
//! threads, and because checks that measure must not run beside each other.

#![allow(clippy::unwrap_used)]

mod analysers;
mod arms;
mod banner;
mod careful;
mod client;
mod context;
mod curl;
mod daemon;
mod datagrams;
mod discovery;
mod dns;
mod fast_open;
mod fast_open_faults;
mod figures;
mod go;
mod hybrid;
mod interop;
mod late_hello;
#[path = "../../../headstart/tests/support/library.rs"]
mod library;
mod loss;
mod names;
mod net;
mod nginx;
mod origin;
mod origins;
mod parallel;
#[path = "../support/programs.rs"]
mod programs;
mod proxy_protocol;
mod quic;
mod reset;
mod restart;
mod rtt;
mod second_syn;
mod signals;
mod spares;
mod takeover;

use std::process::ExitCode;

use headstart_emulation::{Privilege, enter_user_namespace, own_bpf_mount, privilege};
use headstart_testkit::has_net;
use libtest_mimic::{Arguments, Trial};

/// Each check by its name.
const CHECKS: &[(&str, fn())] = &[
    ("one_round_trip_saved", rtt::one_round_trip_saved),
    ("programs_in_go_save_a_round_trip", go::programs_in_go_save_a_round_trip),
    ("udp_blocked_costs_a_grace", rtt::udp_blocked_costs_a_grace),
    ("udp_dying_costs_a_grace", rtt::udp_dying_costs_a_grace),
    ("tls_1_2_saves_one_too", rtt::tls_1_2_saves_one_too),
    ("interop_a_client_that_goes_plain_fails", interop::a_client_that_goes_plain_fails),
    ("hybrid_key_exchange", hybrid::hybrid_key_exchange),
    ("late_hello_never_slower", late_hello::never_slower),
    ("udp_blocked_one_way", datagrams::blocked_one_way),
    ("udp_late", datagrams::late),
    ("udp_lag_is_learnt", datagrams::lag_is_learnt),
    ("udp_dies", datagrams::die),
    ("no_edge_icmp", datagrams::no_edge_icmp),
    ("no_edge_silent", datagrams::no_edge_silent),
    ("tcp_refused_while_udp_answers", restart::tcp_refused),
    ("edge_restarted_before_tcp", restart::before_tcp),
    ("taken_over_before_tcp", takeover::before_tcp),
    ("analysers_see_tls", analysers::see_tls),
    ("quic_beside_turbotls", quic::beside),
    ("quic_limits", quic::limits),
    ("origin_down", origins::down),
    ("origin_far_away", origins::far_away),
    ("origin_closes_early", origins::closes_early),
    ("reset_by_the_origin", reset::by_the_origin),
    ("reset_by_the_client", reset::by_the_client),
    ("half_close", reset::half_close),
    ("server_speaks_first", banner::server_speaks_first),
    ("proxy_protocol_names_the_client", proxy_protocol::names_the_client),
    ("join_from_another_address", proxy_protocol::join_from_another_address),
    ("reload_keeps_a_download", signals::reload_keeps_a_download),
    ("stop_drains_a_download", signals::stop_drains_a_download),
    ("origins_by_name", names::origins_by_name),
    ("context_of_a_redirected_client", context::of_a_redirected_client),
    ("second_syn_opens", second_syn::opens),
    ("second_syn_off", second_syn::off),
    ("second_syn_by_list", second_syn::by_list),
    ("second_syn_in_vain_once", second_syn::in_vain_once),
    ("second_syn_swallowed", second_syn::swallowed),
    ("spares_without_udp", spares::save_a_round_trip_without_udp),
    ("loss_5", loss::five_percent),
    ("loss_20", loss::twenty_percent),
    ("many_at_once", parallel::most_open_by_turbotls),
    ("dns_advertised", discovery::advertised),
    ("dns_advertised_for_an_address", discovery::advertised_for_an_address),
    ("dns_time_to_live", discovery::time_to_live),
    ("dns_late_or_missing", discovery::late_or_missing),
    ("dns_no_datagram_unasked", discovery::no_datagram_unasked),
];

/// Checks that only root can run, since they attach programs to the kernel.
const CHECKS_OF_ROOT: &[(&str, fn())] = &[
    ("fast_open_cookie_in_a_ticket", fast_open::cookie_in_a_ticket),
    ("fast_open_cookie_of_another_program", fast_open::cookie_of_another_program),
    ("fast_open_none_with_tls_1_2", fast_open::none_with_tls_1_2),
    ("fast_open_sooner", fast_open_faults::opens_a_round_trip_sooner),
    ("fast_open_syn_data_dropped", fast_open_faults::syn_data_dropped),
    ("fast_open_option_stripped", fast_open_faults::option_stripped),
    ("fast_open_post_quantum", fast_open_faults::post_quantum_goes_over_udp),
    ("fast_open_edge_that_stops", fast_open::edge_that_stops),
    ("fast_open_edge_that_hands_over", fast_open::edge_that_hands_over),
    ("careful_resume_jumps", careful::begins_with_the_window_of_before),
    ("careful_resume_retreats", careful::retreats_where_the_path_bears_less),
    ("careful_resume_without_program", careful::serves_without_the_program),
];

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // On this thread, the one that is in the namespace, one after the other.
    arguments.test_threads = Some(1);
    let is_on = has_net();
    let is_root = if is_on && !arguments.list { enter() } else { false };
    let checks = CHECKS.iter().map(|check| trial(check, is_on));
    let checks_of_root = CHECKS_OF_ROOT.iter().map(|check| trial(check, is_on && is_root));
    libtest_mimic::run(&arguments, checks.chain(checks_of_root).collect()).exit_code()
}

/// Enters the namespaces in which the checks build theirs; returns true for root, not only that of
/// a user namespace.
fn enter() -> bool {
    match privilege() {
        Privilege::Root => {
            // What is pinned there ends with this process.
            own_bpf_mount(fast_open::BPF_MOUNT).unwrap();
            true
        }
        Privilege::UserNamespace => {
            enter_user_namespace().unwrap();
            false
        }
        Privilege::None(refusal) => panic!("no namespaces: {refusal}; hint: {}", refusal.hint()),
    }
}

/// Returns a check for the harness, which counts those that cannot run here as ignored.
fn trial(&(name, check): &(&'static str, fn()), runs: bool) -> Trial {
    Trial::test(name, move || {
        check();
        Ok(())
    })
    .with_ignored_flag(!runs)
}
