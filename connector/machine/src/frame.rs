//! The framing of messages on the socket (flux-core `librouter/sendfd.c`). Each message comes
//! after eight bytes: a magic number in host byte order, and the size of the message in network
//! byte order.

/// Bytes before each message.
pub const HEADER: usize = 8;
const MAGIC: u32 = 0xffee_0012;
/// Bytes read at a time: room for many small messages with their headers.
const CHUNK: usize = 64 << 10;
/// A buffer that has grown past this for a large message is freed.
pub const BUFFER_MAX: usize = 1 << 20;
/// A broker sends no larger message.
const MESSAGE_MAX: usize = 1 << 31;

/// The bytes are not the header of a message: the other side is not a broker.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Malformed;

/// Bytes that were read from a socket.
#[derive(Debug, Default)]
pub struct Frames {
    /// The buffer. Bytes that were read and not taken are from `start` to `end`.
    input: Vec<u8>,
    start: usize,
    end: usize,
}

impl Frames {
    /// Room for the next bytes; see [`Frames::filled`].
    pub fn room(&mut self) -> &mut [u8] {
        let held = self.end - self.start;
        if self.start > 0 {
            self.input.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, held);
        }
        let size = self.size().and_then(Result::ok).unwrap_or(0);
        // The room grows as the bytes arrive, whatever size the header says.
        let wanted = held + size.saturating_sub(held).min(held).max(CHUNK);
        if self.input.len() < wanted {
            self.input.resize(wanted, 0);
        } else if held == 0 && self.input.len() > BUFFER_MAX {
            self.input = vec![0; CHUNK];
        }
        &mut self.input[self.end..]
    }

    /// `count` bytes were written to [`Frames::room`].
    pub fn filled(&mut self, count: usize) {
        self.end = self.input.len().min(self.end + count);
    }

    /// Size of the message that `input` begins with, including its header.
    fn size(&self) -> Option<Result<usize, Malformed>> {
        let header = self.input[self.start..self.end].get(..HEADER)?;
        let (magic, size) = header.split_at(4);
        let number = |bytes: &[u8]| bytes.try_into().unwrap_or([0; 4]);
        let size = u32::from_be_bytes(number(size)) as usize;
        if u32::from_ne_bytes(number(magic)) != MAGIC || size > MESSAGE_MAX {
            return Some(Err(Malformed));
        }
        Some(Ok(size + HEADER))
    }

    /// The next whole message that was read.
    ///
    /// # Errors
    /// When the bytes are not the header of a message.
    pub fn next_message(&mut self) -> Result<Option<&[u8]>, Malformed> {
        let Some(size) = self.size().transpose()? else { return Ok(None) };
        let (begin, end) = (self.start + HEADER, self.start + size);
        if self.end < end {
            return Ok(None);
        }
        self.start = end;
        Ok(Some(&self.input[begin..end]))
    }
}

/// The bytes before a message of this size.
pub fn header(size: usize) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[..4].copy_from_slice(&MAGIC.to_ne_bytes());
    header[4..].copy_from_slice(&u32::try_from(size).unwrap_or(u32::MAX).to_be_bytes());
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Puts in as many bytes as there is room for at once.
    fn put(frames: &mut Frames, bytes: &[u8]) -> usize {
        let room = frames.room();
        let count = room.len().min(bytes.len());
        room[..count].copy_from_slice(&bytes[..count]);
        frames.filled(count);
        count
    }

    #[test]
    fn a_header_alone_gets_no_room_for_what_it_promises() {
        let mut frames = Frames::default();
        put(&mut frames, &header(MESSAGE_MAX));
        assert_eq!(frames.next_message(), Ok(None));
        assert!(frames.room().len() <= 2 * CHUNK, "{}", frames.room().len());
    }

    #[test]
    fn a_large_message_comes_through_and_its_room_is_given_back() {
        let message: Vec<u8> = (0..3_000_000u32).map(|n| n as u8).collect();
        let mut bytes = header(message.len()).to_vec();
        bytes.extend_from_slice(&message);
        let (mut frames, mut done, mut reads) = (Frames::default(), 0, 0);
        while done < bytes.len() {
            assert_eq!(frames.next_message(), Ok(None));
            done += put(&mut frames, &bytes[done..]);
            reads += 1;
        }
        assert_eq!(frames.next_message(), Ok(Some(message.as_slice())));
        assert!(reads < 20, "{reads} reads: room grows as the message does");
        assert!(frames.room().len() <= CHUNK);
    }
}
