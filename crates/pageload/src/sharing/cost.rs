//! Cost of a connection: what somebody has measured, since a recording does not tell.

use serde::Serialize;

/// Mean latency of one connection, and its energy where that was measured, by how its handshake
/// began.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CostModel {
    /// Milliseconds of a full handshake.
    pub full_ms: f64,
    /// Milliseconds of a resumed one.
    pub resumed_ms: f64,
    /// Microampere-hours of a full handshake.
    pub full_uah: Option<f64>,
    /// Microampere-hours of a resumed one.
    pub resumed_uah: Option<f64>,
}

impl CostModel {
    /// The model of Hiller et al. 2019, of their phones and networks. The paper prints the means of
    /// whole columns (Table I); these four numbers are what they solve to.
    pub const PAPER: Self =
        Self { full_ms: 906.5, resumed_ms: 567.6, full_uah: Some(55.4), resumed_uah: Some(34.3) };

    /// Returns the mean milliseconds of a connection; 0 if there are none.
    pub fn latency_ms(&self, full: u64, resumed: u64) -> f64 {
        mean(full, self.full_ms, resumed, self.resumed_ms)
    }

    /// Returns the mean microampere-hours of a connection, where measured; 0 if there are none.
    pub fn energy_uah(&self, full: u64, resumed: u64) -> Option<f64> {
        Some(mean(full, self.full_uah?, resumed, self.resumed_uah?))
    }
}

fn mean(full: u64, of_full: f64, resumed: u64, of_resumed: f64) -> f64 {
    let (full, resumed) = (full as f64, resumed as f64);
    let all = full + resumed;
    if all == 0.0 { 0.0 } else { (full * of_full + resumed * of_resumed) / all }
}

/// One column of the paper's Table I.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PaperColumn {
    /// Full handshakes.
    pub full: u64,
    /// Resumptions.
    pub resumed: u64,
    /// Mean energy of a connection, in microampere-hours.
    pub energy_uah: f64,
    /// Mean latency of a connection, in milliseconds.
    pub latency_ms: f64,
}

/// Table I, apps: today, client only, client and server.
pub const PAPER_APPS: [PaperColumn; 3] = [
    PaperColumn { full: 4_021, resumed: 974, energy_uah: 51.29, latency_ms: 840.44 },
    PaperColumn { full: 1_538, resumed: 3_457, energy_uah: 40.80, latency_ms: 671.96 },
    PaperColumn { full: 828, resumed: 4_167, energy_uah: 37.80, latency_ms: 623.79 },
];

/// Table I, web: today, client only, client and server.
pub const PAPER_WEB: [PaperColumn; 3] = [
    PaperColumn { full: 57_719, resumed: 12_935, energy_uah: 51.54, latency_ms: 844.48 },
    PaperColumn { full: 17_029, resumed: 53_625, energy_uah: 39.39, latency_ms: 649.29 },
    PaperColumn { full: 12_539, resumed: 58_115, energy_uah: 38.05, latency_ms: 627.75 },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_gives_the_means_that_the_paper_prints() {
        for column in PAPER_APPS.iter().chain(&PAPER_WEB) {
            let latency = CostModel::PAPER.latency_ms(column.full, column.resumed);
            let energy = CostModel::PAPER.energy_uah(column.full, column.resumed).unwrap();
            // The model's numbers are rounded to 0.1, the paper's to 0.01.
            assert!((latency - column.latency_ms).abs() < 0.06, "{column:?}: {latency}");
            assert!((energy - column.energy_uah).abs() < 0.06, "{column:?}: {energy}");
        }
    }

    #[test]
    fn each_column_has_the_same_connections() {
        for columns in [PAPER_APPS, PAPER_WEB] {
            let totals = columns.map(|column| column.full + column.resumed);
            assert_eq!(totals, [totals[0]; 3]);
        }
    }

    #[test]
    fn no_connection_costs_nothing() {
        assert_eq!(CostModel::PAPER.latency_ms(0, 0), 0.0);
        assert_eq!(CostModel::PAPER.energy_uah(0, 0), Some(0.0));
        assert_eq!(CostModel::PAPER.latency_ms(3, 0), 906.5);
        assert_eq!(CostModel::PAPER.energy_uah(0, 3), Some(34.3));
        let own = CostModel { full_uah: None, ..CostModel::PAPER };
        assert_eq!(own.energy_uah(1, 1), None);
    }
}
