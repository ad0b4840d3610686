//! A client program's account of a connection, and the row made of it.

use std::time::Duration;

use headstart_openers::Trial;
use serde::{Deserialize, Serialize};

use super::experiment::Moment;

/// A client's answer, one line: a connection, or the end of a load.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub(crate) enum PeerLine {
    Trial(Trial),
    Done(Done),
    Forgot {
        #[allow(dead_code)] // tells the lines apart
        forgot: bool,
    },
}

/// The end of a load.
#[derive(Debug, Clone, Copy, Deserialize)]
pub(crate) struct Done {
    #[allow(dead_code)] // tells the lines apart
    done: bool,
    /// Connections that it made.
    pub(crate) connections: u64,
    /// Exchanges before the load was over, of those that were then waited for the parts before.
    #[serde(default)]
    pub(crate) completed_in_slice: Option<f64>,
    /// Processor time of the client.
    #[serde(default)]
    pub(crate) cpu_ms: f64,
}

/// One line of samples.csv. The names of its columns are a contract.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) experiment: String,
    pub(crate) arm: String,
    pub(crate) suite: String,
    pub(crate) link: String,
    /// Number in the cell, from 1; within its group where a variant has first and later
    /// connections.
    pub(crate) trial: u32,
    /// `plain`, `turbo`, `tfo`, `fop` or `quic`; empty if a program broke.
    pub(crate) opening: String,
    /// Empty if it did not come so far.
    pub(crate) ms_to_first_request_byte: Option<f64>,
    pub(crate) ms_to_first_response_byte: Option<f64>,
    pub(crate) ms_to_last_response_byte: Option<f64>,
    /// Time to the first request byte in round trips of the link.
    pub(crate) rtts: Option<f64>,
    /// Reason why the opening was no better.
    pub(crate) reason: String,
    /// True if the forwarder sent a packet too late meanwhile.
    pub(crate) flagged: bool,
    pub(crate) variant: String,
    /// Completed with the right bytes.
    pub(crate) ok: bool,
    pub(crate) resumed: bool,
    pub(crate) early_data: bool,
    pub(crate) bytes: u64,
    pub(crate) error: String,
    /// Turn of the cell in which it was made, from 1.
    pub(crate) round: u32,
}

/// Cell that a row belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) experiment: String,
    pub(crate) link: String,
    pub(crate) variant: String,
    pub(crate) suite: String,
    pub(crate) arm: String,
}

impl Row {
    pub(crate) fn new(key: Key, trial: u32, round: u32, rtt: Duration, outcome: Trial) -> Self {
        let request = outcome.ms_to_first_request_byte.map(rounded);
        Self {
            experiment: key.experiment,
            arm: key.arm,
            suite: key.suite,
            link: key.link,
            trial,
            opening: outcome.opening.name().to_owned(),
            ms_to_first_request_byte: request,
            ms_to_first_response_byte: outcome.ms_to_first_response_byte.map(rounded),
            ms_to_last_response_byte: outcome.ms_to_last_response_byte.map(rounded),
            rtts: request.map(|ms| rounded(ms / (rtt.as_secs_f64() * 1e3))),
            reason: one_line(&outcome.reason),
            flagged: false,
            variant: key.variant,
            ok: outcome.ok,
            resumed: outcome.resumed,
            early_data: outcome.early_data,
            bytes: outcome.bytes,
            error: one_line(&outcome.error),
            round,
        }
    }

    /// Returns true if its request left with the first packet: as early data, over an opening that
    /// has no handshake before.
    pub(crate) fn is_zero_rtt(&self) -> bool {
        let at_once = ["tfo", "fop", "turbo", "quic"];
        self.ok && self.early_data && at_once.contains(&self.opening.as_str())
    }

    /// Returns one of its times, in ms; `None` if it did not come so far.
    pub(crate) const fn time(&self, moment: Moment) -> Option<f64> {
        match moment {
            Moment::Request => self.ms_to_first_request_byte,
            Moment::Response => self.ms_to_first_response_byte,
            Moment::Last => self.ms_to_last_response_byte,
        }
    }

    pub(crate) fn key(&self) -> Key {
        Key {
            experiment: self.experiment.clone(),
            link: self.link.clone(),
            variant: self.variant.clone(),
            suite: self.suite.clone(),
            arm: self.arm.clone(),
        }
    }
}

/// A connection that could not be made.
pub(crate) fn failed(error: String) -> Trial {
    Trial { error, ..Trial::default() }
}

/// Rounds to the microsecond, or a thousandth of a round trip: clocks are no better.
pub(crate) fn rounded(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

/// Readers of CSV by line are not to be surprised.
fn one_line(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
}
