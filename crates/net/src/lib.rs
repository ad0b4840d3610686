//! headstart net
