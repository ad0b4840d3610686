//! Charts and the frame of HTML reports: no script, nothing loaded from elsewhere, well-formed XML.

pub(crate) mod figure;
pub(crate) mod plot;
pub(crate) mod scale;

use maud::{Markup, html};

/// Style sheet of all reports: colours, tables and plots.
pub(crate) const STYLE: &str = include_str!("chart/report.css");

/// Head of a document, up to its title, in the syntax that XML and HTML share.
pub(crate) const HEAD: &str = "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/>\
    <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\
    <meta name=\"color-scheme\" content=\"light dark\"/>";

/// Returns the heads of columns of figures.
pub(crate) fn heads(names: &[&str]) -> Markup {
    html! { @for name in names { th.n { (name) } } }
}

/// Returns a headline figure with its caption.
pub(crate) fn tile(figure: &str, caption: &str) -> Markup {
    html! { div { b { (figure) } span { (caption) } } }
}
