use std::net::IpAddr;
use std::time::Duration;

use crate::switch::Port;
use crate::{Balance, Delay, Link};

/// One node to build: its name, addresses and the two links that join it to the network.
#[derive(Debug)]
pub struct Host {
    pub(crate) name: String,
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) shared: Vec<(IpAddr, Balance)>,
    pub(crate) tcp_of: Vec<IpAddr>,
    pub(crate) server_names: Vec<String>,
    pub(crate) public: Vec<IpAddr>,
    pub(crate) initial_window: Option<u8>,
    pub(crate) links: Port,
}

impl Host {
    /// A node with links that pass everything at once.
    ///
    /// Without [`address`](Host::address), node N of a lab (counted from 1) has 10.77.N.1 and
    /// fd77::N:1.
    pub fn new(name: impl Into<String>) -> Host {
        Host {
            name: name.into(),
            addresses: Vec::new(),
            shared: Vec::new(),
            tcp_of: Vec::new(),
            server_names: Vec::new(),
            public: Vec::new(),
            initial_window: None,
            links: Port::default(),
        }
    }

    /// Adds an address; there may be several.
    #[must_use]
    pub fn address(mut self, address: impl Into<IpAddr>) -> Host {
        self.addresses.push(address.into());
        self
    }

    /// Adds an address that other nodes have as well, behind a balancer: all of them must name the
    /// same [`Balance`].
    ///
    /// The node has an address of its own besides.
    #[must_use]
    pub fn shared_address(mut self, address: impl Into<IpAddr>, balance: Balance) -> Host {
        self.shared.push((address.into(), balance));
        self
    }

    /// Adds an address that other nodes share, of whose packets this node gets all of TCP: a proxy
    /// that stands before them.
    #[must_use]
    pub fn tcp_of(mut self, address: impl Into<IpAddr>) -> Host {
        self.tcp_of.push(address.into());
        self
    }

    /// Adds a server name whose connections a balancer brings to this node, if it goes by server
    /// names ([`Balance::NameElseFlow`]); names in lower case.
    #[must_use]
    pub fn server_name(mut self, name: impl Into<String>) -> Host {
        self.server_names.push(name.into());
        self
    }

    /// Adds an address that the node does not have but a box on its path shows to others;
    /// [`path`](Host::path) does it for the boxes in it.
    #[must_use]
    pub fn public(mut self, address: impl Into<IpAddr>) -> Host {
        self.public.push(address.into());
        self
    }

    /// Sets the initial congestion window of the node's TCP connections, in segments; without it,
    /// they have the kernel's (10 since Linux 2.6.39, 3 before).
    #[must_use]
    pub fn initial_window(mut self, segments: u8) -> Host {
        self.initial_window = Some(segments);
        self
    }

    /// Both links at once, and what boxes on them need.
    #[must_use]
    pub fn path(mut self, path: crate::Path) -> Host {
        self.public.extend(path.public_addresses());
        self.outbound(path.outbound).inbound(path.inbound)
    }

    /// The link from the node into the network.
    #[must_use]
    pub fn outbound(mut self, link: Link) -> Host {
        self.links.outbound = link;
        self
    }

    /// The link from the network to the node.
    #[must_use]
    pub fn inbound(mut self, link: Link) -> Host {
        self.links.inbound = link;
        self
    }

    /// Links that delay by this much each way, and nothing else; a round trip takes twice as long.
    #[must_use]
    pub fn delay(self, each_way: Duration) -> Host {
        self.outbound(Link::default().with(Delay(each_way)))
            .inbound(Link::default().with(Delay(each_way)))
    }
}
