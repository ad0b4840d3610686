//! Figures of sentences: numbers with a decimal point, and those in percent.

use std::collections::HashSet;

/// Names with a decimal point, and what figures are told by.
const NAMES: [&str; 8] = [
    "TLS 1.3",
    "TLS 1.2",
    "HTTP/1.1",
    "HTTP/1.0",
    "Linux 6.18",
    "95 % intervals",
    "0.3 ms late",
    "within 2 %",
];

/// A heading and what stands under it, up to the next one.
struct Section<'p> {
    title: &'p str,
    /// Rows, fenced text and quotes.
    tables: Vec<&'p str>,
    sentences: Vec<&'p str>,
}

fn sections(page: &str) -> Vec<Section<'_>> {
    let begun = |title| Section { title, tables: Vec::new(), sentences: Vec::new() };
    let mut sections = vec![begun("")];
    let (mut fenced, mut quoted) = (false, false);
    for line in page.lines() {
        fenced ^= line.starts_with("```");
        quoted = (quoted || line.starts_with("<!-- 20")) && !line.is_empty();
        let section = sections.last_mut().unwrap();
        if fenced || quoted || line.starts_with('|') {
            section.tables.push(line);
        } else if let Some(title) = line.strip_prefix('#') {
            sections.push(begun(title.trim_start_matches('#').trim()));
        } else {
            section.sentences.push(line);
        }
    }
    sections
}

impl Section<'_> {
    /// The figures of its tables.
    fn known(&self) -> HashSet<String> {
        self.tables.iter().flat_map(|line| numbers(line)).map(|(number, _)| number).collect()
    }

    /// The name that links call it by.
    fn anchor(&self) -> String {
        let kept = self.title.to_lowercase();
        let kept = kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.collect::<String>().replace(' ', "-")
    }
}

/// Figures in sentences of a page that no table of the same section has.
pub(super) fn without_source(path: &str, page: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    for section in sections(page) {
        let known = section.known();
        let all = section.sentences.iter().flat_map(|line| figures(line));
        let unknown = all.filter(|figure| !known.contains(figure));
        wrong.extend(unknown.map(|figure| format!("{path}, {}: {figure}", section.title)));
    }
    wrong
}

/// Figures in paragraphs, items and rows of a page that link to a section of the results, and
/// which this has not.
pub(super) fn not_of_the_section(path: &str, page: &str, results: &str) -> Vec<String> {
    let sections = sections(results);
    let mut wrong = Vec::new();
    for block in blocks(page) {
        let links = block.split("results.md#").skip(1);
        let anchors: Vec<&str> =
            links.filter_map(|rest| rest.split(')').next()).map(str::trim).collect();
        if anchors.is_empty() {
            continue;
        }
        let named = sections.iter().filter(|section| anchors.contains(&&*section.anchor()));
        let known: HashSet<String> = named.flat_map(Section::known).collect();
        let unknown = figures(&block).into_iter().filter(|figure| !known.contains(figure));
        wrong.extend(unknown.map(|figure| format!("{path}, beside {}: {figure}", anchors[0])));
    }
    wrong
}

/// Paragraphs, items of lists, rows of tables.
fn blocks(page: &str) -> Vec<String> {
    let mut blocks = vec![String::new()];
    for line in page.lines() {
        if line.is_empty() || line.starts_with(['|', '*', '-']) {
            blocks.push(String::new());
        }
        let block = blocks.last_mut().unwrap();
        block.push_str(line);
        block.push('\n');
    }
    blocks
}

/// The numbers of a line that are figures.
fn figures(text: &str) -> Vec<String> {
    let mut text = text.to_owned();
    for name in NAMES {
        text = text.replace(name, "");
    }
    // Code and where links lead.
    let words = text.split('`').step_by(2).collect::<String>();
    let mut plain = String::new();
    let mut parts = words.split("](");
    plain.push_str(parts.next().unwrap_or_default());
    for part in parts {
        plain.push_str(part.split_once(')').map_or("", |(_, rest)| rest));
    }
    // Of a version there is more than one point.
    numbers(&plain)
        .filter(|(number, in_percent)| *in_percent || number.matches('.').count() == 1)
        .map(|(number, _)| number)
        .collect()
}

/// Numbers of a text, and whether they are in percent.
fn numbers(text: &str) -> impl Iterator<Item = (String, bool)> {
    let mut found = Vec::new();
    let characters: Vec<char> = text.chars().collect();
    let mut at = 0;
    while at < characters.len() {
        let begins = characters[at].is_ascii_digit()
            && (at == 0 || !(characters[at - 1].is_alphanumeric() || characters[at - 1] == '.'));
        if !begins {
            at += 1;
            continue;
        }
        let end = (at..characters.len())
            .find(|end| {
                let next = characters.get(end + 1).is_some_and(char::is_ascii_digit);
                let inside = matches!(characters[*end], '.' | ',') && next;
                !(characters[*end].is_ascii_digit() || inside)
            })
            .unwrap_or(characters.len());
        let rest: String = characters[end..].iter().take(2).collect();
        found.push((characters[at..end].iter().collect(), rest.trim_start().starts_with('%')));
        at = end;
    }
    found.into_iter()
}

#[test]
fn figures_are_decimals_and_shares() {
    let text =
        "TLS 1.3 took `1.5` or 2.03 of 17 % ([it](a.md#1.2)), 40 ms, v1.2, 0.4.9, 3,461 and 5%";
    assert_eq!(figures(text), ["2.03", "17", "5"]);
    let page = "# One\n\n| a | 2.03 |\n\nIt is 2.03 and not 2.04.\n\n# Two\n\nIt is 2.03.\n";
    assert_eq!(without_source("a", page), ["a, One: 2.04", "a, Two: 2.03"]);
    let other = "* Takes 2.03 ([so](results.md#one)).\n* Takes 2.05 ([so](results.md#one)).\n";
    assert_eq!(not_of_the_section("b", other, page), ["b, beside one: 2.05"]);
}
