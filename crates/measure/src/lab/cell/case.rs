//! Visits in front of a boundary and behind it: whether they can be linked is seen in a capture of
//! the client.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use headstart_emulation::{INTERFACE, Node};
use headstart_openers::OTHER_NAME;

use super::{Cell, Context, Timed, no_client, start};
use crate::interrupt::Interrupt;
use crate::lab::plan::{VISIT_PAUSE, VISITS_A_SIDE};
use crate::lab::privacy::{Boundary, Case, Visit};
use crate::lab::process::Broken;

/// Interval at which a long wait looks whether the user has interrupted.
const LOOK: Duration = Duration::from_millis(50);

/// A boundary that was crossed, and what goes back behind it.
enum Crossed {
    Nothing,
    /// The first program goes on, as the second one did beside it.
    Program(Box<super::Client>),
    /// The client is behind another path than its own.
    Path,
}

impl Cell {
    pub(super) fn case(
        &mut self,
        context: Context<'_>,
        round: u32,
        boundary: Boundary,
        rows: &mut Vec<Timed>,
    ) -> Result<(), Broken> {
        self.forget(context)?;
        self.cases.push(Case::default());
        self.visits(context, round, boundary, false, rows)?;
        let crossed = self.cross(context, boundary)?;
        let visited = self.visits(context, round, boundary, true, rows);
        self.go_back(context, crossed)?;
        visited
    }

    /// The visits on one side.
    fn visits(
        &mut self,
        context: Context<'_>,
        round: u32,
        boundary: Boundary,
        behind: bool,
        rows: &mut Vec<Timed>,
    ) -> Result<(), Broken> {
        let how = how(boundary, behind, self.spec.arm.has_agent());
        for number in 1..=VISITS_A_SIDE {
            let number = number + if behind { VISITS_A_SIDE } else { 0 };
            thread::sleep(VISIT_PAUSE);
            let begun = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
            let visit = Visit { begun: begun.unwrap_or_default(), behind };
            if let Some(case) = self.cases.last_mut() {
                case.visits.push(visit);
            }
            self.connect(context, (round, number), &how, rows)?;
        }
        Ok(())
    }

    fn cross(&mut self, context: Context<'_>, boundary: Boundary) -> Result<Crossed, Broken> {
        let node = context.topology.clients().next().ok_or_else(no_client)?;
        match boundary {
            // The order to the client includes a name or a context.
            Boundary::Network
            | Boundary::ThirdParties
            | Boundary::VirtualHosts
            | Boundary::PrivateMode => {}
            Boundary::Restart => {
                let client = self.clients.first_mut().ok_or_else(no_client)?;
                client.program = self.setting.client(node, None)?;
            }
            Boundary::Applications => return self.change_program(node),
            // The program of another device, at its own address behind the NAT.
            Boundary::Devices => {
                change_address(node, self.setting.target())?;
                return self.change_program(node);
            }
            Boundary::AddressChange => change_address(node, self.setting.target())?,
            Boundary::Nat => {
                let path = context.stage.link.changed_path.as_deref().unwrap_or_default();
                let_last_packets_pass(context);
                context.topology.change_path(node, path).map_err(Broken::Program)?;
                return Ok(Crossed::Path);
            }
            Boundary::Period => wait(context.interrupt, context.stage.case_pause(boundary))?,
        }
        Ok(Crossed::Nothing)
    }

    /// Starts another program beside the first.
    fn change_program(&mut self, node: &Node) -> Result<Crossed, Broken> {
        let new = self.setting.client(node, None)?;
        let client = self.clients.first_mut().ok_or_else(no_client)?;
        let old = std::mem::replace(&mut client.program, new);
        Ok(Crossed::Program(Box::new(super::Client { program: old, agent: None })))
    }

    /// The next case begins in front of the boundary again, where it would not do so anyway.
    fn go_back(&mut self, context: Context<'_>, crossed: Crossed) -> Result<(), Broken> {
        match crossed {
            Crossed::Nothing => {}
            Crossed::Program(old) => {
                let client = self.clients.first_mut().ok_or_else(no_client)?;
                client.program = old.program;
            }
            Crossed::Path => {
                let node = context.topology.clients().next().ok_or_else(no_client)?;
                let path = context.stage.link.client_path();
                let_last_packets_pass(context);
                context.topology.change_path(node, &path).map_err(Broken::Program)?;
            }
        }
        Ok(())
    }
}

/// Returns the words behind the number of bytes in an order.
fn how(boundary: Boundary, behind: bool, by_agent: bool) -> String {
    match (boundary, behind) {
        // Two sites embed the same third one.
        (Boundary::ThirdParties, false) => "context first-site".into(),
        (Boundary::ThirdParties, true) => "context second-site".into(),
        (Boundary::VirtualHosts, true) => format!("name {OTHER_NAME}"),
        (Boundary::PrivateMode, true) => "context private".into(),
        // Both programs are clients of one agent, which tells them apart by their labels.
        (Boundary::Applications | Boundary::Devices, false) if by_agent => {
            "context first-program".into()
        }
        (Boundary::Applications | Boundary::Devices, true) if by_agent => {
            "context second-program".into()
        }
        _ => String::new(),
    }
}

/// Gives new connections of a node its other address: that in use goes, and comes back behind the
/// other.
///
/// The kernel takes the first address of an interface where nothing else decides.
fn change_address(node: &Node, target: SocketAddr) -> Result<(), Broken> {
    let cannot = |error: std::io::Error| {
        Broken::Program(format!("cannot change the address of {}: {error}", node.name()))
    };
    let used = || -> std::io::Result<IpAddr> {
        let socket = UdpSocket::bind(("0.0.0.0", 0))?;
        socket.connect(target)?;
        Ok(socket.local_addr()?.ip())
    };
    let before = node.run(used).flatten().map_err(cannot)?;
    let address = format!("{before}/32");
    for action in ["del", "add"] {
        start::ip(node, &["address", action, &address, "dev", INTERFACE])?;
    }
    let after = node.run(used).flatten().map_err(cannot)?;
    match before == after {
        true => Err(Broken::Program(format!("{} keeps its address {before}", node.name()))),
        false => Ok(()),
    }
}

/// A new path knows nothing of connections that are still being closed on the old one.
pub(super) fn let_last_packets_pass(context: Context<'_>) {
    thread::sleep(context.stage.link.rtt);
}

/// Waits, unless the user interrupts.
pub(super) fn wait(interrupt: &Interrupt, time: Duration) -> Result<(), Broken> {
    let until = Instant::now() + time;
    while Instant::now() < until {
        if interrupt.is_set() {
            return Err(Broken::Interrupted);
        }
        thread::sleep(LOOK.min(until.saturating_duration_since(Instant::now())));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_differ_where_the_boundary_is_one_of_names() {
        let sides =
            |boundary, by_agent| [false, true].map(|behind| how(boundary, behind, by_agent));
        assert_eq!(
            sides(Boundary::ThirdParties, false),
            ["context first-site", "context second-site"]
        );
        assert_eq!(sides(Boundary::VirtualHosts, false), ["", "name other.peer.test"]);
        assert_eq!(sides(Boundary::PrivateMode, false), ["", "context private"]);
        for boundary in [Boundary::Applications, Boundary::Devices] {
            assert_eq!(sides(boundary, false), ["", ""]);
            let by_agent = sides(boundary, true);
            assert_ne!(by_agent[0], by_agent[1]);
        }
        for boundary in [Boundary::Network, Boundary::Restart, Boundary::Nat, Boundary::Period] {
            assert_eq!(sides(boundary, true), ["", ""], "{boundary:?}");
        }
    }
}
