//! The environment of an expression: variables, libraries, types that it can make objects of.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::functions::{self, Function, Library, Table};
use crate::types::Declared;
use crate::types::Type;

/// The variables, functions and types in one place where expressions are written.
///
/// It has everything that Kubernetes 1.35 has everywhere. Cheap enough to be made for every schema; a program keeps what it
/// needs of it.
#[derive(Clone, Debug)]
pub struct Environment {
    variables: Vec<Variable>,
    objects: Vec<MadeType>,
    tables: Vec<&'static Table>,
    pub(crate) has_bindings: bool,
    pub(crate) has_escaped_keys: bool,
}

/// A variable.
#[derive(Clone, Debug)]
pub(crate) struct Variable {
    pub(crate) name: Arc<str>,
    pub(crate) kind: Type,
    /// The sizes that it can have, if they are known.
    pub(crate) declared: Option<Declared>,
}

/// Objects that expressions can make, or whose fields are computed when they are asked for.
#[derive(Clone, Debug)]
pub struct MadeType {
    /// The type's name, or what it begins with if there can be any field: `Object` is `Object.spec` as well.
    pub name: String,
    /// Fields; `None` if there can be any.
    pub fields: Option<BTreeMap<String, Type>>,
}

impl MadeType {
    /// `JSONPatch{op: 'add', path: '/spec/replicas', value: 1}`.
    #[must_use]
    pub fn json_patch() -> Self {
        let text = ["op", "path", "from"].map(|name| (name.to_owned(), Type::String));
        let fields = text.into_iter().chain([("value".to_owned(), Type::Dyn)]).collect();
        Self { name: "JSONPatch".to_owned(), fields: Some(fields) }
    }

    /// `Object{spec: Object.spec{replicas: 1}}`.
    #[must_use]
    pub fn object() -> Self {
        Self { name: "Object".to_owned(), fields: None }
    }

    fn is(&self, name: &str) -> bool {
        match name.strip_prefix(self.name.as_str()) {
            Some(rest) => rest.is_empty() || (self.fields.is_none() && rest.starts_with('.')),
            None => false,
        }
    }
}

/// Makes a type that is no constant.
type MakeType = fn() -> Type;

/// Names that stand for types.
const TYPES: &[(&str, MakeType)] = &[
    ("bool", || Type::Bool),
    ("bytes", || Type::Bytes),
    ("double", || Type::Double),
    ("int", || Type::Int),
    ("list", || Type::list(Type::Dyn)),
    ("map", || Type::map(Type::Dyn, Type::Dyn)),
    ("null_type", || Type::Null),
    ("string", || Type::String),
    ("type", || Type::Type(None)),
    ("uint", || Type::Uint),
    ("dyn", || Type::Dyn),
    ("google.protobuf.Duration", || Type::Duration),
    ("google.protobuf.Timestamp", || Type::Timestamp),
    ("optional_type", || Type::optional(Type::Param("V".into()))),
    ("net.IP", || Type::Opaque("net.IP".into(), Arc::new([]))),
    ("net.CIDR", || Type::Opaque("net.CIDR".into(), Arc::new([]))),
];

/// Objects that only functions know.
const OBJECTS: &[&str] = &[
    "kubernetes.URL",
    "kubernetes.Quantity",
    "kubernetes.Semver",
    "kubernetes.NamedFormat",
    "kubernetes.authorization.Authorizer",
    "kubernetes.authorization.PathCheck",
    "kubernetes.authorization.GroupCheck",
    "kubernetes.authorization.ResourceCheck",
    "kubernetes.authorization.Decision",
];

impl Default for Environment {
    fn default() -> Self {
        Self::new()
    }
}

impl Environment {
    /// An environment without variables.
    #[must_use]
    pub fn new() -> Self {
        let tables = functions::of(Library::Base).into_iter().collect();
        Self {
            variables: Vec::new(),
            objects: Vec::new(),
            tables,
            has_bindings: false,
            has_escaped_keys: false,
        }
    }

    /// With a library beside what is there everywhere.
    #[must_use]
    pub fn with(mut self, library: Library) -> Self {
        match functions::of(library) {
            Some(table) => self.tables.push(table),
            None if library == Library::Bindings => self.has_bindings = true,
            None => {}
        }
        self
    }

    /// With a variable of a type. The name may have dots: `authorizer.requestResource`.
    #[must_use]
    pub fn variable(mut self, name: &str, kind: Type) -> Self {
        self.variables.push(Variable { name: name.into(), kind, declared: None });
        self
    }

    /// With a variable whose sizes are known. Objects in it should have names: [`Declared::named`].
    #[must_use]
    pub fn declared(mut self, name: &str, declared: Declared) -> Self {
        let kind = declared.checked();
        self.variables.push(Variable { name: name.into(), kind, declared: Some(declared) });
        self
    }

    /// With a variable of a declared type that may not be there: `oldSelf` of rules with `optionalOldSelf`.
    #[must_use]
    pub fn optional(mut self, name: &str, declared: &Declared) -> Self {
        let kind = Type::optional(declared.checked());
        self.variables.push(Variable { name: name.into(), kind, declared: Some(declared.clone()) });
        self
    }

    /// With a type that objects can be made of, and whose fields can be selected of variables of that type.
    #[must_use]
    pub fn making(mut self, made: MadeType) -> Self {
        self.objects.push(made);
        self
    }

    /// Adds a field to a type that objects can be made of; the type is added if it is not there.
    pub fn add_field(&mut self, object: &str, field: &str, kind: Type) {
        let found = self.objects.iter().position(|made| made.name == object);
        let at = found.unwrap_or_else(|| {
            self.objects.push(MadeType { name: object.to_owned(), fields: Some(BTreeMap::new()) });
            self.objects.len() - 1
        });
        if let Some(MadeType { fields: Some(fields), .. }) = self.objects.get_mut(at) {
            fields.insert(field.to_owned(), kind);
        }
    }

    /// With keys of maps that are no identifiers: `claims.kubernetes__dot__io`. Objects have theirs anyway.
    #[must_use]
    pub fn with_escaped_keys(mut self) -> Self {
        self.has_escaped_keys = true;
        self
    }

    pub(crate) fn variables(&self) -> &[Variable] {
        &self.variables
    }

    pub(crate) fn find_variable(&self, name: &str) -> Option<usize> {
        self.variables.iter().rposition(|variable| &*variable.name == name)
    }

    /// The type that a name stands for.
    pub(crate) fn find_type(&self, name: &str) -> Option<Type> {
        if let Some((_, made)) = TYPES.iter().find(|(known, _)| *known == name) {
            return Some(made());
        }
        let is_object = OBJECTS.contains(&name) || self.objects.iter().any(|made| made.is(name));
        is_object.then(|| Type::named(name))
    }

    /// The functions of a name, from each library.
    pub(crate) fn find_functions<'e>(
        &'e self,
        name: &'e str,
    ) -> impl Iterator<Item = &'static Function> + 'e {
        self.tables.iter().filter_map(move |table| table.get(name))
    }

    /// The field of an object that can be made; `None` if there is no such object.
    pub(crate) fn made_field(&self, object: &str, field: &str) -> Option<Option<Type>> {
        let made = self.objects.iter().find(|made| made.is(object))?;
        Some(match &made.fields {
            Some(fields) => fields.get(field).cloned(),
            None => Some(Type::Dyn),
        })
    }
}
