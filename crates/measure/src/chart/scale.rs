//! Where a time stands on an axis.

/// An axis is logarithmic where its values span more than this: below, a line from zero shows the
/// shorter times well enough, and lengths stay in proportion.
const LINEAR_SPAN: f64 = 20.0;

/// Shortest time on a logarithmic axis, in ms: 0-RTT may give its request within the first
/// microseconds, and zero has no logarithm.
const SHORTEST: f64 = 0.001;

/// Marks of an axis, about.
const TICKS: f64 = 6.0;

/// An axis of times in ms.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Scale {
    /// Lengths in proportion, from zero as a rule.
    Linear { low: f64, high: f64 },
    /// Scale that starts at a time above zero.
    Log { low: f64, high: f64 },
}

impl Scale {
    /// The axis that shows all of these times.
    pub(crate) fn from_times(times: impl Iterator<Item = f64> + Clone) -> Self {
        let high = times.clone().fold(SHORTEST, f64::max);
        let low = times.fold(high, f64::min).max(SHORTEST);
        if high / low > LINEAR_SPAN { Self::Log { low, high } } else { Self::linear(high) }
    }

    /// An axis from zero.
    pub(crate) const fn linear(high: f64) -> Self {
        Self::Linear { low: 0.0, high: high.max(SHORTEST) }
    }

    pub(crate) const fn is_log(self) -> bool {
        matches!(self, Self::Log { .. })
    }

    /// Returns the time at its end.
    pub(crate) const fn high(self) -> f64 {
        match self {
            Self::Linear { high, .. } | Self::Log { high, .. } => high,
        }
    }

    /// Returns the position of a time, from 0 to 1.
    pub(crate) fn place(self, time: f64) -> f64 {
        let place = match self {
            Self::Linear { low, high } => (time - low) / (high - low),
            Self::Log { low, high } => (time.max(low) / low).ln() / (high / low).ln(),
        };
        place.clamp(0.0, 1.0)
    }

    /// The times to mark.
    pub(crate) fn ticks(self) -> Vec<f64> {
        match self {
            Self::Linear { low, high } => multiples(step((high - low) / TICKS), low, high),
            Self::Log { low, high } => {
                let decades = (high / low).log10();
                let steps: &[f64] = if decades < 2.6 { &[1.0, 2.0, 5.0] } else { &[1.0] };
                let every = (decades / TICKS).ceil().max(1.0);
                let mut ticks = Vec::new();
                let mut decade = low.log10().floor();
                while decade <= high.log10() {
                    ticks.extend(steps.iter().map(|step| step * 10_f64.powf(decade)));
                    decade += every;
                }
                ticks.retain(|tick| (low..=high * 1.0001).contains(tick));
                ticks
            }
        }
    }
}

/// Multiples of `step` from `low` to `high`.
pub(crate) fn multiples(step: f64, low: f64, high: f64) -> Vec<f64> {
    std::iter::successors(Some((low / step).ceil()), |count| Some(count + 1.0))
        .map(|count| count * step)
        .take_while(|tick| *tick <= high * 1.0001)
        .collect()
}

/// The round number at or above: 1, 2 or 5 times a power of ten.
pub(crate) fn step(least: f64) -> f64 {
    let decade = 10_f64.powf(least.max(SHORTEST / 100.0).log10().floor());
    let steps = [1.0, 2.0, 5.0].map(|step| step * decade);
    steps.into_iter().find(|step| *step >= least * 0.9999).unwrap_or(10.0 * decade)
}

/// A mark as text: no digits that say nothing.
pub(crate) fn mark(tick: f64) -> String {
    format!("{tick:.3}").trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_spans_are_logarithmic() {
        assert_eq!(Scale::from_times([10.0, 200.0].into_iter()), Scale::linear(200.0));
        assert_eq!(
            Scale::from_times([9.9, 200.0].into_iter()),
            Scale::Log { low: 9.9, high: 200.0 }
        );
        assert_eq!(Scale::from_times([0.0, 5.0].into_iter()), Scale::Log { low: 0.001, high: 5.0 });
        assert_eq!(Scale::from_times(std::iter::empty()), Scale::linear(SHORTEST));
    }

    #[test]
    fn ticks_are_round_and_inside() {
        assert_eq!(marks(Scale::linear(270.0)), ["0", "50", "100", "150", "200", "250"]);
        assert_eq!(
            marks(Scale::Log { low: 0.4, high: 60.0 }),
            ["0.5", "1", "2", "5", "10", "20", "50"]
        );
        assert_eq!(marks(Scale::Log { low: 0.05, high: 600.0 }), ["0.1", "1", "10", "100"]);
        for high in [0.001, 0.3, 1.0, 7.0, 1e3, 1e6] {
            let count = Scale::linear(high).ticks().len();
            assert!((2..=8).contains(&count), "{high}: {count}");
        }
    }

    fn marks(scale: Scale) -> Vec<String> {
        scale.ticks().into_iter().map(mark).collect()
    }

    #[test]
    fn places_are_in_order_and_in_the_frame() {
        for scale in [Scale::linear(50.0), Scale::Log { low: 1.0, high: 100.0 }] {
            let places = [0.0, 1.0, 10.0, 50.0, 1e9].map(|time| scale.place(time));
            assert!(places.is_sorted() && places[0] >= 0.0 && places[4] <= 1.0, "{places:?}");
        }
        assert_eq!(Scale::Log { low: 1.0, high: 100.0 }.place(10.0), 0.5);
    }
}
