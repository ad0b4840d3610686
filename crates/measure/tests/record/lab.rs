//! Over an emulated link: HEADSTART_TEST_NET=1 as well.

use std::time::Duration;

use headstart_openers::site::Site;
use headstart_testkit::has_net;

use crate::place::{Place, browser};
use crate::sites::{is_as_described, read};

const ROUND_TRIP: Duration = Duration::from_millis(80);

#[test]
fn a_site_is_recorded_over_an_emulated_link() {
    let Some(_turn) = browser() else { return };
    if !has_net() {
        return;
    }
    let place = Place::new();
    place.records(&["news", "--link", "delay 40ms", "--timeout", "120s"]);
    let recording = read(&place.recordings()[0]);
    is_as_described(&recording, &Site::built_in("news").unwrap());
    // What is emulated is seen. Not of each host alone: where the machine is busy, a request may be
    // reported as sent late, or when its connection was nearly there.
    let longest = recording.round_trips.iter().max();
    assert!(longest >= Some(&ROUND_TRIP), "{:?}", recording.round_trips);
    // Nor of the document alone: Chromium may have connected before it asks for it.
    let measured = recording.page.resources().iter().filter_map(|resource| resource.measured);
    let (tls, answer): (Vec<_>, Vec<_>) =
        measured.map(|times| (times.tls, times.send + times.wait)).unzip();
    assert!(tls.iter().max() >= Some(&ROUND_TRIP), "{tls:?}");
    assert!(answer.iter().max() >= Some(&ROUND_TRIP), "{answer:?}");
}
