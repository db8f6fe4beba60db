//! Drives the machine: the socket, the clock, and the descriptor that the client's reactor
//! watches. There is no thread: the connector works when the client calls it, and wakes the
//! client's reactor when it has something to do.

use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use resume_machine::{Connector, Options, Packet, Phase, SendError, ends_shell};

use crate::link::{Link, Read};
use crate::message::Message;
use crate::user::User;
use crate::{random, signals};

/// Longest sleep, in seconds: a timer cannot be set to more than some decades.
const SLEEP_MAX: f64 = 86400.0;
/// How long `flux_open()` waits for the broker to accept the client, in milliseconds. After that
/// the connection goes on in the background.
const FIRST_ANSWER_MS: u16 = 1000;
/// First pause between the first attempts to connect; each is twice the last.
const FIRST_PAUSE: Duration = Duration::from_millis(16);

/// A client's connection.
pub(crate) struct Connection {
    machine: Connector<Message>,
    link: Option<Link>,
    /// The message that the link has not written as a whole yet.
    writing: Option<Message>,
    path: String,
    /// The user that listened the first time. Another user must not replace the broker.
    owner: Option<u32>,
    epoll: Epoll,
    timer: TimerFd,
    /// When the timer fires.
    armed: Option<f64>,
    start: Instant,
    process: u32,
    /// Who uses it, or has used it last.
    pub(crate) user: Arc<User>,
    /// For tests: user id and roles that messages are sent with.
    pub(crate) testing: (u32, u32),
}

/// Whether a call may wait.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Wait {
    No,
    Yes,
}

/// Whether messages are read although the client has not taken the earlier ones.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Eager {
    No,
    Yes,
}

impl Connection {
    /// Connects.
    ///
    /// # Errors
    /// When the broker refuses, or its socket does not exist. If there is a socket without a
    /// listener, or the client is of a job's run and there is none, the broker is away, and the
    /// connection waits for it.
    pub(crate) fn open(options: Options) -> Result<Self, Errno> {
        let Options { path, limits, retries, rank, broker, run, info } = options;
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let flags = TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK;
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)?;
        epoll.add(&timer, EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLET, 0))?;
        let link = first_link(path, retries, run.is_some())?;
        let is_connected = link.as_ref().is_some_and(|(_, accepted)| *accepted);
        // In another PID namespace the number is another one: then the client asks without need.
        let listener = link.as_ref().and_then(|(link, _)| link.listener().ok());
        let met_its_broker = broker.is_none() || broker == listener;
        let machine = Connector::new(random::number()?, limits, is_connected, 0.0)
            .on_rank(rank)
            .of_run(run)
            .asks_about_its_job(info)
            .met_its_broker(met_its_broker);
        let mut connection = Self {
            machine,
            link: None,
            writing: None,
            path: path.to_string(),
            owner: None,
            epoll,
            timer,
            armed: None,
            start: Instant::now(),
            process: std::process::id(),
            user: Arc::default(),
            testing: (u32::MAX, 0),
        };
        if let Some((link, accepted)) = link {
            connection.take(link)?;
            if !accepted {
                connection.machine.connecting();
            }
        }
        connection.pump(Eager::No);
        Ok(connection)
    }

    fn now(&self) -> f64 {
        self.start.elapsed().as_secs_f64()
    }

    /// The descriptor that the client's reactor watches.
    pub(crate) fn pollfd(&self) -> RawFd {
        self.epoll.0.as_raw_fd()
    }

    /// Whether the client can read, whether it may write, and whether the connection has ended.
    pub(crate) fn poll(&mut self) -> (bool, bool, bool) {
        self.pump(Eager::No);
        let readable = self.machine.has_for_client();
        let ended = matches!(self.machine.phase(), Phase::Ended(..));
        (readable, !ended && self.machine.is_writable() && self.is_flushed(), ended && !readable)
    }

    /// Takes a message of the client.
    pub(crate) fn send(&mut self, message: &Message, wait: Wait) -> Result<(), Errno> {
        self.leave_to_parent();
        loop {
            // Without waiting, a message is taken only when the socket has taken all before it.
            if wait == Wait::Yes || self.is_flushed() {
                match self.machine.send(self.now(), message.clone()) {
                    Ok(()) => break,
                    Err(SendError::Ended(errnum)) => return Err(Errno::from_raw(errnum)),
                    Err(SendError::Full) => {}
                }
            }
            if wait == Wait::No {
                self.pump(Eager::No);
                return Err(Errno::EAGAIN);
            }
            // There is room when the broker has answered.
            self.wait(Eager::Yes)?;
            self.pump(Eager::Yes);
        }
        self.write();
        if ends_shell(message) {
            signals::ignore();
        }
        while wait == Wait::Yes && !self.is_flushed() {
            self.wait(Eager::No)?;
            self.pump(Eager::No);
        }
        match self.machine.phase() {
            Phase::Ended(errnum, _) => Err(Errno::from_raw(*errnum)),
            _ => Ok(()),
        }
    }

    /// The next message for the client.
    pub(crate) fn receive(&mut self, wait: Wait) -> Result<Message, Errno> {
        loop {
            if let Some(message) = self.machine.for_client() {
                return Ok(message);
            }
            self.pump(Eager::No);
            if self.machine.has_for_client() {
                continue;
            }
            if matches!(self.machine.phase(), Phase::Ended(..)) {
                return Err(Errno::ECONNRESET);
            }
            if wait == Wait::No {
                return Err(Errno::EAGAIN);
            }
            self.wait(Eager::No)?;
        }
    }

    fn is_flushed(&self) -> bool {
        let written = self.link.as_ref().is_none_or(Link::is_flushed);
        written && (self.link.is_none() || !self.machine.has_for_broker())
    }

    fn reads(&self, eager: Eager) -> bool {
        eager == Eager::Yes || !self.machine.has_for_client()
    }

    /// Waits until the socket is ready for what [`Connection::pump`] does, or the machine's time has
    /// come.
    fn wait(&mut self, eager: Eager) -> Result<(), Errno> {
        let until = self.machine.next_timeout().map_or(SLEEP_MAX, |at| at - self.now());
        let sleep = Duration::from_secs_f64(until.clamp(0.0, SLEEP_MAX));
        // Rounded up, so that the time has come when the sleep ends.
        let sleep = PollTimeout::try_from(sleep + Duration::from_millis(1));
        let sleep = sleep.unwrap_or(PollTimeout::MAX);
        let mut fds = Vec::new();
        if let Some(link) = &self.link {
            let (mut events, reads) = (PollFlags::empty(), self.reads(eager));
            // Input that stays where it is would end each wait at once.
            events.set(PollFlags::POLLIN, reads);
            events.set(PollFlags::POLLOUT, !link.is_flushed());
            fds.push(PollFd::new(link.fd(), events));
        }
        match poll(&mut fds, sleep) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Does all work that is possible without waiting.
    fn pump(&mut self, eager: Eager) {
        self.leave_to_parent();
        let now = self.now();
        if self.machine.next_timeout().is_some_and(|at| at <= now) {
            self.machine.timeout(now);
        }
        if self.link.is_none() && self.machine.wants_link(now) {
            self.connect(now);
        }
        if self.reads(eager) {
            self.read();
        }
        self.write();
        if matches!(self.machine.phase(), Phase::Ended(..)) {
            self.link = None;
        }
        self.arm();
    }

    fn connect(&mut self, now: f64) {
        match Link::new(&self.path).and_then(|link| self.take(link)) {
            Ok(()) => self.machine.connecting(),
            Err(error) => self.machine.refused(now, error as i32),
        }
    }

    fn take(&mut self, link: Link) -> Result<(), Errno> {
        let owner = link.owner()?;
        if *self.owner.get_or_insert(owner) != owner {
            return Err(Errno::EPERM);
        }
        let flags = EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT | EpollFlags::EPOLLET;
        self.epoll.add(link.fd(), EpollEvent::new(flags, 1))?;
        self.link = Some(link);
        Ok(())
    }

    fn read(&mut self) {
        let Some(link) = &mut self.link else { return };
        if matches!(self.machine.phase(), Phase::Down { .. }) {
            match link.accepted() {
                Ok(true) => self.machine.connected(),
                Ok(false) => return,
                Err(error) => {
                    self.link = None;
                    return self.machine.refused(self.start.elapsed().as_secs_f64(), error as i32);
                }
            }
        }
        // Until the socket is empty, or the client has something to read: the descriptor that it
        // watches tells of new bytes only, and a message can be larger than what is read at a time.
        while let Some(link) = &mut self.link {
            match link.read() {
                Read::Blocked => return,
                Read::Closed => return self.lost(),
                Read::Some => self.take_messages(),
            }
            if self.machine.has_for_client() {
                return;
            }
        }
    }

    fn take_messages(&mut self) {
        let now = self.now();
        while let Some(link) = &mut self.link {
            let message = match link.next_message() {
                Ok(Some(bytes)) => Message::decode(bytes),
                Ok(None) => return,
                Err(_) => None,
            };
            match message {
                Some(message) => self.machine.receive(now, message),
                None => return self.lost(),
            }
        }
    }

    fn write(&mut self) {
        let Some(link) = &mut self.link else { return };
        let (userid, rolemask) = self.testing;
        // Only one message at a time is put to the socket; the machine keeps the rest.
        let written = loop {
            let written = link.flush();
            if written.is_err() || !link.is_flushed() {
                break written;
            }
            self.writing = None;
            let Some(message) = self.machine.for_broker() else { break Ok(()) };
            if self.testing == (u32::MAX, 0) {
                link.put(message.size(), |buffer| message.encode(buffer));
            } else {
                let message = message.with_credential(userid, rolemask);
                link.put(message.size(), |buffer| message.encode(buffer));
            }
            self.writing = Some(message);
        };
        if written.is_err() {
            self.read_rest();
        }
    }

    /// The broker does not read any more. Reads the messages that it sent before.
    fn read_rest(&mut self) {
        while self.link.as_mut().is_some_and(|link| link.read() == Read::Some) {
            self.take_messages();
        }
        self.lost();
    }

    fn lost(&mut self) {
        if self.is_forked() {
            return self.end_in_child();
        }
        self.link = None;
        if let Some(message) = self.writing.take() {
            self.machine.unwritten(message);
        }
        self.machine.lost(self.now());
    }

    /// A forked child does not restore the connection: its parent does, with the same number.
    fn leave_to_parent(&mut self) {
        if !matches!(self.machine.phase(), Phase::Live | Phase::Ended(..)) && self.is_forked() {
            self.end_in_child();
        }
    }

    /// A forked child may have closed descriptors that it does not know, and opened others with the
    /// same numbers. So nothing is closed.
    fn end_in_child(&mut self) {
        std::mem::forget(self.link.take());
        let why = "the connection belongs to the parent process".to_string();
        self.machine.end(Errno::ECONNRESET as i32, why);
    }

    /// Whether this is a forked child of the process that has connected.
    pub(crate) fn is_forked(&self) -> bool {
        self.process != std::process::id()
    }

    /// Sets the timer that wakes the reactor to the machine's next timeout. A forked child has no other
    /// timer than its parent, and leaves that alone.
    fn arm(&mut self) {
        let next = self.machine.next_timeout();
        if next == self.armed || self.is_forked() {
            return;
        }
        self.armed = next;
        let set = match next {
            None => self.timer.unset(),
            Some(at) => {
                let sleep = (at - self.now()).clamp(0.000_001, SLEEP_MAX);
                let expiration = Expiration::OneShot(Duration::from_secs_f64(sleep).into());
                self.timer.set(expiration, TimerSetTimeFlags::empty())
            }
        };
        // It fails only if the client has closed the descriptor.
        let _ = set;
    }

    /// The client closes the connection. Waits until others have what would be lost with it.
    pub(crate) fn close(&mut self) {
        self.machine.closing(self.now());
        loop {
            self.pump(Eager::Yes);
            if !self.machine.is_lingering() || self.wait(Eager::Yes).is_err() {
                break;
            }
        }
        self.machine.farewell();
        self.write();
    }
}

/// Connects for the first time, with retries. None if the broker is away: there is a socket without
/// a listener, or with one that accepts nobody now, or that is gone before it has answered. A client
/// of a job's run has its URI from the broker itself, so a socket that does not exist is one that
/// went with its run directory.
fn first_link(path: &str, retries: u32, is_of_run: bool) -> Result<Option<(Link, bool)>, Errno> {
    let mut pause = FIRST_PAUSE;
    let mut left = retries;
    let mut link = loop {
        match Link::new(path) {
            Ok(link) => break link,
            // Not now: as many others wait as the broker lets wait. It is busy, or stopped.
            Err(Errno::ECONNREFUSED | Errno::EAGAIN) => return Ok(None),
            Err(Errno::ENOENT) if is_of_run => return Ok(None),
            Err(error) if left == 0 => return Err(error),
            Err(_) => {
                left -= 1;
                pause_for(pause);
                pause *= 2;
            }
        }
    };
    let accepted = loop {
        match link.accepted() {
            Ok(true) => break true,
            Ok(false) if !is_readable(link.fd(), FIRST_ANSWER_MS) => break false,
            Ok(false) => {}
            Err(Errno::ECONNRESET) => return Ok(None),
            Err(error) => return Err(error),
        }
    };
    Ok(Some((link, accepted)))
}

/// Waits in flux_open(), which blocks with `local://` as well (flux-core `librouter/usock.c`,
/// `usock_client_connect`). A signal may end the wait early, which is harmless.
fn pause_for(pause: Duration) {
    let _ = poll(&mut [], PollTimeout::try_from(pause).unwrap_or(PollTimeout::ZERO));
}

fn is_readable(fd: BorrowedFd<'_>, milliseconds: u16) -> bool {
    let mut fds = [PollFd::new(fd, PollFlags::POLLIN)];
    poll(&mut fds, milliseconds).is_ok_and(|count| count > 0)
}
