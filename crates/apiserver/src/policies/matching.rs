//! The requests that a policy or a binding is about, and the form in which it sees their objects.
//!
//! Source: `plugin/policy/matching/matching.go`.

use std::cell::OnceCell;

use machinery::labels::{ParseError, Selector};
use serde_json::{Map, Value};

use crate::kinds::Kind;
use crate::status::Result;
use crate::tree::{items, text};
use crate::webhooks::attributes::{Attributes, Form};
use crate::webhooks::matching::{is_in_namespaces, is_selected};
use crate::webhooks::rules::Rule;

/// `matchConstraints` of a policy, `matchResources` of a binding.
#[derive(Debug)]
pub struct Constraints {
    /// All resources, if there are none.
    rules: Vec<NamedRule>,
    excluded: Vec<NamedRule>,
    /// Whether rules are about other versions of a resource, too.
    is_equivalent: bool,
    namespaces: Result<Selector, ParseError>,
    objects: Result<Selector, ParseError>,
}

/// A rule about some objects, or about all if none is named.
#[derive(Debug)]
struct NamedRule {
    rule: Rule,
    names: Vec<Box<str>>,
}

impl NamedRule {
    fn of(rule: &Value) -> Self {
        let names = items(rule, "/resourceNames").filter_map(Value::as_str).map(Into::into);
        Self { rule: Rule::of(rule), names: names.collect() }
    }

    fn matches(&self, attributes: &Attributes<'_>, kind: &Kind) -> bool {
        let is_named = || self.names.is_empty() || self.names.iter().any(|name| **name == *attributes.name);
        self.rule.matches(&attributes.target(kind)) && is_named()
    }
}

impl Constraints {
    /// Reads them as they are written.
    pub fn of(written: &Value) -> Self {
        let rules = |name| items(written, name).map(NamedRule::of).collect();
        // What is not there has its default, which objects have when they are stored.
        let selector = |name: &str| match written.get(name).filter(|selector| !selector.is_null()) {
            Some(selector) => Selector::from_label_selector(Some(selector)),
            None => Ok(Selector::default()),
        };
        Self {
            rules: rules("/resourceRules"),
            excluded: rules("/excludeResourceRules"),
            is_equivalent: text(written, "/matchPolicy") != "Exact",
            namespaces: selector("namespaceSelector"),
            objects: selector("objectSelector"),
        }
    }
}

/// A request that is compared with many policies.
pub struct Matching<'a> {
    attributes: &'a Attributes<'a>,
    object: Option<&'a Value>,
    /// The labels of its namespace, once they have been asked for.
    labels: OnceCell<Result<Option<Map<String, Value>>>>,
    equivalents: OnceCell<Vec<&'a Kind>>,
}

impl<'a> Matching<'a> {
    /// A request, and the object as it is to be.
    pub fn new(attributes: &'a Attributes<'a>, object: Option<&'a Value>) -> Self {
        Self { attributes, object, labels: OnceCell::new(), equivalents: OnceCell::new() }
    }

    /// The form in which the object is seen; `None` if they are not about it.
    ///
    /// # Errors
    /// Why that cannot be known, where nothing else rules it out.
    pub fn form(&self, constraints: &Constraints) -> Result<Option<Form>> {
        let attributes = self.attributes;
        if self.by_rules(&constraints.excluded, constraints).is_some() {
            return Ok(None);
        }
        let form = match constraints.rules.is_empty() {
            true => Some(attributes.kind),
            false => self.by_rules(&constraints.rules, constraints),
        };
        let Some(form) = form else { return Ok(None) };
        let labels = || self.labels.get_or_init(|| attributes.namespace_labels(self.object)).clone();
        let in_namespace = is_in_namespaces(&constraints.namespaces, attributes, labels);
        if matches!(in_namespace, Ok(false)) {
            return Ok(None);
        }
        let is_selected = is_selected(&constraints.objects, attributes, self.object);
        if matches!(is_selected, Ok(false)) {
            return Ok(None);
        }
        in_namespace.and(is_selected)?;
        Ok(Some(Form(form.clone())))
    }

    /// The first rule that names the resource itself wins; else the first that names another version of it.
    fn by_rules(&self, rules: &[NamedRule], constraints: &Constraints) -> Option<&'a Kind> {
        let attributes = self.attributes;
        if rules.iter().any(|rule| rule.matches(attributes, attributes.kind)) {
            return Some(attributes.kind);
        }
        if !constraints.is_equivalent || rules.is_empty() {
            return None;
        }
        let equivalents = self.equivalents.get_or_init(|| attributes.equivalents().collect());
        rules.iter().find_map(|rule| equivalents.iter().copied().find(|kind| rule.matches(attributes, kind)))
    }
}

#[cfg(test)]
mod tests;
