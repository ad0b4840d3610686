use crate::limits::HOST_MAX;

/// Returns the canonical host name, in lower case and without a final dot; `None` if it is empty or
/// too long.
pub(crate) fn normal(host: &str) -> Option<Box<str>> {
    let host = host.strip_suffix('.').unwrap_or(host);
    let is_name = (1..=HOST_MAX).contains(&host.len());
    is_name.then(|| host.to_ascii_lowercase().into_boxed_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_has_one_spelling() {
        assert_eq!(normal("WWW.Example.COM.").as_deref(), Some("www.example.com"));
        assert_eq!(normal("2001:DB8::1").as_deref(), Some("2001:db8::1"));
        assert_eq!(normal(""), None);
        assert_eq!(normal("."), None);
    }

    #[test]
    fn limits_the_length_of_names() {
        let longest = "x".repeat(HOST_MAX);
        assert!(normal(&longest).is_some());
        assert!(normal(&format!("{longest}.")).is_some());
        assert_eq!(normal(&format!("{longest}x")), None);
    }
}
