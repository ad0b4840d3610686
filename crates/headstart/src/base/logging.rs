//! Logs: text or JSON lines on standard error.

mod options;

use std::io::{self, IsTerminal};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::Directive;

use crate::base::failure::Failure;
pub use options::{LogFormat, LogOptions};

/// Filter of a daemon that was given none.
pub const DAEMON: &str = "info";
/// Filter of other commands that were given none.
pub const COMMAND: &str = "warn";

/// Starts logging for the rest of the process; `default` is the filter if none was given.
///
/// # Errors
/// A filter that does not parse, or a second call.
pub fn start(options: &LogOptions, default: &str) -> Result<(), Failure> {
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter(options.log.as_deref().unwrap_or(default))?)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal());
    let started = match options.log_format {
        LogFormat::Text => builder.try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
    started.map_err(|error| Failure::usage(format!("cannot start logging: {error}")))
}

/// The filter, with the SOCKS library silenced: at debug level it logs its clients' passwords.
fn filter(directives: &str) -> Result<EnvFilter, Failure> {
    let filter = EnvFilter::try_new(directives).map_err(|error| {
        Failure::usage(format!("invalid log filter '{directives}': {error}")).hint(
            "a filter is a level (error, warn, info, debug, trace) or MODULE=LEVEL, several \
                separated by commas",
        )
    })?;
    Ok(filter.add_directive(silence("fast_socks5=off")?))
}

fn silence(directive: &str) -> Result<Directive, Failure> {
    directive
        .parse()
        .map_err(|error| Failure::usage(format!("invalid log filter '{directive}': {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_not_logged_at_any_level() {
        for level in ["trace", "debug", "fast_socks5=trace", "fast_socks5=trace,info"] {
            let text = filter(level).unwrap().to_string();
            assert!(text.contains("fast_socks5=off"), "{text}");
            assert!(!text.contains("fast_socks5=trace"), "{text}");
        }
    }

    #[test]
    fn a_bad_filter_is_explained() {
        let text = filter("headstart=loud").unwrap_err().to_string();
        assert!(text.starts_with("error: invalid log filter 'headstart=loud'"), "{text}");
        assert!(text.contains("\nhint: a filter is a level"), "{text}");
    }
}
