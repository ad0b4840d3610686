//! Pages as text.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use headstart_pageload::har::{Agreed, Agreement, Parents};
use headstart_pageload::tree::Breakdown;

use super::summary::{All, Distribution, Event, PageSummary, ResourceSummary, Times, ms, reason};
use crate::chart::figure::{self, percent};
use crate::pageload::text::{counted, grouped, shortened_to};
use crate::table::{table, wrapped};
use headstart::base::printable::{printable, printable_word};

/// Columns where nobody says how many there are, and the fewest and most that are used.
pub(super) const COLUMNS: usize = 100;
const COLUMNS_LEAST: usize = 72;
const COLUMNS_MOST: usize = 240;

/// Columns of the marks before a name, with a space behind them.
const MARKS: usize = 4;

/// Widths of the columns behind the waterfall.
const CELLS: [usize; 4] = [4, 8, 7, 4];

/// Longest name: what is left is the waterfall's.
const LABEL_MOST: usize = 60;

/// Marks of a waterfall, and what they mean.
const PARTS: [(char, &str); 4] =
    [('.', "queue"), ('-', "opening"), ('=', "waiting"), ('#', "receiving")];
const EVENT: char = ':';

/// Colours (SGR, ECMA-48): bold red, and those of the parts.
const CRITICAL: &str = "1;31";

fn style(mark: char) -> &'static str {
    match mark {
        '.' => "2",
        '-' => "35",
        '=' => "34",
        '#' => "36",
        _ => "33",
    }
}

/// Width of a text, and whether it has colours.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    columns: usize,
    label: usize,
    waterfall: usize,
    colours: bool,
}

impl Look {
    pub(super) fn new(columns: usize, colours: bool) -> Self {
        let columns = columns.clamp(COLUMNS_LEAST, COLUMNS_MOST);
        // Two spaces before each column.
        let cells: usize = CELLS.iter().map(|width| width + 2).sum();
        let both = columns - cells - MARKS - 2 * 2;
        let label = (both / 2).min(LABEL_MOST);
        Self { columns, label, waterfall: both - label, colours }
    }

    fn paint(self, style: &str, text: &str) -> String {
        if self.colours { format!("\x1b[{style}m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// A waterfall's line, each part in its colour.
    fn painted(self, bars: &str) -> String {
        let marks: Vec<char> = bars.chars().collect();
        let runs = marks.chunk_by(|one, next| one == next).map(|run| {
            let text: String = run.iter().collect();
            match run.first() {
                Some(&mark) if mark != ' ' => self.paint(style(mark), &text),
                _ => text,
            }
        });
        runs.collect()
    }

    /// A line of the tree: the name, and the waterfall, are as wide as they shall be.
    fn line(self, name: &str, bars: &str, cells: &[String; 4]) -> String {
        let mut line = format!("  {name:<width$}  {bars}", width = MARKS + self.label);
        for (cell, width) in cells.iter().zip(CELLS) {
            let _ = write!(line, "  {cell:>width$}");
        }
        line.trim_end().to_owned() + "\n"
    }
}

/// Steps to the right in a tree; deeper ones stand below each other.
const STEPS: usize = 10;

/// The page with all that is known of it, or each of several in a line; with at most `rows` lines
/// of a list.
pub(super) fn report(all: &All, rows: usize, look: Look) -> String {
    let mut text = match all.pages.as_slice() {
        [page] => one(page, rows, look),
        pages => several(pages, rows, look) + &distributions("Over all pages", &all.distributions),
    };
    let mut not_resources = BTreeMap::new();
    if all.pages.len() > 1 {
        text.push_str(&agreement(&all.agreement, look.columns));
        not_resources = together(&all.pages);
    }
    text.push_str(&left_out(&not_resources, &all.ignored, all.unreadable.len()));
    text
}

fn one(page: &PageSummary, rows: usize, look: Look) -> String {
    let mut text = head(page, look.columns) + &categories(page);
    text = printable(&text).into_owned() + &tree(page, rows, look);
    text.push_str(&distributions("Over all resources", &page.distributions));
    text.push_str(&printable(&servers(page, rows, look)));
    if let Some(of) = &page.parents {
        text.push_str(&parents(of, look.columns));
    }
    text.push_str(&ignored_by_reason("No resources", &page.ignored));
    text
}

fn head(page: &PageSummary, columns: usize) -> String {
    let shape = &page.shape;
    // Writing to a string cannot fail.
    let mut text = format!("{}\n", page.name);
    if page.name != page.file {
        let _ = writeln!(text, "  {}", page.file);
    }
    if let (Some(most), Some(full)) = (page.page_load_ms, page.full_load_ms) {
        let mut words = format!("95 % loaded after {}, all after {}", seconds(most), seconds(full));
        for event in page.events() {
            let _ = write!(words, ", {} after {}", event.name, seconds(event.at));
        }
        text.push_str(&wrapped("  ", &words, columns));
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
        parts("all resources, ms", &all, figure::ms),
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

/// The tree with its waterfall, in colour if wanted: foreign words in it are printable.
fn tree(page: &PageSummary, rows: usize, look: Look) -> String {
    let Some(resources) = &page.resources else { return String::new() };
    let end = page.end();
    let events = page.events();
    let mut text =
        String::from("\nTree (* on the critical path, + a new connection, ! blocks rendering)");
    if end > 0.0 {
        let keys = PARTS
            .map(|(mark, name)| format!("{} {name}", look.paint(style(mark), &mark.to_string())));
        let _ = write!(text, " and waterfall over {}\n  {}", seconds(end), keys.join("  "));
        text.push_str(if events.is_empty() { "" } else { "\n" });
        for event in &events {
            let _ = write!(text, "  {} {} {}", event.letter, event.name, seconds(event.at));
        }
    }
    text.push('\n');
    let heads = ["RTTs", "size", "ms", "prio"].map(str::to_owned);
    text.push_str(&look.line(
        &format!("{:MARKS$}", ""),
        &ruler(&events, end, look.waterfall),
        &heads,
    ));
    for one in resources.iter().take(rows) {
        text.push_str(&line(one, &events, end, look));
    }
    let more = page.shape.resources.saturating_sub(rows);
    if more > 0 {
        let _ = writeln!(text, "  and {} (--rows N)", counted(more as u64, "more", "more"));
    }
    text
}

fn line(one: &ResourceSummary, events: &[Event], end: f64, look: Look) -> String {
    let mark = |is: bool, mark: char| if is { mark } else { ' ' };
    let marks = [
        mark(one.is_on_critical_path, '*'),
        mark(one.opens_connection, '+'),
        mark(one.blocks_rendering, '!'),
    ];
    let indent = "  ".repeat(one.above.min(STEPS).min(look.label / 4));
    let name = cut(one.short_url(), look.label - indent.len());
    let name = format!("{} {indent}{}", marks.iter().collect::<String>(), printable_word(&name));
    let name = format!("{name:<width$}", width = MARKS + look.label);
    let name = if one.is_on_critical_path { look.paint(CRITICAL, &name) } else { name };
    let time =
        one.times_ms.map_or_else(String::new, |times| figure::ms(times.end() - times.started));
    let cells = [
        one.min_rtt.to_string(),
        bytes(one.response_bytes),
        time,
        one.priority_letters().to_owned(),
    ];
    let bars = bars(one.times_ms.as_ref(), events, end, look.waterfall);
    look.line(&name, &look.painted(&bars), &cells)
}

/// Letters of events where they stand.
fn ruler(events: &[Event], end: f64, width: usize) -> String {
    let mut line = vec![' '; width];
    for event in events.iter().filter(|_| end > 0.0) {
        if let Some(place) = line.get_mut(place(event.at, end, width).min(width - 1)) {
            *place = event.letter;
        }
    }
    line.into_iter().collect()
}

/// As many letters of a name as fit, of its beginning and its end: they say more than the middle.
pub(super) fn cut(name: &str, letters: usize) -> String {
    let count = name.chars().count();
    if count <= letters {
        return name.to_owned();
    }
    let head: String = name.chars().take(letters / 2).collect();
    let tail: String = name.chars().skip(count - (letters - letters / 2 - 1)).collect();
    format!("{head}…{tail}")
}

/// A line of a waterfall, each character a part of the time, with the events behind it.
fn bars(times: Option<&Times>, events: &[Event], end: f64, width: usize) -> String {
    let marks = ['.', '-', '-', '-', '-', '=', '#'];
    let mut line: Vec<char> = ruler(events, end, width)
        .chars()
        .map(|mark| if mark == ' ' { ' ' } else { EVENT })
        .collect();
    let mut at = times.map_or(0.0, |times| times.started);
    let parts = times.map(Times::parts).into_iter().flatten();
    for ((_, time), mark) in parts.zip(marks) {
        let (from, to) = (place(at, end, width), place(at + time, end, width));
        at += time;
        // A mark too short for its own place takes a free one.
        let to = if time > 0.0 { to.max(from + 1) } else { to };
        for place in line.iter_mut().take(to).skip(from) {
            *place = mark;
        }
    }
    line.into_iter().collect()
}

// 0 to width
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
fn place(at: f64, end: f64, width: usize) -> usize {
    ((at / end.max(f64::MIN_POSITIVE)).clamp(0.0, 1.0) * width as f64) as usize
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

fn servers(page: &PageSummary, rows: usize, look: Look) -> String {
    // The other columns take about this much.
    let most = look.columns.saturating_sub(66).clamp(20, 48);
    let header = ["server", "speaks", "resources", "connections", "bytes", "RTT, ms"];
    let mut lines: Vec<Vec<String>> = vec![header.map(str::to_owned).into()];
    let mut servers: Vec<_> = page.servers.iter().collect();
    servers.sort_by_key(|server| std::cmp::Reverse(server.resources));
    for server in servers.iter().take(rows) {
        let pool = if server.anonymous { " (no credentials)" } else { "" };
        lines.push(vec![
            shortened_to(&format!("{}:{}{pool}", server.host, server.port), most),
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

fn parents(of: &Parents, columns: usize) -> String {
    let words = format!(
        "Parents: {} recorded; {} by time, as the only one before, {} as one that is a parent \
            already, {} as the last; {} without",
        of.recorded, of.only, of.chosen, of.last, of.roots
    );
    let mut text = format!("\n{}", wrapped("", &words, columns));
    let wrong = [
        (of.unknown_initiators, "initiators that are not in the recording"),
        (of.impossible_initiators, "initiators that were asked for later, and cycles"),
    ];
    for (count, words) in wrong.into_iter().filter(|(count, _)| *count > 0) {
        let _ = writeln!(text, "  {words}: {count}, so that time decided");
    }
    text.push_str(&agreement(&of.agreement, columns));
    text
}

fn agreement(of: &Agreement, columns: usize) -> String {
    if of.total().of == 0 {
        return String::new();
    }
    let shares = [of.total(), of.only, of.chosen, of.last].map(|agreed: Agreed| {
        agreed
            .share()
            .map_or_else(|| "none".into(), |share| format!("{} of {}", percent(share), agreed.of))
    });
    let [total, only, chosen, last] = shares;
    let words = format!(
        "the rule by time agrees with what is recorded in {total}: the only one {only}, already a \
            parent {chosen}, the last {last}"
    );
    wrapped("  ", &words, columns)
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

fn several(pages: &[PageSummary], rows: usize, look: Look) -> String {
    // The other columns take about this much.
    let most = look.columns.saturating_sub(98).clamp(20, 48);
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
            shortened_to(&page.name, most),
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
        printable(&table(&lines, &[0]))
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
        let line = |end: f64| bars(Some(&times), &[], end, 40).trim_end().to_owned();
        assert_eq!(line(80.0), "     .....-----=====#");
        assert_eq!(line(1e9), "#", "all in the first");
        assert_eq!(line(0.0).len(), 0);
    }

    #[test]
    fn events_stand_behind_the_bars() {
        let event = Event { letter: 'L', class: "event", name: "load event", at: 60.0 };
        assert_eq!(ruler(&[event], 80.0, 8), "      L ");
        assert_eq!(bars(None, &[event], 80.0, 8), "      : ");
        let last = Event { at: 80.0, ..event };
        assert_eq!(ruler(&[last], 80.0, 8), "       L");
    }

    #[test]
    fn lines_fill_the_terminal() {
        for columns in [0, 80, 100, 120, 1000] {
            let look = Look::new(columns, false);
            let bars = "#".repeat(look.waterfall);
            let cells = ["1", "1.0 kB", "1.0", "VH"].map(str::to_owned);
            let line = look.line("a", &bars, &cells);
            assert_eq!(line.trim_end().len(), columns.clamp(COLUMNS_LEAST, COLUMNS_MOST));
        }
        let look = Look::new(100, true);
        assert_eq!(look.painted(" ..#"), " \x1b[2m..\x1b[0m\x1b[36m#\x1b[0m");
    }

    #[test]
    fn sizes_have_units() {
        assert_eq!([0, 999, 1000, 1_500_000].map(bytes), ["0 B", "999 B", "1.0 kB", "1.5 MB"]);
    }
}
