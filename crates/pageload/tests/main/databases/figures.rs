//! Hits and false positives, against sums by hand.

use std::time::Duration;

use headstart_pageload::db::{Facts, Figures, Horizon, Recordings, Rules, Tally};
use headstart_pageload::hits::{LoadShares, RequestLog, Shares};
use headstart_pageload::page::{Page, Protocol};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::pages::{Asked, DAY, asked, daily, day, page, page_behind, rules, with_redirect_to};

const DOCUMENT: &str = "https://www.a.test/";

/// `a` every day, `b` on days 0 to 2, `c` on day 3.
fn four_days() -> Vec<Page> {
    [("b", 10), ("b", 10), ("b", 10), ("c", 1)]
        .map(|(name, bytes)| {
            page(&[
                Asked { bytes: 0, ..asked(DOCUMENT) },
                Asked { bytes: 100, ..asked("https://a.test/a") },
                Asked { bytes, ..asked(&format!("https://a.test/{name}")) },
            ])
        })
        .into()
}

fn after(recordings: &Recordings, days: u64) -> Figures {
    recordings.figures(&rules(1), Horizon::After(Duration::from_secs(days * DAY)))
}

#[test]
fn figures_of_a_day_and_of_two() {
    let recordings = daily(&four_days());
    // Days 1 and 2: a and b are expected, and come. Day 3: b does not, c does.
    let figures = after(&recordings, 1);
    assert_eq!((figures.loads, figures.known), (3, 3));
    assert_eq!(figures.mean_age, Some(Duration::from_secs(DAY)));
    assert_eq!(figures.prefetch, Tally { used: 5, wrong: 1, missed: 1 });
    assert_eq!(figures.prefetch_bytes, Tally { used: 320, wrong: 10, missed: 1 });
    assert_eq!(figures.server, Tally { used: 6, wrong: 0, missed: 0 });
    assert_eq!(figures.http2, Tally { used: 6, wrong: 0, missed: 0 });
    assert_eq!(figures.prefetch.hits(), Some(5.0 / 6.0));
    assert_eq!(figures.prefetch.false_positives(), Some(1.0 / 6.0));
    // Day 2 knows day 0, day 3 knows days 0 and 1.
    let figures = after(&recordings, 2);
    assert_eq!(figures.loads, 2);
    assert_eq!(figures.mean_age, Some(Duration::from_secs(2 * DAY)));
    assert_eq!(figures.prefetch, Tally { used: 3, wrong: 1, missed: 1 });
}

#[test]
fn figures_without_order() {
    let recordings = daily(&four_days());
    // Without one of days 0 to 2, b is in 2 of 3 loads: not enough, and missed. Without day 3, it
    // is expected in vain.
    let figures = recordings.figures(&rules(1), Horizon::LeaveOneOut);
    assert_eq!((figures.loads, figures.known, figures.mean_age), (4, 4, None));
    assert_eq!(figures.prefetch, Tally { used: 4, wrong: 1, missed: 4 });
    let figures = recordings.figures(&rules(4), Horizon::LeaveOneOut);
    assert_eq!((figures.loads, figures.known), (4, 0));
    assert_eq!(figures.prefetch, Tally::default());
}

#[test]
fn means_of_loads_and_sums_of_all() {
    let mut log = RequestLog::default();
    for page in four_days() {
        log.add(DOCUMENT, &page);
    }
    // Document and a are expected each time, b on day 3: then b is in vain, and c missed.
    let shares = log.leave_one_out(&rules(1));
    let mean = Shares { hits: 2.0 / 3.0, false_positives: 1.0 / 12.0 };
    let pooled = Shares { hits: 8.0 / 12.0, false_positives: 1.0 / 9.0 };
    assert_eq!((shares.loads, shares.known), (4, 4));
    for (ours, expected) in [(shares.mean_of_loads, mean), (shares.pooled, pooled)] {
        let ours = ours.unwrap();
        assert!((ours.hits - expected.hits).abs() < 1e-9, "{ours:?}");
        assert!((ours.false_positives - expected.false_positives).abs() < 1e-9, "{ours:?}");
    }
    // A load of eight requests that nobody expects, alone in its group and then not.
    let mut large = vec![asked(DOCUMENT)];
    let urls: Vec<String> = (0..7).map(|number| format!("https://a.test/{number}")).collect();
    large.extend(urls.iter().map(|url| asked(url)));
    log.add("other", &page(&large));
    assert_eq!(log.leave_one_out(&rules(1)), LoadShares { loads: 5, ..shares });
    log.add(DOCUMENT, &page(&large));
    let shares = log.leave_one_out(&Rules { share: 600, ..rules(1) });
    // The large load has one request that is expected, of eight; the others two of three.
    let mean = (4.0 * 2.0 / 3.0 + 1.0 / 8.0) / 5.0;
    assert!((shares.mean_of_loads.unwrap().hits - mean).abs() < 1e-9, "{shares:?}");
    assert!((shares.pooled.unwrap().hits - 9.0 / 20.0).abs() < 1e-9, "{shares:?}");
}

#[test]
fn only_the_newest_count_if_the_rules_say_so() {
    let mut days = four_days();
    days.push(days[3].clone());
    days.push(days[3].clone());
    let only_last = Rules { newest: 1, ..rules(1) };
    let horizon = Horizon::After(Duration::from_secs(DAY));
    // Days 1, 2, 4 and 5 are as the day before; on day 3 b is expected, and c comes.
    let figures = daily(&days).figures(&only_last, horizon);
    assert_eq!(figures.prefetch, Tally { used: 9, wrong: 1, missed: 1 });
}

#[test]
fn old_recordings_say_nothing_of_a_shorter_age() {
    let mut recordings = Recordings::new();
    let of = &four_days()[0];
    for number in [0, 1, 9] {
        recordings.add(of, day(number), &Facts::all_get()).unwrap();
    }
    // Day 9 knows nothing newer than day 1, which is eight days.
    assert_eq!(after(&recordings, 1).loads, 1);
    assert_eq!(after(&recordings, 7).loads, 1);
    assert_eq!(after(&recordings, 7).mean_age, Some(Duration::from_secs(8 * DAY)));
}

#[test]
fn redirects_that_lead_elsewhere_are_wrong_and_missed() {
    // By their documents they are two pages: that which leads elsewhere counts where it leads.
    let same = daily(&vec![page_behind(1, &["https://a.test/", DOCUMENT].map(asked)); 3]);
    assert_eq!(after(&same, 1).redirect, Tally { used: 2, wrong: 0, missed: 0 });
    let [one, two] = ["https://a.test/1", "https://a.test/2"];
    let moved = daily(&[one, one, two, one].map(with_redirect_to));
    // Day 1: as expected. Day 2: elsewhere. Day 3: one of three said otherwise, nothing is
    // expected.
    assert_eq!(after(&moved, 1).redirect, Tally { used: 1, wrong: 1, missed: 2 });
    let ended = [with_redirect_to(one), page(&[DOCUMENT, "https://a.test/old"].map(asked))];
    assert_eq!(after(&daily(&ended), 1).redirect, Tally { used: 0, wrong: 1, missed: 0 });
}

#[test]
fn connections_are_counted_one_by_one() {
    let recordings = daily(&[3, 5, 1, 0].map(|count: u32| {
        let mut requests = vec![Asked { connection: Some(0), ..asked(DOCUMENT) }];
        requests.extend((0..count).map(|connection| Asked {
            connection: Some(connection),
            protocol: Protocol::Http1,
            ..asked(&format!("https://cdn.test/{connection}"))
        }));
        page(&requests)
    }));
    // Expected of the cdn: 3, 3, 1, 1; came: -, 5, 1, 0. And one to the page itself each day.
    let figures = after(&recordings, 1);
    assert_eq!(figures.connections, Tally { used: 3 + 3 + 1, wrong: 2 + 1, missed: 2 });
    assert_eq!(figures.server, Tally { used: 3 + 2, wrong: 1, missed: 0 });
    // The cdn spoke no HTTP/2, and none was expected.
    assert_eq!(figures.http2, Tally { used: 3, wrong: 0, missed: 0 });
}

/// Sixty pages of twenty URLs over forty days, of which each is replaced with a probability of 2 %
/// a day: of what was there a days ago, 0.98^a is still.
#[test]
fn older_recordings_predict_changing_pages_less_well() {
    const KEPT: f64 = 0.98;
    let mut random = StdRng::seed_from_u64(7);
    let mut recordings = Recordings::new();
    let mut fresh = 0..;
    for site in 0..60 {
        let document = format!("https://www.site-{site}.test/");
        let mut names: Vec<u32> = fresh.by_ref().take(20).collect();
        for number in 0..40 {
            for name in &mut names {
                if random.random_bool(1.0 - KEPT) {
                    *name = fresh.next().unwrap();
                }
            }
            let urls = names.iter().map(|name| asked(&format!("https://cdn.test/{name}")));
            let page = page(&[asked(&document)].into_iter().chain(urls).collect::<Vec<_>>());
            recordings.add(&page, day(number), &Facts::all_get()).unwrap();
        }
    }
    let last = Rules { newest: 1, ..rules(1) };
    for days in [1, 7, 28] {
        let horizon = Horizon::After(Duration::from_secs(days * DAY));
        let figures = recordings.figures(&last, horizon);
        assert_eq!((figures.loads, figures.known), (60 * (40 - days), 60 * (40 - days)));
        assert_eq!(figures.mean_age, Some(Duration::from_secs(days * DAY)));
        let kept = KEPT.powi(i32::try_from(days).unwrap());
        let (hits, wrong) =
            (figures.prefetch.hits().unwrap(), figures.prefetch.false_positives().unwrap());
        // Six standard deviations of 1,200 URLs, each drawn once.
        assert!(
            (hits - kept).abs() < 0.09 && (wrong - (1.0 - kept)).abs() < 0.09,
            "{days}: {hits} {wrong}"
        );
    }
    // What nine of ten loads have misses what is new.
    let horizon = Horizon::After(Duration::from_secs(DAY));
    let [careful, careless] = [rules(10), last].map(|rules| recordings.figures(&rules, horizon));
    assert!(careful.prefetch.hits() < careless.prefetch.hits());
}
