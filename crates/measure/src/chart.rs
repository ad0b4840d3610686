//! Charts and the frame of HTML reports: no script, nothing loaded from elsewhere, well-formed XML.

pub(crate) mod figure;
pub(crate) mod plot;
pub(crate) mod scale;

use maud::{Markup, PreEscaped, html};

/// Style sheet of all reports: colours, tables and plots.
pub(crate) const STYLE: &str = include_str!("chart/report.css");

/// Head of a document, up to its title, in the syntax that XML and HTML share.
pub(crate) const HEAD: &str = "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/>\
    <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\
    <meta name=\"color-scheme\" content=\"light dark\"/>";

/// Returns a report of `headstart COMMAND`, which was made from `origin`; `style` is beside that of
/// all reports.
pub(crate) fn document(
    title: &str,
    command: &str,
    style: &str,
    content: &Markup,
    origin: &str,
) -> Markup {
    html! {
        (PreEscaped(HEAD))
        title { (title) " – headstart " (command) }
        style { (PreEscaped(STYLE)) (PreEscaped(style)) }
        (PreEscaped("</head>"))
        body { main {
            (content)
            footer { "Made by headstart " (env!("CARGO_PKG_VERSION")) " from " (origin) "." }
        } }
        (PreEscaped("</html>"))
    }
}

/// Returns the heads of columns of figures.
pub(crate) fn heads(names: &[&str]) -> Markup {
    html! { @for name in names { th.n { (name) } } }
}

/// Returns the same rows as [`table`](crate::table::table): the first has the heads, the first
/// column names, the others figures.
pub(crate) fn rows(rows: &[Vec<String>]) -> Markup {
    html! { div.wide { table {
        @if let Some(heads) = rows.first() {
            thead { tr { @for (at, head) in heads.iter().enumerate() { th.n[at > 0] { (head) } } } }
        }
        tbody { @for row in rows.iter().skip(1) {
            tr { @for (at, cell) in row.iter().enumerate() { td.n[at > 0] { (cell) } } }
        } }
    } } }
}

/// Returns a headline figure with its caption.
pub(crate) fn tile(figure: &str, caption: &str) -> Markup {
    html! { div { b { (figure) } span { (caption) } } }
}
