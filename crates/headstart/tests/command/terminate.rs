//! The terminating edge as a process on loopback, with the system's curl and openssl as clients:
//! what they see, what the origin sees, and what becomes of files and signals.

mod aged;
mod client_certificates;
mod early;
mod faults;
mod h2;
mod http;
mod limits;
mod raw;
mod recorder;
mod reload;
mod replay;
mod smuggling;
mod start;
mod starve;
mod stop;
mod tools;
mod turbo;
