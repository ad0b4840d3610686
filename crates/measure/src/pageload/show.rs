//! `headstart pageload show`: what pages load, and where the time went.

pub(super) mod html;
mod picture;
pub(super) mod summary;
pub(super) mod text;
mod waterfall;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

use headstart_pageload::page::Ignored;

use self::summary::{All, DETAILED, PageSummary, ResourceSummary};
use super::batch::Batch;
use crate::json::json;
use crate::pageload::options::ShowOptions;
use crate::recordings::Contents;
use crate::terminal;
use headstart::base::failure::{Failure, USAGE};
use headstart::base::output;

/// Reads the files and prints what is in them.
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
        // Thousands of pages have a million resources.
        if all.pages.len() > 1 {
            all.pages.iter_mut().for_each(|page| page.resources = None);
        }
        output::print(json(&all)?.as_bytes())?;
    } else {
        let columns = terminal::columns().unwrap_or(text::COLUMNS);
        let look = text::Look::new(columns, options.color.is_wanted());
        output::print_raw(text::report(&all, options.rows, look).as_bytes())?;
    }
    Ok(if all.unreadable.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(USAGE) })
}

fn read(options: &ShowOptions) -> Result<All, Failure> {
    let details = Details::default();
    let batch = Batch::read(&options.pages.files, |file, contents| {
        summaries(file, contents, options.page, &details)
    })?;
    let (mut pages, mut ignored) = (Vec::new(), Ignored::default());
    for (of_file, of_none) in batch.results {
        pages.extend(of_file);
        ignored.merge(&of_none);
    }
    if pages.is_empty() {
        return Err(Failure::usage("no file has so many pages").hint("leave --page out"));
    }
    for (page, resources) in pages.iter_mut().zip(details.first()) {
        page.resources = Some(resources);
    }
    Ok(All::new(pages, ignored, batch.unreadable))
}

fn summaries(
    file: usize,
    contents: Contents,
    number: Option<u32>,
    details: &Details,
) -> (Vec<PageSummary>, Ignored) {
    let Contents { recordings, ignored } = contents;
    let wanted = number.and_then(|number| usize::try_from(number - 1).ok());
    let pages = recordings.into_iter().enumerate();
    let pages = pages.filter(|(at, _)| wanted.is_none_or(|wanted| wanted == *at));
    (
        pages
            .map(|(at, recording)| {
                let (page, resources) = PageSummary::from_recording(recording);
                details.add((file, at), resources);
                page
            })
            .collect(),
        ignored,
    )
}

/// The resources of the first [`DETAILED`] pages, in whatever order these are read: those of
/// thousands would fill the memory.
#[derive(Default)]
struct Details(Mutex<BTreeMap<Place, Vec<ResourceSummary>>>);

/// Place of a page: its file, and its number there.
type Place = (usize, usize);

impl Details {
    fn add(&self, place: Place, resources: Vec<ResourceSummary>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(place, resources);
        if all.len() > DETAILED {
            all.pop_last();
        }
    }

    /// Sorts by place.
    fn first(self) -> impl Iterator<Item = Vec<ResourceSummary>> {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner).into_values()
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_pages_have_details_in_whatever_order_they_are_read() {
        let details = Details::default();
        let places = (0..3 * DETAILED).map(|number| (number / 3, number % 3));
        // 7 and the number of places are coprime, so each place has its turn.
        let count = 3 * DETAILED;
        let places: Vec<Place> = places.collect();
        for turn in 0..count {
            details.add(places[turn * 7 % count], Vec::new());
            assert!(details.0.lock().unwrap().len() <= DETAILED);
        }
        let kept: Vec<Place> = details.0.lock().unwrap().keys().copied().collect();
        assert_eq!(kept, places[..DETAILED]);
        assert_eq!(details.first().count(), DETAILED);
    }
}
