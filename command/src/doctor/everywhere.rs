//! What many nodes have found, in few lines.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;

use job_exec_rs::proto::Idset;

use super::finding::{Finding, Grade, Report};
use crate::paint::Paint;

/// Of one check, so many different findings have lines of their own.
const APART: usize = 3;
/// So many hosts are named.
const HOSTS: usize = 6;

/// A finding, and who has it.
struct Group<'a> {
    finding: &'a Finding,
    ranks: Idset,
    hosts: Vec<&'a str>,
    /// How many other findings of this check and grade are not shown.
    others: usize,
}

/// One line of summary, and the findings, bad ones first.
pub(super) fn show(reports: &[Report], paint: Paint, out: &mut impl Write) -> std::io::Result<()> {
    writeln!(out, "{}", summary(reports))?;
    for Group { finding, ranks, hosts, others } in groups(reports) {
        let grade = finding.grade.painted(paint);
        let set = ranks.to_string();
        let ranks = if ranks.len() == reports.len() { "all" } else { &set };
        let more = if others == 0 { String::new() } else { format!(", and {others} others") };
        writeln!(out, "  {grade} {:<16} {ranks:<9} {}{more}", finding.check, finding.found)?;
        if finding.grade == Grade::Bad {
            let hosts: BTreeSet<&str> = hosts.into_iter().collect();
            let rest = hosts.len().saturating_sub(HOSTS);
            let hosts = hosts.into_iter().take(HOSTS).collect::<Vec<_>>().join(" ");
            let rest = if rest == 0 { String::new() } else { format!(" and {rest} more") };
            writeln!(out, "        {:<16} on {hosts}{rest}", "")?;
        }
        finding.show_mend(&set, paint, out)?;
    }
    Ok(())
}

fn summary(reports: &[Report]) -> String {
    let with = |grade: Grade| -> Idset {
        let worst = |report: &&Report| report.findings.iter().map(|it| it.grade).min();
        let of = reports.iter().filter(|report| worst(report) == Some(grade));
        of.filter_map(|report| report.rank).collect()
    };
    let (bad, unknown) = (with(Grade::Bad), with(Grade::Unknown));
    let mut text =
        format!("{} ranks: {} fit", reports.len(), { reports.len() - bad.len() - unknown.len() });
    for (ranks, what) in [(bad, "unfit"), (unknown, "without an answer")] {
        if !ranks.is_empty() {
            text += &format!(", {} {what} ({ranks})", ranks.len());
        }
    }
    text
}

/// Equal findings are one. Of what differs on many nodes one is shown.
fn groups(reports: &[Report]) -> Vec<Group<'_>> {
    // In order of checks as the first report with them has them.
    let mut checks: Vec<&str> = Vec::new();
    let mut all: BTreeMap<(Grade, usize), Vec<Group>> = BTreeMap::new();
    for report in reports {
        for finding in &report.findings {
            let known = checks.iter().position(|check| *check == finding.check);
            let check = known.unwrap_or_else(|| {
                checks.push(&finding.check);
                checks.len() - 1
            });
            let of_check = all.entry((finding.grade, check)).or_default();
            let at = of_check.iter().position(|group| group.finding == finding);
            let at = at.unwrap_or_else(|| {
                let (ranks, hosts) = (Idset::new(), Vec::new());
                of_check.push(Group { finding, ranks, hosts, others: 0 });
                of_check.len() - 1
            });
            of_check[at].ranks.extend(report.rank);
            of_check[at].hosts.push(&report.host);
        }
    }
    let shown = |groups: Vec<_>| if groups.len() > APART { vec![one(groups)] } else { groups };
    all.into_values().flat_map(shown).collect()
}

fn one(groups: Vec<Group<'_>>) -> Group<'_> {
    let others = groups.len() - 1;
    let ranks = Idset::union_of(groups.iter().map(|group| &group.ranks));
    let finding = groups[0].finding;
    let hosts = groups.into_iter().flat_map(|group| group.hosts).collect();
    Group { finding, ranks, hosts, others }
}

#[cfg(test)]
mod tests {
    use super::super::finding::{bad, good, silent};
    use super::*;

    fn report(rank: u32, findings: Vec<Finding>) -> Report {
        Report { host: format!("n{rank}"), rank: Some(rank), findings }
    }

    fn shown(reports: &[Report]) -> Vec<String> {
        let mut out = Vec::new();
        show(reports, Paint::none(), &mut out).expect("text");
        String::from_utf8(out).expect("text").lines().map(str::to_string).collect()
    }

    /// A hundred nodes that differ in what they have free, three without linger, one that is silent.
    #[test]
    fn a_hundred_nodes_fit_on_a_screen_and_what_is_bad_comes_first() {
        let reports: Vec<Report> = (0..100)
            .map(|rank| match rank {
                7 => report(rank, vec![silent("No route to host")]),
                rank => {
                    let room = good("room", format!("{rank}G are free"));
                    let linger = match rank {
                        3 | 5 | 6 => bad("linger", "jobs end", "loginctl enable-linger flux"),
                        _ => good("linger", "lives"),
                    };
                    report(rank, vec![good("module", "job-exec-rs"), linger, room])
                }
            })
            .collect();
        let lines = shown(&reports);
        let of_ranks = "100 ranks: 96 fit, 3 unfit (3,5-6), 1 without an answer (7)";
        assert_eq!(lines[0], of_ranks);
        assert_eq!(lines[1], "  BAD   linger           3,5-6     jobs end");
        assert_eq!(lines[2].trim(), "on n3 n5 n6");
        assert_eq!(lines[3].trim(), "-> loginctl enable-linger flux");
        assert_eq!(lines[4], "  ?     answer           7         No route to host");
        assert_eq!(lines[5].trim(), "-> flux exec -r 7 job-exec-rs doctor");
        assert!(lines[8].starts_with("  good  room "), "{lines:#?}");
        assert!(lines[8].ends_with("0G are free, and 98 others"), "{lines:#?}");
        assert_eq!(lines.len(), 9, "{lines:#?}");
    }
}
