//! `headstart lab`, its reports and calibration, `headstart pageload replay` and `headstart demo`
//! as processes, and the results that are committed. Runs make network namespaces, so need
//! root or a user namespace: switched on by HEADSTART_TEST_NET=1. With Fast Open they need root, or
//! fail: the kernel takes programs from nobody else.
#![allow(clippy::unwrap_used)] // a test may panic, its helper functions too

mod browser;
mod calibrate;
#[path = "../../../headstart/tests/support/call.rs"]
#[allow(dead_code)] // the tests of the other commands use the rest
mod call;
mod demo;
mod experiments;
mod folders;
mod interrupts;
#[path = "../../../headstart/tests/support/library.rs"]
mod library;
#[path = "../support/programs.rs"]
mod programs;
mod replay;
mod report;
mod results;
mod samples;
mod together;

use std::process::{Command, Output};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The machine, as far as the tests of this program share it: held by those that need all of it,
/// shared by those that do not disturb each other. Checks of links may run beside all of them.
static MACHINE: RwLock<()> = RwLock::new(());

/// While this is kept, none of the others works.
fn alone() -> RwLockWriteGuard<'static, ()> {
    MACHINE.write().unwrap_or_else(PoisonError::into_inner)
}

/// While this is kept, none that measures with the whole machine does.
fn beside_others() -> RwLockReadGuard<'static, ()> {
    MACHINE.read().unwrap_or_else(PoisonError::into_inner)
}

fn headstart(arguments: &[&str]) -> Output {
    Command::new(programs::LAB).args(arguments).output().unwrap()
}
