//! The socket of a broker's local connector (flux-core `librouter/usock.c`, `sendfd.c`).
//!
//! The broker first sends one byte: 0, or the errno with which it refuses. Then both sides send
//! messages; `resume_machine::Frames` has their framing.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::sockopt::PeerCredentials;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockType, UnixAddr, connect, getsockopt, recv, send, socket,
};
use resume_machine::{BUFFER_MAX, Frames, HEADER, header};

/// The result of a read.
#[derive(Debug, Eq, PartialEq)]
pub(crate) enum Read {
    /// There is nothing to read now.
    Blocked,
    /// The connection is closed or broken.
    Closed,
    /// Bytes were read.
    Some,
}

/// A connected socket.
pub(crate) struct Link {
    socket: OwnedFd,
    /// The broker has sent its first byte, and accepted the client.
    is_accepted: bool,
    input: Frames,
    output: Vec<u8>,
    /// How many bytes of `output` are written.
    written: usize,
}

impl Link {
    /// Connects, without waiting.
    pub(crate) fn new(path: &str) -> Result<Self, Errno> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let socket = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
        connect(socket.as_raw_fd(), &UnixAddr::new(path)?)?;
        Ok(Self {
            socket,
            is_accepted: false,
            input: Frames::default(),
            output: Vec::new(),
            written: 0,
        })
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// The process that listens on the socket.
    pub(crate) fn listener(&self) -> Result<u32, Errno> {
        getsockopt(&self.socket, PeerCredentials).map(|peer| peer.pid().cast_unsigned())
    }

    /// The user that listens on the socket.
    pub(crate) fn owner(&self) -> Result<u32, Errno> {
        getsockopt(&self.socket, PeerCredentials).map(|peer| peer.uid())
    }

    /// Whether the broker has accepted the client.
    ///
    /// # Errors
    /// The errno with which the broker refused.
    pub(crate) fn accepted(&mut self) -> Result<bool, Errno> {
        if self.is_accepted {
            return Ok(true);
        }
        let mut byte = [0u8];
        match recv(self.socket.as_raw_fd(), &mut byte, MsgFlags::empty()) {
            Ok(0) => Err(Errno::ECONNRESET),
            Ok(_) if byte[0] == 0 => {
                self.is_accepted = true;
                Ok(true)
            }
            Ok(_) => Err(Errno::from_raw(i32::from(byte[0]))),
            Err(Errno::EAGAIN | Errno::EINTR) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Reads available bytes, at most one chunk.
    pub(crate) fn read(&mut self) -> Read {
        match recv(self.socket.as_raw_fd(), self.input.room(), MsgFlags::empty()) {
            Ok(0) => Read::Closed,
            Ok(count) => {
                self.input.filled(count);
                Read::Some
            }
            Err(Errno::EAGAIN | Errno::EINTR) => Read::Blocked,
            Err(_) => Read::Closed,
        }
    }

    /// The next whole message that was read.
    pub(crate) fn next_message(&mut self) -> Result<Option<&[u8]>, Errno> {
        self.input.next_message().map_err(|_| Errno::EPROTO)
    }

    /// Appends a message of this size to the output; `encode` fills it in.
    pub(crate) fn put(&mut self, size: usize, encode: impl FnOnce(&mut [u8])) {
        let begin = self.output.len();
        self.output.extend_from_slice(&header(size));
        self.output.resize(begin + HEADER + size, 0);
        encode(&mut self.output[begin + HEADER..]);
    }

    /// Whether all output has been written.
    pub(crate) fn is_flushed(&self) -> bool {
        self.output.is_empty()
    }

    /// Writes as much output as the socket takes.
    pub(crate) fn flush(&mut self) -> Result<(), Errno> {
        if self.is_flushed() {
            return Ok(());
        }
        while self.written < self.output.len() {
            let rest = &self.output[self.written..];
            // The client may not ignore SIGPIPE.
            match send(self.socket.as_raw_fd(), rest, MsgFlags::MSG_NOSIGNAL) {
                Ok(count) => self.written += count,
                Err(Errno::EAGAIN) => return Ok(()),
                Err(Errno::EINTR) => {}
                Err(error) => return Err(error),
            }
        }
        self.written = 0;
        self.output.clear();
        if self.output.capacity() > BUFFER_MAX {
            self.output = Vec::new();
        }
        Ok(())
    }
}
