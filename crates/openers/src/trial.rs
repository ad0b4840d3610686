use std::time::Instant;

use headstart_proto::Carrier;
use serde::{Deserialize, Serialize};

/// One connection, from before the first socket call to the last response byte.
///
/// Times are in milliseconds from just before the first socket call, or from when the connection
/// was planned to begin; none where it did not come so far.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// True if every response byte came and was right.
    pub ok: bool,
    /// Carrier of the first flight in truth.
    #[serde(with = "by_name")]
    pub opening: Carrier,
    /// True if an earlier session was resumed.
    pub resumed: bool,
    /// True if the server accepted the request as early data.
    pub early_data: bool,
    /// Time at which the client handed its first request byte to TLS, with a transport below that
    /// could take it. Early data counts from when it left: with the SYN or the datagram that
    /// carried it, if the server got that, else when TCP took it. If early data was refused, the
    /// second time counts.
    pub ms_to_first_request_byte: Option<f64>,
    /// Time at which TLS handed out the first response byte.
    pub ms_to_first_response_byte: Option<f64>,
    /// Time at which TLS handed out the last response byte.
    pub ms_to_last_response_byte: Option<f64>,
    /// Bytes of content that came and were right.
    pub bytes: u64,
    /// Reason why the opening was not the arm's best, or empty.
    pub reason: String,
    /// Error, or empty.
    pub error: String,
}

/// A carrier in JSON.
mod by_name {
    use headstart_proto::Carrier;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(carrier: &Carrier, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(carrier.name())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Carrier, D::Error> {
        let name = String::deserialize(from)?;
        name.parse().map_err(|_| Error::custom(format!("unknown opening '{name}'")))
    }
}

/// Times of a connection, also of one that fails on the way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Marks {
    start: Instant,
    request: Option<Instant>,
    response: Option<Instant>,
    last: Option<Instant>,
    pub(crate) bytes: u64,
}

impl Marks {
    pub(crate) const fn new(start: Instant) -> Self {
        Self { start, request: None, response: None, last: None, bytes: 0 }
    }

    /// The first request byte goes to TLS now; a refused one did not count.
    pub(crate) fn request(&mut self) {
        self.request_at(Instant::now());
    }

    /// It left at `moment`.
    pub(crate) const fn request_at(&mut self, moment: Instant) {
        self.request = Some(moment);
    }

    /// Response bytes are here.
    pub(crate) fn response(&mut self) {
        self.response.get_or_insert_with(Instant::now);
    }

    /// The last of them is here.
    pub(crate) fn last(&mut self) {
        self.last = Some(Instant::now());
    }

    pub(crate) const fn stage(&self) -> &'static str {
        match self {
            Self { response: Some(_), .. } => "the response ended early",
            Self { request: Some(_), .. } => "no response",
            _ => "the connection was not opened",
        }
    }

    /// The account of a connection that ended as `outcome` says.
    pub(crate) fn trial(&self, outcome: Result<(), String>) -> Trial {
        let [request, response, last] = [self.request, self.response, self.last].map(|moment| {
            // No clock here is more exact than a microsecond.
            let since = moment?.saturating_duration_since(self.start).as_secs_f64();
            Some((since * 1e6).round() / 1000.0)
        });
        Trial {
            ok: outcome.is_ok(),
            ms_to_first_request_byte: request,
            ms_to_first_response_byte: response,
            ms_to_last_response_byte: last,
            bytes: self.bytes,
            error: outcome.err().unwrap_or_default(),
            ..Trial::default()
        }
    }
}

/// The error of a connection that took too long, in `stage`.
pub(crate) fn out_of_time(stage: &str) -> String {
    format!("out of time: {stage}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trial_is_a_line_of_json_with_the_agreed_names() {
        let mut marks = Marks::new(Instant::now());
        marks.request();
        let trial = Trial { opening: Carrier::TurboTls, ..marks.trial(Err("no response".into())) };
        let line = serde_json::to_value(&trial).unwrap();
        assert_eq!(line["ok"], false);
        assert_eq!(line["opening"], "turbo");
        assert!(line["ms_to_first_request_byte"].is_f64());
        assert!(line["ms_to_first_response_byte"].is_null());
        assert_eq!(line["error"], "no response");
        assert_eq!(serde_json::from_value::<Trial>(line).unwrap(), trial);
    }
}
