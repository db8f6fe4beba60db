//! Sizes in bytes, as flux-shell takes them for its `output.limit`.

/// Reads a number of bytes with an optional suffix `K`, `M`, `G` or `T` (powers of 1024).
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
}
