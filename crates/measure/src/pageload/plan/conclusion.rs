//! The answer in two sentences, what to do first, and how sure that is.

use std::collections::{BTreeMap, BTreeSet};

use headstart_pageload::plan::{Overall, Questions};
use headstart_pageload::sim::profile::Profile;
use headstart_pageload::sim::tcp::Technique;
use serde::Serialize;

use super::Answer;
use super::figures::{change, seconds};
use super::techniques::{action, needs_database};
use crate::pageload::database::Used;
use crate::pageload::text::counted;

/// Steps to take first.
const STEPS: usize = 3;

/// Least share that a step saves.
const WORTH_IT: f64 = 0.01;

/// Hosts that are named in a sentence.
const NAMED: usize = 3;

/// The first part of a report.
#[derive(Debug, Serialize)]
pub(super) struct Conclusion {
    /// The result, and what it is worth.
    pub(super) answer: [String; 2],
    /// First steps, in order.
    pub(super) first: Vec<Step>,
    /// Grounds of the result.
    pub(super) sure: Vec<String>,
}

/// Something to do.
#[derive(Debug, Serialize)]
pub(super) struct Step {
    pub(super) action: String,
    /// The technique, and the share that it alone saves.
    pub(super) technique: Option<&'static str>,
    pub(super) saved: Option<f64>,
}

impl Step {
    /// In a line.
    pub(super) fn words(&self) -> String {
        match (self.technique, self.saved) {
            (Some(technique), Some(saved)) => {
                format!("{} ({technique} alone: {})", self.action, change(saved))
            }
            _ => self.action.clone(),
        }
    }
}

/// All that is known.
pub(super) struct Facts<'a> {
    pub(super) questions: &'a Questions,
    pub(super) overall: &'a Overall,
    pub(super) pages: &'a [Answer],
    pub(super) database: Option<&'a Used>,
    /// True if options name the operator's hosts.
    pub(super) own_is_given: bool,
}

impl Facts<'_> {
    pub(super) fn conclusion(&self) -> Conclusion {
        Conclusion { answer: [self.result(), self.worth()], first: self.first(), sure: self.sure() }
    }

    fn is_guess(&self) -> bool {
        self.overall.guesses * 2 > self.pages.len()
    }

    fn result(&self) -> String {
        let Some(edges) = self.overall.edges else {
            let all = self.overall.cumulative.last();
            let times = self.times(all.map(|all| all.saved).unwrap_or_default());
            return self
                .sentence(&format!("by the published rules all techniques together {times}"));
        };
        let hosts = self.own_hosts();
        if hosts.is_empty() {
            return "None of your hosts speaks TLS here, so that edges save nothing; --own names \
                    your hosts."
                .into();
        }
        let count = counted(hosts.len() as u64, "host", "hosts");
        let edge = if hosts.len() == 1 { "an edge" } else { "edges" };
        let times = self.times(edges.page_load);
        self.sentence(&format!("{edge} in front of your {count} ({}) {times}", list(&hosts)))
    }

    /// Makes a sentence of a result, with its condition.
    fn sentence(&self, result: &str) -> String {
        match result.split_at_checked(1) {
            Some((first, rest)) if !self.is_guess() => format!("{}{rest}.", first.to_uppercase()),
            _ => format!("If most of the inferred parents are right, {result}."),
        }
    }

    /// From which time to which.
    fn times(&self, saved: f64) -> String {
        let before = self.overall.none_ms;
        let (page, mean) = match self.pages.len() {
            1 => ("the page", String::new()),
            pages => ("a page", format!(", in the mean of {pages}")),
        };
        format!(
            "would load 95 % of {page} in {} s instead of {} s ({}){mean}",
            seconds(before * (1.0 - saved)),
            seconds(before),
            change(saved),
        )
    }

    fn worth(&self) -> String {
        let parents = self.overall.parents;
        if self.is_guess() {
            return format!(
                "This is a guess, without an order of hosts or steps: of {}, {} are inferred from \
                 times.",
                counted(parents.count as u64, "parent", "parents"),
                parents.guessed,
            );
        }
        match self.spread() {
            _ if self.pages.len() == 1 => "This is an estimate from one load.".into(),
            Some((least, most)) => format!(
                "This is an estimate from {} loads, of which each changes by {} to {}.",
                self.pages.len(),
                change(most),
                change(least)
            ),
            None => format!("This is an estimate from {} loads.", self.pages.len()),
        }
    }

    /// The least and the most that a load gains.
    fn spread(&self) -> Option<(f64, f64)> {
        let saved = self.pages.iter().map(|page| match page.plan.hosts.edges {
            Some(_) => page.plan.hosts.saved.page_load,
            None => page.plan.saved(),
        });
        saved
            .map(|saved| (saved, saved))
            .reduce(|one, other| (one.0.min(other.0), one.1.max(other.1)))
    }

    /// Names of the operator's hosts with TLS, the best first where they are ranked.
    fn own_hosts(&self) -> Vec<String> {
        let mut names: Vec<String> = match self.pages {
            [page] => page.plan.hosts.in_order.iter().map(|next| next.host.clone()).collect(),
            _ => self.overall.hosts.iter().map(|total| total.host.clone()).collect(),
        };
        let all: BTreeSet<&String> =
            self.pages.iter().flat_map(|page| &page.plan.hosts.own).collect();
        let others: Vec<String> =
            all.into_iter().filter(|name| !names.contains(name)).cloned().collect();
        names.extend(others);
        names
            .into_iter()
            .map(|name| name.strip_suffix(":443").map(str::to_owned).unwrap_or(name))
            .collect()
    }

    fn first(&self) -> Vec<Step> {
        if self.is_guess() {
            let action = "Record the page in Chromium, which names parents: headstart pageload \
                          record URL";
            return vec![Step { action: action.into(), technique: None, saved: None }];
        }
        let hosts = list(&self.own_hosts());
        let mut steps: Vec<(Technique, f64)> = self
            .overall
            .alone
            .iter()
            .map(|gain| (gain.technique, gain.own.page_load))
            .filter(|(technique, saved)| {
                self.questions.order.contains(technique)
                    && *saved >= WORTH_IT
                    && (!needs_database(*technique) || self.databases_are_tested())
            })
            .collect();
        steps.sort_by(|(_, one), (_, other)| other.total_cmp(one));
        steps
            .into_iter()
            .take(STEPS)
            .map(|(technique, saved)| Step {
                action: action(technique, &hosts),
                technique: Some(technique.name()),
                saved: Some(saved),
            })
            .collect()
    }

    /// Returns true if there is a database that no load was learned from.
    fn databases_are_tested(&self) -> bool {
        self.database.is_some() && self.learned_from() == 0
    }

    fn learned_from(&self) -> usize {
        self.pages.iter().filter(|page| page.learned_from).count()
    }

    fn sure(&self) -> Vec<String> {
        let loads = match self.loads_by_page() {
            (1, 1) => "One load: `headstart pageload record --runs 5` shows how much loads of the \
                       page differ."
                .into(),
            (loads, pages) => format!(
                "{} of {}.",
                counted(loads as u64, "load", "loads"),
                counted(pages as u64, "page", "pages")
            ),
        };
        let mut sure: Vec<String> = self.parents().into_iter().collect();
        sure.push(loads);
        sure.extend(self.databases());
        sure.extend(self.owners());
        if self.overall.edges.is_some_and(|edges| edges.largest_paint.or(edges.on_load).is_some()) {
            sure.push(
                "LCP and load event: when all has arrived that had arrived by then in the \
                 recording; not compared with browsers, and so no part of the answer."
                    .into(),
            );
        }
        sure
    }

    fn loads_by_page(&self) -> (usize, usize) {
        let mut loads: BTreeMap<&str, usize> = BTreeMap::new();
        for page in self.pages {
            *loads.entry(&page.document).or_default() += 1;
        }
        (self.pages.len(), loads.len())
    }

    fn parents(&self) -> Option<String> {
        let parents = self.overall.parents;
        if parents.guessed == 0 {
            return (parents.count > 0).then(|| "Parents: all are as recorded.".into());
        }
        let guessed =
            format!("Parents: {} of {} inferred from times", parents.guessed, parents.count);
        Some(match self.overall.guesses {
            0 => format!("{guessed}."),
            _ if self.pages.len() == 1 => {
                format!("{guessed}, right about every other time: no host is ranked.")
            }
            guesses => format!(
                "{guessed}; hosts are not ranked by {}, where more than a tenth are.",
                counted(guesses as u64, "load", "loads")
            ),
        })
    }

    fn databases(&self) -> Option<String> {
        if !self.questions.order.iter().any(|technique| needs_database(*technique)) {
            return None;
        }
        let Some(used) = self.database else {
            return Some(
                "Databases are taken to know this very recording, which is the most that they can \
                 save; they are no step until --database FILE asks one."
                    .into(),
            );
        };
        Some(match self.learned_from() {
            0 => format!("{}: made of other loads than these.", used.title()),
            learned => format!(
                "{}: {} may be among those it was made of, so that it knows too much; it is no \
                 step.",
                used.title(),
                counted(learned as u64, "load", "loads")
            ),
        })
    }

    fn owners(&self) -> Option<String> {
        let Profile::Tcp(_) = &self.questions.model.profile else { return None };
        let others = self.pages.iter().map(|page| page.plan.hosts.others).max().unwrap_or_default();
        let others = format!(
            "{} no edge of yours",
            match others {
                1 => "1 host of others gets".into(),
                others => format!("{others} hosts of others get"),
            }
        );
        let others = if self.pages.len() > 1 { format!("up to {others}") } else { others };
        Some(if self.own_is_given {
            format!("Your hosts: as --own says; {others}.")
        } else {
            format!(
                "Your hosts: the site of the document (--own HOST|.SUFFIX names others); {others}."
            )
        })
    }
}

/// The first names, and how many more there are.
fn list(names: &[String]) -> String {
    let shown = names.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
    match names.len().checked_sub(NAMED).filter(|more| *more > 0) {
        None => shown,
        Some(more) => format!("{shown} and {more} more"),
    }
}
