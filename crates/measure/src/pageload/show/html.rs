//! Pages as one HTML file: no script, nothing from elsewhere, also well-formed XML.

use std::collections::BTreeMap;

use headstart_pageload::har::{Agreed, Agreement};
use headstart_pageload::tree::Breakdown;
use maud::{Markup, html};

use super::picture::SHOW_STYLE;
use super::summary::{All, DETAILED, Distribution, PageSummary, Unreadable, ms, reason};
use super::text::bytes;
use super::waterfall;
use crate::chart::{self, figure, heads, tile};
use crate::pageload::text::grouped;

/// The whole file.
pub(super) fn document(all: &All) -> Markup {
    let title = match all.pages.as_slice() {
        [page] => page.name.clone(),
        pages => format!("{} pages", pages.len()),
    };
    let content = html! {
        @if all.pages.len() > 1 { h1 { (title) } (overview(all)) }
        @for (at, page) in all.pages.iter().take(DETAILED).enumerate() { (whole(page, at)) }
    };
    chart::document(&title, "pageload", SHOW_STYLE, &content, "the files named above")
}

fn overview(all: &All) -> Markup {
    html! {
        div.wide { table {
            thead { tr {
                th { "page" }
                (heads(&["load, s", "resources", "servers", "size", "height", "minRTT"]))
                @for (name, _) in Breakdown::default().parts() { th.n { (name) } }
            } }
            tbody { @for (at, page) in all.pages.iter().enumerate() { (line(page, at)) } }
        } }
        p.reading { "Load: until 95 % of the resources were there; the shares are those of this \
            time on the critical path." }
        h2 { "Over all pages" }
        (distributions(&all.distributions))
        (agreement(&all.agreement))
        (ignored("Entries of no page, or of pages without resources", &all.ignored))
        (not_read(&all.unreadable))
    }
}

fn line(page: &PageSummary, at: usize) -> Markup {
    let shape = &page.shape;
    html! { tr {
        td {
            @if at < DETAILED { a href=(format!("#page-{at}")) { (page.name) } }
            @else { (page.name) }
        }
        td.n { (page.page_load_ms.map_or_else(|| "–".into(), |ms| format!("{:.2}", ms / 1e3))) }
        td.n { (shape.resources) }
        td.n { (shape.servers) }
        td.n { (bytes(shape.response_bytes)) }
        td.n { (shape.height) }
        td.n { (shape.min_rtt) }
        @match page.critical_path_ms {
            Some(path) => {
                @for (_, time) in path.parts() { td.n { (share(ms(time), ms(path.total()))) } }
            }
            None => { @for _ in Breakdown::default().parts() { td.n { "–" } } }
        }
    } }
}

fn share(part: f64, all: f64) -> String {
    figure::percent(if all > 0.0 { part / all } else { 0.0 })
}

fn whole(page: &PageSummary, at: usize) -> Markup {
    html! {
        section id=(format!("page-{at}")) {
            h1 { (page.name) }
            p.about { code { (page.file) } }
            (tiles(page))
            @if let Some(waterfall) = waterfall::waterfall(page, at) {
                h2 { "Tree and waterfall" }
                (waterfall)
            }
            @if let (Some(path), Some(all)) = (&page.critical_path_ms, &page.all_resources_ms) {
                @let rows =
                    [("critical path, ms", Some(path)), ("sum of all resources, ms", Some(all))];
                h2 { "Where the time went" }
                (breakdowns("", &rows))
                p.reading {
                    "Critical path: the chain of resources that the time until 95 % was loaded \
                        had to wait for, each asked for because of "
                    "the one before. Other: names, TCP, sending, and the browser's own time for \
                        documents and scripts."
                    @if page.head_of_line_ms > 0.0 {
                        " Of all queues " (figure::ms(page.head_of_line_ms)) " ms were behind \
                            others on the same HTTP/1.1 connection."
                    }
                }
            }
            h2 { "Over all resources" }
            (distributions(&page.distributions))
            h2 { "Servers" }
            (servers(page))
            (parents(page))
            (ignored("Entries that are no resources", &page.ignored))
        }
    }
}

fn tiles(page: &PageSummary) -> Markup {
    let shape = &page.shape;
    let times = [
        (page.page_load_ms, "until 95 % was loaded"),
        (page.largest_paint_ms, "until the largest paint (LCP)"),
        (page.content_loaded_ms, "until DOMContentLoaded"),
        (page.on_load_ms, "until the load event"),
        (page.full_load_ms, "until all was loaded"),
    ];
    html! { div.tiles {
        @for (ms, what) in times {
            @if let Some(ms) = ms { (tile(&format!("{:.2} s", ms / 1e3), what)) }
        }
        (tile(&shape.resources.to_string(), "resources"))
        (tile(&shape.servers.to_string(), "servers"))
        (tile(&shape.connections.to_string(), "connections"))
        (tile(&bytes(shape.response_bytes), "of responses"))
        (tile(&shape.height.to_string(), "tree height"))
        (tile(&shape.min_rtt.to_string(), "round trips at least"))
        (tile(&shape.redirects.to_string(), "redirects to the document"))
    } }
}

/// Returns the parts of times, each with its share; the title is that of the first column.
pub(in crate::pageload) fn breakdowns(title: &str, rows: &[(&str, Option<&Breakdown>)]) -> Markup {
    html! { div.wide { table {
        thead { tr {
            th { (title) }
            @for (name, _) in Breakdown::default().parts() { th.n { (name) } }
            th.n { "all" }
        } }
        tbody { @for (name, times) in rows { @if let Some(times) = times { tr {
            @let all = ms(times.total());
            th { (name) }
            @for (_, time) in times.parts() {
                td.n { (figure::ms(ms(time))) small { (share(ms(time), all)) } }
            }
            td.n { (figure::ms(all)) }
        } } } }
    } } }
}

fn distributions(all: &[Distribution]) -> Markup {
    html! { div.wide { table {
        thead { tr {
            th {} (heads(&["min", "p10", "p25", "p50", "p75", "p90", "p99", "max", "mean"]))
        } }
        tbody { @for one in all {
            @let of = &one.quantiles;
            tr {
                th { (one.of) @if !one.unit.is_empty() { ", " (one.unit) } }
                @for value in [of.min, of.p10, of.p25, of.p50, of.p75, of.p90, of.p99, of.max] {
                    td.n { @if one.unit == "ms" { (figure::ms(value)) } @else { (count(value)) } }
                }
                td.n {
                    @if one.unit == "ms" { (figure::ms(of.mean)) }
                    @else { (format!("{:.1}", of.mean)) }
                }
            }
        } }
    } } }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // counts and bytes
fn count(value: f64) -> String {
    grouped(value.max(0.0) as u64)
}

fn servers(page: &PageSummary) -> Markup {
    let mut servers: Vec<_> = page.servers.iter().collect();
    servers.sort_by_key(|server| std::cmp::Reverse(server.resources));
    html! { div.wide { table {
        thead { tr {
            th { "server" } th { "speaks" } th { "address" }
            (heads(&["resources", "connections", "size", "round trip, ms"]))
        } }
        tbody { @for server in servers { tr {
            td {
                (server.host) ":" (server.port)
                @if server.anonymous { small { "without credentials" } }
            }
            td { (server.protocol) @if !server.tls { small { "without TLS" } } }
            td { @if let Some(address) = server.address { (address) } @else { "–" } }
            td.n { (server.resources) }
            td.n { (server.connections) }
            td.n { (bytes(server.response_bytes)) }
            td.n { (server.round_trip_ms.map_or_else(|| "–".into(), figure::ms)) }
        } } }
    } } }
}

fn parents(page: &PageSummary) -> Markup {
    let Some(of) = &page.parents else { return html! {} };
    let counts = [
        ("recorded", of.recorded),
        ("the only one before", of.only),
        ("already a parent", of.chosen),
        ("the last before", of.last),
        ("without", of.roots),
        ("initiator not there", of.unknown_initiators),
        ("initiator too late, or a cycle", of.impossible_initiators),
    ];
    html! {
        h2 { "How parents are known" }
        div.wide { table {
            thead { tr { (heads(&counts.map(|(name, _)| name))) } }
            tbody { tr { @for (_, count) in counts { td.n { (count) } } } }
        } }
        (agreement(&of.agreement))
    }
}

fn agreement(of: &Agreement) -> Markup {
    let Some(total) = agreed(&of.total()) else { return html! {} };
    let passes =
        [("the only one", of.only), ("already a parent", of.chosen), ("the last", of.last)];
    let passes: Vec<String> = passes
        .iter()
        .filter_map(|(name, pass)| Some(format!("{name} {}", agreed(pass)?)))
        .collect();
    html! { p {
        "The rule by time alone (BLAST, appendix C.2) agrees with what is recorded in " (total)
        ": " (passes.join(", ")) "."
    } }
}

fn agreed(agreed: &Agreed) -> Option<String> {
    agreed.share().map(|share| format!("{} of {}", figure::percent(share), agreed.of))
}

pub(in crate::pageload) fn ignored(title: &str, ignored: &BTreeMap<&'static str, usize>) -> Markup {
    html! { @if !ignored.is_empty() {
        h2 { (title) }
        dl { @for (key, count) in ignored { dt { (count) } dd { (reason(key)) } } }
    } }
}

pub(in crate::pageload) fn not_read(files: &[Unreadable]) -> Markup {
    html! { @if !files.is_empty() {
        h2 { "Not read" }
        dl { @for one in files { dt { (one.file) } dd { (one.error) } } }
    } }
}
