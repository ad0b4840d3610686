//! Loads of a whole page, a trial each.

use std::time::Instant;

use headstart_openers::{Arm, Carrier, PageLoad, Trial};

use super::{Cell, Context, PATIENCE, Timed, no_client};
use crate::lab::process::{Broken, Program};

impl Cell {
    /// Makes one load, after forgetting everything if the variant has that.
    pub(super) fn page(
        &mut self,
        context: Context<'_>,
        round: u32,
        rows: &mut Vec<Timed>,
    ) -> Result<(), Broken> {
        if context.stage.variant.work.page().is_some_and(|page| page.fresh) {
            self.forget(context)?;
        }
        self.trials += 1;
        let (load, from, to) = self.load_page(context)?;
        let row = self.row(context, self.trials, round, trial(&load, self.spec.arm));
        self.page_loads.push(load);
        rows.push(Timed { row, from, to });
        Ok(())
    }

    /// Makes one load, by the client whose turn it is.
    pub(super) fn load_page(
        &mut self,
        context: Context<'_>,
    ) -> Result<(PageLoad, Instant, Instant), Broken> {
        let patience = context.stage.timeout + PATIENCE;
        let client = self.clients.get_mut(self.turn).ok_or_else(no_client)?;
        let from = Instant::now();
        client.program.tell("load")?;
        let line = client.program.line(patience, context.interrupt)?;
        let Ok(load) = serde_json::from_str::<PageLoad>(&line.text) else {
            return Err(client.program.nonsense(&line.text));
        };
        if !load.ok {
            self.servers.iter_mut().try_for_each(Program::check)?;
        }
        Ok((load, from, line.at))
    }
}

/// A load as a row has it: from its begin to the first request, the first byte of a response, and
/// the last of all. What is said of the opening is true of most of its connections.
fn trial(load: &PageLoad, arm: Arm) -> Trial {
    let most = |count: u32| count * 2 > load.connections;
    let first = load.resources.first();
    Trial {
        ok: load.ok,
        opening: if most(load.fast) { arm.opening().carrier } else { Carrier::Tcp },
        resumed: most(load.resumptions),
        early_data: most(load.early),
        ms_to_first_request_byte: first.and_then(|times| times.sent),
        ms_to_first_response_byte: first.and_then(|times| times.first),
        ms_to_last_response_byte: load.full_load_ms,
        bytes: load.bytes,
        reason: String::new(),
        error: load.error.clone(),
    }
}

#[cfg(test)]
mod tests {
    use headstart_openers::PageTimes;

    use super::*;

    #[test]
    fn a_row_describes_the_majority_of_connections() {
        let times = PageTimes {
            sent: Some(1.0),
            first: Some(2.0),
            last: Some(3.0),
            ..PageTimes::default()
        };
        let load = PageLoad {
            ok: true,
            connections: 4,
            fast: 3,
            early: 2,
            full_load_ms: Some(9.0),
            resources: vec![times],
            ..PageLoad::default()
        };
        let row = trial(&load, Arm::TURBO_EARLY_DATA);
        assert_eq!((row.opening, row.early_data, row.resumed), (Carrier::TurboTls, false, false));
        assert_eq!(
            (row.ms_to_first_request_byte, row.ms_to_last_response_byte),
            (Some(1.0), Some(9.0))
        );
        let slow = PageLoad { fast: 2, ..load };
        assert_eq!(trial(&slow, Arm::HTTP_FAST_OPEN).opening, Carrier::Tcp);
    }
}
