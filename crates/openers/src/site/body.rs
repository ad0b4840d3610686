//! The bodies of a site, made from its description.

use std::fmt::Write;

use super::content::words;
use super::description::{Site, SiteKind, SiteResource};
use super::script::{comment, data, script};

/// A font (OpenType 1.9) with a box for the letter A, made for this project.
const FONT: &[u8] = include_bytes!("letter.ttf");

/// A picture of 32 by 24 pixels, sky over ground, made for this project.
const PICTURE: &[u8] = include_bytes!("picture.png");

/// Style of documents.
const LOOK: &str = "body{font:16px/1.4 sans-serif;margin:0 auto;max-width:70em;padding:1em}\
figure{display:inline-block;margin:.5em;width:15em;vertical-align:top}img{max-width:100%}\
iframe{border:1px solid #ccc;width:20em;height:8em}";

/// Bytes of the text under a picture, where there is room for any.
const CAPTION: usize = 120;

/// Bytes of the text between the picture and the rest.
const PARAGRAPH: usize = 400;

/// Returns the body of a resource, and its type.
///
/// Returns a body as large as its description says, or larger if its references need more.
pub(super) fn body(site: &Site, resource: usize, lang: &str) -> (Vec<u8>, &'static str) {
    let Some(one) = site.resources().get(resource) else { return (Vec::new(), "text/plain") };
    let id = one.id.as_str();
    let text = match one.kind {
        _ if one.redirect.is_some() => return (Vec::new(), "text/plain; charset=utf-8"),
        SiteKind::Font => return (padded(FONT, one.bytes), "font/ttf"),
        SiteKind::Image if one.path.ends_with(".png") => {
            return (padded(PICTURE, one.bytes), "image/png");
        }
        SiteKind::Image => return (drawing(id, one.bytes).into_bytes(), "image/svg+xml"),
        SiteKind::Data => {
            return (data(site, resource, lang, one.bytes).into(), "application/json");
        }
        SiteKind::Document => document(site, resource, one, lang),
        SiteKind::Style => style(site, resource),
        SiteKind::Script => script(site, resource, lang),
    };
    let rest = one.bytes.saturating_sub(text.len());
    let (rest, content_type) = match one.kind {
        SiteKind::Document => (comment("<!--", "-->", id, rest), "text/html; charset=utf-8"),
        SiteKind::Style => (comment("/*", "*/", id, rest), "text/css; charset=utf-8"),
        _ => (comment("/*", "*/", id, rest), "text/javascript; charset=utf-8"),
    };
    ((text + &rest).into_bytes(), content_type)
}

/// A file with zeros behind its end, which decoders of fonts and of pictures do not read.
fn padded(file: &[u8], bytes: usize) -> Vec<u8> {
    let mut padded = file.to_vec();
    padded.resize(bytes.max(file.len()), 0);
    padded
}

fn document(site: &Site, resource: usize, one: &SiteResource, lang: &str) -> String {
    let mut page = format!(
        "<!doctype html>\n<html lang=\"{lang}\">\n<head>\n<meta charset=\"utf-8\">\n\
         <title>{}</title>\n<link rel=\"icon\" href=\"data:,\">\n<style>{LOOK}</style>\n",
        site.title()
    );
    let [styles, scripts, images, documents, data] =
        [SiteKind::Style, SiteKind::Script, SiteKind::Image, SiteKind::Document, SiteKind::Data]
            .map(|kind| urls(site, resource, kind, lang));
    for url in styles {
        let _ = writeln!(page, "<link rel=\"stylesheet\" href=\"{url}\">");
    }
    for url in scripts {
        let _ = writeln!(page, "<script src=\"{url}\" async></script>");
    }
    let _ = writeln!(page, "</head>\n<body>\n<h1>{}</h1>", greeting(site, one, lang));
    for styled in styled(site, resource) {
        page.push_str(&styled);
    }
    let images = images.iter().map(|url| format!("<img src=\"{url}\" alt=\"\">"));
    let documents = documents.iter().map(|url| format!("<iframe src=\"{url}\"></iframe>"));
    let data = data.iter().map(|url| format!("<script>fetch(\"{url}\")</script>"));
    let items: Vec<String> = images.chain(documents).chain(data).collect();
    let end = "</body>\n</html>\n";
    // Each with a share of the rest: pages name their pictures throughout.
    let fixed = items.iter().map(|item| item.len() + 64).sum::<usize>() + end.len();
    let room = one.bytes.saturating_sub(page.len() + fixed) / (items.len() + 1);
    for (number, item) in items.iter().enumerate() {
        let text = words(&format!("{}{number}", one.id), room.min(CAPTION));
        let _ = writeln!(page, "<figure>{item}<figcaption>{text}</figcaption></figure>");
        let more = room.saturating_sub(CAPTION);
        page.push_str(&comment("<!--", "-->", &format!("{}{number}", one.id), more));
    }
    let _ = writeln!(page, "<p>{}</p>", words(&one.id, room.min(PARAGRAPH)));
    page + end
}

/// The URLs of a resource's children of one kind.
fn urls(site: &Site, resource: usize, kind: SiteKind, lang: &str) -> Vec<String> {
    let children = site.children(resource).into_iter();
    children
        .filter(|child: &usize| site.resources()[*child].kind == kind)
        .map(|child| site.url_of(child).replace("{lang}", lang))
        .collect()
}

fn greeting(site: &Site, one: &SiteResource, lang: &str) -> String {
    let hello = match lang {
        _ if !one.path.contains("{lang}") => return site.title().to_owned(),
        "de" => "Willkommen",
        "fr" => "Bienvenue",
        _ => "Welcome",
    };
    format!("{hello}: {}", site.title())
}

/// Returns elements that use the fonts and pictures of a document's style sheets: browsers ask for
/// what is used alone.
fn styled(site: &Site, document: usize) -> Vec<String> {
    let used = site.resources().iter().enumerate().filter(|(at, one)| {
        let from = one.from.and_then(|from| site.resources().get(from));
        let by_style = from.is_some_and(|from| from.kind == SiteKind::Style);
        by_style && site.document_of(*at) == Some(document)
    });
    used.filter_map(|(_, one): (usize, &SiteResource)| match one.kind {
        SiteKind::Font => Some(format!("<p class=\"f-{0}\">A {0}</p>\n", one.id)),
        SiteKind::Image => Some(format!("<div class=\"b-{}\"></div>\n", one.id)),
        _ => None,
    })
    .collect()
}

fn style(site: &Site, resource: usize) -> String {
    let mut text = String::new();
    for child in site.children(resource) {
        let (id, url) = (&site.resources()[child].id, site.url_of(child));
        let _ = match site.resources()[child].kind {
            SiteKind::Style => writeln!(text, "@import url(\"{url}\");"),
            SiteKind::Font => writeln!(
                text,
                "@font-face{{font-family:\"{id}\";src:url(\"{url}\");font-display:swap}}\n\
                 .f-{id}{{font-family:\"{id}\",serif}}"
            ),
            _ => writeln!(
                text,
                ".b-{id}{{background:url(\"{url}\");display:inline-block;width:4em;height:4em}}"
            ),
        };
    }
    text
}

/// An SVG picture.
fn drawing(id: &str, bytes: usize) -> String {
    let head = "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 64 64\" width=\"64\" \
        height=\"64\">\n\
                <rect width=\"64\" height=\"64\" rx=\"9\" fill=\"#357\"/>\n<circle cx=\"32\" \
                cy=\"32\" r=\"19\" fill=\"#fd7\"/>\n";
    let end = "</svg>\n";
    let rest = bytes.saturating_sub(head.len() + end.len());
    format!("{head}{}{end}", comment("<!--", "-->", id, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_are_as_large_as_described_and_name_what_follows() {
        for name in Site::names() {
            let site = Site::built_in(&name).unwrap();
            for (at, one) in site.resources().iter().enumerate() {
                let (bytes, content_type) = body(&site, at, "en");
                assert_eq!(bytes.len(), one.bytes, "{name}: {}", one.id);
                let text = String::from_utf8_lossy(&bytes);
                let is_named =
                    |child: usize| text.contains(&site.url_of(child).replace("{lang}", "en"));
                let is_text = !content_type.starts_with("image/") && one.redirect.is_none();
                assert!(
                    !is_text || site.children(at).into_iter().all(is_named),
                    "{name}: {}",
                    one.id
                );
                assert_eq!(body(&site, at, "en").0, bytes, "the same in every run");
            }
        }
    }

    #[test]
    fn resources_of_style_sheets_are_used_in_their_document() {
        let site = Site::built_in("news").unwrap();
        let front = String::from_utf8(body(&site, 0, "en").0).unwrap();
        assert!(
            front.contains("class=\"f-letters-bold\"") && front.contains("class=\"b-pattern-6\"")
        );
        assert_eq!(front.matches("<img ").count(), 25);
    }

    #[test]
    fn pages_are_in_the_language_of_their_path() {
        let site = Site::built_in("shop").unwrap();
        let front = site.resources().iter().position(|one| one.id == "front").unwrap();
        for (lang, greeting) in [("de", "Willkommen"), ("en", "Welcome")] {
            let page = String::from_utf8(body(&site, front, lang).0).unwrap();
            assert!(page.contains(&format!("<html lang=\"{lang}\">")) && page.contains(greeting));
        }
    }
}
