//! Visitors that come back again and again while something happens.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use headstart_tls::Session;

use crate::edge::{Edge, until};
use crate::site::Site;

/// Number of visitors. Half of them stay for a while, so that there always are visits on their way.
const VISITORS: usize = 4;

/// Visits by which everybody has been at each of three edges, and has nothing any more of before.
const ROUND: usize = 4;

/// Returning clients that visit one edge after another, each with the ticket of its last visit.
pub(crate) struct Load<'a> {
    site: &'a Site,
    edges: Vec<(SocketAddr, Counts)>,
    /// Visits of each that were answered.
    answered: [AtomicUsize; VISITORS],
    over: AtomicBool,
}

#[derive(Default)]
struct Counts {
    full: AtomicUsize,
    failed: AtomicUsize,
}

/// Errors of visits at one edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spoilt {
    /// Full handshakes of visitors who had a ticket.
    pub(crate) full: usize,
    /// Visits that were not answered to the end.
    pub(crate) failed: usize,
}

/// All visits resumed a session and were answered.
pub(crate) const NOTHING: Spoilt = Spoilt { full: 0, failed: 0 };

impl<'a> Load<'a> {
    pub(crate) fn on(site: &'a Site, edges: &[Edge]) -> Self {
        let edges = edges.iter().map(|edge| (edge.address, Counts::default())).collect();
        Self { site, edges, answered: Default::default(), over: AtomicBool::new(false) }
    }

    /// Has visitors come while `meanwhile` happens.
    pub(crate) fn run(&self, meanwhile: impl FnOnce()) {
        thread::scope(|scope| {
            for visitor in 0..VISITORS {
                scope.spawn(move || self.visit(visitor));
            }
            // Also on failure, so that nothing waits for the visitors forever.
            let _over = Over(&self.over);
            meanwhile();
        });
    }

    /// Waits until all visitors have come back.
    pub(crate) fn goes_on(&self) {
        let before = self.answered.each_ref().map(load);
        until("visitors come back", || {
            self.answered.iter().zip(before).all(|(now, before)| load(now) >= before + ROUND)
        });
    }

    /// Returns the errors, by edge.
    pub(crate) fn spoilt(&self) -> Vec<Spoilt> {
        let counts = self.edges.iter().map(|(_, counts)| counts);
        counts
            .map(|counts| Spoilt { full: load(&counts.full), failed: load(&counts.failed) })
            .collect()
    }

    fn visit(&self, visitor: usize) {
        let stays = visitor % 2 == 1;
        let path = if stays { "/late/20000" } else { "/head" };
        let first = self.site.client.visit(self.edges[0].0, "/head", None, false);
        let mut session: Option<Session> = Some(first.unwrap().ok().session());
        let mut turn = visitor;
        while !self.over.load(Ordering::SeqCst) {
            turn += 1;
            let (edge, counts) = &self.edges[turn % self.edges.len()];
            match self.site.client.visit(*edge, path, session.clone(), !stays) {
                Ok(visit) if visit.answer.starts_with("HTTP/1.1 200") && visit.is_whole => {
                    if !visit.resumed() {
                        counts.full.fetch_add(1, Ordering::SeqCst);
                    }
                    session = visit.session.or(session);
                    self.answered[visitor].fetch_add(1, Ordering::SeqCst);
                }
                _ => drop(counts.failed.fetch_add(1, Ordering::SeqCst)),
            }
        }
    }
}

/// Ends the visits when dropped.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

fn load(count: &AtomicUsize) -> usize {
    count.load(Ordering::SeqCst)
}
