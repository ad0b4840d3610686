//! `headstart pageload sharing`: the files, and what comes of them.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::process::ExitCode;

use headstart_pageload::sharing::{AsTable, Audit, Report};

use super::text;
use crate::json::json;
use crate::pageload::options::SharingOptions;
use crate::progress::Progress;
use crate::recordings::{name_of, open, total, unreadable};
use headstart::base::failure::Failure;
use headstart::base::output;

/// Reads the files and prints the report.
pub(super) fn run(options: &SharingOptions) -> Result<ExitCode, Failure> {
    // The table first: it is small, and a wrong one is reported before a large capture is read.
    let systems = options.asn.as_deref().map(systems).transpose()?;
    let report = audit(options)?.report(systems.as_ref());
    let report = match options.cost {
        None => report,
        Some(cost) => report.with_costs(cost.0),
    };
    if report.connections == 0 {
        return Err(nothing(&report));
    }
    let text = if options.json { json(&report)? } else { text::report(&report, options.top) };
    output::print(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn audit(options: &SharingOptions) -> Result<Audit, Failure> {
    let mut audit = Audit::new();
    let progress = Progress::with_bytes(total(&options.files));
    let read = options.files.iter().try_for_each(|path| read(path, &mut audit, &progress));
    progress.done();
    read.map(|()| audit)
}

fn read(path: &Path, audit: &mut Audit, progress: &Progress) -> Result<(), Failure> {
    let name = name_of(path);
    progress.stage(&name);
    let input = open(path).map_err(|error| unreadable(&name, &error))?;
    let recording = audit.read(&name, progress.wrap(input)).map_err(|error| {
        Failure::usage(format!("cannot read {name}: {error}")).hint(error.hint())
    })?;
    if recording.is_cut_short {
        progress.note(&format!("warning: {name} ends within a packet; what is before it counts"));
    }
    Ok(())
}

fn systems(path: &Path) -> Result<AsTable, Failure> {
    let name = name_of(path);
    let file = File::open(path).map_err(|error| unreadable(&name, &error))?;
    AsTable::read(BufReader::new(file))
        .map_err(|error| Failure::usage(format!("cannot read {name}: {error}")).hint(error.hint()))
}

/// The failure when there may be nothing to report.
fn nothing(report: &Report) -> Failure {
    let seen = &report.seen;
    let hint = if seen.cut_off > 0 {
        "the packets were cut when they were captured; capture with `tcpdump -s 0`"
    } else if seen.unknown_link_packets > 0 {
        "the link type is not known; capture with `tcpdump -i any -y LINUX_SLL2` or on an \
            Ethernet interface"
    } else if seen.quic_connections + seen.har_quic_requests > 0 {
        "there is QUIC, which is not counted; turn it off in the browser, and record again"
    } else if seen.unanswered > 0 {
        "no handshake has an answer; capture both directions"
    } else if seen.har_requests > 0 {
        "no request has the time of a TLS handshake; open the network panel before the page, in a \
            new window"
    } else {
        "begin to capture before the programs connect: `tcpdump -i any -s 0 -w FILE tcp port 443`"
    };
    Failure::negative("there is no TLS handshake in what was recorded").hint(hint)
}
