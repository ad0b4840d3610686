use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use crate::context::Context;
use crate::limits::{POLICIES, POLICIES_PER_USER, SESSION_LIFE, SESSION_LIFE_MAX};
use crate::origin::Server;

/// Rules for sharing between the connections of a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Policy {
    /// Connections that may use a connection's tickets.
    pub sharing: Sharing,
    /// Time after a full handshake during which its sessions, and those of its resumptions, may be
    /// offered; the server can recognize the client that long. At most [`SESSION_LIFE_MAX`].
    pub lifetime: Duration,
    /// Allows early data, if an application asks for it.
    pub early_data: bool,
}

impl Default for Policy {
    fn default() -> Self {
        Self { sharing: Sharing::Share, lifetime: SESSION_LIFE, early_data: true }
    }
}

impl Policy {
    /// Returns the number of bytes of early data that may be sent to `server` with a session that
    /// allows `max`.
    ///
    /// Returns 0 for the names of a certificate: another host granted the early data.
    pub(crate) const fn early_data_max(&self, server: Server<'_>, max: u32) -> u32 {
        if self.early_data && matches!(server, Server::Name(_)) { max } else { 0 }
    }
}

/// Connections that may use a connection's tickets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Sharing {
    /// Every later connection of the context to the same name.
    #[default]
    Share,
    /// Also connections to other names of the same certificate, without early data.
    ShareCertificate,
    /// No other connection: each is a context of its own, for sessions and everything else kept by
    /// context.
    Isolate,
    /// No other connection, for sessions only: the store neither keeps nor offers any.
    Off,
}

impl Sharing {
    /// Returns true if anything is kept at all.
    pub(crate) const fn keeps(self) -> bool {
        matches!(self, Self::Share | Self::ShareCertificate)
    }

    /// Returns true if tickets of `server` are kept.
    pub(crate) const fn allows(self, server: Server<'_>) -> bool {
        match server {
            Server::Name(_) => self.keeps(),
            Server::Certificate(_) => matches!(self, Self::ShareCertificate),
        }
    }
}

/// Reason why a policy was not set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NotSet {
    /// The context shares nothing anyway.
    Context,
    /// The user, or all users together, have the maximum number. None is evicted, since what it
    /// forbids would be allowed again.
    Full,
}

impl fmt::Display for NotSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Context => "nothing is shared in this context anyway",
            Self::Full => "there are too many policies; delete some first",
        })
    }
}

impl std::error::Error for NotSet {}

/// The policies of all contexts.
#[derive(Debug, Default)]
pub(crate) struct Policies {
    own: HashMap<Context, Policy>,
}

impl Policies {
    /// Returns the context's own policy; else that of its user without a label; else the default.
    pub(crate) fn get(&self, context: &Context) -> Policy {
        self.own
            .get(context)
            .or_else(|| self.own.get(&Context { uid: context.uid, label: None }))
            .copied()
            .unwrap_or_default()
    }

    pub(crate) fn set(&mut self, context: &Context, policy: Policy) -> Result<(), NotSet> {
        if !context.is_shared() {
            return Err(NotSet::Context);
        }
        if !self.own.contains_key(context) && self.is_full(context.uid) {
            return Err(NotSet::Full);
        }
        self.own.insert(context.clone(), bounded(policy));
        Ok(())
    }

    pub(crate) fn remove(&mut self, context: &Context) {
        self.own.remove(context);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Context, Policy)> {
        self.own.iter().map(|(context, policy)| (context, *policy))
    }

    fn is_full(&self, user: Option<u32>) -> bool {
        let of_user = self.own.keys().filter(|context| context.uid == user).count();
        self.own.len() >= POLICIES || of_user >= POLICIES_PER_USER
    }
}

fn bounded(policy: Policy) -> Policy {
    Policy { lifetime: policy.lifetime.min(SESSION_LIFE_MAX), ..policy }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OFF: Policy =
        Policy { sharing: Sharing::Off, lifetime: Duration::ZERO, early_data: false };

    fn labelled(user: u32, label: usize) -> Context {
        Context { label: Some(label.to_string()), ..Context::user(user) }
    }

    #[test]
    fn a_context_without_a_policy_inherits_its_users() {
        let mut policies = Policies::default();
        let own = Policy { early_data: false, ..Policy::default() };
        policies.set(&Context::user(1), OFF).unwrap();
        policies.set(&labelled(1, 1), own).unwrap();
        assert_eq!(policies.get(&Context::user(1)), OFF);
        assert_eq!(policies.get(&labelled(1, 1)), own);
        assert_eq!(policies.get(&labelled(1, 2)), OFF);
        assert_eq!(policies.get(&Context::user(2)), Policy::default());
        policies.remove(&Context::user(1));
        assert_eq!(policies.get(&labelled(1, 2)), Policy::default());
    }

    #[test]
    fn an_unknown_user_has_no_policy() {
        assert_eq!(Policies::default().set(&Context::UNKNOWN, OFF), Err(NotSet::Context));
    }

    #[test]
    fn limits_policies_per_user() {
        let mut policies = Policies::default();
        for label in 0..POLICIES_PER_USER {
            policies.set(&labelled(1, label), OFF).unwrap();
        }
        assert_eq!(policies.set(&Context::user(1), OFF), Err(NotSet::Full));
        assert_eq!(policies.set(&labelled(1, 0), Policy::default()), Ok(()), "it replaces one");
        assert_eq!(policies.set(&Context::user(2), OFF), Ok(()));
        policies.remove(&labelled(1, 0));
        assert_eq!(policies.set(&Context::user(1), OFF), Ok(()));
    }

    #[test]
    fn limits_all_policies() {
        let mut policies = Policies::default();
        for number in 0..POLICIES {
            let user = u32::try_from(number / POLICIES_PER_USER).unwrap();
            policies.set(&labelled(user, number), OFF).unwrap();
        }
        assert_eq!(policies.set(&Context::user(u32::MAX), OFF), Err(NotSet::Full));
    }

    #[test]
    fn limits_lifetimes() {
        let mut policies = Policies::default();
        for lifetime in [SESSION_LIFE_MAX, SESSION_LIFE_MAX + Duration::from_secs(1)] {
            policies.set(&Context::user(1), Policy { lifetime, ..OFF }).unwrap();
            assert_eq!(policies.get(&Context::user(1)).lifetime, SESSION_LIFE_MAX);
        }
    }
}
