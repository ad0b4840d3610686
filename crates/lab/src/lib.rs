//! headstart lab
