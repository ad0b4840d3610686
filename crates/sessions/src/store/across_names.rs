//! Tickets valid for every name of a certificate (draft-ietf-tls-cross-sni-resumption).

use std::time::Instant;

use crate::names::CertificateNames;
use crate::not_kept::NotKept;
use crate::origin::{Key, Origin, Server};
use crate::policy::Sharing;
use crate::store::SessionStore;
use crate::ticket::{Taken, Ticket};

impl SessionStore {
    /// Keeps a ticket that servers for all `names` of a certificate take. The first stays with the
    /// host of `origin`, where it allows early data; further ones serve all names, if the policy is
    /// [`ShareCertificate`](crate::Sharing::ShareCertificate).
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn put_across_names(
        &mut self,
        origin: &Origin<'_>,
        names: &CertificateNames,
        ticket: Ticket,
        now: Instant,
    ) -> Result<(), NotKept> {
        let across = across(origin, names);
        let shares = self.policies.get(origin.context).sharing.allows(across.server);
        if shares && self.alive_at(origin, now) > 0 {
            self.put(&across, ticket, now)
        } else {
            self.put(origin, ticket, now)
        }
    }

    /// Takes a ticket as [`take`](Self::take) does, or else one for all names of a certificate that
    /// is for the host of `origin`, if the policy shares those.
    ///
    /// A server that resumes a session shows no certificate. So the caller has to verify the
    /// session's certificate again, for this host, before offering it.
    pub fn take_across_names(&mut self, origin: &Origin<'_>, now: Instant) -> Option<Taken> {
        let names =
            (self.alive_at(origin, now) == 0).then(|| self.certificate(origin, now)).flatten();
        match &names {
            Some(names) => self.take(&across(origin, names), now),
            None => self.take(origin, now),
        }
    }

    /// Returns the number of tickets for all names of a certificate that a connection of `origin`
    /// could take.
    pub(super) fn alive_across_names(&self, origin: &Origin<'_>, now: Instant) -> usize {
        let names = self.certificate(origin, now);
        names.map_or(0, |names| self.alive_at(&across(origin, &names), now))
    }

    fn alive_at(&self, origin: &Origin<'_>, now: Instant) -> usize {
        Key::from_origin(origin).map_or(0, |key| self.alive(&key, now))
    }

    /// Returns the names of a certificate that is for the host of `origin` and has tickets of the
    /// same context, protocols and settings.
    pub(super) fn certificate(
        &self,
        origin: &Origin<'_>,
        now: Instant,
    ) -> Option<CertificateNames> {
        let Server::Name(host) = origin.server else { return None };
        let shares = self.policies.get(origin.context).sharing == Sharing::ShareCertificate;
        let key = Key::from_origin(origin).ok().filter(|_| shares)?;
        // If several match, pick the same one every time, not the first of a hash table.
        self.pools
            .iter()
            .filter_map(|(other, pool)| Some((Key::names_beside(other, &key)?, pool)))
            .filter(|(names, pool)| names.covers(host) && pool.alive(now).next().is_some())
            .map(|(names, _)| names)
            .min()
            .cloned()
    }
}

/// Returns the origin of tickets for all `names` of a certificate.
const fn across<'a>(origin: &Origin<'a>, names: &'a CertificateNames) -> Origin<'a> {
    Origin { server: Server::Certificate(names), ..*origin }
}
