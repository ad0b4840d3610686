//! `headstart pageload show`: what pages load, and where the time went.

mod html;
mod picture;
pub(super) mod summary;
pub(super) mod text;

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use headstart_pageload::page::Ignored;

use self::summary::{All, PageSummary, Unreadable};
use super::recordings::{self, Contents};
use crate::failure::{Failure, USAGE};
use crate::options::ShowOptions;
use crate::output;

/// Reads the files and prints what is in them.
///
/// # Errors
/// No file can be read, or a picture of several pages is asked for.
pub(super) fn run(options: &ShowOptions) -> Result<ExitCode, Failure> {
    let mut all = read(options)?;
    if let [page] = all.pages.as_slice() {
        if let Some(file) = &options.svg {
            write(file, &picture(page)?)?;
        }
    } else if options.svg.is_some() {
        return Err(Failure::usage("a picture shows one page, and there are several")
            .hint("--page N shows one of a file; --html FILE makes a report of all"));
    }
    if let Some(file) = &options.html {
        write(file, &html::document(&all).into_string())?;
    }
    if options.json {
        output::print(format!("{}\n", json(&mut all)?).as_bytes())?;
    } else {
        output::print(text::report(&all, options.rows).as_bytes())?;
    }
    Ok(if all.unreadable.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(USAGE) })
}

fn read(options: &ShowOptions) -> Result<All, Failure> {
    let read = recordings::read_all(&options.files, |contents| summaries(contents, options.page));
    let (mut pages, mut ignored) = (Vec::new(), Ignored::default());
    let (mut unreadable, mut last) = (Vec::new(), None);
    for (file, read) in read {
        match read {
            Ok((of_file, of_none)) => {
                pages.extend(of_file);
                ignored.merge(&of_none);
            }
            Err(failure) => {
                if options.files.len() > 1 {
                    eprintln!("warning: {}", failure.message());
                }
                unreadable.push(Unreadable { file, error: failure.message().to_owned() });
                last = Some(failure);
            }
        }
    }
    match (pages.is_empty(), last) {
        (false, _) => Ok(All::new(pages, ignored, unreadable)),
        (true, Some(failure)) => Err(failure),
        (true, None) => Err(Failure::usage("no file has so many pages").hint("leave --page out")),
    }
}

fn summaries(contents: Contents, number: Option<u32>) -> (Vec<PageSummary>, Ignored) {
    let Contents { recordings, ignored } = contents;
    let wanted = number.and_then(|number| usize::try_from(number - 1).ok());
    let pages = recordings.into_iter().enumerate();
    let pages = pages.filter(|(at, _)| wanted.is_none_or(|wanted| wanted == *at));
    (pages.map(|(_, recording)| PageSummary::of(recording)).collect(), ignored)
}

fn picture(page: &PageSummary) -> Result<String, Failure> {
    picture::standalone(page).ok_or_else(|| {
        Failure::usage(format!("{} has no times, so that there is no waterfall", page.file))
            .hint("record the page with a browser, as a HAR file")
    })
}

fn write(file: &Path, text: &str) -> Result<(), Failure> {
    fs::write(file, text)
        .map_err(|error| Failure::usage(format!("cannot write {}: {error}", file.display())))
}

/// Resources are left out where there are several pages: thousands of pages have a million.
fn json(all: &mut All) -> Result<String, Failure> {
    if all.pages.len() > 1 {
        for page in &mut all.pages {
            page.resources = None;
        }
    }
    serde_json::to_string_pretty(all)
        .map_err(|error| Failure::usage(format!("cannot write the report as JSON: {error}")))
}
