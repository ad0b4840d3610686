//! Tree and waterfall in a document: a line for each resource, which opens to tell more. What is
//! shown can be chosen, without a script: style sheets follow radio buttons.

use headstart_pageload::har::Kind;
use maud::{Markup, PreEscaped, html};

use super::summary::{Event, PageSummary, ResourceSummary, Times};
use super::text;
use crate::chart::figure;
use crate::chart::scale::{Scale, mark};

/// Resources of a waterfall: those of nearly all pages, and no more than browsers show quickly.
const ROWS_MAX: usize = 600;

/// Steps to the right in a tree, in CSS pixels, and how many.
const INDENT: usize = 9;
const INDENTS: usize = 12;

/// A choice of what is shown: its class, its name, and what it takes.
type Choice = (&'static str, &'static str, fn(&ResourceSummary) -> bool);

const CHOICES: [Choice; 10] = [
    ("all", "all", |_| true),
    ("critical", "critical path", |one| one.is_on_critical_path),
    ("blocking", "blocks rendering", |one| one.blocks_rendering),
    ("document", "documents", |one| one.kind == Some(Kind::Document)),
    ("style", "styles", |one| one.kind == Some(Kind::Style)),
    ("script", "scripts", |one| one.kind == Some(Kind::Script)),
    ("data", "data", |one| one.kind == Some(Kind::Data)),
    ("image", "images", |one| one.kind == Some(Kind::Image)),
    ("font", "fonts", |one| one.kind == Some(Kind::Font)),
    ("opens", "new connections", |one| one.opens_connection),
];

/// Parts of a bar that have a colour, and what it means.
pub(super) const LEGEND: [(&str, &str); 6] = [
    ("queue", "queue"),
    ("dns", "name"),
    ("tcp", "TCP"),
    ("tls", "TLS"),
    ("wait", "sending, server wait"),
    ("transfer", "transfer"),
];

/// The waterfall of the page with this number; none if there are no times.
pub(super) fn waterfall(page: &PageSummary, number: usize) -> Option<Markup> {
    let end = page.end();
    if end <= 0.0 {
        return None;
    }
    let all: Vec<&ResourceSummary> = page
        .resources
        .iter()
        .flatten()
        .take(ROWS_MAX)
        .filter(|one| one.times_ms.is_some())
        .collect();
    let more = page.shape.resources.saturating_sub(all.len());
    let scale = Scale::linear(end);
    Some(html! {
        div.load {
            @for (at, (class, name, takes)) in CHOICES.iter().enumerate() {
                @let count = all.iter().filter(|one| takes(one)).count();
                @if count > 0 { (choice(number, class, name, count, at == 0)) }
            }
            div.legend {
                @for (class, words) in LEGEND { span { i.key.(class) {} (words) } }
                @for event in page.events() {
                    span { i.key.(event.class) {} (event.name) " " (text::seconds(event.at)) }
                }
            }
            div.rows {
                div.axis {
                    @for tick in scale.ticks() {
                        span style=(format!("left:{}", share(scale, tick))) { (mark(tick)) }
                    }
                }
                @for one in all { @if let Some(times) = one.times_ms { (row(one, &times, scale)) } }
                div.marks { @for event in page.events() { (line(event, scale)) } }
            }
            p.reading {
                "ms since the first request. Red: critical path; !: the page shows nothing below \
                 it before it is there. Point at a line, or open it, for more."
                @if more > 0 { " " (more) " more are not drawn." }
            }
        }
    })
}

/// A button and its label. XML wants the former closed, and the latter's text comes from here.
fn choice(number: usize, class: &str, name: &str, count: usize, is_first: bool) -> Markup {
    let id = format!("page-{number}-{class}");
    let checked = if is_first { " checked=\"checked\"" } else { "" };
    PreEscaped(format!(
        "<input type=\"radio\" class=\"of-{class}\" name=\"page-{number}\" id=\"{id}\"{checked}/>\
            <label for=\"{id}\">{name} <small>{count}</small></label>"
    ))
}

fn share(scale: Scale, time: f64) -> String {
    format!("{:.2}%", 100.0 * scale.place(time))
}

fn line(event: Event, scale: Scale) -> Markup {
    html! { i.(event.class) style=(format!("left:{}", share(scale, event.at))) {} }
}

fn row(one: &ResourceSummary, times: &Times, scale: Scale) -> Markup {
    let classes = CHOICES.iter().filter(|(_, _, takes)| takes(one)).map(|(class, ..)| *class);
    let classes = format!("row {}", classes.collect::<Vec<_>>().join(" "));
    let indent = format!("padding-left:{}px", INDENT * one.above.min(INDENTS));
    let mut at = times.started;
    let took = figure::ms(times.end() - times.started);
    html! {
        details class=(classes) {
            summary title=(words(one, times)) {
                span.url style=(indent) {
                    @if one.blocks_rendering { b { "! " } }
                    (one.short_url())
                }
                span.bars {
                    @if let Some(client) = one.client_ms.filter(|client| *client > 0.0) {
                        (part("client", times.started - client, times.started, scale))
                    }
                    @for (class, time) in times.parts() { @if time > 0.0 {
                        @let (from, _) = (at, at += time);
                        (part(class, from, from + time, scale))
                    } }
                }
                span.ms { (took) }
            }
            dl { @for (name, what) in details(one, times) { dt { (name) } dd { (what) } } }
        }
    }
}

fn part(class: &str, from: f64, to: f64, scale: Scale) -> Markup {
    let [from, to] = [from, to].map(|at| 100.0 * scale.place(at));
    html! { i.(class) style=(format!("left:{from:.2}%;width:{:.2}%", to - from)) {} }
}

/// The title of a line, when it is pointed at and in pictures.
pub(super) fn words(one: &ResourceSummary, times: &Times) -> String {
    let details = details(one, times).into_iter();
    details.map(|(name, what)| format!("{name}: {what}")).collect::<Vec<_>>().join("\n")
}

fn details(one: &ResourceSummary, times: &Times) -> Vec<(&'static str, String)> {
    let parts = times.parts().into_iter().filter(|(_, time)| *time > 0.0);
    let parts: Vec<String> =
        parts.map(|(name, time)| format!("{name} {} ms", figure::ms(time))).collect();
    let mut all = vec![
        ("URL", one.url.clone()),
        ("requested", format!("after {} ms", figure::ms(times.started))),
        ("time", parts.join(", ")),
        ("size", format!("{}, minRTT {}", text::bytes(one.response_bytes), one.min_rtt)),
        ("parent", one.parent_is.to_owned()),
    ];
    if let Some(status) = one.status {
        all.push(("status", status.to_string()));
    }
    if one.priority.is_some() {
        let blocks = if one.blocks_rendering { ", blocks rendering" } else { "" };
        all.push(("priority", format!("{}{blocks}", one.priority_letters())));
    }
    all
}
