//! Logs: text or JSON lines on standard error.

mod options;

use std::io::{self, IsTerminal};

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

/// The SOCKS library.
const SOCKS: &str = "fast_socks5";

/// Starts logging for the rest of the process; `default` is the filter if none was given.
///
/// # Errors
/// A filter that does not parse, or a second call.
pub fn start(options: &LogOptions, default: &str) -> Result<(), Failure> {
    let filter = filter(options.log.as_deref().unwrap_or(default))?;
    let lines = fmt::layer().with_writer(io::stderr).with_ansi(io::stderr().is_terminal());
    let lines = match options.log_format {
        LogFormat::Text => lines.boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    let started = registry().with(lines.with_filter(filter)).try_init();
    started.map_err(|error| Failure::usage(format!("cannot start logging: {error}")))
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
    let others: Targets = others.map(|(module, level)| (module.to_owned(), level)).collect();
    let default = filter.default_level().unwrap_or(LevelFilter::OFF);
    Ok(others.with_default(default).with_target(SOCKS, LevelFilter::OFF))
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

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
