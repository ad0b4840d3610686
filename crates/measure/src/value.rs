//! Values of options.

use std::time::Duration;

/// Longest round trip of an emulated link: three of them fit the time a connection has (30 s), and
/// a calibration's echoes of one the queue of the link.
const RTT_MAX: Duration = Duration::from_secs(5);

/// A round trip to emulate.
pub(crate) fn emulated_rtt(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(rtt) if rtt <= RTT_MAX => Ok(rtt),
        Ok(_) => Err("longer than 5s".into()),
        Err(error) => Err(format!("{error}; write for example 100ms")),
    }
}
