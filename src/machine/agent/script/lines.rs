//! The lines of one stream of a script.

/// A line that is longer, in bytes, is logged in pieces.
const LINE_MAX: usize = 4 * 1024;

/// The beginning of a line, until its end comes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Lines {
    rest: Vec<u8>,
}

impl Lines {
    /// Takes bytes, and gives the lines that are whole. Without bytes, what is left.
    pub(super) fn take(&mut self, data: Option<&[u8]>) -> Vec<String> {
        self.rest.extend_from_slice(data.unwrap_or_default());
        let mut lines = Vec::new();
        let ends = data.is_none();
        loop {
            let newline = self.rest.iter().take(LINE_MAX).position(|byte| *byte == b'\n');
            let length = match newline {
                Some(at) => at + 1,
                None if self.rest.len() >= LINE_MAX => LINE_MAX,
                None if ends && !self.rest.is_empty() => self.rest.len(),
                None => return lines,
            };
            let line: Vec<u8> = self.rest.drain(..length).collect();
            lines.push(String::from_utf8_lossy(&line).trim_end_matches('\n').to_string());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_given_when_it_is_whole_or_too_long() {
        let mut lines = Lines::default();
        assert_eq!(lines.take(Some(b"one\ntw")), ["one"]);
        assert_eq!(lines.take(Some(b"o\n\nthr")), ["two", ""]);
        assert_eq!(lines.take(None), ["thr"]);
        assert_eq!(lines.take(None), [""; 0]);
        let long = vec![b'x'; LINE_MAX + 1];
        assert_eq!(lines.take(Some(&long)).len(), 1);
        assert_eq!(lines.take(None), ["x"]);
    }
}
