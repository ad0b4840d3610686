//! The rules by which an opening passes its case.

use headstart_proto::wire::REQUEST_PAYLOAD_MAX;
use openssl::ssl::SslVersion;

use super::case::{Case, Exchange, Expected, Servers, Tls};
use super::evidence::Evidence;
use super::tls::Facts;

/// Server bytes that a large flight has over UDP at least: more than two datagrams.
const LARGE_FLIGHT: usize = 2 * 1232;

/// Judges connection `number`, from 0, of a client.
///
/// # Errors
/// The rule that does not hold.
pub(super) fn judge(
    case: &Case,
    number: u8,
    outcome: &Result<Facts, String>,
    evidence: &Evidence,
) -> Result<(), String> {
    if case.expected == Expected::RefusedOnce && outcome.is_err() {
        // The cell counts these.
        let refused = evidence.join.is_some() && !evidence.is_joined();
        return rule(refused, "the connection failed, and no join was refused");
    }
    let facts = outcome.as_ref().map_err(Clone::clone)?;
    opening(case.expected, evidence)?;
    handshake(case, number, facts, evidence)?;
    match case.exchange {
        Exchange::Reset(_) => rule(evidence.resets > 0, "the client got no reset")?,
        _ => rule(evidence.resets == 0, "the connection was reset")?,
    }
    match case.servers {
        Servers::Attacked => rule(evidence.forged > 0, "no forged datagram reached the client"),
        _ => {
            rule(evidence.forged == 0, "datagrams came of a session that the client did not begin")
        }
    }
}

fn opening(expected: Expected, evidence: &Evidence) -> Result<(), String> {
    match expected {
        Expected::Joined => {
            rule(evidence.hello.is_some(), "no ClientHello went over UDP")?;
            rule(evidence.server_bytes > 0, "no server byte came over UDP before TCP connected")?;
            rule(evidence.join.is_some(), "TCP did not begin with a join of the session")?;
            rule(evidence.is_joined(), "the join was not accepted")
        }
        Expected::Attempted => rule(evidence.pieces > 0, "no part of a ClientHello went over UDP"),
        Expected::Plain => {
            rule(!evidence.is_joined(), "a session was joined although UDP is blocked")
        }
        Expected::RefusedOnce => Ok(()),
    }
}

fn handshake(case: &Case, number: u8, facts: &Facts, evidence: &Evidence) -> Result<(), String> {
    let hello = evidence.hello.unwrap_or_default();
    match case.tls {
        Tls::Usual => Ok(()),
        Tls::LargeHello => rule(evidence.pieces > 1, "the ClientHello fits into one datagram")
            .and_then(|()| {
                rule(
                    evidence.hello.is_none_or(|length| length > REQUEST_PAYLOAD_MAX),
                    "the ClientHello is not large",
                )
            }),
        Tls::LargeFlight => rule(
            case.expected != Expected::Joined || evidence.server_bytes > LARGE_FLIGHT,
            "the server's flight did not fill the datagrams",
        ),
        Tls::Tls12 => rule(facts.version == Some(SslVersion::TLS1_2), "it is not TLS 1.2"),
        Tls::HelloRetry => rule(evidence.retry, "no HelloRetryRequest came over UDP"),
        Tls::EarlyData if number == 0 => Ok(()),
        Tls::EarlyData => {
            rule(facts.early_data, "the early data was not accepted")?;
            rule(evidence.client_bytes > hello, "no early data went over UDP")
        }
    }
}

fn rule(holds: bool, otherwise: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(otherwise.into()) }
}

#[cfg(test)]
mod tests {
    use headstart_proto::join::{Answer, Join};
    use headstart_proto::{JoinKey, RouteTag};

    use super::super::case::CASES;
    use super::*;

    const FACTS: Facts = Facts { version: Some(SslVersion::TLS1_3), early_data: true };

    fn case(name: &str) -> &'static Case {
        CASES.iter().find(|case| case.name == name).unwrap()
    }

    fn joined() -> Evidence {
        let key = JoinKey::new([7; 16]);
        let join = Join { key, tag: RouteTag([1; 4]), client_offset: 0, server_offset: 0 };
        Evidence {
            hello: Some(2000),
            pieces: 2,
            client_bytes: 2100,
            server_bytes: 3000,
            retry: true,
            join: Some(join),
            answer: Some(Answer::Accepted(0)),
            ..Evidence::default()
        }
    }

    fn verdict(name: &str, change: impl FnOnce(&mut Evidence, &mut Facts)) -> Result<(), String> {
        let (mut evidence, mut facts) = (joined(), FACTS);
        match name {
            "udp-blocked" => evidence = Evidence::default(),
            "reset" => evidence.resets = 1,
            "spoofed-datagrams" => evidence.forged = 1,
            "tls12" => facts.version = Some(SslVersion::TLS1_2),
            _ => {}
        }
        change(&mut evidence, &mut facts);
        judge(case(name), 1, &Ok(facts), &evidence)
    }

    #[test]
    fn every_case_can_pass() {
        for case in CASES {
            assert_eq!(verdict(case.name, |_, _| {}), Ok(()), "{}", case.name);
        }
    }

    #[test]
    fn every_rule_can_fail() {
        type Change = fn(&mut Evidence, &mut Facts);
        let changes: [(&str, Change, &str); 16] = [
            ("opening", |seen, _| seen.hello = None, "no ClientHello went over UDP"),
            ("opening", |seen, _| seen.server_bytes = 0, "no server byte"),
            ("opening", |seen, _| seen.join = None, "did not begin with a join"),
            ("opening", |seen, _| seen.answer = Some(Answer::Refused), "not accepted"),
            ("opening", |seen, _| seen.resets = 1, "was reset"),
            ("opening", |seen, _| seen.forged = 1, "did not begin"),
            ("request-lost", |seen, _| seen.pieces = 0, "no part"),
            ("udp-blocked", |seen, _| *seen = joined(), "although UDP is blocked"),
            ("large-hello", |seen, _| seen.pieces = 1, "fits into one"),
            ("large-hello", |seen, _| seen.hello = Some(500), "is not large"),
            ("large-flight", |seen, _| seen.server_bytes = 900, "did not fill"),
            ("tls12", |_, facts| facts.version = Some(SslVersion::TLS1_3), "not TLS 1.2"),
            ("hello-retry", |seen, _| seen.retry = false, "no HelloRetryRequest"),
            ("early-data", |_, facts| facts.early_data = false, "not accepted"),
            ("early-data", |seen, _| seen.client_bytes = 2000, "no early data"),
            ("reset", |seen, _| seen.resets = 0, "no reset"),
        ];
        for (name, change, why) in changes {
            let refused = verdict(name, change).unwrap_err();
            assert!(refused.contains(why), "{name}: {refused}");
        }
        let refused = verdict("spoofed-datagrams", |seen, _| seen.forged = 0).unwrap_err();
        assert!(refused.contains("no forged datagram"), "{refused}");
        let broken = Err("bytes with another checksum".to_owned());
        assert_eq!(judge(case("opening"), 0, &broken, &joined()), broken.map(|_: Facts| ()));
    }

    #[test]
    fn a_failure_counts_as_a_refusal_only_with_a_refused_join() {
        let case = case("balancer-by-flow");
        let broken = Err("reset".to_owned());
        let refused = Evidence { answer: Some(Answer::Refused), ..joined() };
        assert_eq!(judge(case, 0, &broken, &refused), Ok(()));
        assert!(judge(case, 0, &broken, &joined()).is_err());
        assert!(judge(case, 0, &broken, &Evidence::default()).is_err());
    }
}
