//! The figures for the eye.

use std::fmt::Write;
use std::time::Duration;

use headstart_net::Carrier;

use super::figures::{Arm, Figures};
use crate::terminal::{self, Color};

/// Columns where the terminal does not say, and at most: longer bars are no clearer.
const COLUMNS: u16 = 80;
const COLUMNS_MAX: u16 = 100;
/// Columns at least: fewer hold no bar.
const COLUMNS_MIN: u16 = 40;

/// Columns left of a bar, and right of it for its figure.
const LABEL: u16 = 11;
const FIGURE: u16 = 12;

const RESET: &str = "\x1b[0m";

/// A table, bars, and what they mean.
pub(super) fn draw(figures: &Figures) -> String {
    let columns = terminal::columns().and_then(|columns| u16::try_from(columns).ok());
    let columns = columns.unwrap_or(COLUMNS).clamp(COLUMNS_MIN, COLUMNS_MAX);
    text(figures, columns, Color::Auto.is_wanted())
}

fn text(figures: &Figures, columns: u16, colours: bool) -> String {
    let arms = [&figures.plain, &figures.turbo];
    let mut text = heading(figures);
    text.push_str("\n              request leaves after        response begins after\n");
    text.push_str("ms             p50     p90     p99         p50     p90     p99\n");
    for arm in arms {
        row(&mut text, arm);
    }
    text.push('\n');
    let longest = arms.map(|arm| arm.response.p50).into_iter().max().unwrap_or_default();
    for arm in arms {
        bar(&mut text, arm, longest, columns, colours);
    }
    text.push_str(
        "           █ until the request leaves, ░ until the response begins (medians)\n\n",
    );
    text.push_str(&conclusion(figures));
    text
}

fn heading(figures: &Figures) -> String {
    let group = figures.group.as_ref().map(|group| format!(" with {group}")).unwrap_or_default();
    let link = humantime::format_duration(figures.rtt);
    let count = figures.plain.count;
    format!(
        "TLS 1.3{group}, new sessions, over a link with a round trip of {link}, {count} of each\n"
    )
}

fn row(text: &mut String, arm: &Arm) {
    let _ = write!(text, "{:<10}", name(arm));
    for times in [arm.request, arm.response] {
        text.push_str("  ");
        for time in [times.p50, times.p90, times.p99] {
            let _ = write!(text, "{:>8.1}", ms(time));
        }
        text.push_str("  ");
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
}

fn bar(text: &mut String, arm: &Arm, longest: Duration, columns: u16, colours: bool) {
    let width = f64::from(columns.saturating_sub(LABEL + FIGURE).max(10));
    let [solid, whole] = [arm.request.p50, arm.response.p50].map(|time| match longest.is_zero() {
        true => 0,
        false => in_cells(width * time.as_secs_f64() / longest.as_secs_f64()),
    });
    let light = whole.saturating_sub(solid);
    let colour = match (colours, arm.opening) {
        (false, _) => "",
        (true, Carrier::TurboTls | Carrier::Fop) => "\x1b[32m",
        (true, _) => "\x1b[33m",
    };
    let reset = if colours { RESET } else { "" };
    let (solid, light) = ("█".repeat(solid), "░".repeat(light));
    let figure = ms(arm.response.p50);
    let _ = writeln!(text, "{:<10} {colour}{solid}{light}{reset} {figure:.0} ms", name(arm));
}

/// Whole cells of a length that is at most a terminal's width.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn in_cells(length: f64) -> usize {
    length.round().clamp(0.0, f64::from(u16::MAX)) as usize
}

fn conclusion(figures: &Figures) -> String {
    let (plain, turbo) = (figures.plain.request.p50, figures.turbo.request.p50);
    let saved = (plain.as_secs_f64() - turbo.as_secs_f64()) / figures.rtt_seen.as_secs_f64();
    let mut text = format!(
        "From connecting to the first request byte, TurboTLS took {:.1} ms and plain TLS {:.1} ms\n\
         (medians): {:.2} of the time, {:.2} round trips {}.\n",
        ms(turbo),
        ms(plain),
        figures.ratio(),
        saved.abs(),
        if saved >= 0.0 { "fewer" } else { "more" },
    );
    if figures.turbo.fallbacks > 0 {
        let (fallbacks, count) = (figures.turbo.fallbacks, figures.turbo.count);
        let _ =
            writeln!(text, "{fallbacks} of {count} TurboTLS connections fell back to plain TLS.");
    }
    text
}

const fn name(arm: &Arm) -> &'static str {
    match arm.opening {
        Carrier::Tcp => "plain TLS",
        Carrier::Spare => "a spare",
        Carrier::TurboTls => "TurboTLS",
        Carrier::FastOpen | Carrier::Fop => "Fast Open",
        Carrier::Quic => "QUIC",
        Carrier::Proxy { .. } => "a proxy",
    }
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

#[cfg(test)]
mod tests {
    use super::super::figures::{Sample, Samples};
    use super::*;

    const RTT: Duration = Duration::from_millis(100);

    fn sample(request: Duration, turbo: bool) -> Sample {
        Sample { request, response: request + RTT, rtt: RTT, turbo, group: Some("X25519".into()) }
    }

    fn figures() -> Figures {
        let samples =
            Samples { plain: vec![sample(2 * RTT, false)], turbo: vec![sample(RTT, true)] };
        Figures::new(RTT, samples)
    }

    #[test]
    fn bars_are_in_proportion_and_fit() {
        for columns in [40, 80, 100] {
            let text = text(&figures(), columns, false);
            let bars: Vec<_> =
                text.lines().filter(|line| line.contains('░') && line.ends_with(" ms")).collect();
            assert!(bars.iter().all(|bar| bar.chars().count() <= columns.into()), "{text}");
        }
        let text = text(&figures(), 83, false);
        assert!(
            text.contains(&format!("plain TLS  {}{} 300 ms\n", "█".repeat(40), "░".repeat(20))),
            "{text}"
        );
        assert!(
            text.contains(&format!("TurboTLS   {}{} 200 ms\n", "█".repeat(20), "░".repeat(20))),
            "{text}"
        );
    }

    #[test]
    fn the_words_say_what_was_measured() {
        let text = text(&figures(), 80, false);
        assert!(text.starts_with(
            "TLS 1.3 with X25519, new sessions, over a link with a round trip of 100ms, 1 of each\n"
        ));
        assert!(
            text.contains(
                "TurboTLS took 100.0 ms and plain TLS 200.0 ms\n(medians): 0.50 of the time, 1.00 \
            round trips fewer.\n"
            ),
            "{text}"
        );
    }

    #[test]
    fn colours_only_where_they_are_wanted() {
        assert!(!text(&figures(), 80, false).contains('\x1b'));
        assert!(text(&figures(), 80, true).contains("\x1b[32m"));
    }
}
