//! Plans as text.

use std::fmt::Write as _;

use headstart_pageload::plan::{
    Correlated, Gain, HostTotal, Hosts, Overall, PagePlan, Saving, Shares, SizeClass, Sweep,
    Without,
};
use headstart_pageload::sim::profile::Expected;
use headstart_pageload::statistics::Correlation;
use headstart_pageload::tree::Breakdown;

use super::conclusion::Conclusion;
use super::figures::{change, less, seconds};
use super::{Answer, Answers, cost};
use crate::chart::figure::percent;
use crate::chart::scale::mark;
use crate::pageload::database::Used;
use crate::pageload::show::summary::ms;
use crate::pageload::show::text::{bytes, left_out};
use crate::pageload::text::{counted, shortened};
use crate::table::{header, table, wrapped};

/// Columns of sentences.
const COLUMNS: usize = 100;

/// Titles, and what stands beneath.
pub(super) const IN_ORDER: &str = "One after the other (another order has other steps)";
pub(super) const FIRST_HOSTS: &str = "Which of your hosts to give an edge first";
pub(super) const NOT_RANKED: &str =
    "Not ranked: too many parents are guessed, and another guess has another order.";
const SIGNS: &str = "  - is faster, + is slower; at your hosts: if no others take part\n";

/// All answers; of one page, or over several; with at most `rows` lines of a list.
pub(super) fn report(answers: &Answers, rows: usize) -> String {
    let mut text = conclusion(&answers.conclusion);
    let _ = writeln!(text, "\n{}", answers.setting.words());
    match answers.pages.as_slice() {
        [page] => text.push_str(&one(page, rows)),
        pages => {
            text.push_str(&overall(&answers.overall));
            text.push_str(&several(pages, rows));
            let hosts = &answers.overall.hosts;
            if !hosts.is_empty() {
                let title = "Which of your hosts to give an edge first: sums over all pages";
                text.push_str(&section(title, &hosts_of_all(hosts, rows), &[0]));
            }
        }
    }
    text.push_str("\nTechniques\n");
    for (name, about) in &answers.techniques {
        let _ = writeln!(text, "  {name}: {about}");
    }
    text.push_str(&answers.database.as_ref().map_or_else(String::new, Used::text));
    let unreadable = answers.unreadable.len();
    text.push_str(&left_out(&answers.not_resources, &answers.ignored, unreadable));
    text
}

/// The first part of the text.
fn conclusion(of: &Conclusion) -> String {
    let mut text = wrapped("", &of.answer.join(" "), COLUMNS);
    if !of.first.is_empty() {
        text.push_str("\nDo first\n");
        for (at, step) in of.first.iter().enumerate() {
            text.push_str(&wrapped(&format!("  {}. ", at + 1), &step.words(), COLUMNS));
        }
    }
    text.push_str("\nHow sure is this?\n");
    of.sure.iter().for_each(|line| text.push_str(&wrapped("  - ", line, COLUMNS)));
    text
}

fn one(page: &Answer, rows: usize) -> String {
    let plan = &page.plan;
    let shape = &plan.shape;
    let mut text = format!("\n{}\n", page.name);
    let _ = writeln!(
        text,
        "  {} from {}, {} back, minRTT {}",
        counted(shape.resources as u64, "resource", "resources"),
        counted(shape.servers as u64, "server", "servers"),
        bytes(shape.response_bytes),
        shape.min_rtt
    );
    let _ = writeln!(
        text,
        "  95 % loaded after {} s with nothing done, {} s with all techniques everywhere ({})",
        seconds(plan.none.page_load_ms),
        seconds(plan.all().page_load_ms),
        change(plan.saved())
    );
    if let Some(events) = events(&plan.none) {
        let _ = writeln!(text, "  {events} with nothing done");
    }
    if let Some(recorded) = page.recorded() {
        let _ = writeln!(text, "  {recorded}");
    }
    text.push_str(&savings("Each technique alone", &plan.alone));
    text.push_str(&savings(IN_ORDER, &plan.cumulative));
    text.push_str(&sweep("Over round trips", "ms", &plan.by_rtt));
    text.push_str(&sweep("Over bandwidths", "Mbit/s", &plan.by_rate));
    text.push_str(&waits(plan));
    text.push_str(&hosts(&plan.hosts, plan, rows));
    text
}

/// LCP and load event, where recorded.
pub(super) fn events(expected: &Expected) -> Option<String> {
    let both = [("LCP", expected.largest_paint_ms), ("load event", expected.on_load_ms)];
    let both: Vec<String> = both
        .into_iter()
        .filter_map(|(name, ms)| Some(format!("{name} after {} s", seconds(ms?))))
        .collect();
    (!both.is_empty()).then(|| both.join(", "))
}

fn savings(title: &str, all: &[Saving]) -> String {
    section(title, &savings_table(all), &[0]) + SIGNS
}

pub(super) fn savings_table(all: &[Saving]) -> Vec<Vec<String>> {
    let names = ["", "95 %, s", "change", "at your hosts", "LCP there", "load event there"];
    let mut rows = vec![header(&names)];
    rows.extend(all.iter().map(|of| {
        let first = [of.technique.to_string(), seconds(of.expected.page_load_ms), change(of.saved)];
        first.into_iter().chain(shares(&of.own)).collect()
    }));
    rows
}

fn shares(of: &Shares) -> [String; 3] {
    [Some(of.page_load), of.largest_paint, of.on_load]
        .map(|saved| saved.map_or_else(|| "–".into(), change))
}

fn sweep(title: &str, unit: &str, sweep: &Sweep) -> String {
    if sweep.points.is_empty() {
        return String::new();
    }
    let rows = sweep_table(unit, sweep);
    // The heads, and every other point.
    let few: Vec<Vec<String>> =
        rows.iter().take(1).chain(rows.iter().skip(1).step_by(2)).cloned().collect();
    section(&format!("{title}: s until 95 % is loaded, and change of it"), &few, &[])
}

/// The time with nothing done, and the changes of it.
pub(super) fn sweep_table(unit: &str, sweep: &Sweep) -> Vec<Vec<String>> {
    let names = sweep.arms.iter().enumerate();
    let names = names.map(|(at, name)| if at == 0 { "none, s".into() } else { name.clone() });
    let mut rows: Vec<Vec<String>> = vec![[unit.to_owned()].into_iter().chain(names).collect()];
    rows.extend(sweep.points.iter().map(|point| {
        let none = point.page_load_ms.first().copied().unwrap_or_default();
        let changes = point.saved.iter().skip(1).map(|saved| change(*saved));
        [mark(point.at), seconds(none)].into_iter().chain(changes).collect()
    }));
    rows
}

fn waits(plan: &PagePlan) -> String {
    let paths = [("recorded", &plan.recorded_path_ms), ("simulated *", &plan.simulated_path_ms)];
    let names = Breakdown::default().parts().map(|(name, _)| name);
    let mut rows = vec![header(&[&[""], names.as_slice(), &["all, s"]].concat())];
    for (name, path) in paths {
        if let Some(path) = path {
            let whole = ms(path.total()).max(f64::MIN_POSITIVE);
            let cells = path.parts().into_iter().map(|(_, part)| percent(ms(part) / whole));
            let cells = [name.to_owned()].into_iter().chain(cells);
            rows.push(cells.chain([seconds(ms(path.total()))]).collect());
        }
    }
    let mut text = section("What dominates: shares of the critical path", &rows, &[0]);
    text.push_str("  * its queue is until a request is sent, with the opening of the connection\n");
    text + &section("If this took no time", &without(plan), &[0])
}

pub(super) fn without(plan: &PagePlan) -> Vec<Vec<String>> {
    let mut rows = vec![header(&["without", "95 %, s", "change"])];
    rows.extend(plan.without.iter().map(|of: &Without| {
        vec![cost(of.cost).to_owned(), seconds(of.page_load_ms), change(of.saved)]
    }));
    rows
}

fn hosts(hosts: &Hosts, plan: &PagePlan, most: usize) -> String {
    if hosts.count > 0 && !hosts.are_ranked {
        return format!("\n{FIRST_HOSTS}\n  {NOT_RANKED}\n");
    }
    if hosts.alone.is_empty() {
        return String::new();
    }
    let mut rows = vec![header(&[
        "an edge for it alone",
        "resources",
        "TurboTLS, ms",
        "FOP, ms",
        "TurboTLS + 0-RTT, ms",
    ])];
    rows.extend(hosts.alone.iter().take(most).map(|host| {
        let saved = [host.turbotls_ms, host.fop_ms, host.early_ms].map(less);
        let first = [shortened(&host.host), host.resources.to_string()];
        first.into_iter().chain(saved).collect()
    }));
    let mut text = section(FIRST_HOSTS, &rows, &[0]);
    if let Some(more) =
        hosts.count.checked_sub(hosts.alone.len().min(most)).filter(|more| *more > 0)
    {
        let _ = writeln!(text, "  and {}", counted(more as u64, "more", "more"));
    }
    text.push('\n');
    text + &table(&in_order(hosts, plan.none.page_load_ms), &[0])
}

/// Edges for one host after the other.
pub(super) fn in_order(hosts: &Hosts, before: f64) -> Vec<Vec<String>> {
    let mut rows = vec![header(&["one after the other", "95 %, s", "change"])];
    let next = hosts.in_order.iter().map(|next| (shortened(&next.host), next.page_load_ms));
    let all = hosts.edges.map(|edges| (format!("all {}", hosts.count), edges.page_load_ms));
    rows.extend(next.chain(all).map(|(name, ms)| {
        let saved = if before > 0.0 { 1.0 - ms / before } else { 0.0 };
        vec![name, seconds(ms), change(saved)]
    }));
    rows
}

fn overall(all: &Overall) -> String {
    let recorded =
        all.recorded_ms.map_or_else(String::new, |ms| format!("; recorded {} s", seconds(ms)));
    let mut text = format!(
        "\n{}: in the mean 95 % loaded after {} s with nothing done{recorded}\n",
        counted(all.pages as u64, "page", "pages"),
        seconds(all.none_ms),
    );
    for (title, all) in [("Each technique alone", &all.alone), (IN_ORDER, &all.cumulative)] {
        let title = format!("{title}, and the share of pages that gain so much");
        text.push_str(&section(&title, &gains("", all), &[0]));
    }
    text.push_str(&section("All techniques, by size of the page", &sizes(&all.by_size), &[0]));
    text.push_str(&sweep("Over round trips, means", "ms", &all.by_rtt));
    text.push_str(&sweep("Over bandwidths, means", "Mbit/s", &all.by_rate));
    let title = "Correlation of page load times with (of ranks)";
    text.push_str(&section(title, &correlations(all), &[0]));
    if let Some(both) = all.correlations.simulated_on_recorded {
        let _ = writeln!(text, "  simulated with recorded: {}", correlation(Some(both)));
    }
    text
}

pub(super) fn gains(title: &str, all: &[Gain]) -> Vec<Vec<String>> {
    let names = [
        title,
        "mean, s",
        "change",
        "of a page",
        ">= 25 % less",
        ">= 50 % less",
        "slower pages",
        "at your hosts",
    ];
    let mut rows = vec![header(&names)];
    rows.extend(all.iter().map(|of| {
        vec![
            of.technique.to_string(),
            seconds(of.page_load_ms),
            change(of.saved),
            change(of.mean_saved),
            percent(of.pages_25),
            percent(of.pages_50),
            percent(of.pages_slower),
            change(of.own.page_load),
        ]
    }));
    rows
}

pub(super) fn sizes(all: &[SizeClass]) -> Vec<Vec<String>> {
    let names = ["size", "pages", "nothing, s", "all, s", "change", ">= 25 % less", ">= 50 % less"];
    let mut rows = vec![header(&names)];
    rows.extend(all.iter().map(|class| {
        let (least, most) = class.bytes;
        vec![
            format!("{} to {}", bytes(least), bytes(most)),
            class.pages.to_string(),
            seconds(class.none_ms),
            seconds(class.all_ms),
            change(class.saved),
            percent(class.pages_25),
            percent(class.pages_50),
        ]
    }));
    rows
}

pub(super) fn correlations(all: &Overall) -> Vec<Vec<String>> {
    let of = &all.correlations;
    let mut rows = vec![header(&["", "minRTT", "resources", "bytes"])];
    for (name, of) in [("simulated", &of.simulated), ("recorded", &of.recorded)] {
        let Correlated { min_rtt, resources, bytes, .. } = *of;
        let mut row = vec![name.to_owned()];
        row.extend([min_rtt, resources, bytes].map(correlation));
        rows.push(row);
    }
    rows
}

/// A correlation, and that of ranks.
pub(super) fn correlation(of: Option<Correlation>) -> String {
    of.map_or_else(|| "–".into(), |of| format!("{:.2} ({:.2})", of.linear, of.rank))
}

fn several(pages: &[Answer], most: usize) -> String {
    let mut sorted: Vec<&Answer> = pages.iter().collect();
    sorted.sort_by(|one, other| other.plan.saved().total_cmp(&one.plan.saved()));
    let mut rows = vec![header(&["page", "resources", "bytes", "nothing, s", "all, s", "change"])];
    rows.extend(sorted.iter().take(most).map(|page| {
        vec![
            shortened(&page.name),
            page.plan.shape.resources.to_string(),
            bytes(page.plan.shape.response_bytes),
            seconds(page.plan.none.page_load_ms),
            seconds(page.plan.all().page_load_ms),
            change(page.plan.saved()),
        ]
    }));
    let mut text = section("Pages that gain most", &rows, &[0]);
    if let Some(more) = pages.len().checked_sub(most).filter(|more| *more > 0) {
        let _ = writeln!(text, "  and {} (--rows N)", counted(more as u64, "more", "more"));
    }
    text
}

pub(super) fn hosts_of_all(all: &[HostTotal], most: usize) -> Vec<Vec<String>> {
    let mut rows =
        vec![header(&["an edge for it alone", "pages", "TurboTLS, ms", "TurboTLS + 0-RTT, ms"])];
    rows.extend(all.iter().take(most).map(|host| {
        let saved = [host.turbotls_ms, host.early_ms].map(less);
        let first = [shortened(&host.host), host.pages.to_string()];
        first.into_iter().chain(saved).collect()
    }));
    rows
}

fn section(title: &str, rows: &[Vec<String>], left: &[usize]) -> String {
    format!("\n{title}\n{}", table(rows, left))
}
