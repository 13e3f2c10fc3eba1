//! A row of the table: one resource of one group and version.

use std::borrow::Cow;

use machinery::features::Feature;
use serde_json::Value;

use crate::columns::Column;
use crate::conversion::Conversion;
use crate::fields::SelectableField;
use crate::row_values::{Names, Shared, Text, set};
use crate::strategy::{GENERIC, Strategy};

/// The scope of a kind's objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// In a namespace.
    Namespaced,
    /// In the cluster.
    Cluster,
}

/// One resource of one group and version. Those of built-in kinds are constants, others are made at run time.
#[derive(Clone, Debug)]
pub struct Resource {
    /// API group, empty for core.
    pub group: Text,
    /// API version.
    pub version: Text,
    /// The name in URLs.
    pub plural: Text,
    /// The lower-case singular.
    pub singular: Text,
    /// The kind of one object.
    pub kind: Text,
    /// The kind of a list of them.
    pub list_kind: Text,
    /// The type's name in OpenAPI, such as `io.k8s.api.apps.v1.Deployment`.
    pub message: Text,
    /// kubectl's abbreviations.
    pub short_names: Names,
    /// Groups of resources, such as `all`.
    pub categories: Names,
    /// The scope of the objects.
    pub scope: Scope,
    /// The verbs, in discovery's order.
    pub verbs: &'static [&'static str],
    /// The storage key in front of `<namespace>/<name>`, with a slash at its end; empty for kinds never stored.
    pub storage_prefix: Text,
    /// The `apiVersion` in which objects are stored: the version of its own group, or of another that shares them.
    pub storage_api_version: Text,
    /// To and from the stored form, where it differs from the served one in more than `apiVersion`.
    pub conversion: Option<&'static Conversion>,
    /// The subresources of an object.
    pub subresources: &'static [Subresource],
    /// The strategy of the kind: what differs when it is written.
    pub strategy: Shared<Strategy>,
    /// The columns of `kubectl get`.
    pub columns: Shared<[Column]>,
    /// The fields that a selector may name besides `metadata.name` and `metadata.namespace`.
    pub selectable_fields: Shared<[SelectableField]>,
    /// Seconds until an object expires, 0 for never.
    pub ttl_seconds: u32,
    /// A write may be acknowledged before it is on disk: its loss in a crash does no harm.
    pub is_relaxed: bool,
    /// `true` if it is on by default.
    pub is_default: bool,
    /// The feature gate that turns it on, if it is off by default.
    pub gate: Option<Feature>,
    /// The warning that every request gets, empty for none.
    pub deprecation: Text,
    /// The places of a Scale's numbers.
    pub scale: ScalePaths,
    /// The kind is about to go: nothing new is created, and clients are told of no other verbs than [`ENDING_VERBS`].
    pub is_terminating: bool,
}

/// The places in an object of the parts of its Scale, as JSON pointers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScalePaths {
    /// The number of wanted replicas.
    pub spec_replicas: Text,
    /// The number of existing replicas.
    pub status_replicas: Text,
    /// The labels of the replicas: a text, or a selector; empty for nowhere.
    pub selector: Text,
}

impl ScalePaths {
    /// Those of built-in kinds.
    pub const BUILT_IN: Self = Self {
        spec_replicas: Text::Static("/spec/replicas"),
        status_replicas: Text::Static("/status/replicas"),
        selector: Text::Static("/spec/selector"),
    };
}

/// Something served below an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subresource {
    /// The path's last segment.
    pub name: &'static str,
    /// Group of the kind that is sent and returned; that of the row's resource if empty and `kind` is its kind.
    pub group: &'static str,
    /// Version of that kind.
    pub version: &'static str,
    /// The kind that is sent and returned.
    pub kind: &'static str,
    /// The verbs, in discovery's order.
    pub verbs: &'static [&'static str],
}

/// `status` of the row's own kind; group, version and kind are the row's.
pub const STATUS: Subresource =
    Subresource { name: "status", group: "", version: "", kind: "", verbs: &["get", "patch", "update"] };

/// `scale`, an `autoscaling/v1` `Scale`.
pub const SCALE: Subresource = Subresource {
    name: "scale",
    group: "autoscaling",
    version: "v1",
    kind: "Scale",
    verbs: &["get", "patch", "update"],
};

/// Every verb of a stored resource.
pub const ALL_VERBS: &[&str] =
    &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

/// The verbs of a custom resource, in the order in which upstream lists them.
pub const CUSTOM_VERBS: &[&str] =
    &["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];

/// The verbs of a custom resource that is about to go.
pub const ENDING_VERBS: &[&str] = &["delete", "deletecollection", "get", "list", "watch"];

const CREATE_ONLY: &[&str] = &["create"];

impl Resource {
    /// A row for a stored kind; `message`, and `list_kind` where empty, are filled in by the table.
    pub const fn new(
        api: (&'static str, &'static str),
        plural: &'static str,
        singular: &'static str,
        kind: &'static str,
        scope: Scope,
    ) -> Self {
        Self {
            group: Text::Static(api.0),
            version: Text::Static(api.1),
            plural: Text::Static(plural),
            singular: Text::Static(singular),
            kind: Text::Static(kind),
            list_kind: Text::Static(""),
            message: Text::Static(""),
            short_names: Names::Static(&[]),
            categories: Names::Static(&[]),
            scope,
            verbs: ALL_VERBS,
            storage_prefix: Text::Static(""),
            storage_api_version: Text::Static(""),
            conversion: None,
            subresources: &[],
            strategy: Shared::Static(&GENERIC),
            columns: Shared::Static(crate::columns::GENERIC),
            selectable_fields: Shared::Static(&[]),
            ttl_seconds: 0,
            is_relaxed: false,
            is_default: true,
            gate: None,
            deprecation: Text::Static(""),
            scale: ScalePaths::BUILT_IN,
            is_terminating: false,
        }
    }

    /// A row that is made at run time, as custom resources have theirs: stored below its group, in its own version.
    pub fn made(
        (group, version): (&str, &str),
        plural: &str,
        singular: &str,
        kind: &str,
        scope: Scope,
    ) -> Self {
        let mut row = Self::new(("", ""), "", "", "", scope);
        row.group = group.into();
        row.version = version.into();
        row.plural = plural.into();
        row.singular = singular.into();
        row.kind = kind.into();
        row.list_kind = format!("{kind}List").into();
        row.storage_prefix = format!("/registry/{group}/{plural}/").into();
        row.storage_api_version = row.api_version().into();
        row.verbs = CUSTOM_VERBS;
        row
    }

    /// kubectl's abbreviations.
    #[must_use]
    pub const fn short(mut self, names: &'static [&'static str]) -> Self {
        set(&mut self.short_names, Names::Static(names));
        self
    }

    /// Part of `kubectl get all`.
    #[must_use]
    pub const fn in_all(mut self) -> Self {
        set(&mut self.categories, Names::Static(&["all"]));
        self
    }

    /// Part of these groups of resources.
    #[must_use]
    pub const fn categories(mut self, names: &'static [&'static str]) -> Self {
        set(&mut self.categories, Names::Static(names));
        self
    }

    /// The same row with subresources of an object.
    #[must_use]
    pub const fn sub(mut self, subresources: &'static [Subresource]) -> Self {
        self.subresources = subresources;
        self
    }

    /// The same row with a strategy.
    #[must_use]
    pub const fn strategy(mut self, strategy: &'static Strategy) -> Self {
        set(&mut self.strategy, Shared::Static(strategy));
        self
    }

    /// The same row with columns of `kubectl get`.
    #[must_use]
    pub const fn columns(mut self, columns: &'static [Column]) -> Self {
        set(&mut self.columns, Shared::Static(columns));
        self
    }

    /// The same row with fields that a selector may name.
    #[must_use]
    pub const fn fields(mut self, fields: &'static [SelectableField]) -> Self {
        set(&mut self.selectable_fields, Shared::Static(fields));
        self
    }

    /// A storage prefix other than `/registry/<plural>/`.
    #[must_use]
    pub const fn stored_at(mut self, prefix: &'static str) -> Self {
        set(&mut self.storage_prefix, Text::Static(prefix));
        self
    }

    /// Stored in the form of another group or version.
    #[must_use]
    pub const fn stored_as(
        mut self,
        api_version: &'static str,
        conversion: Option<&'static Conversion>,
    ) -> Self {
        set(&mut self.storage_api_version, Text::Static(api_version));
        self.conversion = conversion;
        self
    }

    /// Seconds until an object expires.
    #[must_use]
    pub const fn ttl(mut self, seconds: u32) -> Self {
        self.ttl_seconds = seconds;
        self
    }

    /// A write may be acknowledged before it is on disk.
    #[must_use]
    pub const fn relaxed(mut self) -> Self {
        self.is_relaxed = true;
        self
    }

    /// Every request is answered with this warning.
    #[must_use]
    pub const fn deprecated(mut self, warning: &'static str) -> Self {
        set(&mut self.deprecation, Text::Static(warning));
        self
    }

    /// Known, but not served by default.
    #[must_use]
    pub const fn off(mut self) -> Self {
        self.is_default = false;
        self
    }

    /// Known, but served only if a feature is on.
    #[must_use]
    pub const fn gated(mut self, feature: Feature) -> Self {
        self.is_default = false;
        self.gate = Some(feature);
        self
    }

    /// A kind that can only be posted and is never stored.
    #[must_use]
    pub const fn virtual_kind(mut self) -> Self {
        self.verbs = CREATE_ONLY;
        set(&mut self.strategy, Shared::Static(&crate::strategy::VIRTUAL));
        self
    }

    /// Only these verbs.
    #[must_use]
    pub const fn verbs(mut self, verbs: &'static [&'static str]) -> Self {
        self.verbs = verbs;
        self
    }

    /// `v1` or `apps/v1`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            return self.version.to_string();
        }
        format!("{}/{}", self.group, self.version)
    }

    /// `deployments.apps`, as messages name it.
    pub fn group_resource(&self) -> String {
        machinery::group::group_resource(&self.group, &self.plural)
    }

    /// `true` if objects live in a namespace.
    pub fn is_namespaced(&self) -> bool {
        self.scope == Scope::Namespaced
    }

    /// `true` if this process serves it.
    #[must_use]
    pub fn is_served(&self) -> bool {
        self.is_default || self.gate.is_some_and(Feature::is_on)
    }

    /// `true` if objects are stored at all.
    pub fn is_stored(&self) -> bool {
        !self.storage_prefix.is_empty()
    }

    /// The subresource `name`.
    pub fn subresource(&self, name: &str) -> Option<&'static Subresource> {
        self.subresources.iter().find(|s| s.name == name)
    }

    /// `true` if `status` is written through its own subresource only.
    pub fn has_status(&self) -> bool {
        self.subresource("status").is_some()
    }

    /// `true` if `verb` can be done on the resource itself.
    pub fn allows(&self, verb: &str) -> bool {
        // What is there may still be changed, so that finalizers can end.
        self.verbs.contains(&verb) || (self.is_terminating && matches!(verb, "patch" | "update"))
    }

    /// `true` if a field selector on this resource may name `label`.
    pub fn is_selectable(&self, label: &str) -> bool {
        label == "metadata.name"
            || (label == "metadata.namespace" && self.is_namespaced())
            || self.selectable_fields.iter().any(|f| f.label == label)
    }

    /// The value of the selectable field `label` of `object`; empty when there is none.
    pub fn field_value<'a>(&'a self, object: &'a Value, label: &str) -> Cow<'a, str> {
        match label {
            "metadata.name" => return text(object.pointer("/metadata/name"), ""),
            "metadata.namespace" => return text(object.pointer("/metadata/namespace"), ""),
            _ => {}
        }
        let Some(field) = self.selectable_fields.iter().find(|f| f.label == label) else {
            return Cow::Borrowed("");
        };
        match text(object.pointer(&field.pointer), "") {
            found if found.is_empty() && !field.fallback.is_empty() => {
                text(object.pointer(&field.fallback), &field.absent)
            }
            found if found.is_empty() => Cow::Borrowed(&field.absent),
            found => found,
        }
    }

    /// Upstream's answer to a selector that names another field.
    pub fn unsupported_field(&self, label: &str) -> String {
        match (&*self.group, &*self.kind) {
            ("" | "certificates.k8s.io", _) if !self.selectable_fields.is_empty() => {
                format!("field label not supported: {label}")
            }
            ("resource.k8s.io", kind) if !self.selectable_fields.is_empty() => {
                let api_version = self.api_version();
                format!("field label not supported for {api_version}, Kind={kind}: {label}")
            }
            _ => format!(
                "\"{label}\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
            ),
        }
    }
}

fn text<'a>(value: Option<&'a Value>, absent: &'a str) -> Cow<'a, str> {
    match value {
        None | Some(Value::Null) => Cow::Borrowed(absent),
        Some(Value::String(text)) => Cow::Borrowed(text),
        Some(other) => Cow::Owned(other.to_string()),
    }
}
