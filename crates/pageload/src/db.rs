//! Page databases: what many recordings of pages tell a browser before it asks (BLAST, Wang 2020,
//! section 5).
//!
//! * redirect: where a URL leads, so that the first request goes there;
//! * server: what a page connects to, so that connections are there when they are needed;
//! * HTTP/2: which hosts speak it, so that one connection is opened instead of six;
//! * prefetch: what a page loads every time, so that it is asked for with the page.
//!
//! [`Recordings`] learn them and say how well they would have done; [`write()`] and [`read()`] make
//! and take signed files; [`export`] writes them for servers and browsers; [`update`] decides when
//! to fetch a newer one, and whether to take it; [`Database::apply`] says what one knows of a
//! recorded load, for simulators. docs/databases.md has the format, byte by byte, and what each
//! database tells whom.
//!
//! A client uses a database as it is: it is the same for all users, nothing that one does is
//! written into it, and it is fetched at times that have nothing to do with what is visited. So its
//! use tells nobody what was visited before.

mod apply;
mod columns;
mod database;
pub mod export;
mod figures;
mod file;
mod layout;
mod learn;
pub mod limits;
mod methods;
mod recordings;
mod target;
pub mod update;
mod visit;

pub use crate::har::Kind;
pub use apply::Coverage;
pub use columns::ColumnError;
pub use database::{
    Connect, Database, DatabaseError, Hop, Http2, PageEntry, Parts, Prefetch, Redirect,
};
pub use figures::{Figures, HORIZONS, Horizon, Tally};
pub use file::{
    FileError, HEADER_BYTES, Header, KeyId, MAGIC, NoKey, PublicKey, SecretKey, VERSION, read,
    read_unverified, write,
};
pub use layout::{LayoutError, read as read_columns, write as write_columns};
pub use learn::Rules;
pub use methods::Methods;
pub use recordings::{Built, LeftOut, RecordingError, Recordings};
pub use target::{Origin, Target, TargetError};
pub use visit::{Fact, Facts};
