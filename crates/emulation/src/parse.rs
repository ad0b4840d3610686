use crate::Protocol;
use crate::element::{Element, KINDS, Only, Parse, TwoWay};
use crate::words::{ParseError, Words, one_of, protocol};

/// The text forms of all elements, for help texts.
pub fn element_forms() -> impl Iterator<Item = &'static str> {
    KINDS.iter().map(|kind| kind.form)
}

/// Parses a list of elements such as `delay 50ms, udp loss packets 2,5`; empty text is an empty
/// list.
///
/// Commas and line ends are blanks. Times are written `50ms`, `200us` or `1.5s`; packets are
/// counted from 1; a seed that is not given is the element's place in the list, from 1. Boxes that
/// see both directions, such as `nat`, are refused: they need a [`Path`](crate::Path).
pub fn parse_elements(text: &str) -> Result<Vec<Box<dyn Element>>, ParseError> {
    let mut words = Words::new(text);
    let mut elements = Vec::new();
    while !words.at_end() {
        elements.push(element(&mut words)?);
    }
    Ok(elements)
}

/// One element as it stands in a text.
#[derive(Debug)]
pub(crate) enum Parsed {
    OneWay(Box<dyn Element>),
    TwoWay(TwoWay),
}

/// Reads an element for one direction.
pub(crate) fn element(words: &mut Words<'_>) -> Result<Box<dyn Element>, ParseError> {
    let before = words.clone();
    match read(words)? {
        Parsed::OneWay(element) => Ok(element),
        Parsed::TwoWay(_) => Err(before.expected("an element for one direction")),
    }
}

/// Reads an element of any kind.
pub(crate) fn read(words: &mut Words<'_>) -> Result<Parsed, ParseError> {
    words.place += 1;
    let narrowed = words.take(protocol);
    let Some(kind) = words.take(|word| KINDS.iter().find(|kind| kind.name == word)) else {
        return Err(words.expected(&one_of("an element", KINDS.iter().map(|kind| kind.name))));
    };
    Ok(match kind.parse {
        Parse::OneWay(parse) => Parsed::OneWay(narrow(parse(words)?, narrowed)),
        Parse::TwoWay(parse) => {
            let TwoWay { outbound, inbound, public } = parse(words)?;
            let (outbound, inbound) = (narrow(outbound, narrowed), narrow(inbound, narrowed));
            Parsed::TwoWay(TwoWay { outbound, inbound, public })
        }
    })
}

/// Keeps an element to the packets of one protocol.
fn narrow(element: Box<dyn Element>, protocol: Option<Protocol>) -> Box<dyn Element> {
    match protocol {
        Some(protocol) => Box::new(Only::new(protocol, element)),
        None => element,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> String {
        format!("{:?}", parse_elements(text).unwrap())
    }

    fn refused(text: &str) -> String {
        parse_elements(text).unwrap_err().to_string()
    }

    #[test]
    fn lists() {
        assert_eq!(parsed(""), "[]");
        assert_eq!(parsed(" ,\n"), "[]");
        assert_eq!(parsed("delay 50ms"), "[Delay(50ms)]");
        assert_eq!(
            parsed("delay 1ms,delay 2ms\ndelay 3ms"),
            "[Delay(1ms), Delay(2ms), Delay(3ms)]"
        );
        assert_eq!(
            parsed("udp loss packets 2,5, delay 1ms"),
            "[Only { protocol: Udp, inner: Loss(Pick { seen: 0, rule: Exact({2, 5}) }) }, \
                Delay(1ms)]"
        );
        assert_eq!(
            parsed("drop tcp"),
            "[Only { protocol: Tcp, inner: Loss(Pick { seen: 0, rule: Every }) }]"
        );
        assert_eq!(
            parsed("reorder packets 3 by 10ms"),
            "[Reorder { picked: Pick { seen: 0, rule: Exact({3}) }, hold: 10ms }]"
        );
        assert!(
            parsed("duplicate 5% seed 7")
                .starts_with("[Duplicate(Pick { seen: 0, rule: Random { probability: 0.05")
        );
    }

    #[test]
    fn a_seed_not_given_is_the_place() {
        assert_eq!(parsed("loss 5%"), parsed("loss 5% seed 1"));
        assert_eq!(parsed("loss 5%, loss 5%"), parsed("loss 5% seed 1, loss 5% seed 2"));
        assert_ne!(parsed("loss 5%"), parsed("loss 5% seed 2"));
    }

    #[test]
    fn errors_name_the_word_and_what_may_stand_there() {
        assert_eq!(refused("delay"), "expected a time such as 50ms, 200us or 1.5s, found the end");
        assert_eq!(refused("delay 50"), "expected a time such as 50ms, 200us or 1.5s, found `50`");
        assert_eq!(
            refused("delay 5ms jitter"),
            "expected a time such as 50ms, 200us or 1.5s, found the end"
        );
        let names = "delay, drop, drop-syn, drop-syn-ack, drop-syn-data, duplicate, loss, bursts, \
                     reorder, rate, mtu, strip-fast-open, one-reply, udp-dies, dpi, nat";
        assert_eq!(
            refused("delay 5ms jiter"),
            format!("expected an element ({names}), found `jiter`")
        );
        assert_eq!(refused("udp"), format!("expected an element ({names}), found the end"));
        assert_eq!(refused("nat 192.0.2.1"), "expected an element for one direction, found `nat`");
        assert_eq!(refused("drop"), "expected udp or tcp, found the end");
        assert_eq!(refused("loss packets 0"), "expected packet numbers, counted from 1, found `0`");
        assert_eq!(refused("reorder 5% 10ms"), "expected `by`, found `10ms`");
        assert_eq!(
            refused("loss 5% seed -1"),
            "expected a seed, 0 to 18446744073709551615, found `-1`"
        );
        for share in ["101%", "-1%", "5", "nan%"] {
            let expected = "expected a share from 0% to 100%, or `packets` and their numbers";
            assert_eq!(refused(&format!("loss {share}")), format!("{expected}, found `{share}`"));
        }
    }

    #[test]
    fn every_form_starts_with_its_name() {
        for kind in KINDS {
            assert!(kind.form.split(' ').any(|word| word == kind.name), "{}", kind.form);
        }
        assert_eq!(element_forms().count(), KINDS.len());
    }
}
