use super::work::HostVisits;
use super::*;

const SMALL: &str = r#"
name = "small"
title = "Small"
about = "A test"
trials = 2
quick_trials = 1
arms = ["tls13", "turbo"]
suites = ["p256"]

[[link]]
name = "near"
rtt = "10ms"
"#;

fn with(more: &str) -> Result<Experiment, Failure> {
    Experiment::parse("small.toml", &format!("{SMALL}{more}"))
}

fn replaced(from: &str, to: &str) -> Result<Experiment, Failure> {
    assert!(SMALL.contains(from));
    Experiment::parse("small.toml", &SMALL.replace(from, to))
}

#[test]
fn missing_keys_have_defaults() {
    let small = with("").unwrap();
    assert_eq!((small.warmup, small.seed, small.response), (2, 1, 1000));
    assert_eq!(small.link[0].client_path(), "delay 5000us");
    assert_eq!(small.slices, 10);
    let late = |rtt| small.late(Duration::from_micros(rtt));
    assert_eq!(
        [late(261), late(6_000), late(50_000)].map(|late| late.as_nanos()),
        [13_050, 300_000, 300_000]
    );
    assert_eq!(small.variants().len(), 1);
    assert!(small.variants()[0].quick);
}

#[test]
fn mistakes_are_named_with_file_key_and_hint() {
    for (wrong, words) in [
        (with("colour = \"red\""), "unknown field `colour`"),
        (with("[[variant]]\nslot = 3"), "unknown field `slot`"),
        (replaced("\"turbo\"]", "\"turbot\"]"), "there is no arm \"turbot\"; there are http"),
        (replaced("\"p256\"", "\"p257\""), "there is no suite \"p257\""),
        (replaced("\"10ms\"", "\"10\""), "'10' is no time; write for example 50ms"),
        (replaced("\"10ms\"", "\"0ms\""), "link.rtt: 0ns is out of range"),
        (replaced("trials = 2", "trials = 0"), "trials: 0 is out of range"),
        (replaced("quick_trials = 1", "quick_trials = 3"), "quick_trials: 3 is out of range"),
        (replaced("\"small\"", "\"Small one\""), "name: 'Small one' is no name"),
        (replaced("[\"p256\"]", "[]"), "arms, suites, [[link]]: one is empty"),
        (with("[[link]]\nname = \"near\"\nrtt = \"1ms\""), "link.name: 'near' is given twice"),
        (with("[[variant]]\nwork = { rate = 5.0, in_flight = 2 }"), "wanted exactly 1 element"),
        (with("[[variant]]\nwork.first_and_later = 1"), "work.first_and_later: 1 is out of range"),
        (with("[[variant]]\nrate = 5.0"), "unknown field `rate`"),
        (with("[[variant]]\nservers = 2"), "variant.servers: nothing chooses"),
        (with("[[variant]]\nbalance = \"source\""), "variant.balance: there is one server"),
        (
            with("[[variant]]\nservers = 2\nbalance = \"haproxy\""),
            "variant.balance: HAProxy stands before one fleet",
        ),
        (with("[[variant]]\nbalance = \"random\""), "unknown variant `random`"),
        (with("[[variant]]\npolicy = \"fast\""), "unknown policy \"fast\""),
        (with("[[variant]]\nlinks = [\"far\"]"), "variant.links: there is no link 'far'"),
        (with("[[variant]]\nwork.rate = nan"), "variant.work.rate: NaN is out of range"),
        (with("[[variant]]\nslots = 3\narms = [\"turbo-agent\"]"), "turbo-agent has no such"),
        (with("[[variant]]\ngrace = 3\narms = [\"turbo-agent\"]"), "turbo-agent has no such"),
        (with("[[variant]]\nfleet = true"), "variant.fleet, takeover: an arm has no such edge"),
        (
            with("[[variant]]\ntakeover = true\narms = [\"turbo-agent\"]"),
            "variant.takeover: there is no load",
        ),
        (replaced("\"10ms\"", "\"10ms\"\nacts = \"sleeps\""), "unknown variant `sleeps`"),
        (
            replaced("quick_trials = 1", "quick_trials = 1\nfull_trials = 1"),
            "full_trials: 1 is out",
        ),
        (with("[[variant]]\nwork.visits.hosts = [1, 1]"), "work.visits: an arm is at one address"),
        (
            with("[[variant]]\nwork.visits.hosts = [0, 0]\narms = [\"tls13\"]"),
            "[0, 0] are no hosts",
        ),
        (with("[[variant]]\nwork.visits.each = 3"), "missing field `hosts`"),
        (
            with("[[variant]]\nwork.beside = { ahead = \"1s\", times = [\"20\"] }"),
            "'20' is no time",
        ),
        (
            with("[[variant]]\nwork.beside = { ahead = \"1s\", times = [] }"),
            "variant.work.beside.times: 0 is out of range",
        ),
        (
            with("[[variant]]\nwork.programs = { shares = { curl = 1 }, hosts = [1] }"),
            "variant.work.programs: tls13 is no arm of programs",
        ),
        (with("[[variant]]\narms = [\"client\"]"), "variant.work.programs: client has none"),
        (with("[[variant]]\nwork.programs.hosts = [1]"), "missing field `shares`"),
        (
            with(
                "[[variant]]\narms = [\"client\"]\n\
                 work.programs = { shares = { netscape = 1 }, hosts = [1] }",
            ),
            "unknown variant `netscape`",
        ),
        (
            with(
                "[[variant]]\narms = [\"client\"]\n\
                 work.programs = { shares = { curl = 1 }, hosts = [] }",
            ),
            "variant.work.programs.hosts: 0 is out of range",
        ),
        (
            with(
                "[[variant]]\narms = [\"client\"]\n\
                 work.programs = { shares = { curl = 0 }, hosts = [1] }",
            ),
            "variant.work.programs: all shares are 0",
        ),
        (
            with(
                "[[variant]]\narms = [\"client-server-turbo-0rtt\"]\nservers = 2\n\
                 balance = \"five-tuple\"\n\
                 work.programs = { shares = { php = 1 }, hosts = [1] }",
            ),
            "variant.balance: client-server-turbo-0rtt needs a balancer that keeps each client",
        ),
        (with("[[variant]]\nwork.privacy = \"shoe-size\""), "unknown variant `shoe-size`"),
        (
            with("[[variant]]\nwork.privacy = \"restart\""),
            "variant.work.privacy: tls13 cannot do that",
        ),
        (
            with("[[variant]]\nwork.privacy = \"nat\"\narms = [\"tfo\"]"),
            "link 'near' has no changed_path",
        ),
        (
            with("[[variant]]\nwork.privacy = \"period\"\narms = [\"tfo\"]"),
            "variant.work.privacy: nobody waits",
        ),
        (
            with("[[variant]]\nwork.privacy = \"virtual-hosts\"\narms = [\"turbo-agent\"]"),
            "variant.work.privacy: turbo-agent cannot do that",
        ),
        (
            with("[[variant]]\ncookie_life = \"30000s\""),
            "variant.cookie_life: 30000s is out of range",
        ),
        (with("[[variant]]\ncookie_life = \"2s\""), "variant.cookie_life: 2s is out of range"),
        (with("[[variant]]\ninitial_window = 0"), "variant.initial_window: 0 is out of range"),
        (with("[[variant]]\ninitial_window = 101"), "variant.initial_window: 101 is out of range"),
        (
            with(
                "[[bar]]\narm = \"*\"\ncomplete_min = 1.0\nexcept = [{ link = \"far\", why = \
                    \"x\" }]",
            ),
            "bar.except.link: 'far' is none of near",
        ),
        (
            with(
                "[[bar]]\narm = \"*\"\ncomplete_min = 1.0\nexcept = [{ link = \"near\", why = \
                    \"\" }]",
            ),
            "bar.except.why: an exception without a reason",
        ),
        (with("[[bar]]\narm = \"turbo\"\ncomplete_less_max = 0.1"), "complete_less_max needs"),
        (with("[[bar]]\narm = \"turbo\"\nfewer_full_min = 0.1"), "fewer_full_min needs"),
        (with("[[bar]]\narm = \"turbo\"\npaired_ratio_max = 1.0"), "paired_ratio_max needs"),
        (with("[[bar]]\narm = \"turbo\""), "bar: 0 conditions, not one"),
        (with("[[bar]]\narm = \"turbo\"\nratio_max = 1.0"), "bar.against: ratio_max needs"),
        (with("[[bar]]\narm = \"quic\"\nrtts_max = 1.0"), "bar.arm: 'quic' is none of tls13"),
        (with("[[bar]]\narm = \"turbo\"\nlink = \"far\"\nrtts_max = 1.0"), "bar.link: 'far'"),
        (with("[[bar]]\narm = \"turbo\"\nrtts_max = inf"), "bar: rtts_max is inf"),
    ] {
        let failure = wrong.expect_err(words);
        let message = failure.message();
        assert!(message.starts_with("small.toml: "), "{message}");
        assert!(message.contains(words), "{words}: {message}");
        assert!(failure.advice().is_some() && failure.is_usage(), "{message}");
    }
}

#[test]
fn a_missing_key_is_named() {
    let failure = replaced("title = \"Small\"\n", "").unwrap_err();
    assert!(failure.message().contains("missing field `title`"), "{failure}");
}

#[test]
fn first_and_later_connections_count_apart() {
    let variant = |name: &str, work| Variant { name: name.into(), work, ..Variant::default() };
    let columns = |variant: Variant| [1, 2, 3].map(|trial| variant.column(trial));
    assert_eq!(columns(variant("x", Work::Connections)), ["x", "x", "x"]);
    assert_eq!(columns(variant("x", Work::FirstAndLater(3))), ["x first", "x later", "x later"]);
    assert_eq!(columns(variant("", Work::FirstAndLater(3))), ["first", "later", "later"]);
}

#[test]
fn visits_to_hosts_count_apart() {
    let visits = |each| Work::Visits(HostVisits { hosts: vec![1, 1], each });
    let some = Variant { work: visits(4), ..Variant::default() };
    assert_eq!(some.columns(), ["visit", "revisit 1", "revisit 2", "revisit 3"]);
    let few = Variant { name: "x".into(), work: visits(2), ..some };
    assert_eq!(few.columns(), ["x visit", "x revisit 1"]);
}

#[test]
fn cases_need_suitable_arms_and_links() {
    let arms = "arms = [\"tls13\", \"turbo\", \"tfo\", \"fop\"]";
    let text = SMALL.replace("arms = [\"tls13\", \"turbo\"]", arms);
    let text = text.replace("rtt = \"10ms\"", "rtt = \"10ms\"\nchanged_path = \"delay 5ms\"");
    for (row, more) in [("nat", ""), ("period", "cookie_life = \"5s\""), ("third-parties", "")] {
        let variant =
            format!("[[variant]]\nwork.privacy = \"{row}\"\narms = [\"tfo\", \"fop\"]\n{more}");
        Experiment::parse("x", &format!("{text}{variant}")).unwrap();
    }
}

#[test]
fn invalid_files_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let missing = Experiment::read(&dir.path().join("none.toml")).unwrap_err();
    assert!(missing.message().contains("none.toml: No such file"), "{missing}");
    let large = dir.path().join("large.toml");
    let length = usize::try_from(FILE_MAX).unwrap() + 1;
    std::fs::write(&large, vec![b'#'; length]).unwrap();
    let large = Experiment::read(&large).unwrap_err();
    assert!(large.message().contains("larger than"), "{large}");
}
