//! Over an emulated link: HEADSTART_TEST_NET=1 as well.

use std::time::Duration;

use headstart_peers::site::Site;

use crate::place::{Place, has_browser};
use crate::sites::{is_as_described, read};

#[test]
fn a_site_is_recorded_over_an_emulated_link() {
    if !has_browser() {
        return;
    }
    if std::env::var_os("HEADSTART_TEST_NET").is_none() {
        eprintln!("skipped: HEADSTART_TEST_NET=1 runs it");
        return;
    }
    let place = Place::new();
    place.records(&["news", "--link", "delay 40ms", "--timeout", "120s"]);
    let recording = read(&place.recordings()[0]);
    is_as_described(&recording, &Site::built_in("news").unwrap());
    // What is emulated is seen, and little more: the shortest of several handshakes is not in anyone's way.
    let shortest = recording.round_trips.iter().filter(|time| !time.is_zero()).min().unwrap();
    assert!(*shortest >= Duration::from_millis(80), "{shortest:?}");
    let first = recording.page.resources()[0].measured.unwrap();
    assert!(first.connect >= Duration::from_millis(80) && first.tls >= Duration::from_millis(80));
    assert!(first.wait >= Duration::from_millis(80));
}
