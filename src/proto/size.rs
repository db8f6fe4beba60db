//! Sizes in bytes.

/// Reads a number of bytes, as flux-shell takes it for its `output.limit`: with an optional suffix
/// `K`, `M`, `G` or `T` (powers of 1024).
pub fn parse_size(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match &text[digits.len()..] {
        "" => 0,
        "k" | "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => return None,
    };
    let is_number = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    let number = digits.parse::<u64>().ok().filter(|_| is_number)?;
    number.checked_mul(1 << shift)
}

/// Bytes, as `ls -h` shows them: `512`, `1.5K`, `20G`.
pub fn show_size(bytes: u64) -> String {
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
    fn sizes_have_suffixes() {
        for (text, bytes) in
            [("0", 0), ("17", 17), ("4K", 4096), ("64M", 64 << 20), ("1T", 1 << 40)]
        {
            assert_eq!(parse_size(text), Some(bytes), "{text}");
        }
        for bad in ["", "M", "-1", "+1", "1.5G", "1 M", "1MB", "99999999T", "18446744073709551616"]
        {
            assert_eq!(parse_size(bad), None, "{bad}");
        }
    }

    #[test]
    fn sizes_have_two_or_three_digits_and_a_unit() {
        let shown =
            [0, 1023, 1024, 1536, 10 << 20, (3 << 30) + (512 << 20), u64::MAX].map(show_size);
        assert_eq!(shown, ["0", "1023", "1.0K", "1.5K", "10M", "3.5G", "15E"]);
    }
}
