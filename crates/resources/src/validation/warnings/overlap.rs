//! Files of a volume that stand in each other's way.

use std::collections::BTreeSet;

use super::super::At;

/// Every volume whose files are named one by one.
pub(super) fn check(volumes: &At<'_>, warnings: &mut Vec<String>) {
    for volume in volumes.items() {
        let name = volume.get("name").text();
        for (field, reference) in SOURCES {
            let Some(source) = volume.some(field) else { continue };
            let title = title(&source, field, reference.map(|of_volume| of_volume.0));
            clashes(&paths(&source), &format!("volume {name:?} ({title}): overlapping paths"), warnings);
        }
        if let Some(projected) = volume.some("projected") {
            self::projected(name, &projected, warnings);
        }
    }
}

/// What a source's reference is called in a volume of its own, and in a projected one.
type Reference = Option<(&'static str, &'static str)>;

const SOURCES: [(&str, Reference); 3] =
    [("configMap", Some(("name", "name"))), ("secret", Some(("secretName", "name"))), ("downwardAPI", None)];

/// A projected volume: files of one source, and of one source and those before it.
fn projected(name: &str, projected: &At<'_>, warnings: &mut Vec<String>) {
    let mut before: BTreeSet<&str> = BTreeSet::new();
    for source in projected.get("sources").items() {
        if source.entries().all(|(_, value)| !value.is_set()) {
            warnings.push(format!("volume {name:?} (Projected) has no sources provided"));
            continue;
        }
        for (title, paths) in projection(&source).into_iter().chain(certificate(&source)) {
            let title = format!("volume {name:?} (Projected {title}): overlapping paths");
            clashes(&paths, &title, warnings);
            let own: BTreeSet<&str> = paths.iter().copied().collect();
            let mut all: Vec<&str> = own.iter().chain(&before).copied().collect();
            all.sort_unstable();
            clashes(&all, &title, warnings);
            before.extend(own);
        }
    }
}

/// Up to three files, each under a name of its own.
fn certificate<'a>(source: &At<'a>) -> impl Iterator<Item = (String, Vec<&'a str>)> {
    const FILES: [(&str, &str); 3] = [
        ("certificateChainPath", "chain"),
        ("keyPath", "key"),
        ("credentialBundlePath", "credential bundle"),
    ];
    let certificate = source.get("podCertificate");
    let file = move |(field, what)| (format!("PodCertificate {what}"), vec![certificate.get(field).text()]);
    FILES.into_iter().map(file).filter(|(_, paths)| paths != &[""])
}

fn projection<'a>(source: &At<'a>) -> Option<(String, Vec<&'a str>)> {
    for (field, reference) in SOURCES {
        let files = source.get(field);
        let paths = paths(&files);
        if !paths.is_empty() {
            return Some((title(&files, field, reference.map(|of_projection| of_projection.1)), paths));
        }
    }
    let token = source.get("serviceAccountToken");
    if token.is_set() {
        return Some(("ServiceAccountToken".to_owned(), vec![token.get("path").text()]));
    }
    let bundle = source.some("clusterTrustBundle")?;
    let by = bundle.some("name").unwrap_or_else(|| bundle.get("signerName"));
    Some((format!("ClusterTrustBundle {:?}", by.text()), vec![bundle.get("path").text()]))
}

fn title(source: &At<'_>, field: &str, reference: Option<&str>) -> String {
    let shown = match field {
        "configMap" => "ConfigMap",
        "secret" => "Secret",
        _ => "DownwardAPI",
    };
    reference.map_or_else(|| shown.to_owned(), |name| format!("{shown} {:?}", source.get(name).text()))
}

fn paths<'a>(source: &At<'a>) -> Vec<&'a str> {
    source.get("items").items().map(|item| item.get("path").text()).collect()
}

fn clashes(paths: &[&str], title: &str, warnings: &mut Vec<String>) {
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    for path in paths.iter().map(|path| path.trim_end_matches('/')) {
        // Upstream compares a directory's text with the other's beginning, whole names or not.
        let is_clash = |other: &&&str| {
            !path.is_empty()
                && !other.is_empty()
                && (format!("{other}/").starts_with(path) || format!("{path}/").starts_with(**other))
        };
        if let Some(other) = seen.iter().find(is_clash) {
            warnings.push(format!("{title}: {path:?} with {other:?}"));
        }
        seen.insert(path);
    }
}
