//! The modules of a crate stand on each other without circles: whoever reads one knows that nothing below needs it.
//!
//! What counts is the top level: `crate::a` named anywhere in `b.rs` or below `b/` is an edge from `b` to `a`, and so is a
//! path through as many `super` as lead to the root, and a name that the root passes on from `a`. Tests are left out. A
//! crate that has circles says in `docs/crates.toml` how many modules are in one; that number only falls.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;

/// The edges of each module, each with a file that has it.
pub(super) type Graph = BTreeMap<String, BTreeMap<String, String>>;

/// Says which crates have other circles than are known.
pub(super) fn check<'a>(
    root: &Path,
    known: impl IntoIterator<Item = (&'a str, usize)>,
    breaches: &mut Vec<String>,
) -> Result<()> {
    for (name, circle) in known {
        let folder = match name {
            "xtask" => root.join("xtask/src"),
            name => root.join("crates").join(name).join("src"),
        };
        let graph = read(&folder)?;
        let found = in_circles(&graph);
        if found > circle {
            let shown = smallest(&graph).iter().map(String::as_str).collect::<Vec<_>>().join(", ");
            breaches.push(format!(
                "{name}: {found} modules are in circles, {circle} at most; the smallest: {shown}"
            ));
        } else if found < circle {
            breaches.push(format!("{}: {name} has a circle of {found} by now", super::GOLDEN));
        }
    }
    Ok(())
}

/// The modules of a crate, by its files.
fn read(folder: &Path) -> Result<Graph> {
    let mut files = Vec::new();
    collect(folder, &[], &mut files)?;
    let mut graph = Graph::new();
    for (path, _) in &files {
        if let [module, ..] = path.as_slice() {
            graph.entry(module.clone()).or_default();
        }
    }
    let roots = files.iter().filter(|(path, _)| path.is_empty());
    let passed: BTreeMap<String, String> = roots.flat_map(|(_, file)| passed_on(file, &graph)).collect();
    let hidden: BTreeSet<Vec<String>> = files.iter().flat_map(|(path, file)| for_tests(path, file)).collect();
    for (path, file) in &files {
        let [module, ..] = path.as_slice() else { continue };
        if (1..=path.len()).any(|length| path.get(..length).is_some_and(|start| hidden.contains(start))) {
            continue;
        }
        let mut names = BTreeSet::new();
        items(&file.items, path.len(), &mut names);
        for name in names {
            let target = passed.get(&name).unwrap_or(&name);
            if target != module && graph.contains_key(target) {
                let edges = graph.entry(module.clone()).or_default();
                edges.entry(target.clone()).or_insert_with(|| format!("{}.rs", path.join("/")));
            }
        }
    }
    Ok(graph)
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

/// What the root passes on under another name than the module's that it comes from.
fn passed_on(root: &syn::File, graph: &Graph) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for item in &root.items {
        if let syn::Item::Use(item) = item
            && let syn::UseTree::Path(path) = &item.tree
            && graph.contains_key(&path.ident.to_string())
        {
            let mut leaves = Vec::new();
            last_names(&path.tree, &mut leaves);
            found.extend(leaves.into_iter().map(|leaf| (leaf, path.ident.to_string())));
        }
    }
    found
}

fn last_names(tree: &syn::UseTree, into: &mut Vec<String>) {
    match tree {
        syn::UseTree::Path(path) => last_names(&path.tree, into),
        syn::UseTree::Name(name) => into.push(name.ident.to_string()),
        syn::UseTree::Rename(rename) => into.push(rename.rename.to_string()),
        syn::UseTree::Group(group) => group.items.iter().for_each(|tree| last_names(tree, into)),
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

/// What items name of the root, `depth` modules below it.
fn items(all: &[syn::Item], depth: usize, into: &mut BTreeSet<String>) {
    for item in all {
        let attributes = attributes(item);
        if super::functions::is_for_tests(attributes) {
            continue;
        }
        match item {
            syn::Item::Mod(module) => {
                if let Some((_, inner)) = &module.content {
                    items(inner, depth + 1, into);
                }
            }
            syn::Item::Impl(block) => {
                let mut block = block.clone();
                block.items.retain(|item| match item {
                    syn::ImplItem::Fn(function) => !super::functions::is_for_tests(&function.attrs),
                    _ => true,
                });
                names(block.to_token_stream(), depth, into);
            }
            item => names(item.to_token_stream(), depth, into),
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

/// Finds what follows `crate::`, or as many `super::` as there are modules above, also in groups and in macros.
fn names(stream: TokenStream, depth: usize, into: &mut BTreeSet<String>) {
    let trees: Vec<TokenTree> = stream.into_iter().collect();
    let mut at = 0;
    while let Some(tree) = trees.get(at) {
        at += 1;
        let mut above = match tree {
            TokenTree::Group(group) => {
                names(group.stream(), depth, into);
                continue;
            }
            TokenTree::Ident(name) if name == "crate" => depth,
            TokenTree::Ident(name) if name == "super" => 1,
            _ => continue,
        };
        while is_path(&trees, at) {
            at += 2;
            match trees.get(at) {
                Some(TokenTree::Ident(name)) if name == "super" => {
                    above += 1;
                    at += 1;
                }
                Some(TokenTree::Ident(name)) => {
                    if above == depth {
                        into.insert(name.to_string());
                    }
                    break;
                }
                Some(TokenTree::Group(group)) if above == depth => {
                    firsts(group.stream(), into);
                    break;
                }
                _ => break,
            }
        }
    }
}

/// Whether `::` stands there.
fn is_path(trees: &[TokenTree], at: usize) -> bool {
    let is_colon =
        |tree: Option<&TokenTree>| matches!(tree, Some(TokenTree::Punct(punct)) if punct.as_char() == ':');
    is_colon(trees.get(at)) && is_colon(trees.get(at + 1))
}

/// The first name of each path in a group of imports.
fn firsts(group: TokenStream, into: &mut BTreeSet<String>) {
    let mut is_first = true;
    for tree in group {
        match tree {
            TokenTree::Ident(name) if is_first => {
                into.insert(name.to_string());
                is_first = false;
            }
            TokenTree::Punct(punct) if punct.as_char() == ',' => is_first = true,
            _ => {}
        }
    }
}

/// How many modules are in the largest circle.
fn in_circles(graph: &Graph) -> usize {
    let reached: BTreeMap<&str, BTreeSet<&str>> =
        graph.keys().map(|module| (module.as_str(), reachable(graph, module))).collect();
    let is_round = |one: &str, other: &str| {
        reached.get(one).is_some_and(|set| set.contains(other))
            && reached.get(other).is_some_and(|set| set.contains(one))
    };
    let circles = graph.keys().map(|one| graph.keys().filter(|other| is_round(one, other)).count());
    circles.max().unwrap_or(0)
}

fn reachable<'a>(graph: &'a Graph, from: &str) -> BTreeSet<&'a str> {
    let mut found = BTreeSet::new();
    let mut waiting: Vec<&str> = graph.get(from).into_iter().flatten().map(|(to, _)| to.as_str()).collect();
    while let Some(module) = waiting.pop() {
        if found.insert(module) {
            waiting.extend(graph.get(module).into_iter().flatten().map(|(to, _)| to.as_str()));
        }
    }
    found
}

/// The edges of a smallest circle, each with a file that has it.
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

    fn check(depth: usize, text: &str, expect: &[&str]) {
        let mut found = BTreeSet::new();
        items(&syn::parse_file(text).expect("Rust").items, depth, &mut found);
        assert_eq!(found.iter().map(String::as_str).collect::<Vec<_>>(), expect, "{text}");
    }

    #[test]
    fn what_a_file_names_of_the_root_is_found() {
        check(1, "use crate::a::b;", &["a"]);
        check(1, "use crate::{a::{b, c}, d, e as f};", &["a", "d", "e"]);
        check(1, "fn f() -> crate::a::B { vec![crate::c::d()] }", &["a", "c"]);
        check(1, "use super::a; use super::{b, c::d};", &["a", "b", "c"]);
        check(2, "use super::a; use super::super::b;", &["b"]);
        check(1, "mod inner { use super::a; use super::super::b; }", &["b"]);
        check(1, "use krate::a; use self::b; fn f() { a::b() }", &[]);
    }

    #[test]
    fn tests_are_left_out() {
        check(1, "#[cfg(test)] mod tests { use crate::a; }", &[]);
        check(1, "#[cfg(test)] use crate::a; #[cfg(test)] pub(crate) fn f() { crate::b() }", &[]);
        check(1, "impl A { #[cfg(test)] fn f() { crate::a::b() } fn g() { crate::c::d() } }", &["c"]);
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
    fn circles_are_counted_and_the_smallest_is_named() {
        let none = graph(&[("a", "b"), ("a", "c"), ("b", "c")]);
        assert_eq!((in_circles(&none), smallest(&none)), (0, Vec::new()));
        let two = graph(&[("a", "b"), ("b", "c"), ("c", "a"), ("c", "d"), ("d", "e"), ("e", "d")]);
        assert_eq!(in_circles(&two), 3);
        assert_eq!(smallest(&two), ["d names e in d.rs", "e names d in e.rs"]);
    }
}
