//! Times, and what is saved of them.

use crate::chart::figure::percent;

/// Formats a time in ms as seconds.
pub(super) fn seconds(ms: f64) -> String {
    format!("{:.3}", ms / 1e3)
}

/// Formats a saved share as the change of a time: with a plus sign it is longer.
pub(super) fn change(saved: f64) -> String {
    // Not -0.0.
    let change = 0.0 - saved;
    if change.abs() < 0.0005 { percent(0.0) } else { format!("{:+.1} %", change * 100.0) }
}

/// Formats a saved time in ms as the change of a time: with a plus sign it is longer.
pub(super) fn less(saved_ms: f64) -> String {
    let change = 0.0 - saved_ms;
    if change.abs() < 0.05 { "0.0".into() } else { format!("{change:+.1}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_have_a_sign_where_there_is_one() {
        let changes = [0.25, 0.0, -0.031, 0.0004].map(change);
        assert_eq!(changes, ["-25.0 %", "0.0 %", "+3.1 %", "0.0 %"]);
        assert_eq!([120.0, 0.0, -5.26, 0.01].map(less), ["-120.0", "0.0", "+5.3", "0.0"]);
    }
}
