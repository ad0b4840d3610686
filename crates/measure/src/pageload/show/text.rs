//! Pages as text.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use headstart_pageload::har::{Agreed, Agreement, Parents};
use headstart_pageload::tree::Breakdown;

use super::summary::{All, Distribution, PageSummary, ResourceSummary, Times, ms, reason};
use crate::chart::figure;
use crate::pageload::text::{counted, grouped, percent, shortened};
use crate::table::table;

/// Characters of a waterfall, and of the names beside it.
const WATERFALL: usize = 40;
const LABEL: usize = 44;

/// Steps to the right in a tree; deeper ones stand below each other.
const STEPS: usize = 10;

/// The page with all that is known of it, or each of several in a line; with at most `rows` lines
/// of a list.
pub(super) fn report(all: &All, rows: usize) -> String {
    let mut text = match all.pages.as_slice() {
        [page] => one(page, rows),
        pages => several(pages, rows) + &distributions("Over all pages", &all.distributions),
    };
    let mut not_resources = BTreeMap::new();
    if all.pages.len() > 1 {
        text.push_str(&agreement(&all.agreement));
        not_resources = together(&all.pages);
    }
    text.push_str(&left_out(&not_resources, &all.ignored, all.unreadable.len()));
    text
}

fn one(page: &PageSummary, rows: usize) -> String {
    let mut text = head(page);
    text.push_str(&categories(page));
    text.push_str(&tree(page, rows));
    text.push_str(&distributions("Over all resources", &page.distributions));
    text.push_str(&servers(page, rows));
    if let Some(of) = &page.parents {
        text.push_str(&parents(of));
    }
    text.push_str(&ignored_by_reason("No resources", &page.ignored));
    text
}

fn head(page: &PageSummary) -> String {
    let shape = &page.shape;
    // Writing to a string cannot fail.
    let mut text = format!("{}\n", page.name);
    if page.name != page.file {
        let _ = writeln!(text, "  {}", page.file);
    }
    if let (Some(most), Some(full)) = (page.page_load_ms, page.full_load_ms) {
        let event = page
            .on_load_ms
            .map_or(String::new(), |at| format!(", load event after {}", seconds(at)));
        let _ = writeln!(
            text,
            "  95 % loaded after {}, all after {}{event}",
            seconds(most),
            seconds(full)
        );
    }
    let _ = writeln!(
        text,
        "  {} from {} over {}: {} there, {} back",
        counted(shape.resources as u64, "resource", "resources"),
        counted(shape.servers as u64, "server", "servers"),
        counted(shape.connections as u64, "connection", "connections"),
        bytes(shape.request_bytes),
        bytes(shape.response_bytes),
    );
    let _ = writeln!(
        text,
        "  tree height {}, minRTT {}, {} to the document, largest server {}",
        shape.height,
        shape.min_rtt,
        counted(shape.redirects as u64, "redirect", "redirects"),
        counted(shape.largest_server as u64, "resource", "resources"),
    );
    text
}

fn categories(page: &PageSummary) -> String {
    let (Some(path), Some(all)) = (page.critical_path_ms, page.all_resources_ms) else {
        return String::new();
    };
    let mut header = vec![String::new()];
    header.extend(path.parts().map(|(name, _)| name.to_owned()));
    header.push("all".into());
    let whole = ms(path.total()).max(f64::MIN_POSITIVE);
    let rows = [
        header,
        parts("critical path, ms", &path, figure::ms),
        parts("share", &path, |time| percent(time / whole)),
        parts("sum of all resources, ms", &all, figure::ms),
    ];
    let mut text = String::from("\nWhere the time until 95 % went\n");
    text.push_str(&table(&rows, &[0]));
    if page.head_of_line_ms > 0.0 {
        let behind = figure::ms(page.head_of_line_ms);
        let _ = writeln!(
            text,
            "  of the queues {behind} ms behind others on the same HTTP/1.1 connection"
        );
    }
    text
}

/// A row of the parts of a time, and of all.
fn parts(name: &str, breakdown: &Breakdown, cell: impl Fn(f64) -> String) -> Vec<String> {
    let mut row = vec![name.to_owned()];
    row.extend(breakdown.parts().map(|(_, time)| cell(ms(time))));
    row.push(cell(ms(breakdown.total())));
    row
}

fn tree(page: &PageSummary, rows: usize) -> String {
    let Some(resources) = &page.resources else { return String::new() };
    let end = resources.iter().filter_map(|one| Some(one.times_ms?.end())).fold(0.0, f64::max);
    let mut text = String::from("\nTree (* on the critical path, + a new connection)");
    if end > 0.0 {
        let _ = write!(
            text,
            " and waterfall over {}\n  . queue  - opening  = waiting  # receiving",
            seconds(end)
        );
    }
    text.push('\n');
    let mut lines: Vec<Vec<String>> =
        vec![["", "", "minRTT", "bytes", "ms"].map(str::to_owned).into()];
    lines.extend(resources.iter().take(rows).map(|one| line(one, end)));
    text.push_str(&table(&lines, &[0, 1]));
    let more = page.shape.resources.saturating_sub(rows);
    if more > 0 {
        let _ = writeln!(text, "  and {} (--rows N)", counted(more as u64, "more", "more"));
    }
    text
}

fn line(one: &ResourceSummary, end: f64) -> Vec<String> {
    let mark = match (one.is_on_critical_path, one.opens_connection) {
        (true, true) => "*+",
        (true, false) => "* ",
        (false, true) => " +",
        (false, false) => "  ",
    };
    let indent = "  ".repeat(one.above.min(STEPS));
    let name: String = label(one, LABEL - indent.len());
    let time =
        one.times_ms.map_or_else(String::new, |times| figure::ms(times.end() - times.started));
    let bars = one.times_ms.map_or_else(String::new, |times| bars(&times, end));
    let name = format!("{mark} {indent}{name}");
    vec![
        format!("{name:<width$}", width = LABEL + 3),
        format!("{bars:<WATERFALL$}"),
        one.min_rtt.to_string(),
        grouped(one.response_bytes),
        time,
    ]
}

/// Host and end of the path, which say more than the middle.
fn label(one: &ResourceSummary, width: usize) -> String {
    let url = one.url.split_once("://").map_or(one.url.as_str(), |(_, rest)| rest);
    let url = if url.is_empty() { "(no URL)" } else { url };
    let count = url.chars().count();
    if count <= width {
        return url.to_owned();
    }
    let head: String = url.chars().take(width / 2).collect();
    let tail: String = url.chars().skip(count - (width - width / 2 - 1)).collect();
    format!("{head}…{tail}")
}

/// A line of a waterfall, each character a part of the time.
fn bars(times: &Times, end: f64) -> String {
    let marks = ['.', '-', '-', '-', '-', '=', '#'];
    let mut line = vec![' '; WATERFALL];
    let mut at = times.started;
    for ((_, time), mark) in times.parts().into_iter().zip(marks) {
        let (from, to) = (place(at, end), place(at + time, end));
        at += time;
        // A mark too short for its own place takes a free one.
        let to = if time > 0.0 { to.max(from + 1) } else { to };
        for place in line.iter_mut().take(to).skip(from) {
            *place = mark;
        }
    }
    line.into_iter().collect::<String>().trim_end().to_owned()
}

// 0 to WATERFALL
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
fn place(at: f64, end: f64) -> usize {
    ((at / end.max(f64::MIN_POSITIVE)).clamp(0.0, 1.0) * WATERFALL as f64) as usize
}

fn distributions(title: &str, all: &[Distribution]) -> String {
    let header = ["", "p10", "p50", "p90", "p99", "max", "mean"].map(str::to_owned).into();
    let mut rows: Vec<Vec<String>> = vec![header];
    for one in all {
        let name =
            if one.unit.is_empty() { one.of.into() } else { format!("{}, {}", one.of, one.unit) };
        let of = &one.quantiles;
        let cells = [of.p10, of.p50, of.p90, of.p99, of.max]
            .map(|value: f64| if one.unit == "ms" { figure::ms(value) } else { whole(value) });
        let mean = if one.unit == "ms" { figure::ms(of.mean) } else { format!("{:.1}", of.mean) };
        rows.push([name].into_iter().chain(cells).chain([mean]).collect());
    }
    format!("\n{title}\n{}", table(&rows, &[0]))
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // counts and bytes
fn whole(value: f64) -> String {
    grouped(value.max(0.0) as u64)
}

fn servers(page: &PageSummary, rows: usize) -> String {
    let header = ["server", "speaks", "resources", "connections", "bytes", "round trip, ms"];
    let mut lines: Vec<Vec<String>> = vec![header.map(str::to_owned).into()];
    let mut servers: Vec<_> = page.servers.iter().collect();
    servers.sort_by_key(|server| std::cmp::Reverse(server.resources));
    for server in servers.iter().take(rows) {
        let pool = if server.anonymous { " (no credentials)" } else { "" };
        lines.push(vec![
            shortened(&format!("{}:{}{pool}", server.host, server.port)),
            format!("{}{}", server.protocol, if server.tls { "" } else { " without TLS" }),
            grouped(server.resources as u64),
            grouped(server.connections as u64),
            grouped(server.response_bytes),
            server.round_trip_ms.map_or_else(String::new, figure::ms),
        ]);
    }
    let mut text = format!("\nServers\n{}", table(&lines, &[0, 1]));
    if let Some(more) = servers.len().checked_sub(rows).filter(|more| *more > 0) {
        let _ = writeln!(text, "  and {} (--rows N)", counted(more as u64, "more", "more"));
    }
    text
}

fn parents(of: &Parents) -> String {
    let mut text = format!(
        "\nParents: {} recorded; {} by time, as the only one before, {} as one that is a parent \
            already, {} as the last; {} without\n",
        of.recorded, of.only, of.chosen, of.last, of.roots
    );
    let wrong = [
        (of.unknown_initiators, "initiators that are not in the recording"),
        (of.impossible_initiators, "initiators that were asked for later, and cycles"),
    ];
    for (count, words) in wrong.into_iter().filter(|(count, _)| *count > 0) {
        let _ = writeln!(text, "  {words}: {count}, so that time decided");
    }
    text.push_str(&agreement(&of.agreement));
    text
}

fn agreement(of: &Agreement) -> String {
    if of.total().of == 0 {
        return String::new();
    }
    let shares = [of.total(), of.only, of.chosen, of.last].map(|agreed: Agreed| {
        agreed
            .share()
            .map_or_else(|| "none".into(), |share| format!("{} of {}", percent(share), agreed.of))
    });
    let [total, only, chosen, last] = shares;
    format!(
        "  the rule by time agrees with what is recorded in {total}: the only one {only}, already \
            a parent {chosen}, the last {last}\n"
    )
}

/// Returns what a command has not used: entries of pages, entries of none, and files.
pub(in crate::pageload) fn left_out(
    not_resources: &BTreeMap<&'static str, usize>,
    of_no_page: &BTreeMap<&'static str, usize>,
    unreadable: usize,
) -> String {
    let mut text = ignored_by_reason("Of the pages' entries no resources", not_resources);
    let title = "Entries of no page, or of pages without resources";
    text.push_str(&ignored_by_reason(title, of_no_page));
    if unreadable > 0 {
        let files = counted(unreadable as u64, "file was", "files were");
        let _ = writeln!(text, "\nnote: {files} not read, see the warnings");
    }
    text
}

fn ignored_by_reason(title: &str, ignored: &BTreeMap<&'static str, usize>) -> String {
    if ignored.is_empty() {
        return String::new();
    }
    let mut text = format!("\n{title}: {}\n", grouped(ignored.values().sum::<usize>() as u64));
    for (key, count) in ignored {
        let _ = writeln!(text, "  {}: {}", reason(key), grouped(*count as u64));
    }
    text
}

fn together(pages: &[PageSummary]) -> BTreeMap<&'static str, usize> {
    let mut sum = BTreeMap::new();
    for (key, count) in pages.iter().flat_map(|page| &page.ignored) {
        *sum.entry(*key).or_default() += count;
    }
    sum
}

fn several(pages: &[PageSummary], rows: usize) -> String {
    let header = [
        "page",
        "load, s",
        "resources",
        "servers",
        "bytes",
        "height",
        "minRTT",
        "queue",
        "TLS",
        "server",
        "transfer",
        "other",
    ];
    let mut lines: Vec<Vec<String>> = vec![header.map(str::to_owned).into()];
    for page in pages.iter().take(rows) {
        let shape = &page.shape;
        let load = page.page_load_ms.map_or_else(|| "–".into(), |ms| format!("{:.2}", ms / 1e3));
        let mut line = vec![
            shortened(&page.name),
            load,
            grouped(shape.resources as u64),
            grouped(shape.servers as u64),
            grouped(shape.response_bytes),
            shape.height.to_string(),
            shape.min_rtt.to_string(),
        ];
        if let Some(path) = page.critical_path_ms {
            let all = ms(path.total()).max(f64::MIN_POSITIVE);
            line.extend(path.parts().map(|(_, time)| format!("{:.0} %", 100.0 * ms(time) / all)));
        }
        lines.push(line);
    }
    let mut text = format!(
        "{}, with shares of the time until 95 % was loaded\n{}",
        counted(pages.len() as u64, "page", "pages"),
        table(&lines, &[0])
    );
    if let Some(more) = pages.len().checked_sub(rows).filter(|more| *more > 0) {
        let _ = writeln!(text, "  and {} (--rows N)", counted(more as u64, "more", "more"));
    }
    text
}

pub(in crate::pageload) fn seconds(ms: f64) -> String {
    format!("{:.2} s", ms / 1e3)
}

/// In the unit that leaves at most three digits before the point.
#[allow(clippy::cast_precision_loss)] // far below 2^53
pub(in crate::pageload) fn bytes(count: u64) -> String {
    match count {
        0..1000 => format!("{count} B"),
        1000..1_000_000 => format!("{:.1} kB", count as f64 / 1e3),
        _ => format!("{:.1} MB", count as f64 / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_show_each_part_in_its_place() {
        let times = Times {
            started: 10.0,
            queued: 10.0,
            dns: 0.0,
            connect: 10.0,
            tls: 0.0,
            send: 0.0,
            wait: 10.0,
            receive: 0.1,
        };
        assert_eq!(bars(&times, 80.0), "     .....-----=====#");
        assert_eq!(bars(&times, 1e9), "#", "all in the first");
        assert_eq!(bars(&times, 0.0).len(), 0);
    }

    #[test]
    fn sizes_have_units() {
        assert_eq!([0, 999, 1000, 1_500_000].map(bytes), ["0 B", "999 B", "1.0 kB", "1.5 MB"]);
    }
}
