//! Nodes of a tree, as parser and macros make them.

use super::ast::{Call, Expr, Kind};
use crate::problem::Problem;

/// Nodes of a tree: macros copy what they are applied to, so that few characters can become many nodes.
const NODES_MAX: usize = 200_000;

/// Makes nodes, and numbers them.
#[derive(Default)]
pub(super) struct Factory {
    pub(super) nodes: usize,
}

impl Factory {
    pub(super) fn node(&mut self, at: usize, kind: Kind) -> Expr {
        let id = self.nodes;
        self.nodes += 1;
        Expr { id, at, kind }
    }

    pub(super) fn call(&mut self, at: usize, function: &str, args: Vec<Expr>) -> Expr {
        self.node(at, Kind::Call(Call { function: function.into(), target: None, args }))
    }

    pub(super) fn member(&mut self, at: usize, function: &str, target: Expr, args: Vec<Expr>) -> Expr {
        let target = Some(Box::new(target));
        self.node(at, Kind::Call(Call { function: function.into(), target, args }))
    }

    pub(super) fn ident(&mut self, at: usize, name: &str) -> Expr {
        self.node(at, Kind::Ident(name.into()))
    }

    /// The same tree with numbers of its own.
    pub(super) fn copy(&mut self, expr: &Expr) -> Result<Expr, Problem> {
        if self.nodes > NODES_MAX {
            return Err(Problem::nowhere(format!("expression has more than {NODES_MAX} nodes")));
        }
        let mut copied = expr.clone();
        self.renumber(&mut copied);
        Ok(copied)
    }

    fn renumber(&mut self, expr: &mut Expr) {
        stacker::maybe_grow(64 << 10, 1 << 20, || {
            expr.id = self.nodes;
            self.nodes += 1;
            match &mut expr.kind {
                Kind::Literal(_) | Kind::Ident(_) => {}
                Kind::Select(select) => self.renumber(&mut select.operand),
                Kind::Call(call) => {
                    call.target.iter_mut().for_each(|target| self.renumber(target));
                    call.args.iter_mut().for_each(|arg| self.renumber(arg));
                }
                Kind::List(elements) => {
                    elements.iter_mut().for_each(|element| self.renumber(&mut element.value))
                }
                Kind::Map(entries) => entries.iter_mut().for_each(|entry| {
                    self.renumber(&mut entry.key);
                    self.renumber(&mut entry.value);
                }),
                Kind::Struct(_, fields) => {
                    fields.iter_mut().for_each(|field| self.renumber(&mut field.value))
                }
                Kind::Fold(fold) => {
                    let fold = &mut **fold;
                    [&mut fold.range, &mut fold.init, &mut fold.condition, &mut fold.step, &mut fold.result]
                        .into_iter()
                        .for_each(|part| self.renumber(part));
                }
            }
        });
    }
}
