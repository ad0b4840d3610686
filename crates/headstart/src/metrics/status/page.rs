//! The page as HTML, without script.

use std::collections::BTreeMap;
use std::fmt::{self, Write};

use super::super::recent::{KEPT, Record};
use super::escape::Escaped;
use super::timeline::{draw, points};
use super::{Cell, Status, Table, millis};
use crate::metrics::Role;

/// The only style; the policy names its hash.
pub(super) const STYLE: &str = "\
:root{color-scheme:light dark;--fg:#1b1b1b;--bg:#fff;--dim:#5c5c5c;--line:#d4d4d4;--udp:#0a6b45;\
--tcp:#2456c7;--name:#8a5a00}\
@media(prefers-color-scheme:dark){:root{--fg:#e8e8e8;--bg:#161616;--dim:#a5a5a5;--line:#3d3d3d;\
--udp:#4fc890;--tcp:#84acff;--name:#e0b050}}\
body{margin:0 auto;padding:1rem;max-width:60rem;background:var(--bg);color:var(--fg);\
font:1rem/1.4 system-ui,sans-serif}\
h1{font-size:1.3rem;margin:0}h2{font-size:1.1rem;margin:1.6rem 0 .4rem}p{margin:.3rem 0}\
small,.dim{color:var(--dim)}.figure{font-size:2.4rem;font-weight:600;line-height:1.2}\
table{border-collapse:collapse;width:100%}\
th,td{padding:.25rem .6rem .25rem 0;border-bottom:1px solid var(--line);text-align:left;\
vertical-align:top}td{overflow-wrap:anywhere}\
.n{text-align:right;font-variant-numeric:tabular-nums}\
article{border-top:1px solid var(--line);padding:.6rem 0}article p{overflow-wrap:anywhere}\
svg{display:block;width:100%;max-width:34rem}svg text{font-size:10px;fill:var(--dim)}\
svg line{stroke:var(--line)}.end{text-anchor:end}\
.udp{fill:var(--udp)}.tcp{fill:var(--tcp)}.name{fill:var(--name)}\
summary{cursor:pointer;color:var(--dim)}ol{margin:.3rem 0;padding-left:1.6rem}";

/// Returns the page.
pub(super) fn render(status: &Status) -> String {
    let mut html = String::with_capacity(1 << 14);
    // Writing to a string cannot fail.
    let _ = write_page(&mut html, status);
    html
}

fn write_page(html: &mut String, status: &Status) -> fmt::Result {
    let (role, version) = (status.role.label(), env!("CARGO_PKG_VERSION"));
    let up = age(status.now.saturating_sub(status.started));
    write!(
        html,
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
            <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
            <title>headstart {role}</title><style>{STYLE}</style></head><body>\
            <h1>headstart {role}</h1><p class=\"dim\">version {version}, up for {up}, \
            <span id=\"active\">{}</span> connections open now; \
            <a href=\"status.json\">JSON</a></p>",
        status.active
    )?;
    write_helped(html, status)?;
    write_openings(html, status)?;
    write_counts(html, "Reasons for fallback", "reason", &status.fallbacks)?;
    write_counts(html, "Limits reached", "limit", &status.limits)?;
    for table in &status.tables {
        write_table(html, table, status.now)?;
    }
    write_recent(html, status)?;
    html.write_str("</body></html>\n")
}

fn write_helped(html: &mut String, status: &Status) -> fmt::Result {
    html.write_str("<h2>Did it help?</h2>")?;
    let Some(share) = status.share() else {
        return html.write_str("<p id=\"helped\" class=\"dim\">There was no connection yet.</p>");
    };
    write!(
        html,
        "<p><span class=\"figure\" id=\"helped\">{:.0} %</span> of round trips saved</p>\
            <p class=\"dim\">Connections did not wait for <span id=\"saved\">{}</span> of the \
            <span id=\"plain\">{}</span> round trips before their first flight.</p>",
        share * 100.0,
        status.saved,
        status.plain
    )
}

fn write_openings(html: &mut String, status: &Status) -> fmt::Result {
    if status.connections.is_empty() {
        return Ok(());
    }
    // An edge cannot know how long its clients waited.
    let waits = status.role == Role::Agent;
    html.write_str("<h2>Openings</h2><table><tr><th>carrier</th><th class=\"n\">connections</th>")?;
    if waits {
        html.write_str("<th class=\"n\">median wait, recent</th>")?;
    }
    html.write_str("</tr>")?;
    for (opening, count) in &status.connections {
        write!(
            html,
            "<tr><td>{0}</td><td class=\"n\" id=\"opening-{0}\">{count}</td>",
            Escaped(opening)
        )?;
        if waits {
            let wait = status.median_wait(opening);
            let wait =
                wait.map_or_else(|| "–".to_owned(), |wait| format!("{:.1} ms", millis(wait)));
            write!(html, "<td class=\"n\">{wait}</td>")?;
        }
        html.write_str("</tr>")?;
    }
    html.write_str("</table>")
}

fn write_counts(
    html: &mut String,
    title: &str,
    head: &str,
    counts: &BTreeMap<String, u64>,
) -> fmt::Result {
    if counts.is_empty() {
        return Ok(());
    }
    write!(html, "<h2>{title}</h2><table><tr><th>{head}</th><th class=\"n\">times</th></tr>")?;
    for (word, count) in counts {
        write!(html, "<tr><td>{}</td><td class=\"n\">{count}</td></tr>", Escaped(word))?;
    }
    html.write_str("</table>")
}

fn write_table(html: &mut String, table: &Table, now: u64) -> fmt::Result {
    if table.rows.is_empty() {
        return Ok(());
    }
    write!(html, "<h2>{}</h2><table><tr>", table.title)?;
    for column in table.columns {
        write!(html, "<th>{column}</th>")?;
    }
    html.write_str("</tr>")?;
    for row in &table.rows {
        html.write_str("<tr>")?;
        for cell in row {
            match cell {
                Cell::Text(text) => write!(html, "<td>{}</td>", Escaped(text))?,
                Cell::Time(at) => write!(html, "<td>{}</td>", distance(*at, now))?,
            }
        }
        html.write_str("</tr>")?;
    }
    html.write_str("</table>")
}

fn write_recent(html: &mut String, status: &Status) -> fmt::Result {
    write!(html, "<h2>Recent connections</h2><p class=\"dim\">The last {KEPT} that have ended")?;
    html.write_str(if status.names { ".</p>" } else { "; --status-names shows their names.</p>" })?;
    for record in &status.recent {
        write_record(html, record, status)?;
    }
    Ok(())
}

fn write_record(html: &mut String, record: &Record, status: &Status) -> fmt::Result {
    let (ago, lasted) = (age(status.now.saturating_sub(record.ended)), record.lasted.as_secs_f64());
    write!(html, "<article><p><strong>{}</strong>", Escaped(record.opening))?;
    if let Some(name) = &record.name {
        write!(html, " {}", Escaped(name))?;
    }
    write!(html, " <small>{}, {ago} ago, lasted {lasted:.1} s", Escaped(record.result))?;
    if let Some(rtt) = record.rtt {
        write!(html, ", TCP took {:.1} ms", millis(rtt))?;
    }
    if let Some(wait) = record.waited {
        write!(html, ", first flight waited {:.1} ms", millis(wait))?;
    }
    if let Some(reason) = record.not_used {
        write!(html, ", TurboTLS not used: {}", Escaped(reason))?;
    }
    html.write_str("</small></p>")?;
    let points = points(record, status.names);
    if !points.is_empty() {
        html.write_str(&draw(&points))?;
        write!(html, "<details><summary>{} events</summary><ol>", points.len())?;
        for point in &points {
            write!(html, "<li>{:.1} ms: {}</li>", millis(point.at), Escaped(&point.words))?;
        }
        html.write_str("</ol></details>")?;
    }
    html.write_str("</article>")
}

/// Returns a time beside `now` in words.
fn distance(at: i64, now: u64) -> String {
    let now = i64::try_from(now).unwrap_or(i64::MAX);
    if at >= now {
        format!("in {}", age(at.abs_diff(now)))
    } else {
        format!("{} ago", age(at.abs_diff(now)))
    }
}

/// Returns seconds in the largest unit of which there are two.
fn age(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::tests::status;
    use super::*;

    #[test]
    fn strings_of_others_stay_text() {
        let html = render(&status());
        assert!(html.contains("&lt;b&gt;&quot;a&quot;.example&lt;/b&gt;"), "{html}");
        assert!(html.contains("<td>&lt;i&gt;&amp;&#39;x</td>"), "{html}");
        assert!(!html.contains("<b>") && !html.contains("<i>"), "{html}");
    }

    #[test]
    fn figures_stand_on_the_page() {
        let html = render(&status());
        for part in [
            "id=\"helped\">75 %<",
            "id=\"saved\">3<",
            "id=\"plain\">4<",
            "id=\"opening-turbo\">4<",
            "<td>silence</td><td class=\"n\">2<",
            "<td>in 3 days</td>",
            "up for 10 min",
            "10 s ago",
        ] {
            assert!(html.contains(part), "{part} is not in\n{html}");
        }
    }

    #[test]
    fn nothing_is_loaded_and_nothing_runs() {
        let html = render(&status());
        for part in ["<script", "src=", "style=", "onclick=", "@import", "url(", "//"] {
            assert!(!html.contains(part), "{part} is in\n{html}");
        }
    }

    #[test]
    fn a_full_page_is_bounded() {
        let one = Arc::clone(&status().recent[0]);
        let html = render(&Status { recent: vec![one; KEPT], ..status() });
        assert_eq!(html.matches("<article>").count(), KEPT);
    }
}
