//! Huge pages that the machine has.

use std::path::Path;

use machinery::quantity::{Format, Quantity as Amount};

/// Such as `hugepages-2Mi`.
pub(crate) fn huge_page_name(size: u64) -> String {
    format!("hugepages-{}", Amount::new(i64::try_from(size).unwrap_or(i64::MAX), Format::BinarySi))
}

/// Folders such as `hugepages-2048kB`.
pub(crate) fn huge_pages(folder: &Path) -> Vec<(u64, u64)> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut pages: Vec<_> = entries
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let kib: u64 = name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
            let count = std::fs::read_to_string(entry.path().join("nr_hugepages")).ok()?;
            Some((kib * 1024, count.trim().parse().ok()?))
        })
        .collect();
    pages.sort_unstable();
    pages
}
