//! The status of attached programs, as text and as JSON.

use headstart_net::fastopen::{AttachedInterface, ClientStatus, ServerStatus, Unavailable};
use serde_json::{Value, json};

/// The attached client programs, and whether this process can use them.
pub(super) struct Client {
    pub(super) status: ClientStatus,
    pub(super) usable: Result<(), Unavailable>,
}

impl Client {
    /// Returns true if they are attached to a cgroup that exists, and usable here.
    pub(super) fn is_well(&self) -> bool {
        self.status.cgroup != 0 && self.usable.is_ok()
    }

    pub(super) fn text(&self) -> String {
        let ClientStatus { cgroup, sent, no_room, no_data } = self.status;
        let state = match (&self.usable, cgroup) {
            (_, 0) => "attached to a cgroup that is gone; detach, and attach again".to_owned(),
            (Ok(()), 1) => "attached, for all processes".to_owned(),
            (Ok(()), id) => format!("attached to cgroup {id}"),
            (Err(why), _) => {
                format!("attached, but unusable here: {why}\n         hint: {}", why.hint())
            }
        };
        format!(
            "client   {state}\n         SYNs with a cookie: {sent}; without one: {no_room} for \
             lack of room, {no_data} for lack of data\n"
        )
    }

    pub(super) fn json(&self) -> Value {
        let ClientStatus { cgroup, sent, no_room, no_data } = self.status;
        json!({
            "cgroup": cgroup,
            "usable": self.usable.is_ok(),
            "reason": self.usable.as_ref().err().map(Unavailable::name),
            "sent": sent,
            "no_room": no_room,
            "no_data": no_data,
        })
    }
}

fn interface_text(interface: &AttachedInterface) -> String {
    let gone = if interface.is_live { "" } else { ", gone" };
    format!("{} ({}{gone})", interface.name, interface.method.name())
}

/// The attached server program.
pub(super) struct Server(pub(super) ServerStatus);

impl Server {
    /// Returns true if it is attached to interfaces, all of which still exist.
    pub(super) fn is_well(&self) -> bool {
        let interfaces = &self.0.interfaces;
        !interfaces.is_empty() && interfaces.iter().all(|interface| interface.is_live)
    }

    pub(super) fn text(&self) -> String {
        let status = &self.0;
        let interfaces: Vec<_> = status.interfaces.iter().map(interface_text).collect();
        let interfaces =
            if interfaces.is_empty() { "no interface".to_owned() } else { interfaces.join(", ") };
        let counts = status.stats.iter().map(|(name, count)| format!("{name} {count}"));
        let counts: Vec<_> = counts.collect();
        format!(
            "server   port {} on {interfaces}\n         {}\n         spent cookies remembered: {}; \
             cookies minted before {} (unix time) are refused\n         {}\n",
            status.port,
            self.edge(),
            status.spent,
            status.created.0,
            counts.join(", "),
        )
    }

    fn edge(&self) -> String {
        let [ipv4, ipv6] = self.0.hidden;
        let listeners: Vec<_> = [("127.0.0.1", ipv4), ("[::1]", ipv6)]
            .into_iter()
            .filter_map(|(address, port)| Some(format!("{address}:{}", port?)))
            .collect();
        if listeners.is_empty() || self.0.keys == 0 {
            return "no edge is running: cookies are refused; connections open without them".into();
        }
        format!(
            "an edge with {} keys takes connections at {}",
            self.0.keys,
            listeners.join(" and ")
        )
    }

    pub(super) fn json(&self) -> Value {
        let status = &self.0;
        let interfaces: Vec<_> = status
            .interfaces
            .iter()
            .map(|one| json!({ "name": one.name, "how": one.method.name(), "live": one.is_live }))
            .collect();
        let counts: serde_json::Map<_, _> =
            status.stats.iter().map(|(name, count)| (name.to_owned(), count.into())).collect();
        let [ipv4, ipv6] = status.hidden;
        json!({
            "port": status.port,
            "interfaces": interfaces,
            "created": status.created.0,
            "hidden_ipv4_port": ipv4,
            "hidden_ipv6_port": ipv6,
            "keys": status.keys,
            "spent": status.spent,
            "counts": counts,
        })
    }
}

#[cfg(test)]
mod tests {
    use headstart_net::fastopen::{AttachMethod, Stats};

    use super::*;

    fn server(interfaces: Vec<AttachedInterface>, keys: usize) -> Server {
        Server(ServerStatus {
            port: 443,
            created: headstart_proto::UnixSeconds(1_790_000_000),
            interfaces,
            hidden: [Some(40_001), None],
            keys,
            spent: 2,
            stats: Stats { syns: 3, steered: 2, ..Stats::default() },
        })
    }

    fn interface(name: &str, is_live: bool) -> AttachedInterface {
        AttachedInterface { name: name.into(), method: AttachMethod::Tcx, is_live }
    }

    #[test]
    fn a_server_in_words() {
        let text = server(vec![interface("eth0", true), interface("wg0", false)], 2).text();
        assert_eq!(
            text,
            "server   port 443 on eth0 (tcx), wg0 (tcx, gone)\n         an edge with 2 keys takes \
             connections at 127.0.0.1:40001\n         spent cookies remembered: 2; cookies minted \
             before 1790000000 (unix time) are refused\n         syns 3, steered 2, replayed 0, \
             full 0, expired 0, forged 0, early 0, no_listener 0, stripped 0, faults 0\n"
        );
        let text = server(vec![], 0).text();
        assert!(text.contains("port 443 on no interface\n"), "{text}");
        assert!(text.contains("no edge is running"), "{text}");
    }

    #[test]
    fn a_server_as_json() {
        let json = server(vec![interface("eth0", true)], 2).json();
        assert_eq!(json["interfaces"], json!([{ "name": "eth0", "how": "tcx", "live": true }]));
        assert_eq!(
            (&json["hidden_ipv4_port"], &json["hidden_ipv6_port"]),
            (&json!(40_001), &Value::Null)
        );
        assert_eq!((&json["counts"]["steered"], &json["keys"]), (&json!(2), &json!(2)));
    }

    #[test]
    fn a_server_is_well_on_live_interfaces() {
        assert!(server(vec![interface("eth0", true)], 0).is_well());
        assert!(!server(vec![interface("eth0", true), interface("wg0", false)], 2).is_well());
        assert!(!server(vec![], 2).is_well());
    }

    #[test]
    fn a_client_in_words_and_as_json() {
        let status = ClientStatus { cgroup: 1, sent: 5, no_room: 1, no_data: 2 };
        let client = Client { status, usable: Ok(()) };
        assert_eq!(
            client.text(),
            "client   attached, for all processes\n         SYNs with a cookie: 5; without one: 1 \
             for lack of room, 2 for lack of data\n"
        );
        assert!(client.is_well());
        let client = Client { status, usable: Err(Unavailable::NotAttached) };
        assert_eq!(client.json()["reason"], "not_attached");
        assert!(client.text().contains("hint: ") && !client.is_well());
        let gone = ClientStatus { cgroup: 0, ..status };
        assert!(!Client { status: gone, usable: Ok(()) }.is_well());
    }
}
