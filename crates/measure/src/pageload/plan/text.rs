//! Plans as text.

use std::fmt::Write as _;

use headstart_pageload::plan::{
    Correlated, Gain, HostTotal, Hosts, Overall, PagePlan, Saving, SizeClass, Sweep, Without,
};
use headstart_pageload::statistics::Correlation;
use headstart_pageload::tree::Breakdown;

use super::{Answer, Answers, cost};
use crate::pageload::database::Used;
use crate::pageload::model::short;
use crate::pageload::show::summary::ms;
use crate::pageload::show::text::{bytes, left_out};
use crate::pageload::text::{counted, percent, shortened};
use crate::table::{header, table};

/// All answers; of one page, or over several; with at most `rows` lines of a list.
pub(super) fn report(answers: &Answers, rows: usize) -> String {
    let mut text = format!("{}\n", answers.setting.words());
    match answers.pages.as_slice() {
        [page] => text.push_str(&one(page, rows)),
        pages => {
            text.push_str(&overall(&answers.overall));
            text.push_str(&several(pages, rows));
            let hosts = &answers.overall.hosts;
            if !hosts.is_empty() {
                let title = "Which hosts to give an edge first: sums over all pages";
                text.push_str(&section(title, &hosts_of_all(hosts, rows), &[0]));
            }
        }
    }
    text.push_str(&answers.database.as_ref().map_or_else(String::new, Used::text));
    let unreadable = answers.unreadable.len();
    text.push_str(&left_out(&answers.not_resources, &answers.ignored, unreadable));
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
        "  95 % loaded after {} s with nothing done, {} s with all techniques ({})",
        seconds(plan.none.page_load_ms),
        seconds(plan.all().page_load_ms),
        change(plan.saved())
    );
    if let Some(recorded) = page.recorded() {
        let _ = writeln!(text, "  {recorded}");
    }
    text.push_str(&savings("Each technique alone", &plan.alone));
    text.push_str(&savings("One after the other", &plan.cumulative));
    text.push_str(&sweep("Over round trips: s until 95 % is loaded", "ms", &plan.by_rtt));
    text.push_str(&sweep("Over bandwidths: s until 95 % is loaded", "Mbit/s", &plan.by_rate));
    text.push_str(&waits(plan));
    text.push_str(&hosts(&plan.hosts, plan, rows));
    text
}

fn savings(title: &str, all: &[Saving]) -> String {
    let mut rows = vec![header(&["", "95 %, s", "change", "a resource, ms"])];
    rows.extend(all.iter().map(|of| {
        vec![
            of.technique.to_string(),
            seconds(of.expected.page_load_ms),
            change(of.saved),
            format!("{:.1}", of.expected.resource_ms),
        ]
    }));
    section(title, &rows, &[0])
}

fn sweep(title: &str, unit: &str, sweep: &Sweep) -> String {
    if sweep.points.is_empty() {
        return String::new();
    }
    let names = sweep.arms.iter().cloned();
    let mut rows: Vec<Vec<String>> = vec![[unit.to_owned()].into_iter().chain(names).collect()];
    rows.extend(sweep.points.iter().map(|point| {
        let times = point.page_load_ms.iter().map(|&ms| seconds(ms));
        [short(point.at)].into_iter().chain(times).collect()
    }));
    section(title, &rows, &[])
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
    let mut text = section("Which hosts to give an edge first", &rows, &[0]);
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
    rows.extend(next.chain([(format!("all {}", hosts.count), hosts.all_ms)]).map(|(name, ms)| {
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
    for (title, all) in
        [("Each technique alone", &all.alone), ("One after the other", &all.cumulative)]
    {
        let title = format!("{title}, and the share of pages that gain so much");
        text.push_str(&section(&title, &gains("", all), &[0]));
    }
    text.push_str(&section("All techniques, by size of the page", &sizes(&all.by_size), &[0]));
    text.push_str(&sweep("Over round trips: mean s until 95 % is loaded", "ms", &all.by_rtt));
    text.push_str(&sweep("Over bandwidths: mean s until 95 % is loaded", "Mbit/s", &all.by_rate));
    let title = "Correlation of page load times with (of ranks)";
    text.push_str(&section(title, &correlations(all), &[0]));
    if let Some(both) = all.correlations.simulated_on_recorded {
        let _ = writeln!(text, "  simulated with recorded: {}", correlation(Some(both)));
    }
    text
}

pub(super) fn gains(title: &str, all: &[Gain]) -> Vec<Vec<String>> {
    let names =
        [title, "mean, s", "change", "of a page", ">= 25 % less", ">= 50 % less", "slower pages"];
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
        let Correlated { min_rtt, resources, bytes } = *of;
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

fn seconds(ms: f64) -> String {
    format!("{:.3}", ms / 1e3)
}

/// Formats a saved share as the change of a time.
pub(super) fn change(saved: f64) -> String {
    // Not -0.0.
    let change = 0.0 - saved;
    percent(if change.abs() < 0.0005 { 0.0 } else { change })
}

/// Formats a saved time in ms as the change of a time.
pub(super) fn less(saved_ms: f64) -> String {
    let change = 0.0 - saved_ms;
    format!("{:.1}", if change.abs() < 0.05 { 0.0 } else { change })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_have_a_sign_where_there_is_one() {
        assert_eq!([0.25, 0.0, -0.031, 0.0004].map(change), ["-25.0 %", "0.0 %", "3.1 %", "0.0 %"]);
        assert_eq!([120.0, 0.0, -5.26, 0.01].map(less), ["-120.0", "0.0", "5.3", "0.0"]);
    }
}
