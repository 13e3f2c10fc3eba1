//! The functions of a file as sequences of tokens in which only what is done counts.
//!
//! Literals and the names of what a function binds itself (its parameters and variables) are replaced by one
//! placeholder each; the names of types, functions, fields and macros stay. Tests are left out, and so is everything
//! that is no function's body: tables, types and imports may look alike.

use std::collections::HashSet;

use anyhow::Result;
use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;
use syn::visit::{self, Visit};

/// A token, and the line where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) text: String,
    pub(super) line: usize,
}

/// A function's body.
#[derive(Clone, Debug)]
pub(super) struct Function {
    pub(super) file: String,
    pub(super) tokens: Vec<Token>,
}

/// Every function of a file, tests left out.
pub(super) fn of_file(file: &str, text: &str) -> Result<Vec<Function>> {
    let mut collector = Collector { file, found: Vec::new() };
    collector.visit_file(&syn::parse_file(text)?);
    Ok(collector.found)
}

struct Collector<'a> {
    file: &'a str,
    found: Vec<Function>,
}

impl Collector<'_> {
    fn add(&mut self, attributes: &[syn::Attribute], signature: &syn::Signature, body: &syn::Block) {
        if is_for_tests(attributes) {
            return;
        }
        let mut bound = Bound::default();
        bound.visit_signature(signature);
        bound.visit_block(body);
        let mut tokens = Vec::new();
        flatten(body.to_token_stream(), &bound.0, &mut tokens);
        self.found.push(Function { file: self.file.to_owned(), tokens });
    }
}

// Functions within functions belong to the outer one, so none of these goes deeper.
impl<'ast> Visit<'ast> for Collector<'_> {
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if !is_for_tests(&module.attrs) {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_impl(&mut self, block: &'ast syn::ItemImpl) {
        if !is_for_tests(&block.attrs) {
            visit::visit_item_impl(self, block);
        }
    }

    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.add(&function.attrs, &function.sig, &function.block);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.add(&function.attrs, &function.sig, &function.block);
    }

    fn visit_trait_item_fn(&mut self, function: &'ast syn::TraitItemFn) {
        if let Some(body) = &function.default {
            self.add(&function.attrs, &function.sig, body);
        }
    }
}

/// `#[test]`, `#[tokio::test]`, `#[cfg(test)]`.
pub(super) fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let is_test = attribute.path().segments.last().is_some_and(|segment| segment.ident == "test");
        let is_config = attribute.path().is_ident("cfg");
        is_test || (is_config && attribute.to_token_stream().to_string().contains("(test)"))
    })
}

/// The names that a function binds.
#[derive(Default)]
struct Bound(HashSet<String>);

impl<'ast> Visit<'ast> for Bound {
    fn visit_pat_ident(&mut self, pattern: &'ast syn::PatIdent) {
        let name = pattern.ident.to_string();
        // Upper case is a constant or a variant.
        if name.starts_with(|first: char| first.is_lowercase() || first == '_') {
            self.0.insert(name);
        }
        visit::visit_pat_ident(self, pattern);
    }
}

fn flatten(stream: TokenStream, bound: &HashSet<String>, into: &mut Vec<Token>) {
    for tree in stream {
        let line = tree.span().start().line;
        let mut push = |text: &str, line: usize| into.push(Token { text: text.to_owned(), line });
        match tree {
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    proc_macro2::Delimiter::Parenthesis => ("(", ")"),
                    proc_macro2::Delimiter::Brace => ("{", "}"),
                    proc_macro2::Delimiter::Bracket => ("[", "]"),
                    proc_macro2::Delimiter::None => ("", ""),
                };
                push(open, line);
                flatten(group.stream(), bound, into);
                into.push(Token { text: close.to_owned(), line: group.span_close().start().line });
            }
            TokenTree::Ident(name) => {
                let name = name.to_string();
                push(if bound.contains(&name) { "variable" } else { &name }, line);
            }
            TokenTree::Punct(punct) => push(&punct.as_char().to_string(), line),
            TokenTree::Literal(_) => push("literal", line),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expect: &[&str]) {
        let functions = of_file("a.rs", text).expect("valid Rust");
        let texts: Vec<String> = functions
            .iter()
            .map(|function| {
                let texts: Vec<&str> = function.tokens.iter().map(|token| token.text.as_str()).collect();
                texts.join(" ")
            })
            .collect();
        assert_eq!(texts, expect);
    }

    #[test]
    fn names_of_variables_and_literals_do_not_count() {
        check(
            "fn f(a: u8) -> u8 { let b = a + 1; g(b) }",
            &["{ let variable = variable + literal ; g ( variable ) }"],
        );
        check(
            "fn f(n: u8) { match n { MAX => h(), x => h(x) } }",
            &["{ match variable { MAX = > h ( ) , variable = > h ( variable ) } }"],
        );
    }

    #[test]
    fn methods_and_defaults_of_traits_are_functions_too() {
        check(
            "impl A { fn f(&self) { g() } } trait B { fn h() { i() } fn j(); }",
            &["{ g ( ) }", "{ i ( ) }"],
        );
    }

    #[test]
    fn tests_and_tables_are_left_out() {
        check("const T: &[u8] = &[1, 2]; #[test] fn f() { g() }", &[]);
        check("#[cfg(test)] mod tests { fn f() { g() } }", &[]);
        check("#[cfg(test)] impl A { fn f(&self) {} }", &[]);
    }
}
