//! A client or a server of one arm, driven by lines on standard input.
//!
//! ```text
//! cargo run -p headstart-openers --example peer -- server turbo p256 127.0.0.1:4433 /tmp/identity
//! echo open 1000 |
//! cargo run -p headstart-openers --example peer -- client turbo p256 127.0.0.1:4433 /tmp/identity
//! ```

use headstart_openers::{ClientOptions, ServerOptions, run_client, run_server};

type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [side, arm, suite, address, identity] = arguments.as_slice() else {
        return Err("usage: peer client|server ARM SUITE ADDR:PORT IDENTITY_DIR".into());
    };
    let (arm, suite, address) = (arm.parse()?, suite.parse()?, address.parse()?);
    let (input, output) = (std::io::stdin(), std::io::stdout());
    match side.as_str() {
        "client" => {
            run_client(ClientOptions::new(arm, suite, address, identity), input, output)?;
        }
        _ => run_server(ServerOptions::new(arm, suite, address, identity), input, output)?,
    }
    Ok(())
}
