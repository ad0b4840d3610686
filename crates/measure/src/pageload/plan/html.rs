//! Plans as one HTML file: no script, nothing from elsewhere, also well-formed XML.

use std::collections::BTreeMap;

use headstart_pageload::plan::{Gain, Hosts, PagePlan, Saving};
use headstart_pageload::sim::tcp::Technique;
use headstart_pageload::tree::Shape;
use maud::{Markup, html};

use super::conclusion::Conclusion;
use super::figures::{change, less};
use super::plot::{self, Bar};
use super::text::{self, correlation};
use super::{Answer, Answers};
use crate::chart::{self, figure, heads, rows, tile};
use crate::pageload::database::Used;
use crate::pageload::show::html::{breakdowns, ignored, not_read};
use crate::pageload::show::text::{bytes, seconds};

/// Pages with a section of their own; of further ones there is a line.
const SECTIONS: usize = 30;

/// Lines of the table of pages: more are no reading, and JSON has all.
const LINES: usize = 1000;

/// Colours of bars, beside those of all reports.
const PLAN_STYLE: &str = "\
rect.tls13 { fill: var(--tls13); } rect.turbo { fill: var(--turbo); } rect.agent { fill: \
var(--agent); } rect.other { fill: var(--other); }
ol, ul { padding-left: 22px; margin: 8px 0; }
";

/// The whole file.
pub(super) fn document(answers: &Answers) -> Markup {
    let title = match answers.pages.as_slice() {
        [page] => page.name.clone(),
        pages => format!("{} pages", pages.len()),
    };
    let content = html! {
        h1 { (title) }
        (conclusion(&answers.conclusion))
        @if answers.pages.len() > 1 {
            p.about { (answers.setting.words()) }
            (overview(answers))
        }
        @for (at, page) in answers.pages.iter().take(SECTIONS).enumerate() {
            (whole(page, at, answers))
        }
        (explained(&answers.techniques))
        @if let Some(used) = &answers.database {
            h2 { "What the database had" }
            (database(used))
        }
        (ignored("Of the pages' entries no resources", &answers.not_resources))
        (ignored("Entries of no page, or of pages without resources", &answers.ignored))
        (not_read(&answers.unreadable))
    };
    let origin = "the files named above, in simulated time";
    chart::document(&title, "pageload plan", PLAN_STYLE, &content, origin)
}

/// The answer, what to do first, and how sure that is.
fn conclusion(of: &Conclusion) -> Markup {
    html! {
        p.answer { (of.answer.join(" ")) }
        @if !of.first.is_empty() {
            h2 { "Do first" }
            ol { @for step in &of.first { li { (step.words()) } } }
        }
        h2 { "How sure is this?" }
        ul { @for line in &of.sure { li { (commands(line)) } } }
    }
}

/// Text with commands between backquotes.
fn commands(text: &str) -> Markup {
    html! {
        @for (at, part) in text.split('`').enumerate() {
            @if at % 2 == 1 { code { (part) } } @else { (part) }
        }
    }
}

fn explained(techniques: &BTreeMap<&'static str, &'static str>) -> Markup {
    html! {
        h2 { "Techniques" }
        dl { @for (name, about) in techniques { dt { (name) } dd { (about) } } }
    }
}

fn database(used: &Used) -> Markup {
    html! {
        p.about { (used.title()) }
        (rows(&used.table()))
        p.reading { "* what is in vain is taken to be as large as the page's others" }
    }
}

fn overview(answers: &Answers) -> Markup {
    let all = &answers.overall;
    let last = all.cumulative.last();
    html! {
        div.tiles {
            (tile(&seconds(all.none_ms), "in the mean until 95 % is loaded"))
            @if let Some(last) = last {
                (tile(&seconds(last.page_load_ms), "with all techniques"))
                (tile(&change(last.saved), "of the mean"))
                (tile(&figure::percent(last.pages_25), "of the pages gain a quarter or more"))
                (tile(&figure::percent(last.pages_50), "gain a half or more"))
            }
            @if let Some(ms) = all.recorded_ms { (tile(&seconds(ms), "in the mean when recorded")) }
        }
        h2 { "What each technique saves" }
        @let part = |of: &Gain| (of.technique, of.page_load_ms, of.saved);
        @let bars = [&all.alone, &all.cumulative].map(|all| all.iter().map(part).collect());
        (bars_of(all.none_ms, bars))
        (rows(&text::gains("alone", &all.alone)))
        (rows(&text::gains(text::IN_ORDER, &all.cumulative)))
        p.reading { "At your hosts: if no others take part. Change: of the mean page load \
            time; of a page: mean of each page's change, \
            which counts short and long loads the same." }
        h2 { "How many pages gain how much" }
        figure { div.panels.two { (shares(answers)) } }
        h2 { "Over round trips and bandwidths, means of all pages" }
        (sweeps(&all.by_rtt, &all.by_rate))
        h2 { "By size of the page" }
        (rows(&text::sizes(&all.by_size)))
        h2 { "What page load times hang on" }
        (rows(&text::correlations(all)))
        @if let Some(both) = all.correlations.simulated_on_recorded {
            p { "Simulated with recorded page load times: " (correlation(Some(both))) "." }
        }
        figure { div.panels { (dots(&answers.pages)) } figcaption { "A dot for each page: \
            simulated page load time in s, with nothing done." } }
        @if !all.hosts.is_empty() {
            h2 { (text::FIRST_HOSTS) }
            (rows(&text::hosts_of_all(&all.hosts, all.hosts.len())))
        }
        h2 { "Pages" }
        (pages(&answers.pages))
    }
}

/// Draws the shares of these techniques alone, where the profile has them, and of all.
fn shares(answers: &Answers) -> Markup {
    let wanted = [
        Technique::TurboTls,
        Technique::OptimisticData,
        Technique::ZeroRtt,
        Technique::PrefetchDatabase,
    ];
    let plans = answers.pages.iter().map(|page| &page.plan);
    let mut arms: Vec<(&str, Vec<f64>)> = wanted
        .into_iter()
        .map(|technique: Technique| {
            (
                technique.name(),
                plans
                    .clone()
                    .filter_map(|plan: &PagePlan| {
                        plan.alone.iter().find(|of| of.technique == technique).map(|of| of.saved)
                    })
                    .collect::<Vec<f64>>(),
            )
        })
        .collect();
    arms.push(("all", plans.map(PagePlan::saved).collect()));
    arms.retain(|(_, saved)| !saved.is_empty());
    plot::gains(&arms)
}

fn dots(pages: &[Answer]) -> Markup {
    html! {
        (dots_over("minRTT, round trips", pages, |shape| f64::from(shape.min_rtt)))
        (dots_over("resources", pages, |shape| shape.resources as f64))
        (dots_over("responses, MB", pages, |shape| shape.response_bytes as f64 / 1e6))
    }
}

fn dots_over(axis: &str, pages: &[Answer], on: impl Fn(&Shape) -> f64) -> Markup {
    let plans = pages.iter().map(|page| &page.plan);
    let points = plans.map(|plan| (on(&plan.shape), plan.none.page_load_ms / 1e3));
    plot::dots(axis, &points.collect::<Vec<_>>())
}

fn pages(pages: &[Answer]) -> Markup {
    html! {
        div.wide { table {
            thead { tr {
                th { "page" }
                (heads(&[
                    "resources", "size", "minRTT", "recorded", "nothing done", "all", "change",
                ]))
            } }
            tbody { @for (at, page) in pages.iter().take(LINES).enumerate() {
                @let plan = &page.plan;
                tr {
                    td {
                        @if at < SECTIONS { a href=(format!("#page-{at}")) { (page.name) } }
                        @else { (page.name) }
                    }
                    td.n { (plan.shape.resources) }
                    td.n { (bytes(plan.shape.response_bytes)) }
                    td.n { (plan.shape.min_rtt) }
                    td.n { (plan.recorded_ms.map_or_else(|| "–".into(), seconds)) }
                    td.n { (seconds(plan.none.page_load_ms)) }
                    td.n { (seconds(plan.all().page_load_ms)) }
                    td.n { (change(plan.saved())) }
                }
            } }
        } }
        @if pages.len() > LINES { p.reading { (pages.len() - LINES) " more are not shown here; \
            --json has all." } }
    }
}

fn whole(page: &Answer, at: usize, answers: &Answers) -> Markup {
    let plan = &page.plan;
    html! {
        section id=(format!("page-{at}")) {
            @if answers.pages.len() > 1 { h1 { (page.name) } }
            p.about { code { (page.file) } }
            p.about {
                (answers.setting.words())
                @if let Some(recorded) = page.recorded() { "; " (recorded) }
            }
            (tiles(plan))
            h2 { "What each technique saves" }
            @let part = |of: &Saving| (of.technique, of.expected.page_load_ms, of.saved);
            @let bars = [&plan.alone, &plan.cumulative].map(|all| all.iter().map(part).collect());
            (bars_of(plan.none.page_load_ms, bars))
            (rows(&text::savings_table(&plan.alone)))
            p.reading { "− is faster, + is slower; at your hosts: if no others take part." }
            h2 { "Over round trips and bandwidths" }
            (sweeps(&plan.by_rtt, &plan.by_rate))
            h2 { "What dominates" }
            (paths(plan))
            (rows(&text::without(plan)))
            p.reading {
                "These do not add up: what happens at the same time counts twice, or never."
            }
            @if plan.hosts.count > 0 && !plan.hosts.are_ranked {
                h2 { (text::FIRST_HOSTS) }
                p { (text::NOT_RANKED) }
            }
            @if !plan.hosts.alone.is_empty() {
                h2 { (text::FIRST_HOSTS) }
                (hosts(&plan.hosts, plan.none.page_load_ms))
            }
        }
    }
}

fn tiles(plan: &PagePlan) -> Markup {
    let shape = &plan.shape;
    html! { div.tiles {
        (tile(&seconds(plan.none.page_load_ms), "until 95 % is loaded, nothing done"))
        @if let Some(edges) = plan.hosts.edges {
            (tile(&change(plan.hosts.saved.page_load), "with edges at your hosts"))
            (tile(&seconds(edges.page_load_ms), "until 95 % is loaded with them"))
        }
        @if let Some(ms) = plan.none.largest_paint_ms {
            (tile(&seconds(ms), "until LCP, nothing done"))
        }
        @if let Some(saved) = plan.hosts.saved.largest_paint {
            (tile(&change(saved), "of LCP with edges"))
        }
        @if let Some(ms) = plan.none.on_load_ms {
            (tile(&seconds(ms), "until the load event, nothing done"))
        }
        (tile(&change(plan.saved()), "with all techniques everywhere"))
        @if let Some(ms) = plan.recorded_ms { (tile(&seconds(ms), "when recorded")) }
        (tile(&shape.resources.to_string(), "resources"))
        (tile(&shape.servers.to_string(), "servers"))
        (tile(&bytes(shape.response_bytes), "of responses"))
        (tile(&shape.min_rtt.to_string(), "round trips at least"))
    } }
}

/// A technique, its page load time in ms, and what it saves.
type Part = (Technique, f64, f64);

/// Draws each technique alone, and all one after the other.
fn bars_of(none_ms: f64, [alone, cumulative]: [Vec<Part>; 2]) -> Markup {
    let first = bars(none_ms, "turbo", "", alone);
    let second = bars(none_ms, "agent", "+ ", cumulative);
    // Both share one scale.
    let most = first.iter().chain(&second).map(|bar| bar.ms).fold(0.0, f64::max);
    html! { figure { div.panels.two {
        (plot::bars("Each technique alone", &first, most))
        (plot::bars(text::IN_ORDER, &second, most))
    } } }
}

/// A bar for each part, below one for a load with nothing done.
fn bars(none_ms: f64, class: &'static str, and: &str, parts: Vec<Part>) -> Vec<Bar> {
    let none = Bar { name: "nothing".into(), class: "tls13", ms: none_ms, words: seconds(none_ms) };
    let bars = parts.into_iter().map(|(technique, ms, saved): Part| Bar {
        name: format!("{and}{technique}"),
        class,
        ms,
        words: format!("{}  {}", seconds(ms), change(saved)),
    });
    std::iter::once(none).chain(bars).collect()
}

fn sweeps(
    by_rtt: &headstart_pageload::plan::Sweep,
    by_rate: &headstart_pageload::plan::Sweep,
) -> Markup {
    let title = "Change of the time until 95 % is loaded";
    html! {
        figure {
            div.panels.two {
                (plot::lines(title, "round trip, ms", by_rtt))
                (plot::lines(title, "bandwidth, Mbit/s", by_rate))
            }
            figcaption { "Percent by which the time until 95 % of the resources are there is \
                shorter; all else as above. your edges: with early data, at your hosts alone. \
                databases: those of the techniques above that are databases." }
        }
        (rows(&text::sweep_table("round trip, ms", by_rtt)))
        (rows(&text::sweep_table("bandwidth, Mbit/s", by_rate)))
    }
}

fn paths(plan: &PagePlan) -> Markup {
    let paths = [
        ("recorded", plan.recorded_path_ms.as_ref()),
        ("simulated, nothing done", plan.simulated_path_ms.as_ref()),
    ];
    html! {
        (breakdowns("critical path, ms", &paths))
        p.reading {
            "The chain of resources that the time until 95 % was loaded had to wait for. The \
                simulated queue is until a request is sent, with the "
            "opening of the connection; a recorded one has TLS apart and TCP in other."
        }
    }
}

fn hosts(hosts: &Hosts, before_ms: f64) -> Markup {
    html! {
        (rows(&text::in_order(hosts, before_ms)))
        div.wide { table {
            thead { tr {
                th { "an edge for it alone; ms" }
                (heads(&["resources", "TurboTLS", "FOP", "TurboTLS + 0-RTT", "of a resource"]))
            } }
            tbody { @for host in &hosts.alone { tr {
                td { (host.host) }
                td.n { (host.resources) }
                @for ms in
                    [host.turbotls_ms, host.fop_ms, host.early_ms, host.early_resource_ms]
                {
                    td.n { (less(ms)) }
                }
            } } }
        } }
        p.reading {
            "One after the other: edges that take early data. Of a resource: change of the mean \
             time of a resource. One host alone often changes nothing for the page, as it waits \
             for others as well; "
            "then that decides the order."
        }
    }
}
