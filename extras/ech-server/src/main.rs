//! A server of TLS 1.3 with Encrypted ClientHello (RFC 9849), for measurements only.
//!
//! OpenSSL 4.0 is the first that can be such a server. The other programs have OpenSSL 3.6, and two
//! of them in one binary have the same symbols: hence a program of its own, which no other crate
//! depends on.
//!
//! It speaks what all servers of the lab speak, HTTP/1.1 `GET /bytes/N`, and it answers only to
//! those whose inner and outer name are the ones given: nobody measures without Encrypted
//! ClientHello by mistake.

mod content;
mod key;
mod serve;
mod sys;

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;

use clap::Parser;

use serve::Server;

/// Serves HTTP/1.1 GET /bytes/N over TLS with Encrypted ClientHello until standard input ends
#[derive(Debug, Parser)]
#[command(name = "headstart-ech-server", version = sys::version())]
struct Options {
    /// Where to listen
    #[arg(long, value_name = "IP:PORT")]
    listen: SocketAddr,

    /// Certificates that are sent, the server's own first, in PEM form
    #[arg(long, value_name = "FILE")]
    certificate: PathBuf,

    /// The key of the server's own certificate, in PEM form
    #[arg(long, value_name = "FILE")]
    key: PathBuf,

    /// The one group for key exchange, as OpenSSL calls it
    #[arg(long, value_name = "GROUP")]
    group: String,

    /// The name that clients show to everybody
    #[arg(long, value_name = "NAME")]
    outer_name: String,

    /// The name that they encrypt
    #[arg(long, value_name = "NAME")]
    inner_name: String,

    /// Key and configuration of Encrypted ClientHello, in PEM form; made if it is missing
    #[arg(long, value_name = "FILE")]
    ech: PathBuf,

    /// Take requests as early data
    #[arg(long)]
    early_data: bool,
}

type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(options: &Options) -> Result<(), Failure> {
    let pem = key::obtain(&options.ech, &options.outer_name)?;
    let list = key::config_list(&pem).ok_or("the ECH file has no ECHCONFIG")?;
    let mut context = sys::Context::new(&options.certificate, &options.key, &options.group)?;
    context.set_ech(&pem)?;
    if options.early_data {
        context.take_early_data()?;
    }
    let listener = TcpListener::bind(options.listen)
        .map_err(|error| format!("cannot listen on {}: {error}", options.listen))?;
    let ready = serde_json::json!({
        "ready": true,
        "listen": listener.local_addr()?,
        "flight_bytes": null,
        "ech_config_list": list,
    });
    let server = Server::new(context, &options.inner_name, &options.outer_name);
    thread::spawn(move || serve::accept(&listener, &Arc::new(server)));
    writeln!(io::stdout(), "{ready}")?;
    wait_for_end()?;
    Ok(())
}

/// Whoever started the program ends it with its standard input.
fn wait_for_end() -> io::Result<()> {
    let mut room = [0; 1024];
    while io::stdin().read(&mut room)? > 0 {}
    Ok(())
}
