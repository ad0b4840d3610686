//! `headstart pageload record`: page loads in Chromium, as HAR files.

mod files;
pub(crate) mod options;
mod stage;

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use headstart_openers::site::Site;
use headstart_pageload::devtools::About;
use openssl::base64;
use openssl::sha::sha256;
use openssl::x509::X509;
use serde_json::json;
use url::Url;

use self::files::Summary;
use self::stage::Stage;
use crate::chromium::devtools::Trouble;
use crate::chromium::load::{Loaded, Wanted};
use crate::chromium::process::{Browser, Settings};
use crate::chromium::tls::Classical;
use crate::chromium::{BrowserTls, DIRECT, load, process, tls, trusting};
use crate::folder;
use crate::interrupt::Interrupt;
use crate::network;
use crate::pageload::record::options::RecordOptions;
use crate::recordings;
use headstart::base::failure::{Failure, NEGATIVE};
use headstart::base::output;

/// Exit code when interrupted, as of a shell: 128 + SIGINT.
const INTERRUPTED: u8 = 130;

/// Records. Call it while the process has one thread: it may build an emulated network.
pub(super) fn run(options: &RecordOptions) -> Result<ExitCode, Failure> {
    let pages = pages(options)?;
    let arguments = arguments(options)?;
    let mut program = process::find(options.browser.as_ref())?;
    if let Some(link) = &options.link {
        stage::path(link)?;
        network::become_privileged()?;
    }
    folder::make(&options.out, "--out")?;
    let (sites, others): (Vec<_>, Vec<_>) = pages.iter().partition(|page| page.site.is_some());
    let sites: Vec<Site> = sites.into_iter().filter_map(|page| page.site.clone()).collect();
    let stage = Stage::build(&sites, others.is_empty(), options.link.as_deref(), options.think)?;
    let arguments = [stage.arguments.clone(), arguments].concat();
    if process::is_root() {
        eprintln!("note: Chromium runs without its sandbox, as it does not start as root with it");
    }
    let interrupt = Interrupt::listen()?;
    let classical = options.tls.contains(&BrowserTls::NoPostQuantum);
    // It lives until the browser has started.
    let classical =
        classical.then(|| Classical::copy(&program, &std::env::temp_dir())).transpose()?;
    if let Some(copy) = &classical {
        program = copy.program();
    }
    let settings = Settings { program, arguments, interrupt };
    Recorder { options, settings, stage, recorded: Vec::new(), doubted: false }.run(&pages)
}

#[derive(Debug)]
struct Page {
    url: String,
    site: Option<Site>,
}

fn pages(options: &RecordOptions) -> Result<Vec<Page>, Failure> {
    let mut pages: Vec<Page> = Vec::new();
    for name in &options.pages {
        let page = page(name)?;
        if pages.iter().any(|other| other.url == page.url) {
            return Err(Failure::usage(format!("{name} is named twice"))
                .hint("--runs N loads each page N times"));
        }
        if page.site.is_some() && options.proxy.is_some() {
            return Err(Failure::usage(format!("{name} is served here, where no proxy finds it"))
                .hint("serve it with `headstart lab site`, and give its URL and --trust"));
        }
        if page.site.is_none() && options.link.is_some() {
            return Err(Failure::usage(format!("{name} cannot be reached over an emulated link"))
                .hint(format!("there are the sites {}", Site::names().join(", "))));
        }
        pages.push(page);
    }
    Ok(pages)
}

fn page(name: &str) -> Result<Page, Failure> {
    if let Some(site) = Site::built_in(name) {
        return Ok(Page { url: site.url(), site: Some(site) });
    }
    match Url::parse(name) {
        Ok(url) if matches!(url.scheme(), "http" | "https") && url.host_str().is_some() => {
            Ok(Page { url: url.into(), site: None })
        }
        _ => Err(Failure::usage(format!("'{name}' is neither a URL nor a site")).hint(format!(
            "URLs begin with https:// or http://; the sites are {}",
            Site::names().join(", ")
        ))),
    }
}

/// Returns Chromium's arguments beside hosts and certificates of sites.
fn arguments(options: &RecordOptions) -> Result<Vec<String>, Failure> {
    let mut arguments = vec![format!("--accept-lang={}", options.language)];
    if let Some(proxy) = &options.proxy {
        check_proxy(proxy)?;
        arguments.push(format!("--proxy-server={proxy}"));
        // Otherwise the browser bypasses it for addresses of this machine.
        arguments.push("--proxy-bypass-list=<-loopback>".into());
    }
    if let Some(file) = &options.trust {
        arguments.push(trusting(&fingerprint(file)?));
    }
    if options.insecure {
        arguments.push("--ignore-certificate-errors".into());
    }
    arguments.extend(tls::arguments(&options.tls));
    arguments.extend(options.browser_arg.iter().cloned());
    Ok(arguments)
}

fn check_proxy(proxy: &str) -> Result<(), Failure> {
    // Checked first, so that no message shows a password, however wrong the rest is.
    if proxy.contains('@') {
        return Err(Failure::usage("--proxy has a user or password").hint(
            "Chromium uses neither, and others see command lines; HEADSTART_AGENT_UPSTREAM gives \
                them to `headstart agent` (docs/optimistic.md), which --proxy may name",
        ));
    }
    let is_proxy = Url::parse(proxy).is_ok_and(|url| {
        matches!(url.scheme(), "socks5" | "http" | "https") && url.host_str().is_some()
    });
    is_proxy.then_some(()).ok_or_else(|| {
        Failure::usage(format!("--proxy {proxy} is no proxy"))
            .hint("give socks5://HOST:PORT or http://HOST:PORT")
    })
}

/// Returns the fingerprint of a certificate's public key.
fn fingerprint(file: &Path) -> Result<String, Failure> {
    let name = file.display();
    let pem =
        fs::read(file).map_err(|error| Failure::usage(format!("cannot read {name}: {error}")))?;
    let key = X509::from_pem(&pem).and_then(|it| it.public_key()?.public_key_to_der());
    let key = key.map_err(|_| {
        Failure::usage(format!("there is no certificate in {name}"))
            .hint("the file has to hold the authority's certificate in PEM form")
    })?;
    Ok(base64::encode_block(&sha256(&key)))
}

struct Recorder<'o> {
    options: &'o RecordOptions,
    settings: Settings,
    stage: Stage,
    recorded: Vec<Summary>,
    /// True once the user was told that this version is another one.
    doubted: bool,
}

impl Recorder<'_> {
    fn run(mut self, pages: &[Page]) -> Result<ExitCode, Failure> {
        let mut failures = Vec::new();
        let mut interrupted = false;
        let is_alone = pages.len() == 1 && self.options.runs == 1;
        let turns = (0..self.options.runs).flat_map(|_| pages);
        for page in turns {
            let failure = match self.record(page)? {
                Ok(()) => continue,
                Err(Trouble::Interrupted) => {
                    interrupted = true;
                    break;
                }
                Err(trouble) => format!("{}: {trouble}", page.url),
            };
            if !is_alone {
                eprintln!("warning: {failure}");
            }
            failures.push(failure);
        }
        if self.options.json {
            let text = json!({ "recordings": self.recorded, "failures": failures });
            output::print(format!("{text:#}\n").as_bytes())?;
        }
        match (interrupted, failures.last()) {
            (true, _) => Ok(ExitCode::from(INTERRUPTED)),
            (false, None) => Ok(ExitCode::SUCCESS),
            (false, Some(last)) if self.recorded.is_empty() => Err(Failure::negative(last.clone())
                .hint("nothing was recorded; `headstart pageload record --help` has the options")),
            (false, Some(_)) => Ok(ExitCode::from(NEGATIVE)),
        }
    }

    /// One load, and what is written of it.
    fn record(&mut self, page: &Page) -> Result<Result<(), Trouble>, Failure> {
        let profile = tempfile::Builder::new().prefix("headstart-").tempdir();
        let profile = profile.map_err(|error| {
            Failure::usage(format!("cannot make a folder for Chromium's profile: {error}"))
        })?;
        tls::settle(profile.path(), &self.options.tls, None)
            .map_err(|error| files::unusable(profile.path(), &error))?;
        let loaded = match self.load(page, profile.path()) {
            Ok(loaded) => loaded,
            Err(trouble) => return Ok(Err(trouble)),
        };
        let (version, loaded) = loaded;
        self.write(&page.url, version, loaded)
    }

    fn load(&mut self, page: &Page, profile: &Path) -> Result<(String, Loaded), Trouble> {
        let wanted = Wanted { url: &page.url, timeout: self.options.timeout, screenshot: false };
        if self.options.warm {
            let mut browser = self.start(page, profile)?;
            load::load(&mut browser, wanted)?;
            browser.close()?;
        }
        let mut browser = self.start(page, profile)?;
        if let Some(pause) = self.options.revisit {
            load::load(&mut browser, wanted)?;
            load::leave(&mut browser, pause)?;
        }
        let wanted = Wanted { screenshot: self.options.screenshot, ..wanted };
        let loaded = load::load(&mut browser, wanted)?;
        Ok((browser.version.clone(), loaded))
    }

    fn start(&mut self, page: &Page, profile: &Path) -> Result<Browser, Trouble> {
        let mut settings = self.settings.clone();
        if page.site.is_some() {
            settings.arguments.push(DIRECT.into());
        }
        let browser = Browser::start(&settings, self.stage.client(), profile)?;
        if let Some(doubt) = process::doubt(&browser.version).filter(|_| !self.doubted) {
            eprintln!("note: {doubt}");
            self.doubted = true;
        }
        Ok(browser)
    }

    fn write(
        &mut self,
        url: &str,
        version: String,
        loaded: Loaded,
    ) -> Result<Result<(), Trouble>, Failure> {
        let Loaded { load, notes, screenshot } = loaded;
        let har = load.har(&self.about(url, &version, &notes)).to_string().into_bytes();
        let recording = match recordings::only_one(&har) {
            Ok(recording) => recording,
            Err(why) => {
                return Ok(Err(Trouble::Page(format!("there is no page to record: {why}"))));
            }
        };
        let mut summary = files::summary(url, &recording);
        summary.file = files::put(&self.options.out, url, &har)?;
        files::put_beside(&summary.file, "csv", &files::tree(&recording)?)?;
        if let Some(picture) = screenshot {
            files::put_beside(&summary.file, "png", &picture)?;
        }
        summary.largest_paint_ms = load.largest_paint_ms();
        (summary.browser, summary.notes) = (version, notes);
        if !self.options.json {
            output::print(text(&summary).as_bytes())?;
        }
        self.recorded.push(summary);
        Ok(Ok(()))
    }

    /// Returns the facts of a load that are not in Chromium's events.
    fn about(&self, url: &str, version: &str, notes: &[String]) -> About {
        let (program, number) = version.split_once('/').unwrap_or((version, ""));
        let cache = match self.options.revisit {
            Some(pause) => {
                format!("again by the same browser after {}", humantime::format_duration(pause))
            }
            None if self.options.warm => "with the cache of a load before".into(),
            None => "with nothing cached".into(),
        };
        let by = match (&self.options.link, &self.options.proxy) {
            (Some(link), _) => format!(", over the emulated link {link}"),
            (None, Some(proxy)) => format!(", through {proxy}"),
            (None, None) => String::new(),
        };
        let tls: Vec<&str> = self.options.tls.iter().map(|one| one.name()).collect();
        let tls =
            if tls.is_empty() { String::new() } else { format!(", with TLS {}", tls.join(",")) };
        let notes =
            if notes.is_empty() { String::new() } else { format!("; {}", notes.join("; ")) };
        About {
            title: url.to_owned(),
            browser: (program.to_owned(), number.to_owned()),
            creator: ("headstart".into(), env!("CARGO_PKG_VERSION").into()),
            comment: format!("loaded {cache}{by}{tls}{notes}"),
        }
    }
}

fn text(summary: &Summary) -> String {
    let Summary { file, resources, hosts, height, .. } = summary;
    let times = [
        ("95 % after", summary.page_load_ms),
        ("load event", summary.on_load_ms),
        ("largest paint", summary.largest_paint_ms),
    ];
    let times = times.iter().filter_map(|(what, ms)| Some((what, (*ms)? / 1e3)));
    let times: String = times.map(|(what, s)| format!(", {what} {s:.2} s")).collect();
    let megabytes = summary.response_bytes as f64 / 1e6;
    let mut text = format!(
        "{}  {resources} resources of {hosts} hosts, {megabytes:.2} MB, height {height}{times}\n",
        file.display(),
    );
    for note in &summary.notes {
        text.push_str(&format!("  note: {note}\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_urls_or_sites() {
        assert_eq!(page("news").unwrap().url, "https://www.daily.test/");
        assert_eq!(page("https://a.test").unwrap().url, "https://a.test/");
        for wrong in
            ["a.test", "ftp://a.test/", "file:///etc/passwd", "chrome://version", "", "weather"]
        {
            assert!(page(wrong).unwrap_err().advice().unwrap().contains("shop"), "{wrong}");
        }
    }

    #[test]
    fn a_proxy_has_no_login_and_no_message_shows_one() {
        for right in ["socks5://127.0.0.1:1080", "http://[::1]:8080", "https://proxy.test"] {
            check_proxy(right).unwrap();
        }
        for wrong in ["proxy.test:8080", "ftp://proxy.test", ""] {
            let failure = check_proxy(wrong).unwrap_err();
            assert!(failure.is_usage() && failure.message().ends_with("is no proxy"), "{wrong}");
        }
        for login in ["http://me:secret@a.test:1", "socks5://secret@a.test", "secret@a.test", "@"] {
            let failure = check_proxy(login).unwrap_err();
            assert!(failure.is_usage() && failure.message().contains("user or password"));
            assert!(failure.advice().unwrap().contains("headstart agent"));
            assert!(!failure.to_string().contains("secret"), "{login}");
        }
    }
}
