//! Computes what several addresses of a host cost Fast Open (Sy et al. 2019, table 6).
//!
//! A page needs connections in levels: those of one level open together, once the level before is
//! connected. A level is a round trip faster only if each of its connections is. RFC 7413 keeps
//! cookies by server address, and misses where a host is met at a new one.

use serde::Deserialize;

#[derive(Deserialize)]
struct Published {
    rtt: f64,
    levels: Vec<i32>,
    row: Vec<Row>,
}

#[derive(Deserialize)]
struct Row {
    place: String,
    missed: f64,
    saved: Vec<f64>,
    mean: f64,
}

/// Returns the probability of saving 0, 1, ... round trips, with the hosts of each level.
fn savings(levels: &[i32], missed: f64) -> Vec<f64> {
    let mut savings = vec![1.0];
    for &hosts in levels {
        let hit = (1.0 - missed).powi(hosts);
        savings.push(0.0);
        for saved in (0..savings.len()).rev() {
            let fewer = if saved == 0 { 0.0 } else { savings[saved - 1] };
            savings[saved] = savings[saved] * (1.0 - hit) + fewer * hit;
        }
    }
    savings
}

/// Within half a percentage point and a millisecond.
#[test]
fn table_6_follows_from_the_share_of_misses() {
    let published = include_str!("../../../../lab/papers/fop-balancing.toml");
    let published: Published = toml::from_str(published).unwrap();
    assert_eq!(published.row.len(), 6);
    for row in &published.row {
        let savings = savings(&published.levels, row.missed);
        for (computed, printed) in savings.iter().zip(&row.saved) {
            assert!((computed - printed).abs() <= 0.005, "{}: {savings:?}", row.place);
        }
        let mean: f64 = (0u32..).zip(&savings).map(|(saved, share)| f64::from(saved) * share).sum();
        assert!((-mean * published.rtt - row.mean).abs() <= 1.0, "{}: {mean}", row.place);
    }
}
