//! Named kinds of networks, each defined by the text of a path.

/// A named kind of network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preset {
    /// Name that follows `preset` in the text of a path.
    pub name: &'static str,
    /// Path that the name denotes.
    pub path: &'static str,
    /// Source of the path's numbers.
    pub reason: &'static str,
}

/// Every preset.
pub const PRESETS: &[Preset] = &[
    Preset {
        name: "satellite",
        path: "delay 300ms",
        reason: "geostationary: the height alone makes a round trip of 480 to 560 ms (RFC 2488 \
            section 2: 239.6 ms to 279.0 ms one way), modems and ground network add some 40 ms; \
            no loss, as coding hides it",
    },
    Preset {
        name: "lte",
        path: "delay 30ms jitter 8ms",
        reason: "60 ms is a typical figure, not measured; a device waits up to 10 ms for a grant \
            to send, and a retransmission takes 8 ms more (3GPP TS 36.321); packets stay in \
            order, since the link layer sorts them",
    },
    Preset {
        name: "transatlantic",
        path: "delay 40ms",
        reason: "London to New York: 5,570 km there and back take 56 ms in fibre at 200 km/ms, \
            and operators promise at most 90 ms (Verizon's service level); 80 ms leave some for \
            both access lines; no jitter or loss, as on an idle backbone",
    },
    Preset {
        name: "wifi",
        path: "delay 5ms jitter 2ms, bursts 1% mean-length 3",
        reason: "10 ms to a server in the same city over a busy channel; IEEE 802.11 repeats a \
            frame 4 to 7 times, so losses come in a row, while interference lasts; their share \
            and length are assumed, not measured",
    },
];

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::Link;
    use crate::{Packet, Path};

    #[test]
    fn every_preset_parses_as_a_path_and_has_a_reason() {
        for preset in PRESETS {
            let path: Path = format!("preset {}", preset.name).parse().unwrap();
            assert_eq!(path.to_string(), format!("preset {}", preset.name));
            assert!(preset.reason.len() > 40);
        }
    }

    /// Returns the shortest and the longest delay of a link, in ms.
    fn extremes(link: &mut Link) -> (f64, f64) {
        let seconds = (0..1000_u64).filter_map(|second| {
            let sent = Duration::from_secs(second);
            link.send(sent, Packet::udp([]));
            let due = link.next_due()?;
            link.poll(due).map(|_| (due - sent).as_secs_f64() * 1e3)
        });
        let mut times: Vec<f64> = seconds.collect();
        assert!(times.len() > 950, "{}", times.len());
        times.sort_by(f64::total_cmp);
        (times[0], times[times.len() - 1])
    }

    #[test]
    fn round_trip_times_and_jitter_match_the_presets() {
        for (name, millis, jitter) in
            [("satellite", 600, 0), ("lte", 60, 16), ("transatlantic", 80, 0), ("wifi", 10, 4)]
        {
            let mut path: Path = format!("preset {name}").parse().unwrap();
            let [out, back] = [&mut path.outbound, &mut path.inbound].map(extremes);
            let [shortest, longest] = [out.0 + back.0, out.1 + back.1];
            let (millis, jitter) = (f64::from(millis), f64::from(jitter));
            assert!(shortest >= millis - jitter && shortest < millis - 0.9 * jitter + 0.001);
            assert!(longest <= millis + jitter && longest > millis + 0.9 * jitter - 0.001);
        }
    }
}
