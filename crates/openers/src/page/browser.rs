use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rand::RngExt;
use rand::rngs::StdRng;

use super::host_client::{Channel, HostClients, Opened};
use super::plan::PagePlan;
use crate::content::Recorded;

/// State that all connections of all loads need.
pub(super) struct Browser {
    pub(super) plan: PagePlan,
    /// Triggers of each resource, those of fewest bytes first.
    pub(super) triggers: Vec<Vec<Trigger>>,
    pub(super) clients: HostClients,
    pub(super) timeout: Duration,
    pub(super) random: Mutex<StdRng>,
}

/// A resource that is requested when a number of bytes of another are there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trigger {
    pub(super) bytes: u64,
    pub(super) id: usize,
    pub(super) then: Duration,
}

pub(super) fn triggers(plan: &PagePlan) -> Vec<Vec<Trigger>> {
    let mut triggers = vec![Vec::new(); plan.resources.len()];
    for (id, resource) in plan.resources.iter().enumerate() {
        for dependency in &resource.dependencies {
            let then = Duration::from_micros(dependency.then_us);
            // Nothing is there before the first byte.
            let bytes = dependency.bytes.max(1);
            if let Some(own) = triggers.get_mut(dependency.on) {
                own.push(Trigger { bytes, id, then });
            }
        }
    }
    triggers.iter_mut().for_each(|own| own.sort_by_key(|trigger| trigger.bytes));
    triggers
}

impl Browser {
    pub(super) fn request(&self, id: usize) -> Vec<u8> {
        let resource = self.plan.resources.get(id);
        let host = resource.and_then(|resource| self.plan.pools.get(resource.pool));
        let name = host.and_then(|host| self.plan.hosts.get(*host)).map(|host| host.name.as_str());
        resource.map(|resource| resource.request(name.unwrap_or_default())).unwrap_or_default()
    }

    /// Returns the recorded answer to a resource.
    pub(super) fn recorded(&self, id: usize) -> Recorded {
        let nothing = Recorded { bytes: 0, wait: Duration::ZERO, redirect: false };
        self.plan.resources.get(id).map_or(nothing, |resource| resource.recorded())
    }

    /// A connection to a host, at any of its addresses.
    pub(super) async fn open(&self, host: usize, first: Option<&[u8]>) -> Result<Opened, String> {
        let plan = self.plan.hosts.get(host).ok_or_else(|| format!("there is no host {host}"))?;
        let to = match plan.addresses[..] {
            [] => return Err(format!("{} has no address", plan.name)),
            [only] => only,
            [first, ..] => {
                let mut random = self.random.lock().unwrap_or_else(PoisonError::into_inner);
                let any = random.random_range(0..plan.addresses.len());
                plan.addresses.get(any).copied().unwrap_or(first)
            }
        };
        let opened = self.clients.open((host, &plan.name), to, first).await;
        opened.map_err(|error| format!("{}: {error}", plan.name))
    }

    pub(super) fn keep(&self, host: usize, channel: &mut Channel) {
        self.clients.keep(host, channel);
    }
}
