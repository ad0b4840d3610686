//! Where pages are loaded: the network as it is, with built-in sites served on loopback, or an
//! emulated link to them.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use headstart_emulation::{Host, Lab, Node, PRESETS, Path, Scheduling};
use headstart_openers::site::{Authority, Site, SiteOptions, SiteOrigin};

use crate::chromium::trusting;
use crate::lab::site;
use crate::network;
use crate::network::failed;
use headstart::base::failure::Failure;

/// Hosts of the sites have 127.77.0.N here, so that each has an address of its own, as in the lab.
const LOOPBACK: [u8; 3] = [127, 77, 0];

/// Hosts of the sites have 10.100.0.N in the lab.
const EMULATED: [u8; 3] = [10, 100, 0];

/// The port of HTTPS, which is free in a lab.
const HTTPS: u16 = 443;

/// Hosts of all sites of a run at most: addresses of one network.
const HOSTS_MAX: usize = 250;

/// Where pages are loaded; what serves them ends with it.
#[derive(Debug, Default)]
pub(super) struct Stage {
    lab: Option<Lab>,
    /// Chromium's arguments about hosts and certificates.
    pub(super) arguments: Vec<String>,
}

impl Stage {
    /// For built-in sites, and for other pages beside them if these are not `alone`.
    pub(super) fn build(
        sites: &[Site],
        alone: bool,
        link: Option<&str>,
        think: Option<Duration>,
    ) -> Result<Self, Failure> {
        let hosts: Vec<String> =
            sites.iter().flat_map(Site::hosts).map(|host| host.name.clone()).collect();
        if hosts.is_empty() {
            return Ok(Self::default());
        }
        if hosts.len() > HOSTS_MAX {
            return Err(Failure::usage(format!("{} hosts are more than {HOSTS_MAX}", hosts.len())));
        }
        let lab = link.map(|link| build_lab(link, hosts.len())).transpose()?;
        let authority = Authority::new().map_err(|error| failed(&error))?;
        let how = SiteOptions { think, ..SiteOptions::default() };
        let origin = SiteOrigin::new(sites, &authority, &how).map_err(|error| failed(&error))?;
        let (net, port) = if lab.is_some() { (EMULATED, HTTPS) } else { (LOOPBACK, 0) };
        let addresses = addresses(net, hosts.len());
        let wanted = addresses.into_iter().map(|ip| SocketAddr::new(ip, port)).collect();
        let server = lab.as_ref().and_then(|lab| lab.node("server"));
        let bound = site::start(origin, wanted, true, server, Scheduling::default())?;
        let mut rules: Vec<String> =
            hosts.iter().zip(bound).map(|(host, at)| format!("MAP {host} {at}")).collect();
        if alone {
            // Nothing leaves this machine.
            rules.push("MAP * ~NOTFOUND".into());
        }
        let fingerprint = authority.fingerprint().map_err(|error| failed(&error))?;
        let arguments =
            vec![format!("--host-resolver-rules={}", rules.join(", ")), trusting(&fingerprint)];
        Ok(Self { lab, arguments })
    }

    /// Where Chromium is to run: none is this machine.
    pub(super) fn client(&self) -> Option<&Node> {
        self.lab.as_ref().and_then(|lab| lab.node("client"))
    }
}

/// A path by its text, or by the name of a preset.
pub(super) fn path(link: &str) -> Result<Path, Failure> {
    let is_preset = PRESETS.iter().any(|preset| preset.name == link);
    let text = if is_preset { format!("preset {link}") } else { link.to_owned() };
    text.parse().map_err(|error| {
        let names: Vec<&str> = PRESETS.iter().map(|preset| preset.name).collect();
        Failure::usage(format!("--link {link}: {error}")).hint(format!(
            "there are {}; or a path such as 'delay 40ms, down(rate 10Mbit queue 64kB)'",
            names.join(", ")
        ))
    })
}

fn build_lab(link: &str, hosts: usize) -> Result<Lab, Failure> {
    let client = Host::new("client").path(path(link)?);
    let addresses = addresses(EMULATED, hosts);
    let server = addresses.into_iter().fold(Host::new("server"), Host::address);
    Lab::build(vec![client, server]).map_err(|error| network::not_built(&error))
}

fn addresses([a, b, c]: [u8; 3], count: usize) -> Vec<IpAddr> {
    (1..=u8::MAX).take(count).map(|d| Ipv4Addr::new(a, b, c, d).into()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_presets_or_paths() {
        assert_eq!(path("lte").unwrap().to_string(), "preset lte");
        assert_eq!(path("delay 5ms").unwrap().to_string(), "delay 5ms");
        let error = path("slow").unwrap_err();
        assert!(error.advice().unwrap().contains("satellite"), "{error}");
    }

    #[test]
    fn nothing_is_served_for_other_pages() {
        let stage = Stage::build(&[], false, None, None).unwrap();
        assert!(stage.arguments.is_empty() && stage.client().is_none());
    }

    #[test]
    fn each_host_has_an_address_and_the_rest_of_the_world_has_none() {
        let news = Site::built_in("news").unwrap();
        let stage = Stage::build(std::slice::from_ref(&news), true, None, None).unwrap();
        let rules = &stage.arguments[0];
        assert_eq!(rules.matches("MAP ").count(), news.hosts().len() + 1);
        assert!(
            rules.contains("MAP www.daily.test 127.77.0.") && rules.ends_with("MAP * ~NOTFOUND")
        );
        assert!(Stage::build(&[news], false, None, None).unwrap().arguments[0].contains(":"));
    }
}
