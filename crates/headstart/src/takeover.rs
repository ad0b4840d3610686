//! One process takes over from another: its listening sockets, and joins for its sessions.
//!
//! The successor asks at the predecessor's socket and gets copies of the listening sockets; once it
//! could serve it says so, the predecessor stops listening, and from then on only the successor
//! accepts. The connection between them stays: a TCP connection that begins with a join for a
//! session of the other process is passed through it, with what was read.

mod channel;
pub mod options;

use std::borrow::Cow;
use std::io;
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use headstart_net::{Direction, Generations, StrayJoin};
use headstart_proto::limits::SESSION_LIFE_SPARE;
use headstart_proto::wire::Forward;
use socket2::Type;
use tokio::net::UnixListener;
use tokio::task::JoinHandle;
use tokio::time::{Timeout, sleep, timeout};

use self::channel::{Channel, Kind, MESSAGE_MAX, Message, SOCKETS_MAX};
use self::options::TakeoverOptions;
use crate::base::failure::Failure;
use crate::base::unix_socket::{SocketFile, SocketKind};
use crate::listen::{self, Labelled, Sockets};
use crate::metrics::Role;

/// Time that the other process may take for an answer that it has at hand.
const ANSWER_TIME: Duration = Duration::from_secs(5);

/// Time that a successor may take from its sockets to being ready: it reads certificates and asks
/// Redis for keys.
const READY_TIME: Duration = Duration::from_secs(60);

/// Time after which the locks of a process that is ending are free.
const END_TIME: Duration = Duration::from_millis(100);

/// Pause before the path is tried again that a process before has not given up.
const PLACE_PAUSE: Duration = Duration::from_secs(1);

/// The socket at which successors ask.
const SOCKET: SocketKind = SocketKind {
    kind: Type::SEQPACKET,
    mode: 0o600,
    group: None,
    in_use: "another process is taking over; or give --takeover another path",
};

/// This process between its predecessor and its successor.
pub(crate) struct Takeover {
    role: Role,
    path: Option<PathBuf>,
    predecessor: Option<Channel>,
}

/// The place where a successor can ask for the sockets.
pub(crate) struct Offer {
    role: Role,
    sockets: Sockets,
    path: Option<PathBuf>,
    place: Option<(UnixListener, SocketFile)>,
    took_over: bool,
    generations: Option<Arc<Generations>>,
    /// The link to the process before, for as long as that one may have sessions to be joined.
    before: Option<Timeout<JoinHandle<()>>>,
    /// True while a process has copies of the sockets, and is not ready.
    given: Arc<AtomicBool>,
}

/// A process that waits for this one to stop listening.
pub(crate) struct Successor(Channel);

impl Takeover {
    /// Asks the process that listens at the path of `options` for its sockets, if there is one;
    /// returns them with those of systemd.
    ///
    /// # Errors
    /// It refuses, or is another user's.
    pub(crate) async fn begin(
        role: Role,
        options: &TakeoverOptions,
    ) -> Result<(Self, Sockets), Failure> {
        let path = options.takeover.clone();
        let mut sockets = Sockets::from_systemd(path.is_some())?;
        let predecessor = match &path {
            Some(path) => ask(path, role, &mut sockets).await?,
            None => None,
        };
        Ok((Self { role, path, predecessor }, sockets))
    }

    /// Makes the predecessor stop listening, now that this process is ready, and offers `sockets`
    /// to the next one. Joins go between the processes by `generations`.
    ///
    /// # Errors
    /// A socket of systemd is not used, the predecessor has given up, or another process has the
    /// path.
    pub(crate) async fn ready(
        self,
        mut sockets: Sockets,
        generations: Option<Arc<Generations>>,
    ) -> Result<Offer, Failure> {
        sockets.check_used()?;
        let is_first = self.predecessor.is_none();
        let mut before = None;
        if let Some(predecessor) = self.predecessor {
            match stop(&predecessor).await? {
                Before::Stopped => {
                    tracing::info!("took over; the process before serves what it has begun");
                }
                Before::Ended => {
                    tracing::warn!("the process before has ended by itself");
                    sleep(END_TIME).await;
                }
                Before::Silent => tracing::error!(
                    "the process before does not answer; serving beside it until it does"
                ),
            }
            before = generations.as_ref().map(|generations| {
                let link = link(predecessor, Arc::clone(generations), Direction::Back);
                timeout(SESSION_LIFE_SPARE, tokio::spawn(link))
            });
        }
        sockets.settle();
        let path = self.path;
        let place = match path.as_ref().map(|path| SocketFile::listen(path, SOCKET)).transpose() {
            Err(failure) if is_first => return Err(failure),
            // Perhaps nobody else listens any more.
            Err(failure) => {
                tracing::error!("nobody can take over so far: {}", failure.message());
                None
            }
            Ok(place) => place,
        };
        let (role, given, took_over) = (self.role, Arc::default(), !is_first);
        Ok(Offer { role, sockets, path, place, took_over, generations, before, given })
    }
}

/// Asks for sockets; `None` if nobody listens at `path`.
async fn ask(path: &Path, role: Role, sockets: &mut Sockets) -> Result<Option<Channel>, Failure> {
    let failure = |error: io::Error| {
        Failure::usage(format!("cannot take over at {}: {error}", path.display()))
            .hint("the process there must be a headstart of this user; or give another path")
    };
    let channel = match Channel::connect(path) {
        Ok(channel) => channel,
        Err(error)
            if [io::ErrorKind::NotFound, io::ErrorKind::ConnectionRefused]
                .contains(&error.kind()) =>
        {
            return Ok(None);
        }
        Err(error) => return Err(failure(error)),
    };
    let exchange = async {
        channel.send(Kind::Ask, &greeting(role), &[]).await?;
        channel.recv().await
    };
    let answer = timeout(ANSWER_TIME, exchange).await.unwrap_or_else(|late| Err(late.into()));
    let answer = match answer {
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => None,
        answer => answer.map_err(failure)?,
    };
    match answer {
        Some(Message { kind: Kind::Sockets, bytes, sockets: found }) => {
            let labels = String::from_utf8_lossy(&bytes);
            let all = labels.lines().map(str::to_owned).zip(found);
            for (label, socket) in all {
                sockets.inherit(Labelled { label, socket }).map_err(failure)?;
            }
            Ok(Some(channel))
        }
        Some(Message { kind: Kind::Refusal, bytes, .. }) => {
            Err(failure(io::Error::other(String::from_utf8_lossy(&bytes).into_owned())))
        }
        // It ended while it was asked.
        None => Ok(None),
        Some(_) => Err(failure(io::ErrorKind::InvalidData.into())),
    }
}

/// State of the predecessor, once this process is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Before {
    /// It has stopped listening.
    Stopped,
    /// It has ended.
    Ended,
    /// It hangs; it will stop as soon as it resumes.
    Silent,
}

/// Says that this process could serve, and waits until the predecessor has stopped listening.
///
/// # Errors
/// The predecessor did not wait any longer, and goes on.
async fn stop(predecessor: &Channel) -> Result<Before, Failure> {
    let answer = async {
        // A predecessor that has given up has reported it, and does not read this.
        let _ = predecessor.send(Kind::Ready, &[], &[]).await;
        predecessor.recv().await
    };
    match timeout(ANSWER_TIME, answer).await {
        Ok(Ok(Some(Message { kind: Kind::Stopped, .. }))) => Ok(Before::Stopped),
        Ok(Ok(Some(Message { kind: Kind::Refusal, bytes, .. }))) => {
            let why = String::from_utf8_lossy(&bytes);
            Err(Failure::usage(format!("cannot take over any more: {why}"))
                .hint("the process before goes on; start this one again"))
        }
        Ok(_) => Ok(Before::Ended),
        Err(_) => Ok(Before::Silent),
    }
}

/// First message of a successor. Change the number with any change of the messages.
fn greeting(role: Role) -> Vec<u8> {
    format!("headstart takeover 2 {}", role.label()).into_bytes()
}

impl Offer {
    /// Returns what tells whether a process prepares itself to take over.
    pub(crate) fn is_found(&self) -> impl Fn() -> bool + use<> {
        let given = Arc::clone(&self.given);
        move || given.load(Ordering::Relaxed)
    }

    /// Waits for a successor that is ready to serve.
    pub(crate) async fn successor(&mut self) -> Successor {
        self.listen().await;
        loop {
            let Some((listener, _)) = &self.place else { return std::future::pending().await };
            match listener.accept().await {
                Ok((stream, _)) => match self.hand_over(listener, stream).await {
                    Ok(successor) => return successor,
                    Err(error) => {
                        self.given.store(false, Ordering::Relaxed);
                        tracing::warn!(%error, "nobody took over");
                    }
                },
                Err(error) => listen::after_failed_accept(&error).await,
            }
        }
    }

    /// Waits for the path, if there is one, until the process before has given it up.
    async fn listen(&mut self) {
        while let (Some(path), None) = (&self.path, &self.place) {
            sleep(PLACE_PAUSE).await;
            let Ok(place) = SocketFile::listen(path, SOCKET) else { continue };
            tracing::info!("the process before has stopped");
            self.place = Some(place);
            self.sockets.settle();
        }
    }

    /// Returns true if there was a process before, which listens no more.
    pub(crate) const fn took_over(&self) -> bool {
        self.took_over
    }

    /// Gives copies of the sockets to a process, and waits until it is ready; refuses others
    /// meanwhile.
    async fn hand_over(
        &self,
        listener: &UnixListener,
        stream: tokio::net::UnixStream,
    ) -> io::Result<Successor> {
        let channel = Channel::accepted(stream)?;
        let copies = self.sockets.copies();
        let request = timeout(ANSWER_TIME, channel.recv()).await??;
        let request = request.ok_or(io::ErrorKind::UnexpectedEof)?;
        if request.kind != Kind::Ask || request.bytes != greeting(self.role) {
            let role = self.role.label();
            return refuse(&channel, &format!("an {role} of this version listens there")).await;
        }
        if copies.len() > SOCKETS_MAX {
            let count = copies.len();
            return refuse(&channel, &format!("{count} sockets, and 253 can be passed")).await;
        }
        let labels: Vec<_> = copies.iter().map(|copy| copy.label.as_str()).collect();
        let sockets: Vec<_> = copies.iter().map(|copy| copy.socket.as_fd()).collect();
        self.given.store(true, Ordering::Relaxed);
        channel.send(Kind::Sockets, labels.join("\n").as_bytes(), &sockets).await?;
        match timeout(READY_TIME, alone(listener, channel.recv())).await {
            Ok(Ok(Some(Message { kind: Kind::Ready, .. }))) => Ok(Successor(channel)),
            Ok(answer) => Err(answer.err().unwrap_or(io::ErrorKind::UnexpectedEof.into())),
            // Without a word it would believe that this process has ended.
            Err(_) => refuse(&channel, "it was not ready within a minute").await,
        }
    }

    /// Closes the sockets. Their files stay if a process has got them: it serves although this one
    /// ends before it is ready.
    pub(crate) fn close(mut self) {
        if self.given.load(Ordering::Relaxed) {
            self.sockets.leave();
        }
    }

    /// Leaves the sockets to `successor`, now that nobody listens here any more; ends once joins
    /// need not pass through here to the process before.
    pub(crate) async fn leave(mut self, Successor(channel): Successor) {
        self.sockets.leave();
        drop(self.place.take());
        if let Err(error) = channel.send(Kind::Stopped, &[], &[]).await {
            tracing::error!(%error, "the process that takes over has ended");
        }
        if let Some(generations) = self.generations {
            tokio::spawn(link(channel, generations, Direction::Onward));
        }
        if let Some(before) = self.before {
            let _ = before.await;
        }
    }
}

/// Waits for `work`, and refuses other successors meanwhile.
async fn alone<T>(listener: &UnixListener, work: impl Future<Output = T>) -> T {
    let refusing = async {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(other) = Channel::accepted(stream) else { continue };
            tokio::spawn(async move {
                // Closing before the question is read would take the answer away.
                let _ = timeout(ANSWER_TIME, other.recv()).await;
                refuse::<()>(&other, "another process takes over").await
            });
        }
        std::future::pending().await
    };
    tokio::select! {
        done = work => done,
        never = refusing => never,
    }
}

async fn refuse<T>(channel: &Channel, why: &str) -> io::Result<T> {
    channel.send(Kind::Refusal, why.as_bytes(), &[]).await?;
    Err(io::Error::other(why.to_owned()))
}

/// Passes joins between this process and the one in `direction` until that one has ended.
fn link(
    channel: Channel,
    generations: Arc<Generations>,
    direction: Direction,
) -> impl Future<Output = ()> + Send {
    // At once: the first join may come before this runs.
    let mut joins = generations.link(direction);
    let towards_here = match direction {
        Direction::Back => Direction::Onward,
        Direction::Onward => Direction::Back,
    };
    async move {
        loop {
            let result = tokio::select! {
                message = channel.recv() => match message {
                    Ok(Some(message)) => take(&generations, message, towards_here),
                    // For example a connection for which there was no free descriptor.
                    Err(error) if error.kind() == io::ErrorKind::InvalidData => Err(error),
                    Ok(None) | Err(_) => return,
                },
                Some(stray) = joins.recv() => pass(&channel, stray).await,
            };
            if let Err(error) = result {
                tracing::debug!(%error, "a join for another process failed");
            }
        }
    }
}

fn take(generations: &Generations, message: Message, direction: Direction) -> io::Result<()> {
    let Message { kind, bytes: mut read, sockets } = message;
    let client = match kind {
        Kind::Join => None,
        Kind::Forwarded => {
            let (head, join) = read.split_first_chunk().ok_or(io::ErrorKind::InvalidData)?;
            let Forward { client } =
                Forward::parse(head).map_err(|_| io::ErrorKind::InvalidData)?;
            read = join.to_vec();
            Some(client)
        }
        // It comes late from a process that did not answer in time.
        Kind::Stopped => return Ok(()),
        _ => return Err(io::ErrorKind::InvalidData.into()),
    };
    let tcp = sockets.into_iter().next().ok_or(io::ErrorKind::InvalidData)?;
    generations.take(StrayJoin::new(TcpStream::from(tcp), client, read), direction)
}

/// Sends a join to the other process, or refuses it.
async fn pass(channel: &Channel, stray: StrayJoin) -> io::Result<()> {
    let sent = send(channel, &stray).await;
    if sent.is_err() {
        // An edge that forwards joins takes silence for the failure of this one, and forwards none
        // for a while.
        let _ = stray.refuse();
    }
    sent
}

async fn send(channel: &Channel, stray: &StrayJoin) -> io::Result<()> {
    let (kind, bytes) = match stray.client {
        None => (Kind::Join, Cow::from(&stray.read)),
        Some(client) => {
            let head = Forward { client }.emit();
            (Kind::Forwarded, Cow::from([&head[..], &stray.read].concat()))
        }
    };
    if bytes.len() > MESSAGE_MAX {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let tcp = [stray.tcp.as_fd()];
    timeout(ANSWER_TIME, channel.send(kind, &bytes, &tcp)).await?
}

#[cfg(test)]
mod tests {
    use headstart_proto::join::REFUSAL;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn a_process_that_was_given_up_does_not_serve_beside_the_one_before() {
        let [successor, predecessor] = Channel::pair();
        let _ = refuse::<()>(&predecessor, "it was not ready").await;
        drop(predecessor);
        let text = stop(&successor).await.unwrap_err().to_string();
        assert!(text.contains("cannot take over any more: it was not ready"), "{text}");

        let [successor, predecessor] = Channel::pair();
        drop(predecessor);
        assert_eq!(stop(&successor).await.unwrap(), Before::Ended);
    }

    /// Anyone can send one: in records of a byte each, a join is longer than a message.
    #[tokio::test]
    async fn a_join_that_cannot_be_passed_is_refused() {
        let [one, _other] = Channel::pair();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let edge = tokio::net::TcpStream::connect(listener.local_addr().unwrap());
        let (edge, accepted) = tokio::join!(edge, listener.accept());
        let (mut edge, (tcp, client)) = (edge.unwrap(), accepted.unwrap());
        // Nobody reads it: closing would be a reset.
        edge.write_all(b"behind the join").await.unwrap();
        let (tcp, read) = (tcp.into_std().unwrap(), vec![0; MESSAGE_MAX]);
        let stray = StrayJoin::new(tcp, Some(client), read);
        pass(&one, stray).await.unwrap_err();
        let mut answer = Vec::new();
        edge.read_to_end(&mut answer).await.unwrap();
        assert_eq!(answer, REFUSAL);
    }

    #[tokio::test]
    async fn a_bad_message_does_not_end_the_link() {
        let [one, other] = Channel::pair();
        let generations = Arc::new(Generations::default());
        let link = tokio::spawn(link(one, generations, Direction::Back));
        // More than the kernel holds, so that somebody has to read them.
        for _ in 0..20 {
            other.send(Kind::Join, &[0; MESSAGE_MAX + 1], &[]).await.unwrap();
        }
        drop(other);
        link.await.unwrap();
    }
}
