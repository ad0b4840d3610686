//! The emulated network: the privileges that it needs, and errors of building and using it.

use headstart::base::failure::Failure;
use headstart_emulation::{LabError, Privilege, enter_user_namespace, privilege};
use headstart_openers::PeerError;

/// Makes this process able to build a lab. Call it while it has one thread.
pub(crate) fn become_privileged() -> Result<(), Failure> {
    let done = match privilege() {
        Privilege::Root => Ok(()),
        Privilege::UserNamespace => enter_user_namespace(),
        Privilege::None(refusal) => Err(refusal),
    };
    done.map_err(|refusal| {
        Failure::usage(format!("cannot make an emulated network: {refusal}")).hint(refusal.hint())
    })
}

/// A lab that could not be built, with what to do about it.
pub(crate) fn not_built(error: &LabError) -> Failure {
    let failure = Failure::usage(format!("cannot make an emulated network: {error}"));
    match error.hint() {
        Some(hint) => failure.hint(hint),
        None => failure.hint("`headstart doctor` checks what this machine allows"),
    }
}

pub(crate) fn not_started(error: &std::io::Error) -> Failure {
    Failure::usage(format!("cannot start on the emulated network: {error}"))
}

/// Turns an error of the openers into one for the terminal.
pub(crate) fn failed(error: &PeerError) -> Failure {
    let failure = Failure::usage(error.to_string());
    match error.hint() {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}
