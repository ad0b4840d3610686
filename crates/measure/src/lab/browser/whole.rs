//! Completeness of a site's load.

use headstart_openers::site::{Site, SiteResource};
use headstart_pageload::page::Page;

/// In the paths of descriptions: a language.
const LANGUAGE: &str = "{lang}";

/// Share of the resources that may be missing: a page is loaded when 95 % of them are there.
const MISSING_MAX: f64 = 0.05;

/// Resources of the site that did not come, or not with all of their bytes: their URLs. Redirects
/// are none, as a database may know where they lead.
pub(super) fn missing(site: &Site, page: &Page) -> Vec<String> {
    let wanted = site.resources().iter().enumerate().filter(|(_, one)| one.redirect.is_none());
    wanted
        .filter_map(|(at, one): (usize, &SiteResource)| {
            let url = site.url_of(at);
            let came = page
                .resources()
                .iter()
                .any(|own| is_at(&url, &own.url) && own.response_bytes >= one.bytes as u64);
            (!came).then_some(url)
        })
        .collect()
}

/// Returns true if the site has a URL.
pub(super) fn is_of(site: &Site, url: &str) -> bool {
    (0..site.resources().len()).any(|at| is_at(&site.url_of(at), url))
}

/// Returns true if a URL is that of a description, in any language.
fn is_at(described: &str, url: &str) -> bool {
    match described.split_once(LANGUAGE) {
        Some((before, after)) => url.starts_with(before) && url.ends_with(after),
        None => url == described,
    }
}

/// Returns the reason why a load without these resources does not count: what is missing requested
/// nothing further, and so the load ended sooner.
pub(super) fn too_many(missing: &[String], site: &Site) -> Option<String> {
    let all = site.resources().len();
    let first = missing.first()?;
    (missing.len() as f64 > MISSING_MAX * all as f64)
        .then(|| format!("{} of {all} resources did not come, such as {first}", missing.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_pageload::page::{Protocol, Resource, Server};

    /// All of the shop as it comes in English, with every `left_out`th resource missing, and one
    /// cut short.
    fn page(site: &Site, left_out: usize, cut: usize) -> Page {
        let server = Server::https("shop.test", Protocol::Http2);
        let all = site.resources().iter().enumerate();
        let here = all.filter(|(at, _)| (at + 1) % left_out != 0);
        Page::new(
            "shop".into(),
            vec![server],
            here.map(|(at, one): (usize, &SiteResource)| Resource {
                url: site.url_of(at).replace(LANGUAGE, "en"),
                response_bytes: if at == cut {
                    one.bytes as u64 - 1
                } else {
                    one.bytes as u64 + 200
                },
                ..Resource::default()
            })
            .collect(),
        )
        .unwrap()
    }

    #[test]
    fn what_a_site_does_not_have_is_none_of_it() {
        let site = Site::built_in("shop").unwrap();
        for (url, is_own) in [
            ("https://bazaar.test/", true),
            ("https://www.bazaar.test/de/welcome", true),
            ("https://assets.bazaar.test/shop.js", true),
            ("https://assets.bazaar.test/shop.js?version=1", false),
            ("https://assets.bazaar.test/gone/shop.js", false),
            ("https://former-1.test/shop.js", false),
        ] {
            assert_eq!(is_of(&site, url), is_own, "{url}");
        }
    }

    #[test]
    fn incomplete_loads_do_not_count() {
        let site = Site::built_in("shop").unwrap();
        let none = usize::MAX;
        assert_eq!(missing(&site, &page(&site, none, none)), Vec::<String>::new());
        let last = site.resources().len() - 1;
        let one = missing(&site, &page(&site, none, last));
        assert_eq!(one, [site.url_of(last)]);
        assert_eq!(too_many(&one, &site), None);
        let many = missing(&site, &page(&site, 10, none));
        assert!(too_many(&many, &site).unwrap().contains("resources did not come, such as"));
    }
}
