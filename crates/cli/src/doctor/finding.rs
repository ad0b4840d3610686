use serde_json::{Value, json};

const RESET: &str = "\x1b[0m";

/// How good a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Level {
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
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) level: Level,
    /// What was probed; a stable name.
    pub(super) check: &'static str,
    text: String,
    hint: Option<String>,
}

impl Finding {
    pub(super) fn ok(check: &'static str, text: impl Into<String>) -> Self {
        Self { level: Level::Ok, check, text: text.into(), hint: None }
    }

    pub(super) fn note(
        check: &'static str,
        text: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self { level: Level::Note, check, text: text.into(), hint: Some(hint.into()) }
    }

    pub(super) fn problem(
        check: &'static str,
        text: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self { level: Level::Problem, check, text: text.into(), hint: Some(hint.into()) }
    }

    /// For people, with a line end; the hint on a line of its own.
    pub(super) fn line(&self, colours: bool) -> String {
        let (colour, reset) = if colours { (self.level.colour(), RESET) } else { ("", "") };
        let mut line = format!(
            "  {colour}{:<7}{reset}  {:<14} {}\n",
            self.level.name(),
            self.check,
            self.text
        );
        if let Some(hint) = &self.hint {
            line.push_str(&format!("{:26}hint: {hint}\n", ""));
        }
        line
    }

    pub(super) fn json(&self, subject: &str) -> Value {
        json!({
            "subject": subject,
            "check": self.check,
            "level": self.level.name(),
            "text": self.text,
            "hint": self.hint,
        })
    }
}
