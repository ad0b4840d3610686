use headstart_proto::Instant;

/// Translates between the runtime's clock and that of the core, which has none of its own.
///
/// tokio's clock rather than the system's, so that tests can pause it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    epoch: tokio::time::Instant,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self { epoch: tokio::time::Instant::now() }
    }

    pub(crate) fn now(self) -> Instant {
        Instant::from_epoch(self.epoch.elapsed())
    }

    pub(crate) fn to_tokio(self, moment: Instant) -> tokio::time::Instant {
        self.epoch + moment.since_epoch()
    }
}
