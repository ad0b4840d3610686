use std::sync::Arc;

use openssl::sha::Sha256;

use crate::server::config::{CookiePolicy, SharedRing, TicketBinding};
use crate::server::hosts::{Host, Hosts};
use crate::server::replay::ReplayFilter;

/// A configuration in use. Connections keep theirs until they end.
pub(crate) struct Serving {
    pub(super) hosts: Hosts,
    pub(super) keyring: Arc<SharedRing>,
    pub(super) early_data_max: u32,
    pub(super) replay: Arc<dyn ReplayFilter>,
    pub(super) cookies: Option<CookiePolicy>,
    pub(super) advert: Option<Arc<[u8]>>,
    pub(super) hands_out_tickets: bool,
    pub(super) ticket_binding: TicketBinding,
    /// Hash of the client-certificate settings in the ticket binding.
    pub(super) client_auth: [u8; 32],
}

impl Serving {
    /// Returns true if other programs, which write none of our data into tickets, have the same
    /// keys.
    pub(super) const fn takes_tickets_of_others(&self) -> bool {
        self.ticket_binding.is_foreign()
    }

    /// Returns the session id context of a connection to `name`, which limits what its sessions can
    /// be resumed for. Stateless and the same on all servers of a site, and unchanged by
    /// certificate renewal.
    pub(super) fn binding(&self, host: &Host, name: Option<&str>) -> Vec<u8> {
        let mut hash = Sha256::new();
        hash.update(b"headstart ticket binding 1\0");
        hash.update(&self.client_auth);
        match self.ticket_binding {
            TicketBinding::Nginx => return host.nginx.to_vec(),
            TicketBinding::Haproxy => return HAPROXY.to_vec(),
            TicketBinding::ServerName => {
                hash.update(b"name\0");
                hash.update(name.unwrap_or_default().as_bytes());
            }
            TicketBinding::Certificate => {
                hash.update(b"certificate\0");
                for name in &host.names {
                    hash.update(name.as_bytes());
                    hash.update(b"\0");
                }
            }
        }
        hash.finish().to_vec()
    }
}

/// Session id context of all HAProxy listeners, `SHCTX_APPNAME` of its ssl_sock-t.h.
const HAPROXY: &[u8] = b"haproxy";
