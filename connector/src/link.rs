//! The socket of a broker's local connector (flux-core `librouter/usock.c`, `sendfd.c`).
//!
//! The broker begins with one byte: 0, or the errno it refuses with. Then messages go both
//! ways, each after eight bytes: a magic number in the host's order, and the size of what
//! follows in the network's.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::sockopt::PeerCredentials;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockType, UnixAddr, connect, getsockopt, recv, send, socket,
};

const MAGIC: u32 = 0xffee_0012;
const HEADER: usize = 8;
/// Bytes read at a time. A small message with its header fits many times.
const CHUNK: usize = 64 << 10;
/// Buffers that have grown past this for one large message are given back.
const BUFFER_MAX: usize = 1 << 20;
/// A larger message is no message of a broker's.
const MESSAGE_MAX: usize = 1 << 31;

/// What came of reading.
#[derive(Debug, Eq, PartialEq)]
pub(crate) enum Read {
    /// Nothing more for now.
    Blocked,
    /// The broker is gone, or speaks another language.
    Closed,
    /// Something.
    Some,
}

/// A connected socket.
pub(crate) struct Link {
    socket: OwnedFd,
    /// The broker's first byte has come.
    is_accepted: bool,
    /// Room to read into; what was read and not taken is from `start` to `end`.
    input: Vec<u8>,
    start: usize,
    end: usize,
    output: Vec<u8>,
    /// So much of `output` is written.
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
            input: Vec::new(),
            start: 0,
            end: 0,
            output: Vec::new(),
            written: 0,
        })
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// The user that listens.
    pub(crate) fn owner(&self) -> Result<u32, Errno> {
        getsockopt(&self.socket, PeerCredentials).map(|peer| peer.uid())
    }

    /// Whether the broker has let us in; an error if it refused.
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

    /// Reads what is there, or a chunk of it.
    pub(crate) fn read(&mut self) -> Read {
        self.make_room();
        match recv(self.socket.as_raw_fd(), &mut self.input[self.end..], MsgFlags::empty()) {
            Ok(0) => Read::Closed,
            Ok(count) => {
                self.end += count;
                Read::Some
            }
            Err(Errno::EAGAIN | Errno::EINTR) => Read::Blocked,
            Err(_) => Read::Closed,
        }
    }

    /// For what is left of the message that has begun, or for a chunk.
    fn make_room(&mut self) {
        let held = self.end - self.start;
        if self.start > 0 {
            self.input.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, held);
        }
        let size = self.size().and_then(Result::ok).unwrap_or(0);
        let wanted = size.max(held + CHUNK);
        if self.input.len() < wanted {
            self.input.resize(wanted, 0);
        } else if held == 0 && self.input.len() > BUFFER_MAX {
            self.input = vec![0; CHUNK];
        }
    }

    /// Size of the message that `input` begins with, header included.
    fn size(&self) -> Option<Result<usize, Errno>> {
        let header = self.input[self.start..self.end].get(..HEADER)?;
        let (magic, size) = header.split_at(4);
        let number = |bytes: &[u8]| bytes.try_into().unwrap_or([0; 4]);
        let size = u32::from_be_bytes(number(size)) as usize;
        if u32::from_ne_bytes(number(magic)) != MAGIC || size > MESSAGE_MAX {
            return Some(Err(Errno::EPROTO));
        }
        Some(Ok(size + HEADER))
    }

    /// The next whole message that was read.
    pub(crate) fn next_message(&mut self) -> Result<Option<&[u8]>, Errno> {
        let Some(size) = self.size().transpose()? else { return Ok(None) };
        let (begin, end) = (self.start + HEADER, self.start + size);
        if self.end < end {
            return Ok(None);
        }
        self.start = end;
        Ok(Some(&self.input[begin..end]))
    }

    /// Puts a message of this size behind what is to be written; `encode` fills it in.
    pub(crate) fn put(&mut self, size: usize, encode: impl FnOnce(&mut [u8])) {
        let begin = self.output.len();
        self.output.extend_from_slice(&MAGIC.to_ne_bytes());
        self.output.extend_from_slice(&u32::try_from(size).unwrap_or(u32::MAX).to_be_bytes());
        self.output.resize(begin + HEADER + size, 0);
        encode(&mut self.output[begin + HEADER..]);
    }

    /// Whether all that was put has been written.
    pub(crate) fn is_flushed(&self) -> bool {
        self.output.is_empty()
    }

    /// Writes as much as the socket takes.
    pub(crate) fn flush(&mut self) -> Result<(), Errno> {
        if self.is_flushed() {
            return Ok(());
        }
        while self.written < self.output.len() {
            let rest = &self.output[self.written..];
            // A client need not ignore SIGPIPE.
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
