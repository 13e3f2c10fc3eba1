//! The parts of OpenAPI that the schemas of definitions may use.
//!
//! Source: `ValidateCustomResourceDefinitionOpenAPISchema`.

use super::{Kept, lists, validations};
use crate::build::props::{Additional, Items, Props};
use crate::walk::path::Path;
use crate::walk::validate::report::Report;

pub(super) const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];

/// Where in the object a schema stands.
#[derive(Clone, Copy)]
struct Position {
    is_root: bool,
    is_metadata: bool,
    /// Why a default is not allowed; empty where it is.
    no_default: &'static str,
}

pub(super) fn check(props: &Props, kept: Kept, path: Path<'_>, found: &mut Report) {
    let position = Position { is_root: true, is_metadata: false, no_default: "" };
    Walk { kept, found }.schema(props, position, path);
}

struct Walk<'f> {
    kept: Kept,
    found: &'f mut Report,
}

impl Walk<'_> {
    fn schema(&mut self, props: &Props, position: Position, path: Path<'_>) {
        self.standard(props, position, path);
        let inner = Position { is_root: false, ..position };
        if props.unique_items {
            let why = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
            self.found.forbidden(Path::Field(&path, "uniqueItems"), why);
        }
        self.additional(props, inner, path);
        self.properties(props, position, path);
        if let Some(not) = &props.not {
            self.schema(not, inner, Path::Field(&path, "not"));
        }
        for (name, all) in [("allOf", &props.all_of), ("oneOf", &props.one_of), ("anyOf", &props.any_of)] {
            for (index, one) in all.iter().enumerate() {
                self.schema(one, inner, Path::Index(&Path::Field(&path, name), index));
            }
        }
        if let Some(item) = props.item() {
            self.schema(item, inner, Path::Field(&path, "items"));
        }
        if props.preserve == Some(false) {
            let at = Path::Field(&path, "x-kubernetes-preserve-unknown-fields");
            self.found.invalid(at, false, "must be true or undefined");
        }
        lists::check(props, self.kept, path, self.found);
        if !self.kept.keys {
            lists::keys(props, path, self.found);
        }
        validations::check(props, path, self.found);
    }

    /// Types, defaults, and what is not supported at all.
    fn standard(&mut self, props: &Props, position: Position, path: Path<'_>) {
        let child = |name| Path::Field(&path, name);
        if !self.kept.types && !props.ty.is_empty() && !TYPES.contains(&&*props.ty) {
            self.found.not_supported(child("type"), &props.ty, &TYPES);
        }
        if props.default.is_some() && !position.no_default.is_empty() {
            self.found.forbidden(child("default"), &format!("must not be set {}", position.no_default));
        }
        for (is_used, name) in [
            (!props.id.is_empty(), "id"),
            (props.additional_items.is_some(), "additionalItems"),
            (!props.pattern_properties.is_empty(), "patternProperties"),
            (!props.definitions.is_empty(), "definitions"),
            (!props.dependencies.is_empty(), "dependencies"),
            (!props.reference.is_empty(), "$ref"),
        ] {
            if is_used {
                self.found.forbidden(child(name), &format!("{name} is not supported"));
            }
        }
        if props.ty == "null" {
            let why = "type cannot be set to null, use nullable as an alternative";
            self.found.forbidden(child("type"), why);
        }
        if props.items == Some(Items::Several) {
            self.found.forbidden(child("items"), "items must be a schema object and not an array");
        }
        if position.is_metadata && props.embedded {
            let at = child("x-kubernetes-embedded-resource");
            self.found.forbidden(at, "must not be used inside of resource meta");
        }
    }

    fn additional(&mut self, props: &Props, inner: Position, path: Path<'_>) {
        let at = Path::Field(&path, "additionalProperties");
        let is_closed = !matches!(props.additional_properties, None | Some(Additional::Allowed(true)));
        if is_closed && !props.properties.is_empty() {
            self.found.forbidden(at, "additionalProperties and properties are mutual exclusive");
        }
        if let Some(values) = props.additional() {
            let no_default = if inner.is_metadata {
                "inside additionalProperties applying to object metadata"
            } else {
                inner.no_default
            };
            self.schema(values, Position { no_default, ..inner }, at);
        }
    }

    fn properties(&mut self, props: &Props, position: Position, path: Path<'_>) {
        let is_resource = position.is_root || props.embedded;
        let at = Path::Field(&path, "properties");
        for (name, property) in &props.properties {
            let top = match &**name {
                "metadata" => "in top-level metadata",
                "kind" => "in top-level kind",
                "apiVersion" => "in top-level apiVersion",
                _ => "",
            };
            let is_metadata = position.is_metadata || (is_resource && !top.is_empty());
            let no_default = if position.is_root && !top.is_empty() { top } else { position.no_default };
            let position = Position { is_root: false, is_metadata, no_default };
            self.schema(property, position, Path::Key(&at, name));
        }
    }
}
