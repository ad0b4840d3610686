//! `headstart dns-record`: the record that tells clients of an edge.

pub mod options;

use std::process::ExitCode;

use headstart_net::advert::{Advert, HttpsRecord, RecordError, VERSION};
use serde_json::json;

use crate::base::failure::Failure;
use crate::base::output;
use crate::dns_record::options::DnsRecordOptions;

/// Port of an edge that was named without one: that of https.
const HTTPS: u16 = 443;

const UPGRADE: &str = "an HTTPS record makes browsers use https: for every http: URL of this name \
                       (RFC 9460 section 9.5); publish it only if all of the name works over https";
const EARLY_DATA: &str = "early data can be replayed to another edge of the same name; advertise \
    it only if one edge serves all its addresses";

/// Prints the record, and warnings to standard error.
pub(crate) fn run(options: &DnsRecordOptions) -> Result<ExitCode, Failure> {
    let record = record(options);
    let line = record.zone_line().map_err(|error| explain(options, error))?;
    let warnings = warnings(options);
    if options.json {
        output::print(format!("{:#}\n", json(&record, &line, &warnings)).as_bytes())?;
    } else {
        output::print(format!("{line}\n").as_bytes())?;
    }
    for warning in warnings {
        eprintln!("warning: {warning}");
    }
    Ok(ExitCode::SUCCESS)
}

fn record(options: &DnsRecordOptions) -> HttpsRecord {
    let edge = options.edge.as_ref();
    HttpsRecord {
        owner: options.name.clone(),
        ttl: options.ttl,
        priority: 1,
        target: edge.map_or(".".into(), |edge| edge.host.clone()),
        port: edge.map_or(HTTPS, |edge| edge.port),
        alpn: options.alpn.iter().filter(|id| !id.is_empty()).cloned().collect(),
        advert: Advert {
            version: VERSION,
            slots: options.slots,
            udp: options.udp,
            fop: options.fast_open,
            early_data: options.early_data,
        },
    }
}

fn warnings(options: &DnsRecordOptions) -> Vec<&'static str> {
    let early_data = options.early_data.then_some(EARLY_DATA);
    std::iter::once(UPGRADE).chain(early_data).collect()
}

fn json(record: &HttpsRecord, line: &str, warnings: &[&str]) -> serde_json::Value {
    json!({
        "record": line,
        "name": record.owner,
        "ttl": record.ttl,
        "priority": record.priority,
        "target": record.target,
        "port": record.port,
        "alpn": record.alpn,
        "advert": record.advert.to_string(),
        "warnings": warnings,
    })
}

fn explain(options: &DnsRecordOptions, error: RecordError) -> Failure {
    match error {
        RecordError::Owner => Failure::usage(format!("'{}' is not a host name", options.name))
            .hint("write the name that clients connect to, for example www.example.com"),
        RecordError::Target => Failure::usage("the edge is not a host name").hint(
            "a record names its target; if the edge has no name of its own, let NAME have its \
                addresses",
        ),
        other => Failure::usage(other.to_string())
            .hint("`headstart dns-record --help` explains the options"),
    }
}
