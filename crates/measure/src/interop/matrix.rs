//! The results: as a table of text, as JSON, and as a page.

use maud::{Markup, PreEscaped, html};
use serde::Serialize;

use crate::chart::{HEAD, STYLE, rows, tile};
use crate::table::{each_once, header, table};

/// Results of all cells, case by case.
#[derive(Debug, Serialize)]
pub(super) struct Matrix {
    pub(super) cells: Vec<Row>,
}

/// Result of one client with one server in one case.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Row {
    pub(super) case: &'static str,
    pub(super) client: String,
    pub(super) server: String,
    pub(super) result: Outcome,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<String>,
    pub(super) seconds: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Outcome {
    Passed,
    Failed,
    Unsupported,
}

impl Outcome {
    const fn word(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed => "FAILED",
            Self::Unsupported => "-",
        }
    }
}

impl Matrix {
    pub(super) fn count(&self, result: Outcome) -> usize {
        self.cells.iter().filter(|cell| cell.result == result).count()
    }

    /// Returns the table, and below it why cells failed.
    pub(super) fn text(&self) -> String {
        let reasons = self.reasons().into_iter().map(|(what, why)| format!("{what}: {why}\n"));
        table(&self.rows(), &[0]) + &reasons.collect::<String>() + &self.summary() + "\n"
    }

    pub(super) fn page(&self) -> String {
        let body: Markup = html! {
            (PreEscaped(HEAD)) title { "Interoperability" } style { (PreEscaped(STYLE)) }
            (PreEscaped("</head>"))
            body { main {
                h1 { "Interoperability of TurboTLS" }
                div.tiles { (tile(&self.count(Outcome::Passed).to_string(), "passed"))
                    (tile(&self.count(Outcome::Failed).to_string(), "failed"))
                    (tile(&self.count(Outcome::Unsupported).to_string(), "unsupported")) }
                p { "Columns: client + server." }
                (rows(&self.rows()))
                @for (what, why) in self.reasons() { p { b { (what) } ": " (why) } }
            } }
            (PreEscaped("</html>\n"))
        };
        body.into_string()
    }

    pub(super) fn summary(&self) -> String {
        let [passed, failed, unsupported] =
            [Outcome::Passed, Outcome::Failed, Outcome::Unsupported]
                .map(|result| self.count(result));
        format!("{passed} passed, {failed} failed, {unsupported} unsupported")
    }

    /// Rows of cases, columns of pairs.
    fn rows(&self) -> Vec<Vec<String>> {
        let pairs = each_once(self.cells.iter().map(|cell| (&*cell.client, &*cell.server)));
        let cases = each_once(self.cells.iter().map(|cell| cell.case));
        let mut rows = vec![header(&["case"])];
        rows[0].extend(pairs.iter().map(|(client, server)| format!("{client}+{server}")));
        for case in cases {
            let mut row = vec![case.to_owned()];
            row.extend(pairs.iter().map(|pair| {
                let found = self
                    .cells
                    .iter()
                    .find(|cell| cell.case == case && (&*cell.client, &*cell.server) == *pair);
                found.map_or("", |cell| cell.result.word()).to_owned()
            }));
            rows.push(row);
        }
        rows
    }

    fn reasons(&self) -> Vec<(String, &str)> {
        let failed = self.cells.iter().filter(|cell| cell.result == Outcome::Failed);
        let named = failed.map(|cell| {
            let what = format!("{}, {}+{}", cell.case, cell.client, cell.server);
            (what, cell.reason.as_deref().unwrap_or_default())
        });
        named.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_result_has_its_place_and_failures_their_reasons() {
        let cell = |case, server: &str, result, reason: Option<&str>| Row {
            case,
            client: "a".into(),
            server: server.into(),
            result,
            reason: reason.map(str::to_owned),
            seconds: 1.0,
        };
        let cells = vec![
            cell("opening", "a", Outcome::Passed, None),
            cell("opening", "b", Outcome::Failed, Some("no <join>")),
            cell("reset", "a", Outcome::Unsupported, Some("a")),
        ];
        let matrix = Matrix { cells };
        let text = "  case        a+a     a+b\n  opening  passed  FAILED\n  reset         -\n\
            opening, a+b: no <join>\n1 passed, 1 failed, 1 unsupported\n";
        assert_eq!(matrix.text(), text);
        let page = matrix.page();
        assert!(page.contains("no &lt;join&gt;"));
        let mut reader = quick_xml::Reader::from_str(&page);
        while reader.read_event().unwrap() != quick_xml::events::Event::Eof {}
        let json = serde_json::to_value(&matrix).unwrap();
        assert_eq!(json["cells"][1]["result"], "failed");
    }
}
