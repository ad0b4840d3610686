//! Messages with descriptors between two processes, over a Unix socket of sequenced packets.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;

use headstart_net::is_anyone;
use rustix::cmsg_space;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use rustix::process::geteuid;
use socket2::{Domain, SockAddr, Socket, Type};
use tokio::io::Interest;
use tokio::net::UnixStream;

/// Descriptors in one message: `SCM_MAX_FD` of the kernel.
pub(super) const SOCKETS_MAX: usize = 253;

/// Bytes of the longest message: the kernel takes three times as much by default.
pub(super) const MESSAGE_MAX: usize = 1 << 16;

/// The kind of a message: its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    /// The successor asks for sockets, and says who it is.
    Ask = 1,
    /// The predecessor's sockets, with a line for each.
    Sockets = 2,
    /// The predecessor refuses, and says why.
    Refusal = 3,
    /// The successor could serve.
    Ready = 4,
    /// The predecessor listens no more.
    Stopped = 5,
    /// A connection that begins with a join, and what was read from it.
    Join = 6,
    /// The same for a join that another edge has forwarded: the client's address comes first.
    Forwarded = 7,
}

/// A message as it came.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) kind: Kind,
    pub(super) bytes: Vec<u8>,
    pub(super) sockets: Vec<OwnedFd>,
}

/// A connection to another process of this user.
#[derive(Debug)]
pub(super) struct Channel(UnixStream);

impl Channel {
    /// Connects to the listener at `path`.
    ///
    /// # Errors
    /// `ConnectionRefused` or `NotFound` if there is nobody, `PermissionDenied` if it is another
    /// user.
    pub(super) fn connect(path: &Path) -> io::Result<Self> {
        let socket = Socket::new(Domain::UNIX, Type::SEQPACKET, None)?;
        // The other side accepts while it serves; its queue is never full for long.
        socket.connect(&SockAddr::unix(path)?)?;
        socket.set_nonblocking(true)?;
        Self::accepted(UnixStream::from_std(socket.into())?)
    }

    /// Takes a connection.
    ///
    /// # Errors
    /// `PermissionDenied` if the other side is another user than this process.
    pub(super) fn accepted(stream: UnixStream) -> io::Result<Self> {
        let user = socket_peercred(&stream)?.uid.as_raw();
        if user != geteuid().as_raw() || is_anyone(user) {
            let text = format!("it belongs to another user (uid {user})");
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
        }
        Ok(Self(stream))
    }

    /// Sends a message.
    ///
    /// # Errors
    /// Errors of sendmsg(2), such as that the other process has ended.
    pub(super) async fn send(
        &self,
        kind: Kind,
        bytes: &[u8],
        sockets: &[BorrowedFd<'_>],
    ) -> io::Result<()> {
        let kind = [kind as u8];
        let parts = [IoSlice::new(&kind), IoSlice::new(bytes)];
        let send = || {
            let mut space = vec![MaybeUninit::uninit(); cmsg_space!(ScmRights(SOCKETS_MAX))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            if !sockets.is_empty() && !control.push(SendAncillaryMessage::ScmRights(sockets)) {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            let sent = sendmsg(&self.0, &parts, &mut control, SendFlags::NOSIGNAL)?;
            if sent == 1 + bytes.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
        };
        self.0.async_io(Interest::WRITABLE, send).await
    }

    /// Receives a message; `None` once the other process has ended.
    ///
    /// # Errors
    /// Errors of recvmsg(2), and `InvalidData` for what is no message.
    pub(super) async fn recv(&self) -> io::Result<Option<Message>> {
        self.0.async_io(Interest::READABLE, || self.try_recv()).await
    }

    fn try_recv(&self) -> io::Result<Option<Message>> {
        let mut bytes = vec![0; 1 + MESSAGE_MAX];
        let mut space = vec![MaybeUninit::uninit(); cmsg_space!(ScmRights(SOCKETS_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(&mut bytes)];
        let received = recvmsg(&self.0, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC)?;
        let sockets = control.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(sockets) => Some(sockets),
            _ => None,
        });
        let sockets = sockets.flatten().collect();
        if received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        bytes.truncate(received.bytes);
        let Some(first) = bytes.first().copied() else { return Ok(None) };
        let kind = Kind::from_byte(first).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Some(Message { kind, bytes: bytes.split_off(1), sockets }))
    }
}

impl Kind {
    fn from_byte(byte: u8) -> Option<Self> {
        let all = [Self::Ask, Self::Sockets, Self::Refusal, Self::Ready, Self::Stopped];
        let mut all = all.into_iter().chain([Self::Join, Self::Forwarded]);
        all.find(|kind| *kind as u8 == byte)
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::fd::AsFd;

    use super::*;

    impl Channel {
        pub(in crate::takeover) fn pair() -> [Self; 2] {
            let (one, other) = Socket::pair(Domain::UNIX, Type::SEQPACKET, None).unwrap();
            [one, other].map(|socket| {
                socket.set_nonblocking(true).unwrap();
                Self::accepted(UnixStream::from_std(socket.into()).unwrap()).unwrap()
            })
        }
    }

    #[tokio::test]
    async fn messages_keep_their_bounds_and_their_descriptors() {
        let [one, other] = Channel::pair();
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        one.send(Kind::Ready, &[], &[]).await.unwrap();
        let all = [socket.as_fd(); SOCKETS_MAX];
        one.send(Kind::Sockets, &[7; MESSAGE_MAX], &all).await.unwrap();
        drop(one);
        let ready = other.recv().await.unwrap().unwrap();
        assert_eq!((ready.kind, ready.bytes.len(), ready.sockets.len()), (Kind::Ready, 0, 0));
        let Message { kind, bytes, sockets } = other.recv().await.unwrap().unwrap();
        assert_eq!((kind, bytes), (Kind::Sockets, vec![7; MESSAGE_MAX]));
        assert_eq!(sockets.len(), SOCKETS_MAX);
        let copy = TcpListener::from(sockets.into_iter().next().unwrap());
        assert_eq!(copy.local_addr().unwrap(), socket.local_addr().unwrap());
        assert!(other.recv().await.unwrap().is_none());
    }

    #[tokio::test]
    async fn malformed_messages_are_errors() {
        let [one, other] = Channel::pair();
        one.0.writable().await.unwrap();
        one.0.try_write(&[9]).unwrap();
        assert_eq!(other.recv().await.unwrap_err().kind(), io::ErrorKind::InvalidData);
        one.0.try_write(&[1; MESSAGE_MAX + 2]).unwrap();
        assert_eq!(other.recv().await.unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
