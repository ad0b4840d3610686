//! Tickets that rustls gets, below QUIC and with Encrypted ClientHello.

use std::sync::Arc;

use rustls::NamedGroup;
use rustls::client::{ClientSessionStore, Tls12ClientSessionValue, Tls13ClientSessionValue};
use rustls::pki_types::ServerName;
use tokio::sync::Notify;

use crate::kept::Kept;

/// The tickets as one connection sees them, which is notified when some have come.
#[derive(Debug)]
pub(crate) struct Arrived {
    tickets: Arc<Kept<Tls13ClientSessionValue>>,
    notify: Notify,
}

impl Arrived {
    pub(crate) fn new(tickets: Arc<Kept<Tls13ClientSessionValue>>) -> Self {
        Self { tickets, notify: Notify::new() }
    }

    /// Waits until some have come.
    pub(crate) async fn some(&self) {
        self.notify.notified().await;
    }
}

impl ClientSessionStore for Arrived {
    fn set_kx_hint(&self, _: ServerName<'static>, _: NamedGroup) {}

    /// There is only one group.
    fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
        None
    }

    fn set_tls12_session(&self, _: ServerName<'static>, _: Tls12ClientSessionValue) {}

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        None
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {}

    fn insert_tls13_ticket(&self, _: ServerName<'static>, value: Tls13ClientSessionValue) {
        self.tickets.put(value);
        self.notify.notify_one();
    }

    fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.tickets.take()
    }
}
