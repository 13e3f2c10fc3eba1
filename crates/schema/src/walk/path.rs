//! The position of a walk; lives on the stack, so that good input costs no allocation.

use crate::rows::{Field, Message};
use crate::walk::names::embedded;

/// A place in a value.
#[derive(Clone, Copy)]
pub(crate) enum Path<'p> {
    /// The outermost value.
    Root,
    /// The place that a path of this text leads to.
    Base(&'p str),
    /// A field, or an entry where that is shown like one.
    Field(&'p Path<'p>, &'p str),
    /// A field of a struct that is embedded in this message: Go's decoder tells of that struct.
    Inlined(&'p Path<'p>, &'p Message, &'p Field),
    /// An entry of a map.
    Key(&'p Path<'p>, &'p str),
    /// An entry of a map, which Go's decoder shows like a field, or, where the path leads to a wrong type, not at all.
    Entry(&'p Path<'p>, &'p str),
    /// The same place, which Go's decoder takes for the outermost.
    Alone(&'p Path<'p>),
    /// An element of a list.
    Index(&'p Path<'p>, usize),
}

/// How a path is written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    /// `spec.list[0].map[key]`.
    Fields,
    /// `spec.list[0].map.key`, as validation by schema has it.
    Dotted,
    /// `spec.list.map`, as Go's decoder has it.
    Indexless,
}

impl Path<'_> {
    pub(crate) fn is_root(&self) -> bool {
        matches!(self, Path::Root)
    }

    /// The field that holds the value, and how many lists and maps within that field.
    pub(crate) fn holder(&self) -> Option<(&str, usize)> {
        match self {
            Path::Field(_, name) => Some((name, 0)),
            Path::Inlined(.., field) => Some((&field.name, 0)),
            Path::Index(parent, _) | Path::Entry(parent, _) => {
                parent.holder().map(|(name, levels)| (name, levels.saturating_add(1)))
            }
            Path::Alone(same) => same.holder(),
            Path::Root | Path::Base(_) | Path::Key(..) => None,
        }
    }

    /// The path as text; empty for the outermost value.
    pub(crate) fn to_text(self, style: Style) -> String {
        match self {
            Path::Root => String::new(),
            Path::Base(text) => text.to_owned(),
            Path::Field(parent, name) => below(parent.to_text(style), name),
            Path::Inlined(parent, message, field) => {
                let is_shown = style == Style::Indexless;
                let structs = embedded(message, field).filter(|_| is_shown);
                below(structs.fold(parent.to_text(style), below), &field.name)
            }
            Path::Key(parent, key) if style == Style::Dotted => below(parent.to_text(style), key),
            Path::Key(parent, key) => format!("{}[{key}]", parent.to_text(style)),
            Path::Alone(_) if style == Style::Indexless => String::new(),
            Path::Alone(same) => same.to_text(style),
            Path::Index(parent, _) | Path::Entry(parent, _) if style == Style::Indexless => {
                parent.to_text(style)
            }
            Path::Entry(parent, key) => below(parent.to_text(style), key),
            Path::Index(parent, index) => format!("{}[{index}]", parent.to_text(style)),
        }
    }
}

fn below(parent: String, name: &str) -> String {
    if parent.is_empty() { name.to_owned() } else { format!("{parent}.{name}") }
}
