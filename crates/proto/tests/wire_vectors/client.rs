//! Plays the scripts for a client alone: what comes to it, and exactly what it does.

use std::time::Duration;

use headstart_proto::{Client, ClientConfig, ClientEvent, Instant, JoinKey, ResetReason, Wait};

use crate::blocks::{Block, scripts};

const WAIT: Option<Wait> = Some(Wait::within(Duration::from_millis(25)));

#[test]
fn clients_ignore_and_reset_what_the_scripts_say() {
    play("client_ignores.txt");
}

#[test]
fn clients_send_and_take_over_as_the_scripts_say() {
    play("client_states.txt");
}

fn play(file: &str) {
    for script in scripts(file) {
        let (config, steps) = script.split_first().expect("a configuration");
        let name = config.text("note");
        assert!(!steps.is_empty(), "{name} has no step");
        config.expect_names(&["step", "key", "slots", "early_data", "hold?"]);
        let mut player = Player::new(config);
        for (number, step) in steps.iter().enumerate() {
            player.step(step, &format!("{name}, step {}: {step:?}", number + 1));
        }
        player.nothing(&format!("{name}, at its end"));
    }
}

pub(crate) struct Player {
    pub(crate) now: Instant,
    pub(crate) client: Client,
    plain: bool,
    /// Number of datagrams sent.
    sent: u8,
    /// The reset that the client reported.
    reset: Option<ResetReason>,
    /// The reset that a step has named.
    expected_reset: bool,
}

impl Player {
    pub(crate) fn new(block: &Block) -> Self {
        let config = ClientConfig {
            slots: block.number("slots"),
            early_data: block.flag("early_data"),
            hold: block.flag("hold"),
        };
        let mut client = Client::new(JoinKey::new(block.array("key")), config);
        client.offer_udp(config);
        let now = Instant::ZERO;
        Self { now, client, plain: false, sent: 0, reset: None, expected_reset: false }
    }

    pub(crate) fn step(&mut self, block: &Block, at: &str) {
        let step = block.text("step");
        block.expect_names(match step {
            "client sends" | "client drops" => &["step", "times?", "bytes?"],
            "tcp connects" => &["step", "address?"],
            "app writes" | "app gets" | "client gets" | "tcp gets" | "client tcp" => {
                &["step", "bytes"]
            }
            "wait" => &["step", "ms"],
            "client resets" => &["step", "reason"],
            _ => &["step"],
        });
        match step {
            "client sends" if block.get("times").is_some() => {
                for _ in 0..block.number::<u8>("times") {
                    let datagram = self.client.poll_datagram();
                    assert_eq!(datagram.map(|bytes| bytes[14]), Some(self.sent), "{at}");
                    self.sent += 1;
                }
            }
            "app finishes" => self.client.handle_app_finished(self.now),
            "unreachable" => self.client.handle_unreachable(self.now),
            "tcp connects" => {
                let same = block.get("address").is_none_or(|address| address != "other");
                self.client.handle_tcp_connected(self.now, same, WAIT);
            }
            "tcp ends" => self.client.handle_tcp_finished(),
            "tcp breaks" => self.client.handle_tcp_failed(),
            "grace ends" => {
                self.now = self.client.poll_timeout().expect("a grace");
                self.client.handle_timeout(self.now);
            }
            "wait" => self.wait(Duration::from_millis(block.number("ms"))),
            "client is plain" => assert!(self.plain, "{at}"),
            "client resets" => {
                assert_eq!(self.reset.map(reason), Some(block.text("reason")), "{at}");
                self.expected_reset = true;
            }
            "nothing" => self.nothing(at),
            _ => self.carry(step, &block.bytes("bytes"), at),
        }
        self.drain_events();
    }

    fn carry(&mut self, step: &str, bytes: &[u8], at: &str) {
        match step {
            "app writes" => self.client.handle_app_data(self.now, bytes),
            "client sends" | "client drops" => {
                assert_eq!(self.client.poll_datagram().as_deref(), Some(bytes), "{at}");
                self.sent += 1;
            }
            "client gets" => self.client.handle_datagram(self.now, bytes),
            "tcp gets" => self.client.handle_tcp_data(self.now, bytes),
            "app gets" => assert_eq!(self.client.poll_app().as_deref(), Some(bytes), "{at}"),
            "client tcp" => assert_eq!(self.client.poll_tcp().as_deref(), Some(bytes), "{at}"),
            _ => panic!("unknown step {at}"),
        }
    }

    fn wait(&mut self, time: Duration) {
        let end = self.now + time;
        if self.client.poll_timeout().is_some_and(|timeout| timeout <= end) {
            self.client.handle_timeout(end);
        }
        self.now = end;
    }

    fn drain_events(&mut self) {
        while let Some(event) = self.client.poll_event() {
            match event {
                ClientEvent::Plain(_) => self.plain = true,
                ClientEvent::Reset(reason) => self.reset = Some(reason),
                _ => {}
            }
        }
    }

    pub(crate) fn nothing(&mut self, at: &str) {
        assert_eq!(self.client.poll_datagram(), None, "{at}");
        assert_eq!(self.client.poll_tcp(), None, "{at}");
        assert_eq!(self.client.poll_app(), None, "{at}");
        assert_eq!(self.client.is_reset(), self.expected_reset, "{at}");
    }
}

fn reason(reason: ResetReason) -> &'static str {
    match reason {
        ResetReason::CommittedRefusal | ResetReason::Refused => "refused",
        ResetReason::Protocol => "protocol error",
        ResetReason::JoinLost => "lost",
        ResetReason::EarlyDataTooOld => "too late",
    }
}
