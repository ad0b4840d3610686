//! `headstart careful-resume`: a privileged helper for the edge, which has no privilege.

pub mod options;

use std::process::ExitCode;

use headstart_net::careful::{
    CarefulOptions as Wanted, CarefulStatus, attach_careful, careful_status, detach_careful,
};
use headstart_net::fastopen::AttachError;
use serde_json::{Value, json};

use crate::base::failure::{Failure, NEGATIVE};
use crate::base::output;
use crate::careful::options::{AttachOptions, CarefulCommand, CarefulOptions};
use crate::fastopen::options::PlaceOptions;

/// Does what is asked. It starts no thread.
pub(crate) fn run(options: &CarefulOptions) -> Result<ExitCode, Failure> {
    match &options.command {
        CarefulCommand::Attach(options) => attach(options),
        CarefulCommand::Detach(place) => {
            let was_attached = detach_careful(&place.dir).map_err(explain)?;
            let text = if was_attached { "detached\n" } else { "nothing was attached\n" };
            show(place, &json!({ "detached": was_attached }), text)
        }
        CarefulCommand::Status(place) => {
            let status = careful_status(&place.dir).map_err(explain)?;
            show_status(place, status)?;
            let is_well = status.is_some_and(|status| status.cgroup != 0);
            Ok(if is_well { ExitCode::SUCCESS } else { ExitCode::from(NEGATIVE) })
        }
    }
}

fn attach(options: &AttachOptions) -> Result<ExitCode, Failure> {
    let AttachOptions { cgroup, owner, place } = options;
    let wanted = Wanted { dir: place.dir.clone(), cgroup: cgroup.clone(), owner: *owner };
    show_status(place, Some(attach_careful(&wanted).map_err(explain)?))
}

fn show_status(place: &PlaceOptions, status: Option<CarefulStatus>) -> Result<ExitCode, Failure> {
    let text = status.map_or("not attached\n".to_owned(), |CarefulStatus { cgroup, owner }| {
        let where_to = match cgroup {
            0 => "attached to a cgroup that is gone; detach, and attach again".to_owned(),
            1 => "attached, for all processes".to_owned(),
            id => format!("attached to cgroup {id}"),
        };
        format!("{where_to} of user {owner}\n")
    });
    let json = status.map_or(
        Value::Null,
        |CarefulStatus { cgroup, owner }| json!({ "cgroup": cgroup, "owner": owner }),
    );
    show(place, &json, &text)
}

fn show(place: &PlaceOptions, json: &Value, text: &str) -> Result<ExitCode, Failure> {
    let json = format!("{json:#}\n");
    output::print(if place.json { json.as_bytes() } else { text.as_bytes() })?;
    Ok(ExitCode::SUCCESS)
}

fn explain(error: AttachError) -> Failure {
    // Both commands attach programs, and fail alike.
    let hint = error.hint().replace("headstart fastopen", "headstart careful-resume");
    Failure::usage(error.to_string()).hint(hint)
}
