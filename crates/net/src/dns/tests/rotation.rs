//! CNAME records that change from answer to answer, as content networks rotate them.

use super::*;

/// Addresses of a host that is not an edge.
const OTHER4: &str = "192.0.2.66";
const OTHER6: &str = "2001:db8::66";

/// Yields, for the three queries of a name, to which of two hosts each is led; only the first is an
/// edge.
fn rotations() -> impl Iterator<Item = [&'static str; 3]> {
    let hosts = ["cdn-a.example.", "cdn-b.example."];
    (0..8).map(move |n| [hosts[n & 1], hosts[n >> 1 & 1], hosts[n >> 2]])
}

fn rotated(owner: &str, [https, v4, v6]: [&str; 3]) -> Zone {
    Zone::default()
        .edge("cdn-a.example.")
        .host("cdn-a.example.", EDGE4)
        .host("cdn-a.example.", EDGE6)
        .host("cdn-b.example.", OTHER4)
        .host("cdn-b.example.", OTHER6)
        .rotated(owner, RecordType::HTTPS, https)
        .rotated(owner, RecordType::A, v4)
        .rotated(owner, RecordType::AAAA, v6)
}

/// Returns the outcome expected: record and address must belong to the same host, the edge.
fn rotated_outcome(addresses: [&str; 2], offered: bool) -> Outcome {
    let edge = addresses.into_iter().filter(|address| offered && [EDGE4, EDGE6].contains(address));
    let edge: Vec<_> = edge.map(|address| at(address, 443)).collect();
    found(&addresses, (!edge.is_empty()).then_some(("cdn-a.example", &edge)))
}

fn rotated_addresses([_, v4, v6]: [&str; 3]) -> [&'static str; 2] {
    [
        if v6 == "cdn-a.example." { EDGE6 } else { OTHER6 },
        if v4 == "cdn-a.example." { EDGE4 } else { OTHER4 },
    ]
}

#[tokio::test]
async fn a_rotating_cname_brings_no_offer_to_the_other_host() {
    for hosts in rotations() {
        let (_zone, resolver) = rotated("www.example.", hosts).serve().await;
        let offered = hosts[0] == "cdn-a.example.";
        let expected = rotated_outcome(rotated_addresses(hosts), offered);
        assert_eq!(cached_outcome(&resolver, "www.example").await, expected, "{hosts:?}");
        for other in [OTHER4, OTHER6] {
            let advert = resolver.advert_for("www.example", at(other, 443)).await;
            assert_eq!(advert, None, "{hosts:?}");
        }
    }
}

#[tokio::test]
async fn a_rotating_cname_behind_an_alias_brings_no_offer_to_the_other_host() {
    for hosts in rotations() {
        let zone = rotated("far.example.", hosts).https("www.example.", 0, "far.example.", vec![]);
        let (_zone, resolver) = zone.serve().await;
        // Here the offer covers all addresses or none: they become known only with it.
        let offered = hosts == ["cdn-a.example."; 3];
        let expected = rotated_outcome(rotated_addresses(hosts), offered);
        assert_eq!(cached_outcome(&resolver, "www.example").await, expected, "{hosts:?}");
    }
}
