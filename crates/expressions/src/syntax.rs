//! From text to a tree: lexer, parser, macros.
//!
//! Whatever the text is, the tree is at most some thousand levels deep: the parser counts, as cel-go does. Nodes are
//! numbered, so that what is known of them can stand in tables beside the tree. Source: CEL's language definition,
//! cel-go's `parser`.

pub(crate) mod ast;
mod factory;
mod lexer;
mod macros;
mod parser;
mod unescape;

pub(crate) use parser::parse;

use crate::problem::Problem;

/// What the parser accepts beyond the language's core.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dialect {
    /// `cel.bind(name, value, expression)`.
    pub(crate) has_bindings: bool,
}

/// A tree, and how many nodes it has.
#[derive(Debug)]
pub(crate) struct Parsed {
    pub(crate) root: ast::Expr,
    pub(crate) nodes: usize,
}

/// What parsing gives: a tree, or all that is wrong.
pub(crate) type Outcome = Result<Parsed, Vec<Problem>>;
