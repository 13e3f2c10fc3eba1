//! The functions of expressions: every one's overloads, which the checker chooses from, and what it does.
//!
//! An overload is a line: an id, and types as `parse` of [`crate::types`] reads them; `string.(string) -> bool` is a
//! member's. Only ids that costs ask for matter; the rest are for readers. What a function does is decided by the values
//! it gets. Source: cel-go's `common/stdlib`, `ext`; `k8s.io/apiserver/pkg/cel/library`.

mod authz;
mod convert;
mod format;
mod lists;
mod network;
mod operators;
mod optionals;
mod patches;
pub(crate) mod printf;
mod quantities;
mod regexes;
mod sets;
mod strings;
mod times;
mod url;
mod versions;

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::context::{Context, EvalError};
use crate::types::{Type, parse, split};
use crate::value::{List, Text, Value};

pub(crate) use operators::{index, shown};

/// What a function gives.
pub(crate) type Answer<'a> = Result<Value<'a>, EvalError>;

/// What a function does with its arguments; a member's target is the first.
pub(crate) type Body = for<'a> fn(&mut Context, &[Value<'a>]) -> Answer<'a>;

/// A function as it stands in a table.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    /// Ids and signatures. Lists of types between `<` and `>` stand for an overload each.
    pub(crate) overloads: &'static [(&'static str, &'static str)],
    pub(crate) body: Body,
}

/// A function.
#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) overloads: Vec<Overload>,
}

/// One way to call a function.
#[derive(Clone, Debug)]
pub(crate) struct Overload {
    pub(crate) id: &'static str,
    pub(crate) is_member: bool,
    pub(crate) args: Vec<Type>,
    pub(crate) result: Type,
    pub(crate) body: Body,
}

/// Groups of functions that come and go with versions and places.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Library {
    /// Everything that Kubernetes 1.35 has everywhere.
    Base,
    /// `cel.bind(name, value, expression)`, which selectors of devices have.
    Bindings,
    /// `JSONPatch` and `jsonpatch.escapeKey`, for mutating admission.
    Patches,
}

/// Everything that can be called, by name.
pub(crate) type Table = HashMap<&'static str, Function>;

static BASE: LazyLock<Table> = LazyLock::new(|| {
    table(&[
        operators::ROWS,
        convert::ROWS,
        times::ROWS,
        strings::ROWS,
        printf::ROWS,
        lists::ROWS,
        sets::ROWS,
        optionals::ROWS,
        regexes::ROWS,
        url::ROWS,
        network::ROWS,
        quantities::ROWS,
        versions::ROWS,
        format::ROWS,
        authz::ROWS,
    ])
});
static PATCHES: LazyLock<Table> = LazyLock::new(|| table(&[patches::ROWS]));

/// The functions of a library.
pub(crate) fn of(library: Library) -> Option<&'static Table> {
    match library {
        Library::Base => Some(&BASE),
        // A macro, which the parser knows.
        Library::Bindings => None,
        Library::Patches => Some(&PATCHES),
    }
}

fn table(groups: &[&'static [Row]]) -> Table {
    let mut table = Table::new();
    for row in groups.iter().copied().flatten() {
        let function = table.entry(row.name).or_insert(Function { overloads: Vec::new() });
        for (id, signature) in row.overloads {
            let read =
                expand(signature).into_iter().filter_map(|signature| overload(id, &signature, row.body));
            function.overloads.extend(read);
        }
    }
    table
}

/// The signatures that one with `<a|b>` stands for.
fn expand(signature: &str) -> Vec<String> {
    let Some((_, choices)) =
        signature.split_once('<').and_then(|(_, rest)| rest.split_once('>').map(|(c, _)| ("", c)))
    else {
        return vec![signature.to_owned()];
    };
    let whole = format!("<{choices}>");
    choices.split('|').map(|choice| signature.replace(&whole, choice).replace("<>", choice)).collect()
}

fn overload(id: &'static str, signature: &str, body: Body) -> Option<Overload> {
    let (call, result) = signature.rsplit_once("->")?;
    let call = call.trim();
    let inner = call.strip_suffix(')')?;
    let (target, args) = match inner.split_once(".(") {
        Some((target, args)) => (Some(parse(target)?), args),
        None => (None, inner.strip_prefix('(')?),
    };
    let args = split(args).into_iter().map(parse).collect::<Option<Vec<_>>>()?;
    let is_member = target.is_some();
    Some(Overload {
        id,
        is_member,
        args: target.into_iter().chain(args).collect(),
        result: parse(result)?,
        body,
    })
}

/// The error of a call with values that the function knows no way to take.
pub(crate) fn no_overload<'a>() -> Answer<'a> {
    Err(EvalError::NoOverload)
}

pub(crate) fn fail<'a>(message: impl Into<String>) -> Answer<'a> {
    Err(EvalError::from(message.into()))
}

/// A text that has been made; its bytes count.
pub(crate) fn made_text<'a>(context: &mut Context, text: String) -> Answer<'a> {
    context.allocate(text.len())?;
    Ok(Value::text(text))
}

/// A list that has been made; its elements count.
pub(crate) fn made_list<'a>(context: &mut Context, elements: Vec<Value<'a>>) -> Answer<'a> {
    context.allocate(elements.len().saturating_mul(size_of::<Value<'_>>()))?;
    Ok(Value::list(elements))
}

/// The texts of a list.
pub(crate) fn texts<'a>(list: &List<'a>) -> Result<Vec<Text<'a>>, EvalError> {
    list.iter()
        .map(|element| match element {
            Value::String(text) => Ok(text),
            _ => Err(EvalError::NoOverload),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    /// A signature that cannot be read would be a function that nobody finds.
    #[test]
    fn every_signature_is_read() {
        let groups = [
            super::operators::ROWS,
            super::convert::ROWS,
            super::times::ROWS,
            super::strings::ROWS,
            super::printf::ROWS,
            super::lists::ROWS,
            super::sets::ROWS,
            super::optionals::ROWS,
            super::regexes::ROWS,
            super::url::ROWS,
            super::network::ROWS,
            super::quantities::ROWS,
            super::versions::ROWS,
            super::format::ROWS,
            super::authz::ROWS,
            super::patches::ROWS,
        ];
        for row in groups.into_iter().flatten() {
            for (id, signature) in row.overloads {
                for signature in super::expand(signature) {
                    assert!(super::overload(id, &signature, row.body).is_some(), "{}: {signature}", row.name);
                }
            }
        }
    }
}
