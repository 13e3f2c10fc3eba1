//! The tree of an expression.

use std::sync::Arc;

/// A node: its number, where it stands, and what it is.
#[derive(Clone, Debug)]
pub(crate) struct Expr {
    /// A number that no other node has, below the count of nodes.
    pub(crate) id: usize,
    /// Where it stands, in characters from the beginning.
    pub(crate) at: usize,
    pub(crate) kind: Kind,
}

/// What a node is.
#[derive(Clone, Debug)]
pub(crate) enum Kind {
    Literal(Literal),
    Ident(Arc<str>),
    Select(Select),
    Call(Call),
    List(Vec<Element>),
    Map(Vec<Entry>),
    /// An object of a named type.
    Struct(Arc<str>, Vec<Field>),
    Fold(Box<Fold>),
}

/// A value that is written down.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Literal {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(Arc<str>),
    Bytes(Arc<[u8]>),
}

/// `operand.field`, or whether it is there.
#[derive(Clone, Debug)]
pub(crate) struct Select {
    pub(crate) operand: Box<Expr>,
    pub(crate) field: Arc<str>,
    /// `has(operand.field)`.
    pub(crate) is_test: bool,
}

/// A call. `&&` and `||` have two arguments or more, everything else has what was written.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) function: Arc<str>,
    pub(crate) target: Option<Box<Expr>>,
    pub(crate) args: Vec<Expr>,
}

/// A list's element; an optional one is left out if it is none.
#[derive(Clone, Debug)]
pub(crate) struct Element {
    pub(crate) value: Expr,
    pub(crate) is_optional: bool,
}

/// A map's entry.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) key: Expr,
    pub(crate) value: Expr,
    pub(crate) is_optional: bool,
}

/// A field of an object that is made.
#[derive(Clone, Debug)]
pub(crate) struct Field {
    pub(crate) at: usize,
    pub(crate) name: Arc<str>,
    pub(crate) value: Expr,
    pub(crate) is_optional: bool,
}

/// What all macros over lists and maps become: `accu` is `init`; for each of `range`, while `condition` holds, it is
/// `step`; then comes `result`.
#[derive(Clone, Debug)]
pub(crate) struct Fold {
    pub(crate) range: Expr,
    pub(crate) variable: Arc<str>,
    pub(crate) second: Option<Arc<str>>,
    pub(crate) accu: Arc<str>,
    pub(crate) init: Expr,
    pub(crate) condition: Expr,
    pub(crate) step: Expr,
    pub(crate) result: Expr,
}

impl Fold {
    /// Whether nothing is gone over: a value gets a name, and is computed when it is first asked for.
    pub(crate) fn is_binding(&self) -> bool {
        let nothing = matches!(&self.range.kind, Kind::List(elements) if elements.is_empty());
        nothing && matches!(self.condition.kind, Kind::Literal(Literal::Bool(false)))
    }
}

impl Expr {
    /// The qualified name that the expression spells: an identifier, or selections on one.
    pub(crate) fn qualified_name(&self) -> Option<String> {
        let mut segments = Vec::new();
        let mut expr = self;
        loop {
            match &expr.kind {
                Kind::Ident(name) => {
                    segments.push(&**name);
                    segments.reverse();
                    return Some(segments.join("."));
                }
                Kind::Select(select) if !select.is_test => {
                    segments.push(&*select.field);
                    expr = &select.operand;
                }
                _ => return None,
            }
        }
    }

    /// The nodes that this one is made of.
    pub(crate) fn children(&self) -> Vec<&Self> {
        match &self.kind {
            Kind::Literal(_) | Kind::Ident(_) => Vec::new(),
            Kind::Select(select) => vec![&select.operand],
            Kind::Call(call) => call.target.as_deref().into_iter().chain(&call.args).collect(),
            Kind::List(elements) => elements.iter().map(|element| &element.value).collect(),
            Kind::Map(entries) => entries.iter().flat_map(|entry| [&entry.key, &entry.value]).collect(),
            Kind::Struct(_, fields) => fields.iter().map(|field| &field.value).collect(),
            Kind::Fold(fold) => {
                vec![&fold.range, &fold.init, &fold.condition, &fold.step, &fold.result]
            }
        }
    }
}
