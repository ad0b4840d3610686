//! The timeline of a connection as a picture.

use std::fmt::Write;
use std::time::Duration;

use headstart_net::OpeningEvent;
use headstart_proto::ClientEvent;

use super::super::recent::Record;
use super::escape::Escaped;
use super::millis;
use crate::base::opening_event::words;

/// Left end of the lanes, behind their names, and their length; in units of the picture.
const LEFT: f64 = 44.0;
const LENGTH: f64 = 284.0;

/// Distance of the lanes.
const STEP: f64 = 18.0;

/// Part of an opening that an event belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lane {
    Lookup,
    Udp,
    Tcp,
}

impl Lane {
    const ALL: [Self; 3] = [Self::Lookup, Self::Udp, Self::Tcp];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Lookup => "name",
            Self::Udp => "udp",
            Self::Tcp => "tcp",
        }
    }

    const fn of_event(event: &OpeningEvent) -> Self {
        match event {
            OpeningEvent::Resolved(_) | OpeningEvent::Offered | OpeningEvent::NotUsed(_) => {
                Self::Lookup
            }
            OpeningEvent::Transport(
                ClientEvent::FlightSent { .. }
                | ClientEvent::SlotSent { .. }
                | ClientEvent::DatagramReceived { .. }
                | ClientEvent::DatagramIgnored
                | ClientEvent::LateDatagram
                | ClientEvent::Unreachable
                | ClientEvent::FirstServerBytes { udp: true }
                | ClientEvent::GivenUp(_),
            ) => Self::Udp,
            _ => Self::Tcp,
        }
    }
}

/// An event of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Point {
    pub(super) at: Duration,
    pub(super) lane: Lane,
    pub(super) words: String,
}

/// Returns the events of a connection, without addresses unless `names` are shown.
pub(super) fn points(record: &Record, names: bool) -> Vec<Point> {
    let opened = record.established.map(|at| {
        let words = format!("opened: {}", record.opening);
        Point { at, lane: Lane::Tcp, words }
    });
    let events = record.timeline.iter().map(|entry| {
        let words = match entry.event {
            _ if names => words(&entry.event),
            OpeningEvent::Syn(_) => "TCP  -> SYN".to_owned(),
            OpeningEvent::SecondSyn(_) => "TCP  -> no answer in time: a second SYN".to_owned(),
            OpeningEvent::Spare(_) => "TCP  -> over a spare connection".to_owned(),
            other => words(&other),
        };
        Point { at: entry.at, lane: Lane::of_event(&entry.event), words }
    });
    events.chain(opened).collect()
}

/// Draws points as an SVG picture with a lane for each part; nothing for none.
pub(super) fn draw(points: &[Point]) -> String {
    let mut svg = String::new();
    let Some(end) = points.iter().map(|point| point.at).max() else { return svg };
    let scale = LENGTH / millis(end).max(0.001);
    let _ = write!(
        svg,
        "<svg viewBox=\"0 0 340 72\" role=\"img\" aria-label=\"{} events within {:.1} ms\">",
        points.len(),
        millis(end)
    );
    for (lane, row) in Lane::ALL.into_iter().zip(0_u8..) {
        let (y, name, right) = (10.0 + STEP * f64::from(row), lane.name(), LEFT + LENGTH);
        let _ = write!(
            svg,
            "<text x=\"0\" y=\"{}\">{name}</text><line x1=\"{LEFT}\" y1=\"{y}\" x2=\"{right}\" \
                y2=\"{y}\"/>",
            y + 4.0
        );
        for point in points.iter().filter(|point| point.lane == lane) {
            let (x, ms) = (LEFT + millis(point.at) * scale, millis(point.at));
            let _ = write!(
                svg,
                "<circle class=\"{name}\" cx=\"{x:.1}\" cy=\"{y}\" r=\"4\"><title>{ms:.1} ms: \
                    {}</title></circle>",
                Escaped(&point.words)
            );
        }
    }
    let _ = write!(
        svg,
        "<text x=\"{LEFT}\" y=\"68\">0</text><text x=\"{}\" y=\"68\" class=\"end\">{:.1} ms</text>\
            </svg>",
        LEFT + LENGTH,
        millis(end)
    );
    svg
}

#[cfg(test)]
mod tests {
    use headstart_net::TimelineEntry;

    use super::*;

    fn record() -> Record {
        let at = Duration::from_millis;
        let flight = ClientEvent::FlightSent { seq: 0, offset: 0, bytes: 517 };
        let address = "192.0.2.7:443".parse().unwrap();
        let events = [
            OpeningEvent::Resolved(1),
            OpeningEvent::Syn(address),
            OpeningEvent::SecondSyn(address),
            OpeningEvent::Spare(address),
            OpeningEvent::Transport(flight),
            OpeningEvent::Transport(ClientEvent::TcpConnected),
        ];
        let timeline =
            (0..).zip(events).map(|(ms, event)| TimelineEntry { at: at(ms * 10), event });
        Record { timeline: timeline.collect(), ..Record::default() }
    }

    #[test]
    fn addresses_are_names() {
        let all = |names| format!("{:?}", points(&record(), names));
        assert!(!all(false).contains("192.0.2.7"), "{}", all(false));
        assert_eq!(all(true).matches("192.0.2.7").count(), 3);
    }

    #[test]
    fn points_stay_within_the_picture() {
        let points = points(&record(), false);
        let svg = draw(&points);
        assert_eq!(svg.matches("<circle").count(), points.len());
        for x in svg.split("cx=\"").skip(1) {
            let x: f64 = x.split('"').next().unwrap().parse().unwrap();
            assert!((LEFT..=LEFT + LENGTH).contains(&x), "{x}");
        }
        let lanes: Vec<_> = points.iter().map(|point| point.lane.name()).collect();
        assert_eq!(lanes, ["name", "tcp", "tcp", "tcp", "udp", "tcp"]);
    }

    #[test]
    fn events_at_one_moment_and_none_are_drawn() {
        let at_once = Point { at: Duration::ZERO, lane: Lane::Udp, words: "<&".to_owned() };
        let svg = draw(&[at_once.clone(), at_once]);
        assert!(svg.contains("cx=\"44.0\"") && svg.contains("&lt;&amp;"), "{svg}");
        assert_eq!(draw(&[]), "");
    }
}
