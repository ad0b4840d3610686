//! `headstart keys`: the file of a site's keys.

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use headstart_proto::UnixSeconds;
use headstart_tls::keyring::{Epoch, KeyFile, KeyFileError, KeyRing, KeyRingError, Role};
use serde_json::json;

use crate::failure::Failure;
use crate::options::{
    KeysCommand, KeysNewOptions, KeysOptions, KeysRotateOptions, KeysShowOptions,
};
use crate::output;

/// Does what is asked. Nothing secret is ever printed.
pub(crate) fn run(options: &KeysOptions) -> Result<ExitCode, Failure> {
    match &options.command {
        KeysCommand::New(options) => new(options)?,
        KeysCommand::Rotate(options) => rotate(options)?,
        KeysCommand::Show(options) => show(options)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The seconds of the system's clock.
pub(crate) fn wall_clock() -> UnixSeconds {
    // A clock before 1970 is as good as one in 1970.
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixSeconds(since.as_secs())
}

/// A key file that could not be used, with the remedy.
pub(crate) fn unusable(error: &KeyFileError) -> Failure {
    Failure::usage(error.to_string()).hint(error.hint())
}

fn new(options: &KeysNewOptions) -> Result<(), Failure> {
    let ring = KeyRing::generate(wall_clock(), options.period).map_err(no_keys)?;
    ring.create(&options.file).map_err(|error| unusable(&error))
}

fn rotate(options: &KeysRotateOptions) -> Result<(), Failure> {
    let file = KeyFile::lock(&options.file).map_err(|error| unusable(&error))?;
    let now = wall_clock();
    if options.if_due && !file.ring().is_due(now) {
        return Ok(());
    }
    let ring = file.ring().rotated(now).map_err(no_keys)?;
    file.replace(&ring).map_err(|error| unusable(&error))
}

fn show(options: &KeysShowOptions) -> Result<(), Failure> {
    let ring = load(&options.file)?;
    let text = if options.json { json_text(&ring) } else { text(&ring) };
    output::print(text.as_bytes())
}

fn load(file: &Path) -> Result<KeyRing, Failure> {
    KeyRing::load(file).map_err(|error| unusable(&error))
}

fn no_keys(error: KeyRingError) -> Failure {
    Failure::usage(format!("cannot make keys: {error}"))
        .hint("nothing was changed; try again once this machine has memory and random bytes")
}

fn text(ring: &KeyRing) -> String {
    let due = ring.rotation_due();
    let when = match (is_due(ring), wall_clock() < due) {
        (true, true) => "by a clock that was ahead: due now, not",
        (true, false) => "was due",
        (false, _) => "due",
    };
    let mut text = format!(
        "rotated every {}, {when} {}\n\n{}",
        humantime::format_duration(ring.period),
        date(due),
        row("epoch", "id", "from", "name")
    );
    for (role, epoch) in ring.roles() {
        let id = epoch.id.to_string();
        text.push_str(&row(role.name(), &id, &date(epoch.from), &name(epoch)));
    }
    text
}

/// A date has 20 characters.
fn row(role: &str, id: &str, from: &str, name: &str) -> String {
    format!("{role:<8}  {id:>3}  {from:<20}  {name}\n")
}

fn json_text(ring: &KeyRing) -> String {
    let epoch = |(role, epoch): (Role, &Epoch)| {
        json!({
            "role": role.name(),
            "id": epoch.id,
            "from": date(epoch.from),
            "name": name(epoch),
        })
    };
    let ring = json!({
        "period_ms": ring.period.as_secs() * 1000,
        "rotation_due": date(ring.rotation_due()),
        "is_due": is_due(ring),
        "epochs": ring.roles().map(epoch).collect::<Vec<_>>(),
    });
    format!("{ring:#}\n")
}

fn is_due(ring: &KeyRing) -> bool {
    ring.is_due(wall_clock())
}

/// What tickets without a cookie begin with in this epoch: as public as they are.
fn name(epoch: &Epoch) -> String {
    epoch.ticket_name().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// In UTC. A ring that was read has no date that cannot be written.
fn date(time: UnixSeconds) -> String {
    let time = UNIX_EPOCH + Duration::from_secs(time.0);
    humantime::format_rfc3339_seconds(time).to_string()
}
