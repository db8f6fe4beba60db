//! Tables with columns that the user chooses, as flux-jobs(1) has them.

use std::cmp::Ordering;
use std::io::Write;

use clap::Args;
use job_exec_rs::proto::show_size as size;
use serde_json::Value;

use super::failure::Failure;
use super::paint::{Colour, Paint};

#[derive(Args, Debug, Default)]
pub(super) struct Form {
    /// Columns, as {name}, or {name:<width} or {name:>width}
    #[arg(short = 'o', long, value_name = "FORMAT")]
    format: Option<String>,
    /// No line with the names of the columns
    #[arg(short = 'n', long)]
    no_header: bool,
    /// One JSON object for each line, with sizes in bytes and times in seconds
    #[arg(long, conflicts_with = "format")]
    json: bool,
    /// In the order of this column; with - before it the largest first
    #[arg(long, value_name = "COLUMN", allow_hyphen_values = true)]
    sort: Option<String>,
}

impl Form {
    /// The user has chosen nothing: what is no row can be said as well.
    pub(super) fn is_default(&self) -> bool {
        self.format.is_none() && !self.no_header && !self.json
    }

    /// Shows a row for each object.
    ///
    /// # Errors
    /// The format names a column that there is not.
    pub(super) fn show(
        &self,
        rows: &[Value],
        (names, format): (&[&str], &str),
        out: &mut impl Write,
    ) -> Result<(), Failure> {
        let rows = &self.sorted(rows, names)?;
        if self.json {
            return rows.iter().try_for_each(|row| writeln!(out, "{row}")).map_err(Failure::new);
        }
        let columns = columns(self.format.as_deref().unwrap_or(format), names)?;
        if !self.no_header {
            let header = line(&columns, |name| name.to_uppercase());
            let header = Paint::of_stdout().paint(Colour::Bold, &header);
            writeln!(out, "{header}").map_err(Failure::new)?;
        }
        for row in rows {
            let line = line(&columns, |name| shown(name, &row[name]));
            writeln!(out, "{line}").map_err(Failure::new)?;
        }
        Ok(())
    }
}

impl Form {
    fn sorted(&self, rows: &[Value], names: &[&str]) -> Result<Vec<Value>, Failure> {
        let mut rows = rows.to_vec();
        if let Some(order) = &self.sort {
            let name = order.strip_prefix('-').unwrap_or(order);
            if !names.contains(&name) {
                let all = names.join(", ");
                return Err(Failure(format!(
                    "--sort={order}: no column '{name}', there are {all}"
                )));
            }
            rows.sort_by(|a, b| compare(&a[name], &b[name]));
            if name != order {
                rows.reverse();
            }
        }
        Ok(rows)
    }
}

/// Numbers by their size, all else as text. What has no value comes first.
fn compare(a: &Value, b: &Value) -> Ordering {
    match (a.as_f64(), b.as_f64()) {
        (Some(a), Some(b)) => a.total_cmp(&b),
        (Some(_), None) => Ordering::Greater,
        (None, Some(_)) => Ordering::Less,
        (None, None) => a.as_str().cmp(&b.as_str()),
    }
}

/// Text before a column, its name, and how it is filled up to its width.
#[derive(Debug, PartialEq)]
struct Column {
    before: String,
    name: String,
    right: bool,
    width: usize,
}

fn columns(format: &str, names: &[&str]) -> Result<Vec<Column>, Failure> {
    let mut columns = Vec::new();
    let mut rest = format;
    while let Some((before, after)) = rest.split_once('{') {
        let (field, after) = after
            .split_once('}')
            .ok_or_else(|| Failure(format!("-o '{format}': a }} is missing")))?;
        let (name, how) = field.split_once(':').unwrap_or((field, ""));
        if !names.contains(&name) {
            let all = names.join(", ");
            return Err(Failure(format!("-o '{format}': no column '{name}', there are {all}")));
        }
        let width = how.trim_start_matches(['<', '>']);
        columns.push(Column {
            before: before.to_string(),
            name: name.to_string(),
            right: how.starts_with('>'),
            width: if width.is_empty() {
                0
            } else {
                width.parse().map_err(|_| Failure(format!("-o '{format}': no width '{width}'")))?
            },
        });
        rest = after;
    }
    Ok(columns)
}

fn line(columns: &[Column], value: impl Fn(&str) -> String) -> String {
    let mut line = String::new();
    for Column { before, name, right, width } in columns {
        line.push_str(before);
        let value = value(name);
        let cell = if *right { format!("{value:>width$}") } else { format!("{value:<width$}") };
        line.push_str(&cell);
    }
    line.trim_end().to_string()
}

/// Seconds, for people: `12.3s`, `1:02:33`.
pub(super) fn show_time(seconds: f64) -> String {
    if seconds < 60.0 {
        return format!("{seconds:.1}s");
    }
    let whole = seconds as u64;
    format!("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60)
}

fn shown(name: &str, value: &Value) -> String {
    match (name, value) {
        (_, Value::Null) => "-".to_string(),
        ("limit" | "memory" | "peak" | "read" | "written", bytes) => {
            bytes.as_u64().map_or_else(|| bytes.to_string(), size)
        }
        ("cpu" | "system" | "user", seconds) => show_time(seconds.as_f64().unwrap_or_default()),
        ("runs_for" | "time_left", seconds) => {
            format!("{:.0}s", seconds.as_f64().unwrap_or_default())
        }
        (_, Value::String(text)) => text.clone(),
        (_, other) => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NAMES: [&str; 3] = ["rank", "unit", "memory"];

    fn table(form: &Form) -> String {
        let rows = [json!({ "rank": 3, "unit": null, "memory": 1_572_864 })];
        let mut out = Vec::new();
        form.show(&rows, (&NAMES, "{rank:>4} {unit} {memory}"), &mut out).expect("a table");
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn a_table_has_the_columns_that_its_format_names() {
        let plain = Form::default;
        assert_eq!(table(&plain()), "RANK UNIT MEMORY\n   3 - 1.5M\n");
        assert_eq!(table(&Form { no_header: true, ..plain() }), "   3 - 1.5M\n");
        let chosen = Form { format: Some("{unit}|{rank}".into()), ..plain() };
        assert_eq!(table(&chosen), "UNIT|RANK\n-|3\n");
        let json = table(&Form { json: true, ..plain() });
        assert!(json.contains("\"memory\":1572864"), "{json}");
    }

    #[test]
    fn rows_are_sorted_by_the_column_that_is_named() {
        let rows = [json!({ "rank": 10 }), json!({ "rank": 9 }), json!({})];
        let sorted = |by: &str| {
            let form = Form { sort: Some(by.to_string()), ..Form::default() };
            form.sorted(&rows, &NAMES)
                .map(|rows| rows.iter().map(|row| row["rank"].as_u64()).collect())
        };
        assert_eq!(sorted("rank").expect("sorted"), [None, Some(9), Some(10)]);
        let reversed: Vec<Option<u64>> = sorted("-rank").expect("sorted");
        assert_eq!(reversed, [Some(10), Some(9), None]);
        assert!(sorted("rnak").expect_err("no column").to_string().contains("rnak"));
    }

    #[test]
    fn times_are_read_at_a_glance() {
        let shown = [0.04, 59.9, 61.0, 3753.0, 90_000.0].map(show_time);
        assert_eq!(shown, ["0.0s", "59.9s", "0:01:01", "1:02:33", "25:00:00"]);
    }

    #[test]
    fn what_a_format_gets_wrong_is_named() {
        for (format, why) in
            [("{rnak}", "no column 'rnak'"), ("{rank", "missing"), ("{rank:<x}", "'x'")]
        {
            let error = columns(format, &NAMES).expect_err(format);
            assert!(error.to_string().contains(why), "{error}");
        }
    }
}
