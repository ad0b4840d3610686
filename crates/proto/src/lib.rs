//! headstart proto
