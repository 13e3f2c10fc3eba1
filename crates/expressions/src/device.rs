//! Which devices a CEL expression selects.
//!
//! Expressions see one device as `device`: `driver`, `attributes` and `capacity` by domain and name. A domain that the
//! device has nothing of is empty, a name that is not there is an error. Source: `CELDeviceSelector` of
//! `resource.k8s.io/v1`, `k8s.io/dynamic-resource-allocation/cel`.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;

use cel::objects::{Key, Map};
use cel::{Context, Env, Value};
use k8s_openapi::api::resource::v1::{Device, DeviceAttribute};
use parking_lot::Mutex;

use crate::compile::{Compiled, compile};
use crate::library;

pub use crate::compile::CompileError;

/// Bytes of stack that an expression of the largest depth runs in.
const RUN_STACK_BYTES: usize = 1 << 20;
/// What expressions see.
const DEVICE: &str = "device";
/// Compiled expressions that are kept.
const PROGRAMS_MAX: usize = 1024;

/// Why an expression did not answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectorError {
    /// It is none.
    #[error("CEL compile error: {0}")]
    Compile(CompileError),
    /// It failed for this device.
    #[error("CEL runtime error: {0}")]
    Runtime(String),
}

/// Compiles expressions once and asks them about devices.
#[derive(Clone)]
pub struct Selectors(Arc<Mutex<Inner>>);

struct Inner {
    /// `None` if there could be none: then nothing is selected, and everybody is told.
    engine: Option<(Arc<Env>, Context<'static, 'static>)>,
    programs: HashMap<String, Arc<Result<Compiled, CompileError>>>,
}

impl fmt::Debug for Selectors {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Selectors").finish_non_exhaustive()
    }
}

impl Default for Selectors {
    fn default() -> Self {
        let engine = library::environment().and_then(|env| {
            let env = Arc::new(env);
            library::context(env.clone()).map(|context| (env, context))
        });
        if let Err(error) = &engine {
            tracing::error!(%error, "devices cannot be selected");
        }
        Self(Arc::new(Mutex::new(Inner { engine: engine.ok(), programs: HashMap::new() })))
    }
}

impl Selectors {
    /// Whether the expression may be run.
    ///
    /// # Errors
    /// Why not.
    pub fn check(&self, expression: &str) -> Result<(), CompileError> {
        self.0.lock().compiled(expression).as_ref().as_ref().map(drop).map_err(Clone::clone)
    }

    /// Whether the expression selects a device of `driver`.
    ///
    /// # Errors
    /// The expression is none, or fails for this device.
    pub fn matches(&self, expression: &str, driver: &str, device: &Device) -> Result<bool, SelectorError> {
        let mut inner = self.0.lock();
        let compiled = inner.compiled(expression);
        let compiled = compiled.as_ref().as_ref().map_err(|why| SelectorError::Compile(why.clone()))?;
        let shown = shown(driver, device, &compiled.texts).map_err(SelectorError::Runtime)?;
        let Some((_, context)) = &mut inner.engine else {
            return Err(SelectorError::Runtime("CEL is not available".to_owned()));
        };
        context.add_variable_from_value(DEVICE, shown);
        let run = || compiled.program.execute(context);
        match stacker::maybe_grow(RUN_STACK_BYTES, 2 * RUN_STACK_BYTES, run) {
            Ok(Value::Bool(answer)) => Ok(answer),
            Ok(other) => {
                Err(SelectorError::Runtime(format!("must evaluate to bool, not {}", other.type_of())))
            }
            Err(error) => Err(SelectorError::Runtime(error.to_string())),
        }
    }
}

impl Inner {
    fn compiled(&mut self, expression: &str) -> Arc<Result<Compiled, CompileError>> {
        if let Some(known) = self.programs.get(expression) {
            return known.clone();
        }
        if self.programs.len() >= PROGRAMS_MAX {
            self.programs.clear();
        }
        let compiled = match &self.engine {
            Some((env, _)) => compile(env, expression, &[DEVICE]),
            None => Err(CompileError::Invalid("CEL is not available".to_owned())),
        };
        let compiled = Arc::new(compiled);
        self.programs.insert(expression.to_owned(), compiled.clone());
        compiled
    }
}

/// The device as expressions see it.
fn shown(driver: &str, device: &Device, domains: &BTreeSet<String>) -> Result<Value, String> {
    let attributes = device.attributes.iter().flatten();
    let attributes = attributes.map(|(name, value)| Ok((name, attribute(value)?)));
    let attributes = by_domain(driver, attributes.collect::<Result<_, String>>()?, domains);
    let capacity = device.capacity.iter().flatten();
    let capacity = capacity.map(|(name, capacity)| {
        library::quantity(&capacity.value.0).map(|value| (name, value)).map_err(|error| error.to_string())
    });
    let capacity = by_domain(driver, capacity.collect::<Result<_, String>>()?, domains);
    Ok(map([
        ("driver".to_owned(), Value::from(driver)),
        ("attributes".to_owned(), attributes),
        ("capacity".to_owned(), capacity),
        ("allowMultipleAllocations".to_owned(), Value::Bool(device.allow_multiple_allocations == Some(true))),
    ]))
}

fn attribute(attribute: &DeviceAttribute) -> Result<Value, String> {
    match attribute {
        DeviceAttribute { bool: Some(value), .. } => Ok(Value::Bool(*value)),
        DeviceAttribute { int: Some(value), .. } => Ok(Value::Int(*value)),
        DeviceAttribute { string: Some(value), .. } => Ok(Value::from(value.as_str())),
        DeviceAttribute { version: Some(value), .. } => {
            library::version(value).map_err(|error| format!("parse semantic version: {error}"))
        }
        _ => Err("unsupported attribute value".to_owned()),
    }
}

/// What has no domain belongs to the driver's.
fn by_domain(driver: &str, all: Vec<(&String, Value)>, domains: &BTreeSet<String>) -> Value {
    let mut found: HashMap<String, Vec<(String, Value)>> =
        domains.iter().map(|domain| (domain.clone(), Vec::new())).collect();
    for (name, value) in all {
        let (domain, id) = name.split_once('/').unwrap_or((driver, name));
        found.entry(domain.to_owned()).or_default().push((id.to_owned(), value));
    }
    map(found.into_iter().map(|(domain, values)| (domain, map(values))))
}

fn map(entries: impl IntoIterator<Item = (String, Value)>) -> Value {
    let map = entries.into_iter().map(|(key, value)| (Key::from(key), value)).collect();
    Value::Map(Map { map: Arc::new(map) })
}
