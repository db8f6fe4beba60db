//! Circles between files.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::source::Tree;

/// Files that name each other, directly or by way of others.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Circle {
    /// In order of their names.
    pub files: Vec<String>,
    /// Who names whom in it: one line for each pair of files.
    pub names: Vec<String>,
}

impl fmt::Display for Circle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.files.join(" "))?;
        self.names.iter().try_for_each(|name| writeln!(f, "    {name}"))
    }
}

/// All circles. Files of one type are one node.
pub fn circles(tree: &Tree) -> Vec<Circle> {
    let node = nodes(tree);
    let mut edges: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
    let mut names: BTreeMap<(usize, usize), String> = BTreeMap::new();
    for naming in tree.namings.iter().filter(|naming| !naming.test && !naming.reexport) {
        let Some(target) = tree.resolve(&naming.module, &naming.path) else { continue };
        let (Some(item), Some(file)) = (&target.item, tree.file_of(&target.module)) else {
            continue;
        };
        if node[naming.file] != node[file] {
            edges.entry(node[naming.file]).or_default().insert(node[file]);
            names.entry((naming.file, file)).or_insert_with(|| {
                let (from, to) = (&tree.files[naming.file], &tree.files[file]);
                format!("{from}:{} names {item} of {to}", naming.line)
            });
        }
    }
    let reached: BTreeMap<usize, BTreeSet<usize>> =
        edges.keys().map(|from| (*from, reach(&edges, *from))).collect();
    let reaches = |from: usize, to: usize| reached.get(&from).is_some_and(|all| all.contains(&to));
    let mut found: BTreeSet<BTreeSet<usize>> = BTreeSet::new();
    for from in edges.keys().copied().filter(|from| reaches(*from, *from)) {
        found.insert(reached[&from].iter().copied().filter(|to| reaches(*to, from)).collect());
    }
    let circle = |nodes: BTreeSet<usize>| {
        let is_in = |file: usize| nodes.contains(&node[file]);
        let files = (0..tree.files.len()).filter(|file| is_in(*file));
        let files: Vec<String> = files.map(|file| tree.files[file].clone()).collect();
        let names = names.iter().filter(|((from, to), _)| is_in(*from) && is_in(*to));
        Circle { files, names: names.map(|(_, name)| name.clone()).collect() }
    };
    found.into_iter().map(circle).collect()
}

/// The node of each file: the file itself, or the one whose type it is part of.
fn nodes(tree: &Tree) -> Vec<usize> {
    let mut node: Vec<usize> = (0..tree.files.len()).collect();
    for (part, whole) in tree.parts() {
        let (from, to) = (node[part], node[whole]);
        node.iter_mut().filter(|node| **node == from).for_each(|node| *node = to);
    }
    node
}

fn reach(edges: &BTreeMap<usize, BTreeSet<usize>>, from: usize) -> BTreeSet<usize> {
    let mut reached = BTreeSet::new();
    let mut next = vec![from];
    while let Some(file) = next.pop() {
        for to in edges.get(&file).into_iter().flatten() {
            if reached.insert(*to) {
                next.push(*to);
            }
        }
    }
    reached
}
