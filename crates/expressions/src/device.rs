//! The devices that a CEL expression selects.
//!
//! Expressions see one device as `device`: `driver`, `attributes` and `capacity` by domain and name. A domain that the
//! device has nothing of is empty, a name that is not there is an error. Source: `CELDeviceSelector` of
//! `resource.k8s.io/v1`, `k8s.io/dynamic-resource-allocation/cel`.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

use k8s_openapi::api::resource::v1::{Device, DeviceAttribute};
use machinery::quantity::ParseError;
use parking_lot::Mutex;

use crate::context::EvalError;
use crate::environment::Environment;
use crate::evaluate::{Activation, Budget};
use crate::functions::Library;
use crate::program::Program;
use crate::types::Type;
use crate::types::{Declared, Field};
use crate::value::{Entries, Key, Made, Map, Object, Text, Value};

/// What expressions see.
const DEVICE: &str = "device";
/// Compiled expressions that are kept.
const PROGRAMS_MAX: usize = 1024;
/// What an expression may cost for one device. Source: `CELSelectorExpressionMaxCost`.
const COST_MAX: u64 = 1_000_000;
/// Characters of a domain, a driver's name, and of what stands behind the domain.
const DOMAIN_CHARACTERS_MAX: u64 = 63;
const ID_CHARACTERS_MAX: u64 = 32;
/// Characters of an attribute.
const VALUE_CHARACTERS_MAX: u64 = 64;
/// Attributes and capacities of a device.
const ENTRIES_MAX: u64 = 32;

/// The reason why an expression cannot be run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompileError {
    /// It is none, or not one of this place.
    #[error("{0}")]
    Invalid(String),
    /// It could take too long.
    #[error("too complex, exceeds cost limit")]
    TooCostly,
}

/// The reason why an expression did not answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectorError {
    /// It is none.
    #[error("CEL compile error: {0}")]
    Compile(CompileError),
    /// It failed for this device.
    #[error("CEL runtime error: {0}")]
    Runtime(RuntimeError),
}

/// The reason why an expression failed for a device.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuntimeError {
    /// A capacity of the device is no quantity.
    #[error(transparent)]
    Capacity(#[from] ParseError),
    /// An attribute of the device is no version, as the reader of versions says.
    #[error("parse semantic version: {0}")]
    Version(String),
    /// An attribute of the device has a value of no known type.
    #[error("unsupported attribute value")]
    Unsupported,
    /// The evaluation failed.
    #[error(transparent)]
    Evaluation(#[from] EvalError),
    /// What came out is of this type.
    #[error("CEL result of type {0} could not be converted to bool")]
    NoBool(String),
}

/// A cache of expressions about devices, each compiled once.
#[derive(Clone)]
pub struct Selectors(Arc<Inner>);

struct Inner {
    environment: Environment,
    programs: Mutex<HashMap<String, Arc<Result<Program, CompileError>>>>,
}

impl fmt::Debug for Selectors {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Selectors").finish_non_exhaustive()
    }
}

impl Default for Selectors {
    fn default() -> Self {
        let environment = Environment::new().with(Library::Bindings).declared(DEVICE, declared());
        Self(Arc::new(Inner { environment, programs: Mutex::default() }))
    }
}

/// The type of a device.
fn declared() -> Declared {
    let by_domain = |value: Declared| {
        let by_id = Declared::map(value, Some(ENTRIES_MAX)).with_keys(ID_CHARACTERS_MAX);
        Declared::map(by_id, Some(ENTRIES_MAX)).with_keys(DOMAIN_CHARACTERS_MAX)
    };
    let field = |name: &str, declared| Field { name: name.to_owned(), declared, is_required: true };
    Declared::object([
        field("driver", Declared::string_of(DOMAIN_CHARACTERS_MAX)),
        field("attributes", by_domain(Declared::unknown(VALUE_CHARACTERS_MAX))),
        field("capacity", by_domain(Declared::quantity())),
        field("allowMultipleAllocations", Declared::boolean()),
    ])
    .named("kubernetes.DRADevice")
}

impl Selectors {
    /// The check that the expression may be run.
    ///
    /// # Errors
    /// Why not.
    pub fn check(&self, expression: &str) -> Result<(), CompileError> {
        self.0.compiled(expression).as_ref().as_ref().map(drop).map_err(Clone::clone)
    }

    /// `true` if the expression selects a device of `driver`.
    ///
    /// # Errors
    /// The expression is none, or fails for this device.
    pub fn matches(&self, expression: &str, driver: &str, device: &Device) -> Result<bool, SelectorError> {
        let compiled = self.0.compiled(expression);
        let program = compiled.as_ref().as_ref().map_err(|why| SelectorError::Compile(why.clone()))?;
        let activation =
            Activation::new().with(DEVICE, shown(driver, device).map_err(SelectorError::Runtime)?);
        match program.evaluate(&activation, &mut Budget::new(COST_MAX).per_call(COST_MAX)).result {
            Ok(Value::Bool(answer)) => Ok(answer),
            Ok(other) => Err(SelectorError::Runtime(RuntimeError::NoBool(other.type_name().to_string()))),
            Err(error) => Err(SelectorError::Runtime(error.into())),
        }
    }
}

impl Inner {
    fn compiled(&self, expression: &str) -> Arc<Result<Program, CompileError>> {
        if let Some(known) = self.programs.lock().get(expression) {
            return known.clone();
        }
        // Not under the lock: a large expression takes its time, and two of the same do no harm.
        let compiled = Arc::new(self.compile(expression));
        let mut programs = self.programs.lock();
        if programs.len() >= PROGRAMS_MAX {
            programs.clear();
        }
        programs.insert(expression.to_owned(), compiled.clone());
        compiled
    }

    fn compile(&self, expression: &str) -> Result<Program, CompileError> {
        let compiled = self.environment.compile(expression);
        let program = compiled.map_err(|error| CompileError::Invalid(error.to_string()))?;
        if !matches!(program.kind(), Type::Bool | Type::Any) {
            let why = format!("must evaluate to bool or the unknown type, not {}", program.kind());
            return Err(CompileError::Invalid(why));
        }
        if program.cost().max > COST_MAX {
            return Err(CompileError::TooCostly);
        }
        Ok(program)
    }
}

/// The device as expressions see it.
fn shown<'a>(driver: &'a str, device: &'a Device) -> Result<Value<'a>, RuntimeError> {
    let attributes = device.attributes.iter().flatten();
    let attributes = attributes.map(|(name, value)| Ok((&**name, attribute(value)?)));
    let attributes = by_domain(driver, attributes.collect::<Result<_, RuntimeError>>()?);
    let capacity = device
        .capacity
        .iter()
        .flatten()
        .map(|(name, capacity)| Ok((&**name, Value::Quantity(capacity.value.0.parse()?))));
    let capacity = by_domain(driver, capacity.collect::<Result<_, RuntimeError>>()?);
    let fields = [
        ("driver", Value::String(Text::Borrowed(driver))),
        ("attributes", attributes),
        ("capacity", capacity),
        ("allowMultipleAllocations", Value::Bool(device.allow_multiple_allocations == Some(true))),
    ];
    let fields = fields.into_iter().map(|(name, value)| (name.into(), value)).collect();
    Ok(Value::Object(Object::Shared(Arc::new(Made { name: "kubernetes.DRADevice".into(), fields }))))
}

fn attribute(attribute: &DeviceAttribute) -> Result<Value<'_>, RuntimeError> {
    match attribute {
        DeviceAttribute { bool: Some(value), .. } => Ok(Value::Bool(*value)),
        DeviceAttribute { int: Some(value), .. } => Ok(Value::Int(*value)),
        DeviceAttribute { string: Some(value), .. } => Ok(Value::String(Text::Borrowed(value))),
        DeviceAttribute { version: Some(value), .. } => {
            let version = semver::Version::parse(value);
            let version = version.map_err(|error| RuntimeError::Version(error.to_string()))?;
            Ok(Value::Semver(Arc::new(version)))
        }
        _ => Err(RuntimeError::Unsupported),
    }
}

/// What has no domain belongs to the driver's; a domain that there is nothing of is empty.
fn by_domain<'a>(driver: &'a str, all: Vec<(&'a str, Value<'a>)>) -> Value<'a> {
    let mut found: BTreeMap<Key<'a>, BTreeMap<Key<'a>, Value<'a>>> = BTreeMap::new();
    for (name, value) in all {
        let (domain, id) = name.split_once('/').unwrap_or((driver, name));
        found.entry(Key::String(domain.into())).or_default().insert(Key::String(id.into()), value);
    }
    let by_key = found.into_iter().map(|(domain, values)| (domain, Value::map(values))).collect();
    let other = Some(Value::map(BTreeMap::new()));
    Value::Map(Map::Shared(Arc::new(Entries { by_key, other })))
}
