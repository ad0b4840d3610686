//! Audit log: lines that tell who used what. Never a secret, never a byte of a stream.

use headstart_net::Context;
use headstart_tls::EarlyData;

use super::answer::Refusal;
use super::open::Opened;
use super::request::Ask;

/// Target by which the lines are filtered, on any level of the rest.
macro_rules! audit {
    ($($event:tt)*) => { tracing::info!(target: "headstart::audit", $($event)*) };
}

/// A connection was opened, or not.
pub(super) fn connection(ask: &Ask, context: &Context, opened: &Result<Opened, Refusal>) {
    let (uid, label) = (context.uid, context.label.as_deref());
    let (host, port) = (ask.host.to_string(), ask.port);
    let server = ask.tls.as_ref().map_or_else(|| host.clone(), |tls| tls.server.to_string());
    let certificate = ask.tls.as_ref().and_then(|tls| tls.certificate.as_deref());
    match opened {
        Ok(Opened::Managed(_, outcome)) => {
            let resumed = outcome.facts.resumed;
            let opening = outcome.opened_by().name();
            let early_data = early_data(outcome.early_data);
            audit!(
                uid,
                context = label,
                server,
                host,
                port,
                resumed,
                opening,
                early_data,
                certificate,
                error = "-",
                "managed connection"
            );
        }
        Ok(Opened::Bare(_)) => {
            audit!(uid, context = label, host, port, error = "-", "connection");
        }
        Err(refusal) => {
            audit!(
                uid,
                context = label,
                server,
                host,
                port,
                certificate,
                error = refusal.name,
                "connection refused"
            );
        }
    }
}

/// Something about a context was changed, such as its policy.
pub(super) fn changed(uid: Option<u32>, label: Option<&str>, what: &str) {
    audit!(uid, context = label, what, "sessions changed");
}

/// Sessions were forgotten, by `uid`: of the users that `whose` says.
pub(super) fn forgotten(uid: Option<u32>, whose: &str, server: Option<&str>, count: usize) {
    audit!(uid, whose, server, count, "sessions forgotten");
}

/// A program that speaks TLS itself was given a session, or has left one.
pub(super) fn ticket(context: &Context, server: &str, what: &str) {
    let (uid, label) = (context.uid, context.label.as_deref());
    audit!(uid, context = label, server, what, "session of a program");
}

/// Words for programs and logs.
pub(super) const fn early_data(early_data: EarlyData) -> &'static str {
    match early_data {
        EarlyData::None => "none",
        EarlyData::Refused => "refused",
        EarlyData::Accepted => "accepted",
    }
}
