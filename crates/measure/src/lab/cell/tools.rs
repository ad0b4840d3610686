//! Programs of others that a run uses.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use super::origin::program_name;
use super::{ech, workload};
use crate::lab::plan::{Plan, Stage};
use crate::lab::process::find_program;
use headstart::base::failure::Failure;

/// Finds missing programs before anything is built.
pub(crate) fn check_tools(plan: &Plan) -> Result<(), Failure> {
    workload::check(plan)?;
    if ech::is_needed(plan) && ech::program().is_none() {
        return Err(Failure::usage(format!(
            "this run of {} needs the program {}",
            plan.experiment.name,
            ech::PROGRAM
        ))
        .hint(ech::HINT));
    }
    for name in servers(plan) {
        if find_program(name).is_none() {
            return Err(Failure::usage(format!(
                "this run of {} needs {name}",
                plan.experiment.name
            ))
            .hint(format!("install the package {name}")));
        }
    }
    Ok(())
}

/// Returns the programs that are origins, or pass on what they get.
fn servers(plan: &Plan) -> BTreeSet<&'static str> {
    let origins = plan.stages.iter().filter_map(|stage| program_name(stage.variant.origin));
    let has_haproxy = |stage: &&Stage| {
        stage.has_haproxy() || stage.cells.iter().any(|cell| cell.arm.has_haproxy())
    };
    let proxies = plan.stages.iter().filter(has_haproxy).map(|_| "haproxy");
    origins.chain(proxies).collect()
}

/// Returns the versions of the programs that a run uses beside this one.
pub(crate) fn versions(plan: &Plan) -> BTreeMap<&'static str, String> {
    let ech = ech::is_needed(plan).then_some(ech::PROGRAM);
    let ech = ech.and_then(|name| Some((name, version(&ech::program()?, "-V")?)));
    // Both accept `-v`; nginx answers on standard error.
    let others = servers(plan)
        .into_iter()
        .filter_map(|name| Some((name, version(&find_program(name)?, "-v")?)));
    others.chain(ech).chain(workload::versions(plan)).collect()
}

/// Returns the first line that a program says of its version.
pub(crate) fn version(program: &Path, option: &str) -> Option<String> {
    let output = Command::new(program).arg(option).output().ok()?;
    let text = [output.stdout, output.stderr].concat();
    Some(String::from_utf8_lossy(&text).lines().next()?.trim().to_owned())
}
