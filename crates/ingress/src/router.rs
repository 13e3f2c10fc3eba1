//! Who answers a request: rows by host and path, ready to be asked.
//!
//! An exact host goes before a wildcard, and that before rows for all hosts; a host whose rows have no such path is passed
//! over. Of a host's paths an exact one goes first, then the longest prefix. Asking costs as much as the longest prefix has
//! elements, however long the path is.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use crate::host::{Host, below_wildcard};
use crate::path::PathMatch;

/// Rows, ready to be asked. What they lead to is `R`.
#[derive(Debug)]
pub struct Router<R> {
    exact: HashMap<String, Paths<R>>,
    wildcard: HashMap<String, Paths<R>>,
    any: Paths<R>,
}

#[derive(Debug)]
struct Paths<R> {
    exact: HashMap<String, Arc<R>>,
    prefix: HashMap<String, Arc<R>>,
    /// Of the longest prefix, in bytes.
    longest: usize,
}

impl<R> Default for Paths<R> {
    fn default() -> Self {
        Self { exact: HashMap::new(), prefix: HashMap::new(), longest: 0 }
    }
}

impl<R> Default for Router<R> {
    fn default() -> Self {
        Self { exact: HashMap::new(), wildcard: HashMap::new(), any: Paths::default() }
    }
}

impl<R> Router<R> {
    /// Rows; of two for the same host and path the first stays.
    pub fn of(rows: impl IntoIterator<Item = (Host, PathMatch, Arc<R>)>) -> Self {
        let mut router = Self::default();
        for (host, path, leads_to) in rows {
            let paths = match host {
                Host::Exact(host) => router.exact.entry(host).or_default(),
                Host::Wildcard(rest) => router.wildcard.entry(rest).or_default(),
                Host::Any => &mut router.any,
            };
            paths.add(path, leads_to);
        }
        router
    }

    /// Where a request for this host and this path, in normal form, leads.
    pub fn route(&self, host: &str, path: &str) -> Option<&Arc<R>> {
        let exact = self.exact.get(host);
        let wildcard = below_wildcard(host).and_then(|rest| self.wildcard.get(rest));
        let asked = exact.into_iter().chain(wildcard).chain([&self.any]);
        asked.into_iter().find_map(|paths| paths.find(path))
    }
}

impl<R> Paths<R> {
    fn add(&mut self, path: PathMatch, leads_to: Arc<R>) {
        let (known, path) = match path {
            PathMatch::Exact(path) => (&mut self.exact, path),
            PathMatch::Prefix(path) => {
                self.longest = self.longest.max(path.len());
                (&mut self.prefix, path)
            }
        };
        if let Entry::Vacant(place) = known.entry(path) {
            place.insert(leads_to);
        }
    }

    fn find(&self, path: &str) -> Option<&Arc<R>> {
        if let Some(found) = self.exact.get(path) {
            return Some(found);
        }
        // An element ends where the path does or before a slash.
        let ends = |end: &usize| *end == path.len() || path.as_bytes().get(*end) == Some(&b'/');
        let all = (0..=path.len().min(self.longest)).rev().filter(ends);
        all.filter_map(|end| path.get(..end)).find_map(|prefix| self.prefix.get(prefix))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type RowText = (&'static str, &'static str, &'static str);

    /// Rows `host path` with `=` before an exact path lead to their own text.
    fn check(rows: &[RowText], asked: &[(&str, &str, Option<&str>)]) {
        let rows = rows.iter().map(|(host, path, name)| {
            let path = match path.strip_prefix('=') {
                Some(path) => PathMatch::exact(path),
                None => PathMatch::prefix(path),
            };
            (Host::of_rule(host), path, Arc::new(*name))
        });
        let router = Router::of(rows);
        for (host, path, expected) in asked {
            let found = router.route(host, path).map(|found| **found);
            assert_eq!(found, *expected, "{host} {path}");
        }
    }

    fn check_paths(paths: &[&'static str], asked: &str, expected: Option<&str>) {
        let rows: Vec<RowText> = paths.iter().map(|path| ("", *path, *path)).collect();
        check(&rows, &[("a.example", asked, expected)]);
    }

    /// The table of upstream's documentation of Ingress, "Examples" of path types.
    #[test]
    fn paths_match_as_the_documentation_of_ingress_says() {
        check_paths(&["/"], "/any/path", Some("/"));
        check_paths(&["=/foo"], "/foo", Some("=/foo"));
        check_paths(&["=/foo"], "/bar", None);
        check_paths(&["=/foo"], "/foo/", None);
        check_paths(&["=/foo/"], "/foo", None);
        check_paths(&["/foo"], "/foo", Some("/foo"));
        check_paths(&["/foo"], "/foo/", Some("/foo"));
        check_paths(&["/foo/"], "/foo", Some("/foo/"));
        check_paths(&["/foo/"], "/foo/", Some("/foo/"));
        check_paths(&["/aaa/bb"], "/aaa/bbb", None);
        check_paths(&["/aaa/bbb"], "/aaa/bbb", Some("/aaa/bbb"));
        check_paths(&["/aaa/bbb/"], "/aaa/bbb", Some("/aaa/bbb/"));
        check_paths(&["/aaa/bbb"], "/aaa/bbb/", Some("/aaa/bbb"));
        check_paths(&["/aaa/bbb"], "/aaa/bbb/ccc", Some("/aaa/bbb"));
        check_paths(&["/aaa/bbb"], "/aaa/bbbxyz", None);
        check_paths(&["/", "/aaa"], "/aaa/ccc", Some("/aaa"));
        check_paths(&["/", "/aaa", "/aaa/bbb"], "/aaa/bbb", Some("/aaa/bbb"));
        check_paths(&["/", "/aaa", "/aaa/bbb"], "/ccc", Some("/"));
        check_paths(&["/aaa"], "/ccc", None);
        check_paths(&["/foo", "=/foo"], "/foo", Some("=/foo"));
    }

    #[test]
    fn paths_are_compared_by_element_and_by_case() {
        check_paths(&["/foo"], "/FOO", None);
        check_paths(&["/foo"], "/foo//bar", Some("/foo"));
        check_paths(&["/foo/bar"], "/foo//bar", None);
        check_paths(&["=/"], "/", Some("=/"));
        check_paths(&["=/"], "/a", None);
        check_paths(&["/é"], "/é/x", Some("/é"));
        let deep = "/a".repeat(30_000);
        check_paths(&["/a", "/"], &deep, Some("/a"));
    }

    /// The table of upstream's documentation of Ingress, "Hostname wildcards", and what conformance asks beside it.
    #[test]
    fn hosts_match_exactly_or_by_one_label() {
        let rows = [("*.foo.com", "/", "wild")];
        check(
            &rows,
            &[
                ("bar.foo.com", "/", Some("wild")),
                ("baz.bar.foo.com", "/", None),
                ("foo.com", "/", None),
                ("xfoo.com", "/", None),
            ],
        );
        let rows = [
            ("foo.bar.com", "/", "exact"),
            ("*.bar.com", "/", "wild"),
            ("*.bar.com", "/only", "wild only"),
            ("", "/", "any"),
            ("deep.bar.com", "/x", "deep"),
        ];
        check(
            &rows,
            &[
                ("foo.bar.com", "/only", Some("exact")),
                ("x.bar.com", "/only/y", Some("wild only")),
                ("x.bar.com", "/", Some("wild")),
                ("deep.bar.com", "/x/y", Some("deep")),
                ("deep.bar.com", "/only", Some("wild only")),
                ("other.example", "/", Some("any")),
                ("192.0.2.1", "/", Some("any")),
                ("", "/", Some("any")),
            ],
        );
    }

    #[test]
    fn of_two_rows_the_first_stays() {
        check(&[("", "/a", "first"), ("", "/a/", "second")], &[("", "/a", Some("first"))]);
    }
}
