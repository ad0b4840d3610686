//! The sharing audit.

mod captures;
mod har;
mod malformed;
mod programs;
