//! The modules of a folder stand on each other without circles: whoever reads one knows that nothing below needs it.
//!
//! `crate::a::b` named anywhere in `a/c.rs` or below `a/c/` is an edge of the folder `a` from `c` to `b`, and so is a path
//! through `super`, and a name that a module above has from `b`. What a module's own file names of those below it is none,
//! and neither is what they name of it. Tests are left out.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;

/// The edges of each module of a folder, each with a file that has it.
type Graph = BTreeMap<String, BTreeMap<String, String>>;

/// Says which crates have circles.
pub(super) fn check<'a>(
    root: &Path,
    crates: impl IntoIterator<Item = &'a str>,
    breaches: &mut Vec<String>,
) -> Result<()> {
    for name in crates {
        let source = match name {
            "xtask" => root.join("xtask/src"),
            name => root.join("crates").join(name).join("src"),
        };
        for (folder, graph) in read(&source)? {
            let smallest = smallest(&graph);
            if !smallest.is_empty() {
                breaches.push(format!("{name}/{folder}: a circle: {}", smallest.join(", ")));
            }
        }
    }
    Ok(())
}

/// The modules of each folder of a crate, by its files.
fn read(folder: &Path) -> Result<BTreeMap<String, Graph>> {
    let mut files = Vec::new();
    collect(folder, &[], &mut files)?;
    let modules: BTreeSet<&[String]> = files.iter().map(|(path, _)| path.as_slice()).collect();
    let hidden: BTreeSet<Vec<String>> = files.iter().flat_map(|(path, file)| for_tests(path, file)).collect();
    let imported: BTreeMap<Vec<String>, Vec<String>> =
        files.iter().flat_map(|(path, file)| imports(path, file, &modules)).collect();
    let mut graphs = BTreeMap::<String, Graph>::new();
    for (path, file) in &files {
        let [above @ .., module] = path.as_slice() else { continue };
        graphs.entry(above.join("/")).or_default().entry(module.clone()).or_default();
        if (1..=path.len()).any(|length| path.get(..length).is_some_and(|start| hidden.contains(start))) {
            continue;
        }
        let mut paths = BTreeSet::new();
        items(&file.items, path, &mut paths);
        for target in paths.into_iter().map(|path| origin(path, &imported)) {
            let Some((folder, from, to)) = fork(path, &target).filter(|(folder, _, to)| {
                modules.contains([folder, std::slice::from_ref(*to)].concat().as_slice())
            }) else {
                continue;
            };
            let edges = graphs.entry(folder.join("/")).or_default().entry(from.clone()).or_default();
            edges.entry(to.clone()).or_insert_with(|| format!("{}.rs", path.join("/")));
        }
    }
    Ok(graphs)
}

/// Where two paths part: the folder, and what they name of it.
fn fork<'a>(from: &'a [String], to: &'a [String]) -> Option<(&'a [String], &'a String, &'a String)> {
    let same = from.iter().zip(to).take_while(|(from, to)| from == to).count();
    Some((from.get(..same)?, from.get(same)?, to.get(same)?))
}

/// Where a name comes from that a module on the way has from elsewhere.
fn origin(mut path: Vec<String>, imported: &BTreeMap<Vec<String>, Vec<String>>) -> Vec<String> {
    const STEPS_MAX: usize = 8;
    for _ in 0..STEPS_MAX {
        let found = (1..=path.len()).find_map(|length| Some((length, imported.get(path.get(..length)?)?)));
        let Some((length, from)) = found else { break };
        path = from.iter().chain(path.iter().skip(length)).cloned().collect();
    }
    path
}

/// Every file below a folder with its module's path; empty for the root.
fn collect(folder: &Path, above: &[String], files: &mut Vec<(Vec<String>, syn::File)>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))? {
        let path = entry?.path();
        let Some(name) = path.file_stem().and_then(|name| name.to_str()).map(str::to_owned) else { continue };
        let mut module = above.to_vec();
        if path.is_dir() {
            module.push(name);
            collect(&path, &module, files)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") && name != "tests" {
            if !(above.is_empty() && matches!(name.as_str(), "lib" | "main")) {
                module.push(name);
            }
            let text = fs::read_to_string(&path)?;
            files
                .push((module, syn::parse_file(&text).with_context(|| format!("parse {}", path.display()))?));
        }
    }
    Ok(())
}

/// What a module has from elsewhere in the crate, by the path under which others find it there.
fn imports(
    module: &[String],
    file: &syn::File,
    modules: &BTreeSet<&[String]>,
) -> Vec<(Vec<String>, Vec<String>)> {
    let mut leaves = Vec::new();
    for item in &file.items {
        if let syn::Item::Use(item) = item
            && !super::functions::is_for_tests(&item.attrs)
        {
            collect_leaves(&item.tree, &[], &mut leaves);
        }
    }
    let found = leaves.into_iter().filter_map(|(path, name)| {
        let (first, rest) = path.split_first()?;
        let start = match first.as_str() {
            "crate" => Vec::new(),
            "self" => module.to_vec(),
            "super" => above(module).to_vec(),
            _ => Some([module, std::slice::from_ref(first)].concat())
                .filter(|child| modules.contains(child.as_slice()))?,
        };
        let (from, to) = ([&start, rest].concat(), [module, &[name]].concat());
        (from != to && !rest.iter().any(|part| part == "super")).then_some((to, from))
    });
    found.collect()
}

/// Every path that is imported, and the name that it has then.
fn collect_leaves(tree: &syn::UseTree, above: &[String], into: &mut Vec<(Vec<String>, String)>) {
    let with = |name: &syn::Ident| [above, &[name.to_string()]].concat();
    match tree {
        syn::UseTree::Path(path) => collect_leaves(&path.tree, &with(&path.ident), into),
        syn::UseTree::Name(name) if name.ident == "self" => {
            into.extend(above.last().map(|last| (above.to_vec(), last.clone())));
        }
        syn::UseTree::Name(name) => into.push((with(&name.ident), name.ident.to_string())),
        syn::UseTree::Rename(rename) => into.push((with(&rename.ident), rename.rename.to_string())),
        syn::UseTree::Group(group) => {
            group.items.iter().for_each(|tree| collect_leaves(tree, above, into));
        }
        syn::UseTree::Glob(_) => {}
    }
}

/// The modules with files of their own that are there for tests only.
fn for_tests(path: &[String], file: &syn::File) -> Vec<Vec<String>> {
    let modules = file.items.iter().filter_map(|item| match item {
        syn::Item::Mod(module) if super::functions::is_for_tests(&module.attrs) => Some(&module.ident),
        _ => None,
    });
    modules.map(|name| path.iter().cloned().chain([name.to_string()]).collect()).collect()
}

/// The paths that items of the module `here` name, from the crate's root.
fn items(all: &[syn::Item], here: &[String], into: &mut BTreeSet<Vec<String>>) {
    for item in all {
        let attributes = attributes(item);
        if super::functions::is_for_tests(attributes) {
            continue;
        }
        match item {
            syn::Item::Mod(module) => {
                if let Some((_, inner)) = &module.content {
                    items(inner, &[here, &[module.ident.to_string()]].concat(), into);
                }
            }
            syn::Item::Impl(block) => {
                let mut block = block.clone();
                block.items.retain(|item| match item {
                    syn::ImplItem::Fn(function) => !super::functions::is_for_tests(&function.attrs),
                    _ => true,
                });
                paths(block.to_token_stream(), here, into);
            }
            item => paths(item.to_token_stream(), here, into),
        }
    }
}

fn attributes(item: &syn::Item) -> &[syn::Attribute] {
    match item {
        syn::Item::Const(item) => &item.attrs,
        syn::Item::Fn(item) => &item.attrs,
        syn::Item::Impl(item) => &item.attrs,
        syn::Item::Mod(item) => &item.attrs,
        syn::Item::Static(item) => &item.attrs,
        syn::Item::Struct(item) => &item.attrs,
        syn::Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// Finds what follows `crate::`, `self::` or `super::`, also in groups and in macros.
fn paths(stream: TokenStream, here: &[String], into: &mut BTreeSet<Vec<String>>) {
    let trees: Vec<TokenTree> = stream.into_iter().collect();
    let mut at = 0;
    while let Some(tree) = trees.get(at) {
        at += 1;
        let start = match tree {
            TokenTree::Group(group) => {
                paths(group.stream(), here, into);
                continue;
            }
            TokenTree::Ident(name) if name == "crate" => &[],
            TokenTree::Ident(name) if name == "self" => here,
            TokenTree::Ident(name) if name == "super" => above(here),
            _ => continue,
        };
        if is_path(&trees, at) {
            at = follow(&trees, at, start.to_vec(), into);
        }
    }
}

fn above(module: &[String]) -> &[String] {
    module.split_last().map_or(&[], |(_, above)| above)
}

/// Reads on after the first name of a path, which may end in a group of others; says where it ends.
fn follow(
    trees: &[TokenTree],
    mut at: usize,
    mut path: Vec<String>,
    into: &mut BTreeSet<Vec<String>>,
) -> usize {
    while is_path(trees, at) {
        match trees.get(at + 2) {
            Some(TokenTree::Ident(name)) if name == "super" => drop(path.pop()),
            Some(TokenTree::Ident(name)) => path.push(name.to_string()),
            Some(TokenTree::Group(group)) => {
                let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                let is_comma =
                    |tree: &TokenTree| matches!(tree, TokenTree::Punct(punct) if punct.as_char() == ',');
                for one in inner.split(is_comma) {
                    if let Some(TokenTree::Ident(first)) = one.first() {
                        let is_itself = first == "self";
                        let name = (!is_itself).then(|| first.to_string());
                        follow(one, 1, path.iter().cloned().chain(name).collect(), into);
                    }
                }
                return at + 3;
            }
            _ => break,
        }
        at += 3;
    }
    into.insert(path);
    at
}

/// Whether `::` stands there.
fn is_path(trees: &[TokenTree], at: usize) -> bool {
    let is_colon =
        |tree: Option<&TokenTree>| matches!(tree, Some(TokenTree::Punct(punct)) if punct.as_char() == ':');
    is_colon(trees.get(at)) && is_colon(trees.get(at + 1))
}

/// The edges of a smallest circle, each with a file that has it; none if there is no circle.
fn smallest(graph: &Graph) -> Vec<String> {
    graph.keys().filter_map(|module| back_to(graph, module)).min_by_key(Vec::len).unwrap_or_default()
}

/// The shortest way from a module back to itself.
fn back_to(graph: &Graph, start: &str) -> Option<Vec<String>> {
    let mut came_from: BTreeMap<&str, &str> = BTreeMap::new();
    let mut waiting = VecDeque::from([start]);
    while let Some(module) = waiting.pop_front() {
        for next in graph.get(module)?.keys() {
            if next == start {
                let mut way = vec![module];
                while let Some(before) = way.last().and_then(|module| came_from.get(module)) {
                    way.push(before);
                }
                way.reverse();
                let ends = way.iter().skip(1).chain([&start]);
                let edge = |(from, to): (&&str, &&str)| {
                    let file = graph.get(*from)?.get(*to)?;
                    Some(format!("{from} names {to} in {file}"))
                };
                return way.iter().zip(ends).map(edge).collect();
            }
            if !came_from.contains_key(next.as_str()) {
                came_from.insert(next, module);
                waiting.push_back(next);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(here: &str, text: &str, expect: &[&str]) {
        let here: Vec<String> = here.split("::").map(str::to_owned).collect();
        let mut found = BTreeSet::new();
        items(&syn::parse_file(text).expect("Rust").items, &here, &mut found);
        assert_eq!(found.iter().map(|path| path.join("::")).collect::<Vec<_>>(), expect, "{text}");
    }

    #[test]
    fn what_a_file_names_of_its_crate_is_found() {
        check("x", "use crate::a::b;", &["a::b"]);
        check("x", "use crate::{a::{b, c}, d, e as f};", &["a::b", "a::c", "d", "e"]);
        check("x", "use crate::a::{self, b::{self, c}};", &["a", "a::b", "a::b::c"]);
        check("x", "fn f() -> crate::a::B { vec![crate::c::d()] }", &["a::B", "c::d"]);
        check("x", "use super::a; use super::{b, c::d};", &["a", "b", "c::d"]);
        check("x::y", "use super::a; use super::super::b;", &["b", "x::a"]);
        check("x", "mod inner { use super::a; use super::super::b; }", &["b", "x::a"]);
        check("x", "use krate::a; use self::b; pub(crate) fn f(&self) { a::b() }", &["x::b"]);
    }

    #[test]
    fn tests_are_left_out() {
        check("x", "#[cfg(test)] mod tests { use crate::a; }", &[]);
        check("x", "#[cfg(test)] use crate::a; #[cfg(test)] pub(crate) fn f() { crate::b() }", &[]);
        check("x", "impl A { #[cfg(test)] fn f() { crate::a::b() } fn g() { crate::c::d() } }", &["c::d"]);
    }

    #[test]
    fn an_edge_is_where_two_paths_part_whoever_passes_the_name_on() {
        let files = [
            ("lib.rs", "mod a; mod z; use z::Z;"),
            ("a.rs", "mod b; mod c; pub(crate) use c::C; use b::B;"),
            ("a/b.rs", "use super::C; use crate::Z;"),
            ("a/c.rs", "use crate::a::B; use super::Own;"),
            ("z.rs", ""),
        ];
        let folder = std::env::temp_dir().join(format!("modules-{}", std::process::id()));
        fs::create_dir_all(folder.join("a")).expect("a folder");
        for (name, text) in files {
            fs::write(folder.join(name), text).expect("a file");
        }
        let graphs = read(&folder).expect("modules");
        fs::remove_dir_all(&folder).expect("no folder");
        assert_eq!(graphs.keys().collect::<Vec<_>>(), ["", "a"]);
        assert_eq!(smallest(&graphs[""]), Vec::<String>::new());
        assert_eq!(graphs[""]["a"]["z"], "a/b.rs");
        assert_eq!(smallest(&graphs["a"]), ["b names c in a/b.rs", "c names b in a/c.rs"]);
    }

    fn graph(edges: &[(&str, &str)]) -> Graph {
        let mut graph = Graph::new();
        for (from, to) in edges {
            graph.entry((*to).to_owned()).or_default();
            let edges = graph.entry((*from).to_owned()).or_default();
            edges.insert((*to).to_owned(), format!("{from}.rs"));
        }
        graph
    }

    #[test]
    fn the_smallest_circle_is_named() {
        let none = graph(&[("a", "b"), ("a", "c"), ("b", "c")]);
        assert_eq!(smallest(&none), Vec::<String>::new());
        let two = graph(&[("a", "b"), ("b", "c"), ("c", "a"), ("c", "d"), ("d", "e"), ("e", "d")]);
        assert_eq!(smallest(&two), ["d names e in d.rs", "e names d in e.rs"]);
    }
}
