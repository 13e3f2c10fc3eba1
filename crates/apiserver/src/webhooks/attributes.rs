//! The target of a request, as webhooks see it, and the forms in which they get its object.

use auth::UserInfo;
use expressions::Resource;
use serde_json::{Map, Value};

use super::rules::{Operation, Target};
use crate::codec::{self, FieldValidation};
use crate::kinds::{Kind, Kinds};
use crate::status::{Error, Result, Subject};

/// The facts that all webhooks of one request are told, the object itself apart: that changes.
#[derive(Clone, Copy, Debug)]
pub struct Attributes<'a> {
    /// The served kinds.
    pub kinds: &'a Kinds,
    /// The resource that was asked for.
    pub kind: &'a Kind,
    /// Empty for the object itself.
    pub subresource: &'a str,
    /// The type of the object, if it is not of the resource's own kind: a Scale, a Binding, the options of a stream.
    pub sent_as: Option<TypeName<'a>>,
    /// The operation.
    pub operation: Operation,
    /// The object's name; empty if it is yet to be made up.
    pub name: &'a str,
    /// Its namespace; a Namespace's own name.
    pub namespace: &'a str,
    /// The object before.
    pub old: Option<&'a Value>,
    /// `CreateOptions`, `UpdateOptions` or `DeleteOptions`; null for streams.
    pub options: &'a Value,
    /// `true` if nothing will be stored.
    pub is_dry_run: bool,
    /// The user that asks.
    pub user: &'a UserInfo,
}

/// Group, version and kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TypeName<'a> {
    /// Empty for core.
    pub group: &'a str,
    /// The version.
    pub version: &'a str,
    /// The kind.
    pub kind: &'a str,
}

impl TypeName<'_> {
    /// `v1` or `apps/v1`.
    pub fn api_version(&self) -> String {
        match self.group {
            "" => self.version.to_owned(),
            group => format!("{group}/{}", self.version),
        }
    }
}

/// The version of a resource in which a webhook wants to see objects.
#[derive(Clone, Debug)]
pub struct Form(pub Kind);

impl<'a> Attributes<'a> {
    /// The target that rules are compared with, as if the request were for this version of the resource.
    pub fn target<'k>(&'k self, kind: &'k Kind) -> Target<'k> {
        Target {
            operation: self.operation,
            group: kind.group(),
            version: kind.version(),
            resource: kind.resource(),
            subresource: self.subresource,
            namespace: self.namespace,
        }
    }

    /// The type of the object in this version of the resource.
    pub fn type_name<'k>(&'k self, kind: &'k Kind) -> TypeName<'k> {
        let own = TypeName { group: kind.group(), version: kind.version(), kind: kind.kind() };
        self.sent_as.unwrap_or(own)
    }

    /// The resource of the request itself, as `authorizer.requestResource` asks for it.
    pub fn resource(&self) -> Resource {
        Resource {
            group: self.kind.group().to_owned(),
            resource: self.kind.resource().to_owned(),
            subresource: self.subresource.to_owned(),
            namespace: self.namespace.to_owned(),
            name: self.name.to_owned(),
            ..Resource::default()
        }
    }

    /// The resource's other versions, and other groups that share its objects, where the subresource is served too.
    pub fn equivalents(&self) -> impl Iterator<Item = &'a Kind> {
        let (kind, subresource) = (self.kind, self.subresource);
        let is_served =
            move |other: &Kind| subresource.is_empty() || other.row().subresource(subresource).is_some();
        let is_equivalent = move |other: &&'a Kind| {
            !kind.prefix().is_empty()
                && other.prefix() == kind.prefix()
                && !other.is(kind)
                && is_served(other)
        };
        self.kinds.iter().filter(is_equivalent)
    }

    /// The labels of the namespace that the request is in, for a Namespace that is written those of the object itself.
    ///
    /// # Errors
    /// 404 if there is no such namespace.
    pub fn namespace_labels(&self, object: Option<&Value>) -> Result<Option<Map<String, Value>>> {
        let labels = |object: &Value| object.pointer("/metadata/labels").and_then(Value::as_object).cloned();
        let is_written = matches!(self.operation, Operation::Create | Operation::Update);
        if self.kind.resource() == "namespaces" && self.subresource.is_empty() && is_written {
            return Ok(object.and_then(labels));
        }
        let missing = || Error::not_found(Subject { group: "", resource: "namespaces" }, self.namespace);
        let kind = self.kinds.find("", "v1", "namespaces").ok_or_else(missing)?;
        let found = kind.cache().read(&kind.key("", self.namespace))?.ok_or_else(missing)?;
        Ok(labels(&found.part(&["/metadata/labels"])))
    }

    /// `true` if the request is about what decides which webhooks are called: nobody may lock the administrator out.
    pub fn is_exempt(&self) -> bool {
        const EXEMPT: [&str; 6] = [
            "ValidatingWebhookConfiguration",
            "MutatingWebhookConfiguration",
            "ValidatingAdmissionPolicy",
            "ValidatingAdmissionPolicyBinding",
            "MutatingAdmissionPolicy",
            "MutatingAdmissionPolicyBinding",
        ];
        let name = self.type_name(self.kind);
        name.group == "admissionregistration.k8s.io" && EXEMPT.contains(&name.kind)
    }

    /// An object as a webhook gets it: in its version, with the nulls that Go writes.
    ///
    /// # Errors
    /// 500 if it cannot be converted.
    pub async fn shown(&self, object: &Value, form: &Form) -> Result<Value> {
        let mut shown = match self.sent_as.is_some() || form.0.is(self.kind) {
            true => object.clone(),
            false => self.kind.in_form_of(&form.0, object.clone()).await.map_err(unconverted)?,
        };
        codec::fill_nulls(&mut shown);
        Ok(shown)
    }

    /// The object as webhooks are shown it, if there is one.
    ///
    /// # Errors
    /// As [`Attributes::shown`].
    pub async fn shown_if_any(&self, object: Option<&Value>, form: &Form) -> Result<Option<Value>> {
        match object {
            Some(object) => self.shown(object, form).await.map(Some),
            None => Ok(None),
        }
    }

    /// The object that a webhook or a policy has made, back in the request's version, checked and with its defaults.
    ///
    /// # Errors
    /// 500 for what is no such object any more, 400 for one of another namespace.
    pub async fn taken(&self, patched: Value, form: &Form, validation: FieldValidation) -> Result<Value> {
        let name = self.type_name(&form.0);
        let said = |field: &str| patched.get(field).and_then(Value::as_str).unwrap_or_default();
        if said("kind") != name.kind || said("apiVersion") != name.api_version() {
            let (version, kind) = (said("apiVersion"), said("kind"));
            let expected = format!("{}, Kind={}", name.api_version(), name.kind);
            return Err(Error::internal(format!("expected {expected}, got {version}, Kind={kind}")));
        }
        let object = match self.sent_as {
            Some(name) => codec::check_types(&name.api_version(), name.kind, patched)
                .map_err(|failure| Error::internal(failure.message))?,
            None => {
                let mut object = codec::made(&form.0, patched, validation)?;
                codec::default(&form.0, &mut object)?;
                if !form.0.is(self.kind) {
                    object = form.0.in_form_of(self.kind, object).await.map_err(unconverted)?;
                }
                object
            }
        };
        self.check_namespace(&object)?;
        Ok(object)
    }

    /// Where an object lies is said by the request alone.
    fn check_namespace(&self, object: &Value) -> Result<()> {
        let namespace = object.pointer("/metadata/namespace").and_then(Value::as_str).unwrap_or_default();
        let is_apart = self.sent_as.is_some() && namespace.is_empty();
        let expected = if self.kind.is_namespaced() { self.namespace } else { "" };
        if namespace == expected || is_apart || self.operation == Operation::Connect {
            return Ok(());
        }
        Err(Error::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ))
    }
}

/// Source: `NewVersionedAttributes`.
fn unconverted(failure: Error) -> Error {
    Error::internal(failure.message)
}
