use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::base::failure::Failure;
use crate::base::printable::printable;

const RESET: &str = "\x1b[0m";

/// Grade of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// As it should be.
    Ok,
    /// Something is missing that not everybody needs, or costs something.
    Note,
    /// Something does not work.
    Problem,
}

impl Level {
    const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Problem => "problem",
        }
    }

    const fn colour(self) -> &'static str {
        match self {
            Self::Ok => "\x1b[32m",
            Self::Note => "\x1b[33m",
            Self::Problem => "\x1b[1;31m",
        }
    }
}

/// The outcome of one probe.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// Grade of the finding.
    pub level: Level,
    /// Name of the probe; stable.
    pub check: String,
    text: String,
    hint: Option<String>,
}

impl Finding {
    /// A probe that found everything as it should be.
    pub fn ok(check: impl Into<String>, text: impl Into<String>) -> Self {
        Self { level: Level::Ok, check: check.into(), text: text.into(), hint: None }
    }

    /// A probe that found something missing that not everybody needs.
    pub fn note(
        check: impl Into<String>,
        text: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self { level: Level::Note, check: check.into(), text: text.into(), hint: Some(hint.into()) }
    }

    /// A probe that found something that does not work.
    pub fn problem(
        check: impl Into<String>,
        text: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self {
            level: Level::Problem,
            check: check.into(),
            text: text.into(),
            hint: Some(hint.into()),
        }
    }

    /// A probe that failed, with the failure's own hint.
    pub fn failed(check: impl Into<String>, failure: &Failure) -> Self {
        Self {
            level: Level::Problem,
            check: check.into(),
            text: failure.message().to_owned(),
            hint: failure.advice().map(str::to_owned),
        }
    }

    /// For people, with a line end; the hint on a line of its own.
    pub fn line(&self, colours: bool) -> String {
        let (colour, reset) = if colours { (self.level.colour(), RESET) } else { ("", "") };
        let mut line = format!(
            "  {colour}{:<7}{reset}  {:<14} {}\n",
            self.level.name(),
            self.check,
            printable(&self.text)
        );
        if let Some(hint) = &self.hint {
            line.push_str(&format!("{:26}hint: {}\n", "", printable(hint)));
        }
        line
    }

    /// The finding as a JSON object; `subject` is the machine or server that was probed.
    pub fn json(&self, subject: &str) -> Value {
        json!({
            "subject": subject,
            "check": self.check,
            "level": self.level.name(),
            "text": self.text,
            "hint": self.hint,
        })
    }
}
