//! Upstream's own cases for the rules of the API, as tables: what is accepted beside what is refused.
//!
//! The tables are in `tables/`, in the form that `table.rs` describes; each names the tests of Kubernetes v1.35 whose
//! cases it has. A row goes the way of a request: strictly decoded, defaulted, prepared, validated.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs, reason = "tests")]

mod outcome;
mod table;

use std::path::Path;

use table::Table;

/// Every row of a table file; all that differ are told at once.
fn check(file: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/upstream/tables").join(file);
    let text = std::fs::read_to_string(path).unwrap();
    let tables = Table::all(&text);
    let rows: usize = tables.iter().map(|table| table.rows.len()).sum();
    assert!(rows > 0, "{file} has no rows");
    let differences: Vec<_> = tables.iter().flat_map(outcome::differences).collect();
    assert!(
        differences.is_empty(),
        "{file}: {} of {rows} rows differ:\n{}",
        differences.len(),
        differences.join("\n")
    );
}

macro_rules! tables {
    ($($test:ident $file:literal),* $(,)?) => {
        $(#[test]
        fn $test() {
            check($file);
        })*

        #[test]
        fn every_table_is_looked_at() {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/upstream/tables");
            let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
            let mut files: Vec<_> = files.map(|name| name.into_string().unwrap()).collect();
            files.sort();
            let mut named = vec![$($file),*];
            named.sort_unstable();
            assert_eq!(files, named);
        }
    };
}

tables! {
    volumes_have_one_good_source "volumes.txt",
    volumes_that_stay "persistent_volumes.txt",
    claims_of_volumes "persistent_volume_claims.txt",
    parts_of_containers "containers.txt",
    containers_for_debugging "ephemeral_containers.txt",
    new_pods "pods.txt",
    pods_that_change "pod_updates.txt",
    pods_that_are_resized "pod_resize.txt",
    where_pods_are_and_what_they_may "pod_security.txt",
    services_and_their_addresses "services.txt",
    workloads_and_their_numbers "workloads.txt",
    small_kinds_of_the_core "namespaced.txt",
    jobs_and_their_schedules "jobs.txt",
    kinds_of_other_groups "groups.txt",
    kinds_that_run_the_platform "platform.txt",
    columns_of_every_kind "columns.txt",
    what_is_filled_in "defaults.txt",
    what_a_write_leaves "strategies.txt",
    what_selectors_name "fields.txt",
    devices_and_who_asks_for_them "devices.txt",
    what_volumes_are_made_by "storage.txt",
    addresses_and_ways_into_the_cluster "networks.txt",
    requests_of_certificates_and_of_access "certificates.txt",
    columns_of_the_other_kinds "more_columns.txt",
    what_extends_the_api "extensions.txt",
    small_kinds_and_their_updates "small_kinds.txt",
}
