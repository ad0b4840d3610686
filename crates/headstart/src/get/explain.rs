//! The timeline in words.

use std::fmt::Write;
use std::time::Duration;

use headstart_net::Carrier;

use super::Account;
use super::tls::{cipher_name, group_name, version_name};
use crate::base::opening_event::words;

/// Shortest round trip that times are counted in: shorter ones tell of the machine's own work.
const TELLING: Duration = Duration::from_millis(5);

impl Account {
    /// Returns a timeline with explanations; lines with their ends.
    pub fn explain(&self) -> String {
        let mut text = String::from("       ms    RTT\n");
        for (at, what) in self.events() {
            let _ = writeln!(text, "{} {what}", self.stamp(at));
        }
        text.push('\n');
        text.push_str(&self.summary());
        text
    }

    fn events(&self) -> Vec<(Duration, String)> {
        let moments = self.report.iter().flat_map(|report| &report.timeline);
        let mut events: Vec<_> =
            std::iter::once((Duration::ZERO, format!("asked for {}", self.host)))
                .chain(moments.map(|moment| (moment.at, words(&moment.event))))
                .collect();
        let own = [
            (self.secured, self.established()),
            (self.written, "first request byte".to_owned()),
            (self.read, "first response byte".into()),
            (self.done, format!("done, {} bytes of body", self.bytes)),
        ];
        events.extend(own.into_iter().filter_map(|(at, what)| Some((at?, what))));
        // A stable sort keeps simultaneous events in causal order.
        events.sort_by_key(|(at, _)| *at);
        events
    }

    fn established(&self) -> String {
        self.facts.as_ref().map_or("TLS established".into(), |facts| {
            let group = group_name(facts).map(|group| format!(", {group}")).unwrap_or_default();
            format!("TLS established: {}{group}, {}", version_name(facts), cipher_name(facts))
        })
    }

    /// Milliseconds and round trips since an address was known.
    fn stamp(&self, at: Duration) -> String {
        let ms = (at.as_secs_f64() - self.lookup().as_secs_f64()) * 1000.0;
        match self.rtt().filter(|rtt| *rtt >= TELLING && ms >= 0.0) {
            Some(rtt) => format!("{ms:>9.2} {:>6.2}", ms / 1000.0 / rtt.as_secs_f64()),
            None => format!("{ms:>9.2}       "),
        }
    }

    fn summary(&self) -> String {
        let mut text = String::new();
        let (Some(rtt), Some(request)) = (self.rtt(), self.to_request()) else {
            return text;
        };
        let name = match (self.opened_by(), self.secure) {
            (Carrier::TurboTls, _) => "TurboTLS",
            (Carrier::Spare, _) => "a spare connection",
            (Carrier::Fop, _) => "Fast Open with a private cookie",
            (Carrier::FastOpen, _) => "Fast Open",
            (Carrier::Quic, _) => "QUIC",
            (Carrier::Proxy { .. }, _) => "a proxy",
            (Carrier::Tcp, true) => "plain TLS over TCP",
            (Carrier::Tcp, false) => "TCP without TLS",
        };
        let trips = self.round_trips(request).filter(|_| rtt >= TELLING);
        let (ms, rtt) = (request.as_secs_f64() * 1000.0, rtt.as_secs_f64() * 1000.0);
        let _ = write!(text, "Opened by {name}: the request left after {ms:.1} ms");
        let _ = match trips {
            Some(trips) => writeln!(text, ", {trips:.2} round trips of {rtt:.1} ms."),
            None => writeln!(
                text,
                ".\nA round trip of {rtt:.1} ms is too short to count in: the time is this \
                 machine's own work."
            ),
        };
        match (self.opened_by(), self.not_used()) {
            (Carrier::TurboTls | Carrier::Fop, _) => text.push_str(match trips {
                Some(_) => "Plain TLS 1.3 takes at least 2 round trips.\n",
                None => "On a longer link it takes 1, and plain TLS 1.3 at least 2.\n",
            }),
            (Carrier::Tcp, Some(reason)) if self.secure => {
                let _ = writeln!(text, "TurboTLS not used: {reason}.");
            }
            _ => {}
        }
        if let Some(reason) = self.fast_open_not_used().filter(|_| self.secure) {
            let _ = writeln!(text, "Fast Open not used: {reason}.");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use headstart_net::Report;

    use super::*;

    /// Returns what is said of an opening by TurboTLS, whose request left after 60 ms.
    fn summary(rtt: Duration) -> String {
        let (opened_by, rtt) = (Carrier::TurboTls, Some(rtt));
        let account = Account {
            secure: true,
            written: Some(Duration::from_millis(60)),
            report: Some(Report { opened_by, rtt, ..Report::default() }),
            ..Account::default()
        };
        account.explain()
    }

    #[test]
    fn times_are_counted_in_round_trips() {
        let text = summary(Duration::from_millis(50));
        assert!(text.contains("    60.00   1.20 first request byte\n"), "{text}");
        assert!(
            text.ends_with(
                "Opened by TurboTLS: the request left after 60.0 ms, 1.20 round trips of 50.0 ms.\n\
                 Plain TLS 1.3 takes at least 2 round trips.\n"
            ),
            "{text}"
        );
    }

    #[test]
    fn own_work_is_not_counted_as_round_trips() {
        let text = summary(Duration::from_micros(800));
        assert!(text.contains("    60.00        first request byte\n"), "{text}");
        assert!(
            text.ends_with(
                "Opened by TurboTLS: the request left after 60.0 ms.\n\
                 A round trip of 0.8 ms is too short to count in: the time is this machine's own \
                 work.\nOn a longer link it takes 1, and plain TLS 1.3 at least 2.\n"
            ),
            "{text}"
        );
    }
}
