//! Demands on the results of an experiment.

use headstart_openers::{Arm, Suite};
use serde::{Deserialize, Serialize};

use super::{Experiment, Variant, Wrong, text, wrong, yes};

/// A condition on cells of the results. What is left out means all; one condition of those below.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Bar {
    pub(crate) arm: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) suite: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) link: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) variant: Option<String>,
    /// The arm it is compared with, on the same link with the same suite and variant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) against: Option<String>,
    /// The variant it is compared with, of the same arm where `against` names no other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) against_variant: Option<String>,
    /// Time that is meant.
    #[serde(default)]
    pub(crate) of: Moment,
    /// Largest ratio of the medians, to `against`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ratio_max: Option<f64>,
    /// Largest difference of the medians, to `against`, in ms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) difference_max_ms: Option<f64>,
    /// The 95 % interval of the ratio of the medians, to `against`, lies below this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ratio_interval_below: Option<f64>,
    /// Round trips that the median is below that of `against`, at least and at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) saved_rtts_min: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) saved_rtts_max: Option<f64>,
    /// Largest median in round trips.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) rtts_max: Option<f64>,
    /// Smallest median in round trips.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) rtts_min: Option<f64>,
    /// Largest mean, and largest percentiles, in ms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) mean_max_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) p95_max_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) p99_max_ms: Option<f64>,
    /// Smallest share of trials that completed with the right bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) complete_min: Option<f64>,
    /// Amount by which this share may be below that of `against`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) complete_less_max: Option<f64>,
    /// Smallest and largest share of trials whose request left with the first packet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) zero_rtt_min: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) zero_rtt_max: Option<f64>,
    /// Smallest share of trials that resumed a session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) resumed_min: Option<f64>,
    /// Largest share of trials that were opened like plain TLS over TCP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) plain_max: Option<f64>,
    /// Largest share of full handshakes, as the servers count them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) full_max: Option<f64>,
    /// Amount by which this share must be below that of `against`, at least.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) fewer_full_min: Option<f64>,
    /// Largest median of the ratios, round by round, to `against`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) paired_ratio_max: Option<f64>,
    /// Degree to which connections can be linked, at most and at least: 0 not, 1 within bounds, 2
    /// without.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) linkable_max: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) linkable_min: Option<f64>,
    /// Smallest shares of rate and 99th percentile that honest clients kept under attack; or with
    /// `against`, smallest ratio of these shares.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) rate_kept_min: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) p99_kept_min: Option<f64>,
    /// Largest growth of memory under attack, and longest time until service is as before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) grown_max_mb: Option<f64>,
    /// Most memory for each connection that is held, in KiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) held_max_kib: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) recovery_max_s: Option<f64>,
    /// Most failures that no killed process excuses, and most exchanges with wrong bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) failed_outside_max: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) wrong_bytes_max: Option<f64>,
    /// Largest growth of a process while it was looked at, as a share of the mean; none is certain
    /// if the interval of the slope has zero in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) growth_max: Option<f64>,
    /// Cells that it does not hold for, by name and with the reason.
    #[serde(default, skip_serializing)]
    pub(crate) except: Vec<Exception>,
    /// True if it also holds for the few trials of `--quick`.
    #[serde(default = "yes", skip_serializing)]
    pub(crate) quick: bool,
}

/// Cells that a bar does not hold for. What is left out means all.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Exception {
    #[serde(default, deserialize_with = "text::some_list")]
    pub(crate) arms: Option<Vec<Arm>>,
    pub(crate) link: Option<String>,
    pub(crate) variant: Option<String>,
    /// Reason, for people.
    why: String,
}

/// A time of a connection, counted from before its first socket call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) enum Moment {
    #[default]
    #[serde(rename = "first_request_byte")]
    Request,
    #[serde(rename = "first_response_byte")]
    Response,
    #[serde(rename = "last_response_byte")]
    Last,
}

impl Moment {
    pub(crate) const ALL: [Self; 3] = [Self::Request, Self::Response, Self::Last];

    /// Returns the name in experiments and results.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Request => "first_request_byte",
            Self::Response => "first_response_byte",
            Self::Last => "last_response_byte",
        }
    }

    /// Returns the name for people.
    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::Request => "first request byte",
            Self::Response => "first response byte",
            Self::Last => "last response byte",
        }
    }
}

impl Bar {
    /// Returns the arm or variant that cells are compared with, in words; `None` if they are not.
    pub(crate) fn compared_with(&self) -> Option<String> {
        let names: Vec<_> = self.against.iter().chain(&self.against_variant).cloned().collect();
        (!names.is_empty()).then(|| names.join(", "))
    }

    /// Returns the demands, and the conditions given.
    pub(crate) fn conditions(&self) -> impl Iterator<Item = (&'static str, f64)> {
        let all = [
            ("ratio_max", self.ratio_max),
            ("difference_max_ms", self.difference_max_ms),
            ("ratio_interval_below", self.ratio_interval_below),
            ("saved_rtts_min", self.saved_rtts_min),
            ("saved_rtts_max", self.saved_rtts_max),
            ("rtts_max", self.rtts_max),
            ("rtts_min", self.rtts_min),
            ("mean_max_ms", self.mean_max_ms),
            ("p95_max_ms", self.p95_max_ms),
            ("p99_max_ms", self.p99_max_ms),
            ("complete_min", self.complete_min),
            ("complete_less_max", self.complete_less_max),
            ("zero_rtt_min", self.zero_rtt_min),
            ("zero_rtt_max", self.zero_rtt_max),
            ("resumed_min", self.resumed_min),
            ("plain_max", self.plain_max),
            ("full_max", self.full_max),
            ("fewer_full_min", self.fewer_full_min),
            ("paired_ratio_max", self.paired_ratio_max),
            ("linkable_max", self.linkable_max),
            ("linkable_min", self.linkable_min),
            ("rate_kept_min", self.rate_kept_min),
            ("p99_kept_min", self.p99_kept_min),
            ("grown_max_mb", self.grown_max_mb),
            ("held_max_kib", self.held_max_kib),
            ("recovery_max_s", self.recovery_max_s),
            ("failed_outside_max", self.failed_outside_max),
            ("wrong_bytes_max", self.wrong_bytes_max),
            ("growth_max", self.growth_max),
        ];
        all.into_iter().filter_map(|(name, value)| value.map(|value| (name, value)))
    }

    pub(super) fn check(&self, experiment: &Experiment) -> Result<(), Wrong> {
        let conditions: Vec<_> = self.conditions().collect();
        let [(condition, limit)] = conditions[..] else {
            let hint = "ratio_max, difference_max_ms, ratio_interval_below, saved_rtts_min, \
                saved_rtts_max, rtts_max, rtts_min, mean_max_ms, p95_max_ms, p99_max_ms, \
                complete_min, complete_less_max, zero_rtt_min, zero_rtt_max, resumed_min, \
                plain_max, full_max, fewer_full_min, paired_ratio_max, linkable_min or \
                linkable_max";
            return wrong("bar", format!("{} conditions, not one", conditions.len()), hint);
        };
        if !limit.is_finite() {
            return wrong("bar", format!("{condition} is {limit}"), "write a number");
        }
        let compared = ["ratio", "difference", "saved", "complete_less", "fewer", "paired"]
            .iter()
            .any(|name| condition.starts_with(name));
        if compared != self.compared_with().is_some() {
            let what = format!("{condition} {} `against`", if compared { "needs" } else { "has" });
            return wrong(
                "bar.against",
                what,
                "name an arm to compare with, for ratios and differences only",
            );
        }
        self.check_names(experiment)
    }

    /// A bar that no cell can meet or miss is a mistake.
    fn check_names(&self, experiment: &Experiment) -> Result<(), Wrong> {
        let arms: Vec<_> = experiment.arms.iter().map(Arm::to_string).collect();
        let suites = experiment.suites.iter().map(Suite::to_string).collect();
        let links: Vec<_> = experiment.link.iter().map(|link| link.name.clone()).collect();
        let variants: Vec<_> = experiment.variants().iter().flat_map(Variant::columns).collect();
        let excepted = self.except.iter().flat_map(|except| {
            let (links, variants) = (links.clone(), variants.clone());
            [
                ("bar.except.link", except.link.as_ref(), links),
                ("bar.except.variant", except.variant.as_ref(), variants),
            ]
        });
        let named = [
            ("bar.arm", Some(&self.arm), arms.clone()),
            ("bar.against", self.against.as_ref(), arms),
            ("bar.suite", self.suite.as_ref(), suites),
            ("bar.link", self.link.as_ref(), links.clone()),
            ("bar.variant", self.variant.as_ref(), variants.clone()),
            ("bar.against_variant", self.against_variant.as_ref(), variants.clone()),
        ];
        if self.except.iter().any(|except| except.why.trim().is_empty()) {
            return wrong("bar.except.why", "an exception without a reason", "say why");
        }
        for (key, name, known) in named.into_iter().chain(excepted) {
            if let Some(name) = name.filter(|name| !known.contains(name) && *name != ANY) {
                let known = known.join(", ");
                return wrong(key, format!("'{name}' is none of {known}"), "or * for all");
            }
        }
        Ok(())
    }
}

/// Stands for all arms of a bar.
pub(crate) const ANY: &str = "*";
