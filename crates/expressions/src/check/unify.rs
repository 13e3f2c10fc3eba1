//! The types that can stand for others, and what is found out about unknown ones on the way.
//!
//! Source: cel-go's `checker/types.go`.

use std::collections::HashMap;
use std::sync::Arc;

use crate::functions::Overload;
use crate::types::Type;

/// What unknown types have turned out to be. A failed attempt leaves no trace.
#[derive(Debug, Default)]
pub(crate) struct Mapping {
    known: HashMap<Arc<str>, Type>,
    /// What was known before each change of an attempt.
    log: Vec<(Arc<str>, Option<Type>)>,
    fresh: usize,
}

/// What becomes of types that are still unknown.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unbound {
    Kept,
    Dyn,
}

impl Mapping {
    /// A type that is not known yet.
    pub(crate) fn fresh(&mut self) -> Type {
        let name = format!("_var{}", self.fresh);
        self.fresh += 1;
        Type::Param(name.into())
    }

    /// An overload's result and arguments with unknown types of their own.
    pub(crate) fn freshen(&mut self, overload: &Overload) -> Vec<Type> {
        let mut renamed = HashMap::new();
        let mut rename = |kind: &Type| self.renamed(kind, &mut renamed);
        std::iter::once(&overload.result).chain(&overload.args).map(&mut rename).collect()
    }

    fn renamed(&mut self, kind: &Type, renamed: &mut HashMap<Arc<str>, Type>) -> Type {
        match kind {
            Type::Param(name) => {
                if let Some(known) = renamed.get(name) {
                    return known.clone();
                }
                let fresh = self.fresh();
                renamed.insert(name.clone(), fresh.clone());
                fresh
            }
            other if other.parameters().is_empty() => other.clone(),
            other => other.map_parameters(|inner| self.renamed(inner, renamed)),
        }
    }

    fn bind(&mut self, name: &Arc<str>, kind: Type) {
        let before = self.known.insert(name.clone(), kind);
        self.log.push((name.clone(), before));
    }

    fn attempt(&mut self, holds: impl FnOnce(&mut Self) -> bool) -> bool {
        self.log.clear();
        let holds = holds(self);
        if !holds {
            while let Some((name, before)) = self.log.pop() {
                match before {
                    Some(kind) => self.known.insert(name, kind),
                    None => self.known.remove(&name),
                };
            }
        }
        holds
    }

    /// Whether a value of the second type can be where one of the first is wanted, or the other way round.
    pub(crate) fn is_assignable(&mut self, one: &Type, other: &Type) -> bool {
        self.attempt(|mapping| mapping.assign(one, other))
    }

    pub(crate) fn are_assignable(&mut self, ones: &[Type], others: &[Type]) -> bool {
        self.attempt(|mapping| {
            ones.len() == others.len()
                && ones.iter().zip(others).all(|(one, other)| mapping.assign(one, other))
        })
    }

    fn assign(&mut self, one: &Type, other: &Type) -> bool {
        if let Type::Param(name) = other {
            match self.substituted(one, name, other) {
                (true, _) => return true,
                (false, true) => return false,
                (false, false) => {}
            }
        }
        if let Type::Param(name) = one {
            return self.substituted(other, name, one).0;
        }
        if one.is_dyn_or_error() || other.is_dyn_or_error() {
            return true;
        }
        match (one, other) {
            (Type::Null, other) | (other, Type::Null) => is_nullable(other),
            (Type::Type(_), Type::Type(_)) => true,
            (Type::List(_), Type::List(_)) | (Type::Map(..), Type::Map(..)) => self.assign_all(one, other),
            (Type::Opaque(name, _), Type::Opaque(same, _)) => name == same && self.assign_all(one, other),
            _ => one == other,
        }
    }

    fn assign_all(&mut self, one: &Type, other: &Type) -> bool {
        let (ones, others) = (one.parameters(), other.parameters());
        ones.len() == others.len() && ones.into_iter().zip(others).all(|(one, other)| self.assign(one, other))
    }

    /// Whether `kind` can be what the unknown type `name` is, and whether something was known of that already.
    fn substituted(&mut self, kind: &Type, name: &Arc<str>, unknown: &Type) -> (bool, bool) {
        if kind == unknown {
            return (true, true);
        }
        if let Some(known) = self.known.get(name).cloned() {
            if *kind == known {
                return (true, true);
            }
            if !self.assign(kind, &known) {
                return (false, true);
            }
            let general = if is_equal_or_less_specific(kind, &known) { kind.clone() } else { known };
            if self.is_free_of(unknown, &general) {
                self.bind(name, general);
            }
            return (true, true);
        }
        if self.is_free_of(unknown, kind) {
            self.bind(name, kind.clone());
            return (true, false);
        }
        (false, false)
    }

    /// Whether an unknown type is no part of another: it would have no end.
    fn is_free_of(&self, unknown: &Type, within: &Type) -> bool {
        if unknown == within {
            return false;
        }
        match within {
            Type::Param(name) => self.known.get(name).is_none_or(|known| self.is_free_of(unknown, known)),
            other => other.parameters().into_iter().all(|part| self.is_free_of(unknown, part)),
        }
    }

    /// The type with everything that is known put in.
    pub(crate) fn substitute(&self, kind: &Type, unbound: Unbound) -> Type {
        match kind {
            Type::Param(name) => match self.known.get(name) {
                Some(known) => self.substitute(known, unbound),
                None if unbound == Unbound::Dyn => Type::Dyn,
                None => kind.clone(),
            },
            other if other.parameters().is_empty() => other.clone(),
            other => other.map_parameters(|inner| self.substitute(inner, unbound)),
        }
    }
}

fn is_nullable(kind: &Type) -> bool {
    matches!(
        kind,
        Type::Null | Type::Opaque(..) | Type::Object(_) | Type::Any | Type::Duration | Type::Timestamp
    )
}

/// Whether the first type is the second, or a more general one.
pub(crate) fn is_equal_or_less_specific(one: &Type, other: &Type) -> bool {
    if one.is_dyn() || matches!(one, Type::Param(_)) {
        return true;
    }
    if other.is_dyn() || matches!(other, Type::Param(_)) {
        return false;
    }
    match (one, other) {
        (Type::Type(_), Type::Type(_)) => true,
        (Type::List(_), Type::List(_))
        | (Type::Map(..), Type::Map(..))
        | (Type::Opaque(..), Type::Opaque(..)) => {
            let (ones, others) = (one.parameters(), other.parameters());
            one.name() == other.name()
                && ones.len() == others.len()
                && ones.into_iter().zip(others).all(|(one, other)| is_equal_or_less_specific(one, other))
        }
        _ => one == other,
    }
}
