use std::collections::{HashMap, VecDeque};

use crate::ip::Flow;

/// Flows a box remembers at most; the oldest gives way.
///
/// As many as an ordinary home router's; ten seconds of 3,000 new connections each.
pub(super) const MAX_FLOWS: usize = 32_768;

/// Memory of a box about each flow, for a bounded number of flows.
#[derive(Debug)]
pub(crate) struct FlowTable<V> {
    flows: HashMap<Flow, V>,
    /// The same flows, oldest first.
    order: VecDeque<Flow>,
}

impl<V> Default for FlowTable<V> {
    fn default() -> FlowTable<V> {
        FlowTable { flows: HashMap::new(), order: VecDeque::new() }
    }
}

impl<V> FlowTable<V> {
    pub(crate) fn get_mut(&mut self, flow: &Flow) -> Option<&mut V> {
        self.flows.get_mut(flow)
    }

    /// Remembers a flow, or something else of it; returns what had to be forgotten.
    pub(crate) fn insert(&mut self, flow: Flow, value: V) -> Option<V> {
        if self.flows.insert(flow, value).is_some() {
            return None;
        }
        self.order.push_back(flow);
        let oldest = self.order.pop_front_if(|_| self.flows.len() > MAX_FLOWS)?;
        self.flows.remove(&oldest)
    }

    pub(crate) fn clear(&mut self) {
        self.flows.clear();
        self.order.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Protocol;

    fn flow(number: usize) -> Flow {
        let [.., high, low] = number.to_be_bytes();
        Flow {
            protocol: Protocol::Udp,
            source: ([10, 0, high, low], 1).into(),
            destination: ([10, 1, 0, 1], 443).into(),
        }
    }

    #[test]
    fn the_oldest_gives_way_at_the_limit_and_not_before() {
        let mut table = FlowTable::default();
        for number in 0..MAX_FLOWS {
            assert_eq!(table.insert(flow(number), number), None);
        }
        assert_eq!(table.insert(flow(0), 7), None);
        assert_eq!(table.insert(flow(MAX_FLOWS), 0), Some(7));
        assert!(table.get_mut(&flow(0)).is_none() && table.get_mut(&flow(1)).is_some());
    }
}
