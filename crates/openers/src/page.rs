//! Whole pages: a client that asks as a browser does, of origins that answer as was recorded.
//!
//! A [`PagePlan`] is what a [`PageClient`] loads: resources, what has to be there before each is
//! asked for, and the pools of connections that they come over. Origins are
//! [`Server`](crate::Server)s of the same arm, which know nothing of the page: how a request is
//! answered stands in its path. So sizes, think times and redirects are the recorded ones, and TCP
//! and TLS are real.
//!
//! # Rules
//! * A resource is requested when all of its dependencies are met: a number of bytes of another
//!   response, or all of it, and the time after that. These are the rules of the simulator
//!   (`headstart-pageload`, `sim/triggers.rs`).
//! * Requests to one pool wait in a queue, first come first served. A connection that is there and
//!   idle takes the first. One more is opened while fewer are being opened than requests wait, up
//!   to the pool's number: browsers' rules, and the simulator's. A request is bound to a connection
//!   when that can take it, but for arms whose request is early data or in the SYN: these need it
//!   at once.
//! * No pipelining. QUIC has one connection for each host and no bound on requests.
//! * Connections are closed when the load is over; sessions, cookies and what is known of paths
//!   stay for the next load, unless they are to be [forgotten](PageClient::forget).
//!
//! # What is measured
//! From the moment when the first resource is needed. `created`, `sent`, `first` and `last` of each
//! resource are as in the simulator: needed, request handed to TLS (early data: when it left),
//! first and last byte handed out by TLS.

mod browser;
mod connection;
mod host_client;
mod load;
mod plan;

pub use load::{PageClient, PageClientOptions, PageLoad, PageTimes};
pub use plan::{CONNECTIONS_MAX, PageDependency, PageHost, PagePlan, PageResource, REQUEST_MAX};
