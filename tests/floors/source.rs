//! The sources as a tree of modules, and who names whom in it.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, ImplItemFn, Item, ItemImpl, ItemMod, ItemUse, Macro, UseTree, Visibility};

/// `["adapter", "fork"]` for `crate::adapter::fork` of the service. Modules of another crate begin
/// with its [`place`](CRATES).
pub type ModulePath = Vec<String>;

/// Where the sources of each crate are, what other crates call it, and its place in the tree.
pub const CRATES: &[(&str, &str, &str)] = &[
    ("src", "job_exec_rs", ""),
    ("command/src", "job_exec_rs_command", "command"),
    ("connector/machine/src", "resume_machine", "resume_machine"),
    // Only libflux loads it.
    ("connector/src", "", "connector"),
    ("simulator/src", "job_exec_rs_simulator", "simulator"),
];

/// One path in one file.
#[derive(Clone, Debug)]
pub struct Naming {
    /// Index of the file.
    pub file: usize,
    /// The module around it: the file's, or one inside of it.
    pub module: ModulePath,
    /// As it is written.
    pub path: Vec<String>,
    /// Counted from 1.
    pub line: usize,
    /// Compiled for tests only.
    pub test: bool,
    /// `pub use`: it offers the name to others and need not use it itself.
    pub reexport: bool,
}

/// Where a path leads to.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Target {
    /// The module that defines the item, or that is meant itself.
    pub module: ModulePath,
    /// The item; `None` if the path ends at the module.
    pub item: Option<String>,
}

#[derive(Debug, Default)]
struct Module {
    file: usize,
    items: BTreeSet<String>,
    /// By `use`: the name here, and the path that it stands for.
    aliases: BTreeMap<String, Vec<String>>,
    /// `use path::*`.
    globs: Vec<Vec<String>>,
}

/// All files of all crates.
#[derive(Debug, Default)]
pub struct Tree {
    /// Paths from the root of the repository.
    pub files: Vec<String>,
    /// In the order of the files.
    pub namings: Vec<Naming>,
    modules: BTreeMap<ModulePath, Module>,
    /// Modules that exist in tests only.
    test_modules: BTreeSet<ModulePath>,
    /// `impl Type` without a trait: the file, the module, and the path of the type.
    impls: Vec<(usize, ModulePath, Vec<String>)>,
}

impl Tree {
    /// Parse `sources`, pairs of a file's name and its text.
    pub fn parse(sources: &[(String, String)]) -> Self {
        let mut tree = Self::default();
        for (name, text) in sources {
            let file = tree.files.len();
            tree.files.push(name.clone());
            let syntax = syn::parse_file(text).unwrap_or_else(|e| panic!("{name}: {e}"));
            let module = module_path(name);
            tree.modules.entry(module.clone()).or_default().file = file;
            Reader { tree: &mut tree, file, module, test: false }.visit_file(&syntax);
        }
        for naming in &mut tree.namings {
            let mut above = (1..=naming.module.len()).map(|depth| &naming.module[..depth]);
            naming.test |= above.any(|module| tree.test_modules.contains(module));
        }
        tree
    }

    /// The item or module that a path means, however many re-exports lie between. `None`: it is
    /// not of these crates.
    pub fn resolve(&self, module: &[String], path: &[String]) -> Option<Target> {
        self.resolve_within(module, path, 0)
    }

    fn resolve_within(&self, module: &[String], path: &[String], depth: u32) -> Option<Target> {
        let (first, rest) = path.split_first()?;
        if depth > 16 {
            return None;
        }
        if let Some((.., place)) = CRATES.iter().find(|(_, name, _)| name == first) {
            return self.walk(top(place), rest, depth);
        }
        match first.as_str() {
            "crate" => self.walk(crate_of(module), rest, depth),
            "self" => self.walk(module.to_vec(), rest, depth),
            "super" => {
                let (_, parent) = module.split_last()?;
                if rest.first().is_some_and(|next| next == "super") {
                    return self.resolve_within(parent, rest, depth + 1);
                }
                self.walk(parent.to_vec(), rest, depth)
            }
            name => {
                let known = self.modules.get(module)?;
                let child = [module, std::slice::from_ref(first)].concat();
                if self.modules.contains_key(&child) || known.items.contains(name) {
                    return self.walk(module.to_vec(), path, depth);
                }
                let Some(alias) = known.aliases.get(name) else {
                    return self.resolve_globs(module, path, depth);
                };
                // `use nix;` means the crate, and not itself.
                let is_crate = alias.first() == Some(first);
                let full = [alias, rest].concat();
                (!is_crate).then(|| self.resolve_within(module, &full, depth + 1)).flatten()
            }
        }
    }

    /// Follow a path from a module on.
    fn walk(&self, mut module: ModulePath, path: &[String], depth: u32) -> Option<Target> {
        for (index, name) in path.iter().enumerate() {
            let child = [&module[..], std::slice::from_ref(name)].concat();
            if self.modules.contains_key(&child) {
                module = child;
                continue;
            }
            let found = Some(Target { module: module.clone(), item: Some(name.clone()) });
            let known = self.modules.get(&module)?;
            if known.items.contains(name) {
                return found;
            }
            let rest = &path[index + 1..];
            if let Some(alias) = known.aliases.get(name) {
                let full = [alias, rest].concat();
                return self.resolve_within(&module, &full, depth + 1);
            }
            // What a macro defines is not seen; it is the module's own.
            return self.resolve_globs(&module, &path[index..], depth).or(found);
        }
        Some(Target { module, item: None })
    }

    /// What one of the module's `use path::*` brings.
    fn resolve_globs(&self, module: &[String], path: &[String], depth: u32) -> Option<Target> {
        self.modules.get(module)?.globs.iter().find_map(|glob| {
            let full = [glob, path].concat();
            let target = self.resolve_within(module, &full, depth + 1)?;
            let item = target.item.as_ref()?;
            self.modules.get(&target.module)?.items.contains(item).then_some(target)
        })
    }

    /// The file that holds a module.
    pub fn file_of(&self, module: &[String]) -> Option<usize> {
        self.modules.get(module).map(|module| module.file)
    }

    /// Files that hold part of a type of their parent module: the part, and the parent's file.
    pub fn parts(&self) -> BTreeSet<(usize, usize)> {
        let part = |(file, module, path): &(usize, ModulePath, Vec<String>)| {
            let target = self.resolve(module, path)?;
            let parent = self.file_of(&target.module)?;
            let is_below = module.len() > target.module.len() && module.starts_with(&target.module);
            (is_below && parent != *file).then_some((*file, parent))
        };
        self.impls.iter().filter_map(part).collect()
    }
}

/// `src/adapter/fork/mod.rs` is `adapter::fork`; `src/lib.rs` is the crate, and so is `src/main.rs`.
fn module_path(name: &str) -> ModulePath {
    let below = |root: &str| name.strip_prefix(root)?.strip_prefix('/');
    let (name, place) = CRATES
        .iter()
        .find_map(|(root, _, place)| Some((below(root)?, place)))
        .unwrap_or_else(|| panic!("{name} is of no crate that is known"));
    let name = name.strip_suffix(".rs").unwrap_or(name);
    let path = match name {
        "lib" | "main" => Vec::new(),
        name => name.strip_suffix("/mod").unwrap_or(name).split('/').map(str::to_string).collect(),
    };
    [top(place), path].concat()
}

/// Where the crate of a module is in the tree.
fn crate_of(module: &[String]) -> ModulePath {
    let is_place = |first: &&String| CRATES.iter().any(|(.., place)| place == first);
    module.first().filter(is_place).cloned().into_iter().collect()
}

/// The crate with this place in the tree.
fn top(place: &str) -> ModulePath {
    (!place.is_empty()).then(|| place.to_string()).into_iter().collect()
}

/// Goes through one file.
struct Reader<'a> {
    tree: &'a mut Tree,
    file: usize,
    module: ModulePath,
    test: bool,
}

impl Reader<'_> {
    fn name(&mut self, path: Vec<String>, line: usize, reexport: bool) {
        let (file, module, test) = (self.file, self.module.clone(), self.test);
        self.tree.namings.push(Naming { file, module, path, line, test, reexport });
    }

    fn here(&mut self) -> &mut Module {
        let file = self.file;
        self.tree
            .modules
            .entry(self.module.clone())
            .or_insert_with(|| Module { file, ..Module::default() })
    }

    fn flatten(&mut self, tree: &UseTree, before: &[String], reexport: bool) {
        match tree {
            UseTree::Path(part) => {
                let path = [before, &[part.ident.to_string()]].concat();
                self.flatten(&part.tree, &path, reexport);
            }
            UseTree::Name(part) => {
                let (name, line) = (part.ident.to_string(), part.ident.span().start().line);
                self.import(before, name, None, line, reexport);
            }
            UseTree::Rename(part) => {
                let line = part.ident.span().start().line;
                let (name, alias) = (part.ident.to_string(), part.rename.to_string());
                self.import(before, name, Some(alias), line, reexport);
            }
            UseTree::Glob(part) => {
                let line = part.star_token.spans[0].start().line;
                self.here().globs.push(before.to_vec());
                self.name(before.to_vec(), line, reexport);
            }
            UseTree::Group(group) => {
                group.items.iter().for_each(|tree| self.flatten(tree, before, reexport));
            }
        }
    }

    fn import(
        &mut self,
        before: &[String],
        name: String,
        alias: Option<String>,
        line: usize,
        reexport: bool,
    ) {
        let mut path = before.to_vec();
        if name != "self" {
            path.push(name);
        }
        let alias = alias.or_else(|| path.last().cloned());
        if let Some(alias) = alias {
            self.here().aliases.insert(alias, path.clone());
        }
        self.name(path, line, reexport);
    }

    /// Paths between the tokens of a macro's arguments, which are not parsed.
    fn tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let (mut line, mut colons) = (0, 0);
        for token in tokens {
            match token {
                TokenTree::Ident(ident) => {
                    if colons != 2 {
                        self.end_of_path(&mut path, line);
                    }
                    line = ident.span().start().line;
                    path.push(ident.to_string());
                    colons = 0;
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
                TokenTree::Group(group) => {
                    self.end_of_path(&mut path, line);
                    self.tokens(group.stream());
                    colons = 0;
                }
                TokenTree::Literal(_) | TokenTree::Punct(_) => {
                    self.end_of_path(&mut path, line);
                    colons = 0;
                }
            }
        }
        self.end_of_path(&mut path, line);
    }

    fn end_of_path(&mut self, path: &mut Vec<String>, line: usize) {
        let path = std::mem::take(path);
        // A single word may be anything: a field, a variable, a keyword.
        let is_name = |word: &String| word.starts_with(char::is_uppercase);
        if path.len() > 1 || path.first().is_some_and(is_name) {
            self.name(path, line, false);
        }
    }

    fn within_tests(&mut self, attributes: &[Attribute], read: impl FnOnce(&mut Self)) {
        let before = self.test;
        self.test |= is_for_tests(attributes);
        read(self);
        self.test = before;
    }
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        let (attributes, name) = match item {
            Item::Const(item) => (&item.attrs, Some(&item.ident)),
            Item::Enum(item) => (&item.attrs, Some(&item.ident)),
            Item::Fn(item) => (&item.attrs, Some(&item.sig.ident)),
            Item::Impl(item) => (&item.attrs, None),
            Item::Macro(item) => (&item.attrs, item.ident.as_ref()),
            Item::Mod(item) => (&item.attrs, None),
            Item::Static(item) => (&item.attrs, Some(&item.ident)),
            Item::Struct(item) => (&item.attrs, Some(&item.ident)),
            Item::Trait(item) => (&item.attrs, Some(&item.ident)),
            Item::Type(item) => (&item.attrs, Some(&item.ident)),
            Item::Union(item) => (&item.attrs, Some(&item.ident)),
            Item::Use(item) => (&item.attrs, None),
            _ => return visit::visit_item(self, item),
        };
        if let Some(name) = name {
            self.here().items.insert(name.to_string());
        }
        self.within_tests(attributes, |reader| visit::visit_item(reader, item));
    }

    fn visit_impl_item_fn(&mut self, item: &'ast ImplItemFn) {
        self.within_tests(&item.attrs, |reader| visit::visit_impl_item_fn(reader, item));
    }

    fn visit_item_impl(&mut self, item: &'ast ItemImpl) {
        if item.trait_.is_none()
            && !self.test
            && let syn::Type::Path(of) = &*item.self_ty
        {
            let path = of.path.segments.iter().map(|part| part.ident.to_string()).collect();
            self.tree.impls.push((self.file, self.module.clone(), path));
        }
        visit::visit_item_impl(self, item);
    }

    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        self.module.push(item.ident.to_string());
        if self.test {
            self.tree.test_modules.insert(self.module.clone());
        }
        if item.content.is_some() {
            self.here();
            visit::visit_item_mod(self, item);
        }
        self.module.pop();
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        let reexport = !matches!(item.vis, Visibility::Inherited);
        self.flatten(&item.tree, &[], reexport);
    }

    fn visit_macro(&mut self, item: &'ast Macro) {
        self.visit_path(&item.path);
        self.tokens(item.tokens.clone());
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let parts: Vec<String> = path.segments.iter().map(|part| part.ident.to_string()).collect();
        if let Some(first) = path.segments.first() {
            self.name(parts, first.ident.span().start().line, false);
        }
        visit::visit_path(self, path);
    }

    /// `pub(in crate::adapter)` says who may look, not what is looked at.
    fn visit_vis_restricted(&mut self, _: &'ast syn::VisRestricted) {}
}

fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let syn::Meta::List(list) = &attribute.meta else { return false };
        list.path.is_ident("cfg") && list.tokens.to_string() == "test"
    })
}
