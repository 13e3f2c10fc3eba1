//! All rows, and how one is found.

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::columns::{CREATED_AT, Column, Description, SCALE};
use crate::resource::Resource;
use crate::rows;

struct Table {
    rows: Vec<Resource>,
    /// Places in `rows`, in order of group, version and plural, and of group, version and kind.
    by_plural: Vec<usize>,
    by_kind: Vec<usize>,
}

static TABLE: LazyLock<Table> = LazyLock::new(|| {
    let rows: Vec<Resource> = rows::all().map(complete).collect();
    let sorted = |key: Key| {
        let mut order: Vec<usize> = (0..rows.len()).collect();
        order.sort_by_key(|at| rows.get(*at).map(key));
        order
    };
    let (by_plural, by_kind) = (sorted(plural), sorted(kind));
    Table { rows, by_plural, by_kind }
});

fn plural(row: &Resource) -> (&str, &str, &str) {
    (&row.group, &row.version, &row.plural)
}

fn kind(row: &Resource) -> (&str, &str, &str) {
    (&row.group, &row.version, &row.kind)
}

/// Every built-in resource of API level v1.35, in discovery's order.
pub fn table() -> &'static [Resource] {
    &TABLE.rows
}

/// The row of a group, version and plural.
pub fn find(group: &str, version: &str, plural: &str) -> Option<&'static Resource> {
    TABLE.look_up(&TABLE.by_plural, self::plural, (group, version, plural))
}

/// The row of a group, version and kind.
pub fn by_kind(group: &str, version: &str, kind: &str) -> Option<&'static Resource> {
    TABLE.look_up(&TABLE.by_kind, self::kind, (group, version, kind))
}

impl Table {
    fn look_up(&self, order: &[usize], key: Key, wanted: (&str, &str, &str)) -> Option<&Resource> {
        let found = order.binary_search_by(|at| self.rows.get(*at).map(key).cmp(&Some(wanted)));
        found.ok().and_then(|at| order.get(at)).and_then(|at| self.rows.get(*at))
    }
}

type Key = fn(&Resource) -> (&str, &str, &str);

/// The row in whose form objects of `row` are stored; `row` itself in most cases.
pub fn storage_version(row: &Resource) -> Option<&'static Resource> {
    let (group, version) = machinery::group::split_api_version(&row.storage_api_version)?;
    find(group, version, &row.plural)
}

/// Fills in what follows from the rest of the row.
fn complete(mut row: Resource) -> Resource {
    row.list_kind = format!("{}List", row.kind).into();
    row.message = format!("{}.{}.{}", package(&row.group), row.version, row.kind).into();
    if row.storage_api_version.is_empty() {
        row.storage_api_version = row.api_version().into();
    }
    let is_virtual = row.verbs == ["create"];
    if row.storage_prefix.is_empty() && !is_virtual && row.kind != "ComponentStatus" {
        row.storage_prefix = format!("/registry/{}/", row.plural).into();
    }
    row
}

fn package(group: &str) -> String {
    match group {
        "" => "io.k8s.api.core".to_owned(),
        "apiextensions.k8s.io" => "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions".to_owned(),
        "apiregistration.k8s.io" => "io.k8s.kube-aggregator.pkg.apis.apiregistration".to_owned(),
        "internal.apiserver.k8s.io" => "io.k8s.api.apiserverinternal".to_owned(),
        group => format!("io.k8s.api.{}", group.split('.').next().unwrap_or(group)),
    }
}

impl Column {
    /// The description of the column; empty for a few, as upstream.
    pub fn description(&self) -> &str {
        match &self.told {
            Description::Text(text) => text,
            Description::Field(definition, field) => {
                FIELDS.get(&(*definition, *field)).map_or("", String::as_str)
            }
        }
    }
}

/// What the fields are for that columns show. Read once: all descriptions are unpacked for that.
static FIELDS: LazyLock<HashMap<(&str, &str), String>> = LazyLock::new(|| {
    let of_kinds = table().iter().flat_map(|row| row.columns.iter());
    let columns = of_kinds.chain(SCALE).chain(CREATED_AT);
    schema::openapi::descriptions_of(columns.filter_map(Column::field))
});

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn rows_are_found_by_plural_and_by_kind() {
        let row = find("apps", "v1", "deployments").unwrap();
        assert_eq!(
            (&*row.kind, &*row.list_kind, &*row.singular),
            ("Deployment", "DeploymentList", "deployment")
        );
        assert_eq!(row.message, "io.k8s.api.apps.v1.Deployment");
        assert_eq!(row.storage_prefix, "/registry/deployments/");
        assert!(std::ptr::eq(by_kind("apps", "v1", "Deployment").unwrap(), row));
        assert!(find("apps", "v1", "nope").is_none());
    }

    #[test]
    fn no_row_stands_twice() {
        let keys: BTreeSet<_> = table().iter().map(plural).collect();
        assert_eq!(keys.len(), table().len());
        assert_eq!(table().len(), 90, "every resource of v1.35, subresources apart");
    }

    #[test]
    fn stored_forms_are_rows_too_and_share_their_prefix() {
        for row in table().iter().filter(|r| r.is_stored()) {
            let stored = storage_version(row).unwrap();
            assert_eq!(stored.storage_prefix, row.storage_prefix, "{}", row.group_resource());
            assert_eq!(stored.storage_api_version, stored.api_version());
        }
    }

    #[test]
    fn prefixes_that_differ_from_the_plural_are_upstreams() {
        let prefix = |group, version, plural| &*find(group, version, plural).unwrap().storage_prefix;
        assert_eq!(prefix("", "v1", "services"), "/registry/services/specs/");
        assert_eq!(prefix("", "v1", "endpoints"), "/registry/services/endpoints/");
        assert_eq!(prefix("", "v1", "nodes"), "/registry/minions/");
        assert_eq!(prefix("networking.k8s.io", "v1", "ingresses"), "/registry/ingress/");
        assert_eq!(prefix("authorization.k8s.io", "v1", "subjectaccessreviews"), "");
    }

    #[test]
    fn kinds_keep_their_status_exactly_if_they_have_the_subresource() {
        for row in table().iter().filter(|r| r.is_stored()) {
            assert_eq!(row.strategy.keeps_status, row.has_status(), "{}", row.group_resource());
        }
    }
}
