//! The position of a walk; lives on the stack, so that good input costs no allocation.

/// A place in a value.
#[derive(Clone, Copy)]
pub(crate) enum Path<'p> {
    /// The outermost value.
    Root,
    /// The place that a path of this text leads to.
    Base(&'p str),
    /// A field, or an entry where that is shown like one.
    Field(&'p Path<'p>, &'p str),
    /// An entry of a map.
    Key(&'p Path<'p>, &'p str),
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
    /// `spec.list.map[key]`, as Go's decoder has it.
    Indexless,
}

impl Path<'_> {
    pub(crate) fn is_root(&self) -> bool {
        matches!(self, Path::Root)
    }

    /// The path as text; empty for the outermost value.
    pub(crate) fn to_text(self, style: Style) -> String {
        match self {
            Path::Root => String::new(),
            Path::Base(text) => text.to_owned(),
            Path::Field(parent, name) => below(parent.to_text(style), name),
            Path::Key(parent, key) if style == Style::Dotted => below(parent.to_text(style), key),
            Path::Key(parent, key) => format!("{}[{key}]", parent.to_text(style)),
            Path::Index(parent, _) if style == Style::Indexless => parent.to_text(style),
            Path::Index(parent, index) => format!("{}[{index}]", parent.to_text(style)),
        }
    }
}

fn below(parent: String, name: &str) -> String {
    if parent.is_empty() { name.to_owned() } else { format!("{parent}.{name}") }
}
