//! Logs: text or JSON lines on standard error.

mod options;

use std::io::{self, IsTerminal};

use tracing::Level;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{fmt, registry};

use crate::base::failure::Failure;
pub use options::{LogFormat, LogOptions};

/// Filter of a daemon that was given none.
pub const DAEMON: &str = "info";
/// Filter of other commands that were given none.
pub const COMMAND: &str = "warn";

/// Libraries that log each frame of HTTP/2 and each step of a lookup at debug level.
const CHATTY: [&str; 4] = ["h2", "hyper", "hyper_util", "hickory"];

/// The SOCKS library.
const SOCKS: &str = "fast_socks5";

/// Target of the access log: a line for each request and connection, at info level.
pub(crate) const ACCESS: &str = "headstart::access";

/// Returns a time in milliseconds, with as many digits as a log needs.
pub(crate) fn millis(time: std::time::Duration) -> f64 {
    (time.as_secs_f64() * 1e4).round() / 10.0
}

/// Starts logging for the rest of the process; `default` is the filter if none was given.
///
/// # Errors
/// A filter that does not parse, or a second call.
pub fn start(options: &LogOptions, default: &str) -> Result<(), Failure> {
    start_with(options, default, false)
}

/// As [`start`], with the access log if that is wanted; with debug lines it comes anyhow.
///
/// # Errors
/// As [`start`].
pub(crate) fn start_with(options: &LogOptions, default: &str, access: bool) -> Result<(), Failure> {
    let filter = filter(options.log.as_deref().unwrap_or(default))?;
    let level = access_level(&filter, access);
    let filter = filter.with_target(ACCESS, level);
    let lines = fmt::layer().with_writer(io::stderr).with_ansi(io::stderr().is_terminal());
    let lines = match options.log_format {
        LogFormat::Text => lines.boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    let started = registry().with(lines.with_filter(filter)).try_init();
    started.map_err(|error| Failure::usage(format!("cannot start logging: {error}")))
}

fn access_level(filter: &Targets, access: bool) -> LevelFilter {
    let is_debug = filter.would_enable(ACCESS, &Level::DEBUG);
    if access || is_debug { LevelFilter::INFO } else { LevelFilter::OFF }
}

/// Checks the filter, and starts nothing.
///
/// # Errors
/// A filter that does not parse.
pub fn check(options: &LogOptions) -> Result<(), Failure> {
    filter(options.log.as_deref().unwrap_or(DAEMON)).map(drop)
}

/// Reads the filter, and silences the SOCKS library: at debug level it logs its clients' passwords.
fn filter(directives: &str) -> Result<Targets, Failure> {
    // Targets take a space for a part of a module's name, and nothing for a level.
    let parts = directives.split(',').map(str::trim).filter(|part| !part.is_empty());
    let parts = parts.collect::<Vec<_>>().join(",");
    let parsed = match parts.contains(['[', ' ']) {
        true => Err("it may name levels and modules alone".to_owned()),
        false => parts.parse::<Targets>().map_err(|error| error.to_string()),
    };
    let filter = parsed.map_err(|error| {
        Failure::usage(format!("invalid log filter '{directives}': {error}")).hint(
            "a filter is a level (error, warn, info, debug, trace) or MODULE=LEVEL, several \
                separated by commas",
        )
    })?;
    let others = filter.iter().filter(|(module, _)| !module.starts_with(SOCKS));
    let default = filter.default_level().unwrap_or(LevelFilter::OFF);
    let is_debug = default == LevelFilter::DEBUG;
    let chatty = CHATTY.iter().filter(|_| is_debug).map(|library| (*library, LevelFilter::INFO));
    let others: Targets =
        chatty.chain(others).map(|(module, level)| (module.to_owned(), level)).collect();
    Ok(others.with_default(default).with_target(SOCKS, LevelFilter::OFF))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_access_log_comes_if_asked_for_or_with_debug_lines() {
        for (directives, access, level) in [
            ("info", false, LevelFilter::OFF),
            ("off", true, LevelFilter::INFO),
            ("debug", false, LevelFilter::INFO),
            ("warn,headstart=debug", false, LevelFilter::INFO),
        ] {
            assert_eq!(access_level(&filter(directives).unwrap(), access), level, "{directives}");
        }
    }

    #[test]
    fn passwords_are_not_logged_at_any_level() {
        for level in ["trace", "debug", "fast_socks5=trace", "fast_socks5::server=trace,info"] {
            let filter = filter(level).unwrap();
            for module in ["fast_socks5", "fast_socks5::server"] {
                assert!(!filter.would_enable(module, &Level::ERROR), "{level}");
            }
            assert_eq!(filter.would_enable("headstart", &Level::INFO), !level.ends_with("=trace"));
        }
    }

    #[test]
    fn debug_lines_of_libraries_come_if_named_or_at_trace() {
        for (directives, shown) in
            [("debug", false), ("debug,h2=debug", true), ("trace", true), ("h2=debug", true)]
        {
            let filter = filter(directives).unwrap();
            assert_eq!(filter.would_enable("h2::codec", &Level::DEBUG), shown, "{directives}");
        }
        assert!(filter("debug").unwrap().would_enable("hyper", &Level::INFO));
        assert!(!filter("warn").unwrap().would_enable("h2", &Level::INFO));
    }

    #[test]
    fn spaces_and_a_comma_too_many_change_nothing() {
        for directives in ["info,headstart::edge=debug", " info , headstart::edge=debug,,"] {
            let filter = filter(directives).unwrap();
            assert!(filter.would_enable("headstart", &Level::INFO), "{directives}");
            assert!(!filter.would_enable("headstart", &Level::DEBUG), "{directives}");
            assert!(filter.would_enable("headstart::edge", &Level::DEBUG), "{directives}");
        }
        assert!(!filter("off").unwrap().would_enable("headstart", &Level::ERROR));
        assert!(filter("").unwrap().would_enable("headstart", &Level::ERROR));
    }

    /// A filter that would match nothing leaves an operator without any line.
    #[test]
    fn a_bad_filter_is_explained() {
        for bad in ["headstart=loud", "headstart[span]=debug", "headstart[{field}]=debug", "a b"] {
            let text = filter(bad).unwrap_err().to_string();
            assert!(text.starts_with(&format!("error: invalid log filter '{bad}': ")), "{text}");
            assert!(text.contains("\nhint: a filter is a level"), "{text}");
        }
    }
}
