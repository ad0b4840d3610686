//! `headstart keys`: a site's keys, in a file or in Redis.

pub mod options;

use headstart_proto::UnixSeconds;
use headstart_tls::keyring::{
    Epoch, Fleet, FleetKey, KeyFile, KeyFileError, KeyRing, KeyRingError, Role, Sealed,
    store_private,
};
use serde_json::{Value, json};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, UNIX_EPOCH};

use crate::base::clock::wall_clock;
use crate::base::failure::Failure;
use crate::base::{output, runtime};
use crate::fleet;
use crate::fleet::redis::RedisFailure;
use crate::fleet::ring::RingPlace;
use crate::fleet::storage::{KeySource, RedisAddress};
use crate::keys::options::{
    KeysCommand, KeysExportOptions, KeysNewOptions, KeysOptions, KeysRotateOptions, KeysShowOptions,
};

/// Does what is asked. Nothing secret is ever printed.
pub(crate) fn run(options: &KeysOptions) -> Result<ExitCode, Failure> {
    match &options.command {
        KeysCommand::New(options) => new(options)?,
        KeysCommand::Rotate(options) => rotate(options)?,
        KeysCommand::Show(options) => show(options)?,
        KeysCommand::Export(options) => export(options)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// A key file that could not be used, with the remedy.
pub(crate) fn unusable(error: &KeyFileError) -> Failure {
    Failure::usage(error.to_string()).hint(error.hint())
}

fn new(options: &KeysNewOptions) -> Result<(), Failure> {
    match (&options.keys, &options.fleet) {
        (Some(KeySource::File(file)), _) => {
            fresh(options)?.create(file).map_err(|error| unusable(&error))
        }
        (Some(KeySource::Redis(address)), fleet) => {
            InRedis::new(address, fleet.as_deref())?.create(&fresh(options)?)
        }
        (None, Some(file)) => {
            let fleet = Fleet::generate().map_err(no_keys)?;
            fleet.create(file).map_err(|error| Failure::usage(error.to_string()).hint(error.hint()))
        }
        (None, None) => Err(Failure::usage("neither keys nor a fleet to make")),
    }
}

fn fresh(options: &KeysNewOptions) -> Result<KeyRing, Failure> {
    KeyRing::generate(wall_clock(), options.period).map_err(no_keys)
}

fn rotate(options: &KeysRotateOptions) -> Result<(), Failure> {
    match &options.keys {
        KeySource::File(path) => {
            let file = KeyFile::lock(path).map_err(|error| unusable(&error))?;
            let Some(ring) = rotated(file.ring(), options.if_due)? else { return Ok(()) };
            file.replace(&ring).map_err(|error| unusable(&error))
        }
        KeySource::Redis(address) => {
            InRedis::new(address, options.fleet.as_deref())?.rotate(options.if_due)
        }
    }
}

/// The ring one step on; none if that is not due, and only then wanted.
fn rotated(ring: &KeyRing, if_due: bool) -> Result<Option<KeyRing>, Failure> {
    let now = wall_clock();
    if if_due && !ring.is_due(now) {
        return Ok(None);
    }
    ring.rotated(now).map(Some).map_err(no_keys)
}

fn show(options: &KeysShowOptions) -> Result<(), Failure> {
    let ring = load_from(&options.keys, options.fleet.as_deref())?;
    let text = if options.json { json_text(&ring) } else { text(&ring) };
    output::print(text.as_bytes())
}

fn export(options: &KeysExportOptions) -> Result<(), Failure> {
    let ring = load_from(&options.keys, options.fleet.as_deref())?;
    if matches!(options.keys, KeySource::Redis(_)) && ring.is_stale(wall_clock()) {
        let place = &options.keys;
        return Err(Failure::usage(format!(
            "the keys at {place} should have been renewed more than a period ago"
        ))
        .hint("somebody may have put them back; `headstart keys rotate` makes new ones"));
    }
    if let Some(dir) = &options.nginx {
        export_nginx(&ring, dir)?;
    }
    match &options.haproxy {
        Some(file) => {
            store_private(file, ring.haproxy_keys().as_bytes()).map_err(|error| unusable(&error))
        }
        None => Ok(()),
    }
}

/// A file for each epoch, and one that names them: nginx makes tickets with the first and takes
/// those of all.
fn export_nginx(ring: &KeyRing, dir: &Path) -> Result<(), Failure> {
    let dir = std::path::absolute(dir)
        .map_err(|error| Failure::usage(format!("cannot use {}: {error}", dir.display())))?;
    let mut names = Vec::new();
    for (role, key) in ring.nginx_keys() {
        let name = format!("{}.key", role.name());
        store_private(&dir.join(&name), &key[..]).map_err(|error| unusable(&error))?;
        names.push((role != Role::Current, dir.join(name)));
    }
    names.sort();
    if ring.previous.is_none() {
        forget(&dir.join(format!("{}.key", Role::Previous.name())))?;
    }
    let directives: String = names
        .iter()
        .map(|(_, path): &(bool, std::path::PathBuf)| {
            format!("ssl_session_ticket_key \"{}\";\n", path.display())
        })
        .collect();
    let directives = format!("{NGINX}{directives}");
    store_private(&dir.join("tickets.conf"), directives.as_bytes())
        .map_err(|error| unusable(&error))
}

/// A new ring has no epoch before: the key of an earlier ring's is not left behind.
fn forget(file: &Path) -> Result<(), Failure> {
    match std::fs::remove_file(file) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            let file = file.display();
            Err(Failure::usage(format!("cannot remove {file}, a key that is not in use: {error}")))
        }
        _ => Ok(()),
    }
}

/// Sessions are tied to the hash of their cipher suite. So both have to choose the same one,
/// whatever order a client has them in: nginx as the edges do, by the server's order but for
/// clients that want ChaCha20 first.
const NGINX: &str = "\
# Made by `headstart keys export`, to be included in the server that is the default of its port.
ssl_session_tickets on;
ssl_prefer_server_ciphers on;
ssl_conf_command Options PrioritizeChaCha;
";

fn load(file: &Path) -> Result<KeyRing, Failure> {
    KeyRing::load(file).map_err(|error| unusable(&error))
}

fn load_from(source: &KeySource, fleet: Option<&Path>) -> Result<KeyRing, Failure> {
    match source {
        KeySource::File(file) => load(file),
        KeySource::Redis(address) => InRedis::new(address, fleet)?.load(),
    }
}

/// A ring in Redis.
struct InRedis<'a> {
    address: &'a RedisAddress,
    key: FleetKey,
}

/// Attempts at a rotation that somebody else has overtaken. The second look finds the ring renewed.
const TRIES: usize = 3;

impl<'a> InRedis<'a> {
    fn new(address: &'a RedisAddress, fleet: Option<&Path>) -> Result<Self, Failure> {
        let Some(file) = fleet else {
            return Err(Failure::usage("keys in Redis are sealed, and --fleet is missing").hint(
                "`headstart keys new --fleet FILE` makes the file whose key seals them; name it: \
                    --fleet FILE",
            ));
        };
        Ok(Self { address, key: fleet::load(file)?.key })
    }

    fn create(&self, ring: &KeyRing) -> Result<(), Failure> {
        // Rings are renewed every hour at most, so that this is later than any ring that the place
        // has lost.
        let sealed = self.seal(ring, wall_clock().0)?;
        runtime::run_here(async {
            let place = self.open().await?;
            if place.create(&sealed).await.map_err(|failure| self.failed(&failure))? {
                return Ok(());
            }
            Err(Failure::usage(format!("there are keys already at {}", self.address)).hint(
                "`headstart keys rotate` renews them; another ?name= is another site's place",
            ))
        })
    }

    fn load(&self) -> Result<KeyRing, Failure> {
        runtime::run_here(async { Ok(self.read(&self.open().await?).await?.1.ring) })
    }

    /// The ring that follows, if one is wanted.
    ///
    /// A stale one may have been put back by somebody who knows its keys; so nothing of it goes on.
    fn following(ring: &KeyRing, if_due: bool) -> Result<Option<KeyRing>, Failure> {
        let now = wall_clock();
        if ring.is_stale(now) {
            return KeyRing::generate(now, ring.period).map(Some).map_err(no_keys);
        }
        rotated(ring, if_due)
    }

    /// Renews the ring unless somebody else does: then that is the rotation that was wanted.
    fn rotate(&self, if_due: bool) -> Result<(), Failure> {
        runtime::run_here(async {
            let place = self.open().await?;
            let (mut bytes, mut before) = self.read(&place).await?;
            for _ in 0..TRIES {
                let Some(ring) = Self::following(&before.ring, if_due)? else { return Ok(()) };
                let sealed = self.seal(&ring, before.generation.saturating_add(1))?;
                let exchanged = place.exchange(&bytes, &sealed).await;
                if exchanged.map_err(|failure| {
                    self.failed(&failure).hint(
                        "it may be done nevertheless: look with `headstart keys show` before you \
                            try again",
                    )
                })? {
                    return Ok(());
                }
                let (now_bytes, now) = self.read(&place).await?;
                if now.generation > before.generation {
                    return Ok(());
                }
                (bytes, before) = (now_bytes, now);
            }
            Err(Failure::negative(format!("the keys at {} keep changing", self.address))
                .hint("nothing was changed here; see who else writes them"))
        })
    }

    async fn open(&self) -> Result<RingPlace, Failure> {
        RingPlace::open(self.address).await.map_err(|failure| self.failed(&failure))
    }

    async fn read(&self, place: &RingPlace) -> Result<(Vec<u8>, Sealed), Failure> {
        let found = place.read().await.map_err(|failure| self.failed(&failure))?;
        let Some(bytes) = found else {
            let address = self.address;
            return Err(Failure::usage(format!("there are no keys at {address}"))
                .hint(format!("`headstart keys new '{address}' --fleet FILE` makes some")));
        };
        let sealed = Sealed::open(&bytes, &self.key, &self.address.name).map_err(|fault| {
            Failure::usage(format!("the keys at {} cannot be used: {fault}", self.address))
                .hint("is --fleet the file they were sealed with, and name the right one?")
        })?;
        Ok((bytes, sealed))
    }

    fn seal(&self, ring: &KeyRing, generation: u64) -> Result<Vec<u8>, Failure> {
        ring.seal(&self.key, &self.address.name, generation, wall_clock()).map_err(no_keys)
    }

    fn failed(&self, failure: &RedisFailure) -> Failure {
        Failure::usage(format!("{}: {failure}", self.address))
            .hint("address, password and certificate are those of redis-cli -u")
    }
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
    let ring = json!({
        "period_ms": ring.period.as_secs() * 1000,
        "rotation_due": date(ring.rotation_due()),
        "is_due": is_due(ring),
        "epochs": ring.roles().map(epoch_json).collect::<Vec<_>>(),
    });
    format!("{ring:#}\n")
}

fn epoch_json((role, epoch): (Role, &Epoch)) -> Value {
    json!({
        "role": role.name(),
        "id": epoch.id,
        "from": date(epoch.from),
        "name": name(epoch),
    })
}

fn is_due(ring: &KeyRing) -> bool {
    ring.is_due(wall_clock())
}

/// Returns the prefix of tickets without a cookie in this epoch: as public as they are.
fn name(epoch: &Epoch) -> String {
    epoch.ticket_name().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Formats a date in UTC. A ring that was read has only dates that can be formatted.
fn date(time: UnixSeconds) -> String {
    let time = UNIX_EPOCH + Duration::from_secs(time.0);
    humantime::format_rfc3339_seconds(time).to_string()
}
