//! Imports between modules: cycles within a folder, and type names that mean more than one thing.
//!
//! The graph is read from the sources: every path of `use` and of code, followed through re-exports to the module that
//! defines the item. Code of tests does not count.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use syn::visit::{self, Visit};
use syn::{Attribute, Item, ItemUse, UseTree, Visibility};

use super::{complain, production_files};

/// Wings of the gateway floor: each uses those behind it in this list, never one before.
const WINGS: [&str; 11] = [
    "upkeep", "servers", "calls", "connect", "search", "consent", "log", "mailbox", "sessions", "tenants",
    "catalog",
];

/// Rooms of `upstream`: each uses those behind it in this list, never one before.
const ROOMS: [&str; 9] =
    ["pool", "connection", "kinds", "web", "stdio", "http", "target", "protocol", "admission"];

/// Module as the path from the root of the crate; empty for the root.
type Module = Vec<String>;

/// Module that names something, module that defines it, and the path by which it is named.
type Import = (Module, Module, String);
/// Imports by the names of two siblings: the one that uses and the one that is used.
type Arrows = BTreeMap<(String, String), Vec<String>>;

/// Names that a module can be asked for, beside its child modules.
#[derive(Default)]
struct Names {
    /// Imports and re-exports: the absolute path behind each local name.
    uses: BTreeMap<String, Vec<String>>,
    /// Modules whose names are all imported.
    globs: Vec<Vec<String>>,
    /// Types and traits defined here that other modules can see.
    types: Vec<String>,
    /// Paths that the code names, relative or absolute.
    paths: Vec<Vec<String>>,
}

/// Every module of the crate with its names.
struct House {
    modules: BTreeMap<Module, Names>,
}

fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let path = attribute.path();
        path.is_ident("test")
            || path.is_ident("cfg")
                && attribute.parse_args::<syn::Path>().is_ok_and(|condition| condition.is_ident("test"))
    })
}

fn segments(path: &syn::Path) -> Vec<String> {
    path.segments.iter().map(|segment| segment.ident.to_string()).collect()
}

/// Collects the names and paths of one module; the modules written within it are collected on their own.
struct Reader<'a> {
    at: Module,
    into: &'a mut BTreeMap<Module, Names>,
}

impl Reader<'_> {
    fn names(&mut self) -> &mut Names {
        self.into.entry(self.at.clone()).or_default()
    }

    fn import(&mut self, tree: &UseTree, before: &[String]) {
        let joined = |name: &syn::Ident| [before, &[name.to_string()]].concat();
        match tree {
            UseTree::Path(path) => self.import(&path.tree, &joined(&path.ident)),
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.import(tree, before)),
            UseTree::Glob(_) => self.names().globs.push(before.to_vec()),
            UseTree::Name(name) if name.ident == "self" => {
                if let Some(last) = before.last().cloned() {
                    self.names().uses.insert(last, before.to_vec());
                }
            }
            UseTree::Name(name) => {
                self.names().uses.insert(name.ident.to_string(), joined(&name.ident));
            }
            UseTree::Rename(name) => {
                let path = if name.ident == "self" { before.to_vec() } else { joined(&name.ident) };
                self.names().uses.insert(name.rename.to_string(), path);
            }
        }
    }

    fn define(&mut self, name: &syn::Ident, visibility: &Visibility) {
        if !matches!(visibility, Visibility::Inherited) {
            self.names().types.push(name.to_string());
        }
    }
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        match item {
            Item::Mod(of) if is_test(&of.attrs) => return,
            Item::Mod(of) if of.content.is_some() => {
                self.at.push(of.ident.to_string());
                self.names();
                visit::visit_item(self, item);
                self.at.pop();
                return;
            }
            Item::Fn(of) if is_test(&of.attrs) => return,
            Item::Impl(of) if is_test(&of.attrs) => return,
            Item::Use(of) if is_test(&of.attrs) => return,
            Item::Struct(of) => self.define(&of.ident, &of.vis),
            Item::Enum(of) => self.define(&of.ident, &of.vis),
            Item::Trait(of) => self.define(&of.ident, &of.vis),
            Item::Type(of) => self.define(&of.ident, &of.vis),
            Item::Macro(of) if of.mac.path.is_ident("text_enum") => {
                let of: syn::ItemEnum = of.mac.parse_body().expect("an enum");
                self.define(&of.ident, &of.vis);
            }
            _ => {}
        }
        visit::visit_item(self, item);
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        self.import(&item.tree, &[]);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.leading_colon.is_none() && path.segments.len() > 1 {
            let path = segments(path);
            self.names().paths.push(path);
        }
        visit::visit_path(self, path);
    }
}

impl House {
    fn read() -> House {
        let mut modules = BTreeMap::new();
        for (name, path) in production_files() {
            let inner = name.trim_start_matches("src/").trim_end_matches(".rs");
            let inner = inner.trim_end_matches("/mod");
            let at: Module = match inner {
                "lib" | "main" => Vec::new(),
                _ => inner.split('/').map(str::to_owned).collect(),
            };
            let text = fs::read_to_string(path).expect("a text");
            let file = syn::parse_file(&text).expect("a file that compiles");
            if !is_test(&file.attrs) {
                let mut reader = Reader { at, into: &mut modules };
                reader.names();
                reader.visit_file(&file);
            }
        }
        House { modules }
    }

    /// Returns the path from the root of the crate; `None` for other crates and plain names.
    fn absolute(&self, at: &Module, path: &[String]) -> Option<Vec<String>> {
        let mut base = at.clone();
        let mut rest = path;
        match rest.first()?.as_str() {
            "crate" => {
                base.clear();
                rest = &rest[1..];
            }
            "self" => rest = &rest[1..],
            "super" => {
                while rest.first().is_some_and(|first| first == "super") {
                    base.pop();
                    rest = &rest[1..];
                }
            }
            first => {
                let child = [at.as_slice(), &[first.to_owned()]].concat();
                if !self.modules.contains_key(&child) {
                    let used = self.modules.get(at)?.uses.get(first)?;
                    // `use x::y;` names a child or another crate by its first segment
                    let behind = if used.first().is_some_and(|name| name == first) {
                        return None;
                    } else {
                        self.absolute(at, used)?
                    };
                    return Some([behind, rest[1..].to_vec()].concat());
                }
            }
        }
        Some([base, rest.to_vec()].concat())
    }

    /// Returns the module that defines what an absolute path names, behind all re-exports.
    fn home(&self, path: &[String]) -> Module {
        let mut at = Module::new();
        let mut rest = path.to_vec();
        for _ in 0..32 {
            let Some(first) = rest.first().cloned() else { break };
            let child = [at.as_slice(), std::slice::from_ref(&first)].concat();
            if self.modules.contains_key(&child) {
                at = child;
                rest.remove(0);
                continue;
            }
            let Some(names) = self.modules.get(&at) else { break };
            let Some(behind) = names.uses.get(&first).and_then(|used| self.absolute(&at, used)) else {
                break;
            };
            rest.remove(0);
            rest.splice(0..0, behind);
            at.clear();
        }
        at
    }

    /// Returns every import: the module that names something, the module that defines it, and its name.
    fn imports(&self) -> BTreeSet<Import> {
        let mut found = BTreeSet::new();
        for (at, names) in &self.modules {
            let used = names.uses.values().chain(&names.globs).chain(&names.paths);
            for path in used {
                if let Some(path) = self.absolute(at, path) {
                    found.insert((at.clone(), self.home(&path), path.join("::")));
                }
            }
        }
        found
    }
}

/// Imports between the children of one folder, a child being everything in it; each with its names.
fn siblings(imports: &BTreeSet<Import>, folder: &[String]) -> Arrows {
    let child = |module: &Module| module.strip_prefix(folder).and_then(|inner| inner.first()).cloned();
    let mut arrows = Arrows::new();
    for (from, to, name) in imports {
        if let (Some(one), Some(other)) = (child(from), child(to))
            && one != other
        {
            let shown = format!("{} uses {name}", from.join("::"));
            arrows.entry((one, other)).or_default().push(shown);
        }
    }
    arrows
}

/// Returns the groups of more than one that reach each other.
fn cycles(arrows: &Arrows) -> Vec<Vec<String>> {
    let names: BTreeSet<&String> = arrows.keys().flat_map(|(from, to)| [from, to]).collect();
    let reach = |start: &String| {
        let mut seen = BTreeSet::new();
        let mut open = vec![start.clone()];
        while let Some(next) = open.pop() {
            for (_, to) in arrows.keys().filter(|(from, _)| *from == next) {
                if seen.insert(to.clone()) {
                    open.push(to.clone());
                }
            }
        }
        seen
    };
    let reached: BTreeMap<&String, BTreeSet<String>> =
        names.iter().map(|name| (*name, reach(name))).collect();
    let mut groups = BTreeSet::new();
    for name in &names {
        let group: Vec<String> =
            reached[name].iter().filter(|other| reached[other].contains(*name)).cloned().collect();
        if group.len() > 1 {
            groups.insert(group);
        }
    }
    groups.into_iter().collect()
}

#[test]
fn no_folder_has_a_cycle() {
    let house = House::read();
    let imports = house.imports();
    assert!(imports.len() > 1000, "the test has lost sight of the imports: {}", imports.len());
    let folders: BTreeSet<&[String]> =
        house.modules.keys().flat_map(|module| (0..module.len()).map(|end| &module[..end])).collect();
    let mut found = Vec::new();
    for folder in folders {
        let arrows = siblings(&imports, folder);
        for group in cycles(&arrows) {
            found.push(format!("{}: {} import each other", folder.join("::"), group.join(", ")));
            let within = arrows.iter().filter(|((from, to), _)| group.contains(from) && group.contains(to));
            found.extend(within.map(|((from, to), names)| format!("  {from} > {to}: {}", names.join("; "))));
        }
    }
    complain(&found);
}

#[test]
#[expect(clippy::print_stdout, reason = "the graph, shown with `--no-capture`")]
fn wings_and_rooms_use_only_those_below() {
    let imports = House::read().imports();
    for folder in ["gateway", "upstream"] {
        for ((from, to), names) in siblings(&imports, &[folder.to_owned()]) {
            println!("{folder}: {from} > {to} ({})", names.len());
        }
    }
    let mut found = upwards(&imports, "gateway", &WINGS);
    found.extend(upwards(&imports, "upstream", &ROOMS));
    complain(&found);
}

/// Returns what is wrong with the order of a folder's children: those that are missing, and each arrow to one before.
/// Children outside the list are shared by all and use none of them.
fn upwards(imports: &BTreeSet<Import>, folder: &str, order: &[&str]) -> Vec<String> {
    let arrows = siblings(imports, &[folder.to_owned()]);
    let place = |name: &String| order.iter().position(|child| child == name);
    let known: BTreeSet<&String> = arrows.keys().flat_map(|(from, to)| [from, to]).collect();
    let missing = order.iter().filter(|child| !known.iter().any(|name| name == *child));
    let mut found: Vec<String> = missing.map(|child| format!("{folder} has no {child}")).collect();
    for ((from, to), names) in &arrows {
        let is_upwards = match (place(from), place(to)) {
            (Some(from), Some(to)) => to < from,
            (None, Some(_)) => true,
            (_, None) => false,
        };
        if is_upwards {
            found.push(format!("{folder}/{from} must not use {folder}/{to}: {}", names.join("; ")));
        }
    }
    found
}

#[test]
fn type_names_are_unique() {
    let house = House::read();
    let mut homes: BTreeMap<&String, Vec<String>> = BTreeMap::new();
    for (at, names) in &house.modules {
        for name in &names.types {
            homes.entry(name).or_default().push(at.join("::"));
        }
    }
    let twice = homes.into_iter().filter(|(_, homes)| homes.len() > 1);
    complain(&twice.map(|(name, homes)| format!("{name}: {}", homes.join(" "))).collect::<Vec<_>>());
}
