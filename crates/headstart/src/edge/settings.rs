//! Settings of all connections, whether the edge terminates TLS or passes it on.

use std::sync::Arc;
use std::time::Duration;

use headstart_net::RelayLimits;

use super::dial::Dial;
use crate::base::names::NameMap;
use crate::base::value::OriginServer;

/// Settings by which connections are served.
pub(super) struct ConnectionSettings {
    pub(super) origins: Arc<NameMap<OriginServer>>,
    pub(super) dial: Arc<Dial>,
    pub(super) limits: RelayLimits,
    pub(super) hello_timeout: Duration,
    /// True to begin connections to origins with a PROXY header.
    pub(super) proxy_protocol: bool,
}
