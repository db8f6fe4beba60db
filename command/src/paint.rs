//! What makes output easy to read: colours, and sizes in few digits.

use std::io::IsTerminal;

#[derive(Clone, Copy, Debug)]
pub(super) enum Colour {
    Bold,
    Dim,
    Green,
    Red,
    Yellow,
}

/// Whether text gets colours.
#[derive(Clone, Copy, Debug)]
pub(super) struct Paint(bool);

impl Paint {
    /// On a terminal, unless `NO_COLOR` (<https://no-color.org>) is set.
    pub(super) fn of_stdout() -> Self {
        let variable = |name| std::env::var_os(name).unwrap_or_default();
        let wanted = variable("NO_COLOR").is_empty() && variable("TERM") != "dumb";
        Self(wanted && std::io::stdout().is_terminal())
    }

    #[cfg(test)]
    pub(super) fn none() -> Self {
        Self(false)
    }

    pub(super) fn paint(self, colour: Colour, text: &str) -> String {
        let number = match colour {
            Colour::Bold => 1,
            Colour::Dim => 2,
            Colour::Red => 31,
            Colour::Green => 32,
            Colour::Yellow => 33,
        };
        if self.0 { format!("\x1b[{number}m{text}\x1b[m") } else { text.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_has_colours_where_they_are_wanted() {
        assert_eq!(Paint(true).paint(Colour::Red, "BAD"), "\x1b[31mBAD\x1b[m");
        assert_eq!(Paint(false).paint(Colour::Red, "BAD"), "BAD");
    }
}
