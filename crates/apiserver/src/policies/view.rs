//! The variables of a request that expressions see.
//!
//! Source: `plugin/cel/{activation,condition}.go`.

use expressions::{Activation, Value as Cel};
use resources::match_conditions::{
    AUTHORIZER, NAMESPACE, OBJECT, OLD_OBJECT, REQUEST, REQUEST_RESOURCE, namespace_type, request_type,
};
use resources::policy_expressions::PARAMS;
use serde_json::Value;

use crate::kinds::Kinds;
use crate::status::{Error, Result, Subject};
use crate::webhooks::attributes::{Attributes, Form};
use crate::webhooks::review;

/// A request and its objects in one version.
pub struct View {
    /// The version.
    pub form: Form,
    /// `object`.
    pub object: Option<Value>,
    /// `oldObject`.
    pub old: Option<Value>,
    /// `request`.
    request: Value,
    /// `request` of match conditions, if it is another one.
    asked: Option<Value>,
}

/// The variables that an expression sees beside the request's objects.
#[derive(Clone, Debug, Default)]
pub struct Beside<'a> {
    /// `params`.
    pub params: Option<&'a Value>,
    /// `namespaceObject`.
    pub namespace: Option<&'a Value>,
    /// `authorizer` and `authorizer.requestResource`.
    pub authorizer: Option<(Cel<'a>, Cel<'a>)>,
}

impl View {
    /// The view of a request with objects in one version.
    ///
    /// # Errors
    /// 500 if they cannot be converted.
    pub async fn new(attributes: &Attributes<'_>, form: Form, object: Option<&Value>) -> Result<Self> {
        let object = attributes.shown_if_any(object, &form).await?;
        let old = attributes.shown_if_any(attributes.old, &form).await?;
        let request = review::request_value(attributes, &form);
        let asked = (!form.0.is(attributes.kind)).then(|| request_of_conditions(attributes, &form));
        Ok(Self { form, object, old, request, asked })
    }

    /// The variables of match conditions. They are not told of the namespace, as upstream.
    pub fn of_conditions<'a>(&'a self, beside: Beside<'a>) -> Activation<'a> {
        self.activation(self.asked.as_ref().unwrap_or(&self.request), Beside { namespace: None, ..beside })
    }

    /// The variables of all other expressions.
    pub fn of_expressions<'a>(&'a self, beside: Beside<'a>) -> Activation<'a> {
        self.activation(&self.request, beside)
    }

    fn activation<'a>(&'a self, request: &'a Value, beside: Beside<'a>) -> Activation<'a> {
        let object = |object: &'a Option<Value>| object.as_ref().map_or(Cel::Null, Cel::of);
        let namespace = beside.namespace.map(|namespace| Cel::declared(namespace, namespace_type()));
        let activation = Activation::new()
            .with(OBJECT, object(&self.object))
            .with(OLD_OBJECT, object(&self.old))
            .with(NAMESPACE, namespace.unwrap_or(Cel::Null))
            .with(REQUEST, Cel::declared(request, request_type()))
            .with(PARAMS, beside.params.map_or(Cel::Null, Cel::of));
        match beside.authorizer {
            Some((authorizer, check)) => {
                activation.with(AUTHORIZER, authorizer).with(REQUEST_RESOURCE, check)
            }
            None => activation,
        }
    }
}

/// `request` of match conditions: the version is the one in which objects are seen, the resource the request's own.
pub fn request_of_conditions(attributes: &Attributes<'_>, form: &Form) -> Value {
    let mut request = review::request_value(attributes, form);
    if let Some(resource) = request.get("requestResource").cloned() {
        request["resource"] = resource;
    }
    request
}

/// `namespaceObject`: the namespace that a request is in; a Namespace is in none.
///
/// # Errors
/// 404 if there is no such namespace.
pub fn namespace(kinds: &Kinds, attributes: &Attributes<'_>) -> Result<Option<Value>> {
    let (kind, name) = (attributes.kind, attributes.namespace);
    let is_namespace = kind.group().is_empty() && kind.resource() == "namespaces";
    if name.is_empty() || is_namespace {
        return Ok(None);
    }
    let missing = || Error::not_found(Subject { group: "", resource: "namespaces" }, name);
    let kind = kinds.find("", "v1", "namespaces").ok_or_else(missing)?;
    let found = kind.cache().read(&kind.key("", name))?.ok_or_else(missing)?;
    Ok(Some(kind.value(&found)))
}
