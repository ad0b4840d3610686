//! Host names.

/// Longest name and longest label (RFC 1035 section 2.3.4), in characters without the final dot.
const NAME_MAX: usize = 253;
const LABEL_MAX: usize = 63;

/// Returns `text` in lower case and without final dot; `None` if it cannot be the name of a host.
///
/// Rejects a name whose last label is a number, decimal or hexadecimal: other programs would read
/// it as an IPv4 address.
pub(crate) fn host_name(text: &str) -> Option<String> {
    let name = normalized(text);
    (!is_number(name.rsplit('.').next()?)
        && name.len() <= NAME_MAX
        && name.split('.').all(is_label))
    .then_some(name)
}

/// Returns true for what inet_aton(3) takes for one.
fn is_number(label: &str) -> bool {
    match label.strip_prefix("0x") {
        Some(hex) => hex.bytes().all(|byte| byte.is_ascii_hexdigit()),
        None => label.bytes().all(|byte| byte.is_ascii_digit()),
    }
}

fn is_label(label: &str) -> bool {
    (1..=LABEL_MAX).contains(&label.len())
        && !label.starts_with('-')
        && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}

/// Lower-cases a name and removes its final dot: names are compared that way (RFC 4343).
pub(crate) fn normalized(name: &str) -> String {
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;
    use hickory_proto::rr::Name;
    use proptest::prelude::*;

    /// Labels of every kind and length, with dots anywhere.
    const NAMES: &str = concat!(
        r"([a-zA-Z0-9_-]{0,3}|x{62,64}|[ .*]){1,2}",
        r"(\.(y{60,63}|[a-z]-?)){0,5}",
        r"\.?",
    );

    proptest! {
        /// Another parser of names agrees, but for names that look like addresses.
        #[test]
        fn names_are_those_of_the_dns(text in NAMES) {
            let parsed = Name::from_ascii(&text).ok();
            let parsed = parsed.filter(|name| !name.is_root() && !text.contains('*'));
            let name = normalized(&text);
            if !is_number(name.rsplit('.').next().unwrap()) {
                let theirs = parsed.map(|name| normalized(&name.to_ascii()));
                prop_assert_eq!(host_name(&text), theirs);
            }
        }
    }
}
