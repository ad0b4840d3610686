//! Page databases: what is learned of recordings, how it stands in files, and what they are written
//! out as.

mod applied;
mod corpus;
mod exported;
mod faults;
mod figures;
mod learned;
pub(crate) mod made;
mod pages;
mod real;
mod round_trip;
mod size;
mod vectors;
