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

/// Bytes, as `ls -h` shows them: `512`, `1.5K`, `20G`.
pub(super) fn size(bytes: u64) -> String {
    let units = ["", "K", "M", "G", "T", "P", "E"];
    let mut step = 0;
    while step + 1 < units.len() && bytes >> (10 * (step + 1)) > 0 {
        step += 1;
    }
    let whole = bytes >> (10 * step);
    if step == 0 || whole >= 10 {
        return format!("{whole}{}", units[step]);
    }
    let tenths = (bytes >> (10 * (step - 1))) % 1024 * 10 / 1024;
    format!("{whole}.{tenths}{}", units[step])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_two_or_three_digits_and_a_unit() {
        let shown = [0, 1023, 1024, 1536, 10 << 20, (3 << 30) + (512 << 20), u64::MAX].map(size);
        assert_eq!(shown, ["0", "1023", "1.0K", "1.5K", "10M", "3.5G", "15E"]);
    }

    #[test]
    fn text_has_colours_where_they_are_wanted() {
        assert_eq!(Paint(true).paint(Colour::Red, "BAD"), "\x1b[31mBAD\x1b[m");
        assert_eq!(Paint(false).paint(Colour::Red, "BAD"), "BAD");
    }
}
