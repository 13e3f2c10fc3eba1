//! The status of a StorageVersion: an entry of each API server, and in which version all of them store.
//!
//! Servers write their entries, and a controller takes out those of servers that are gone. Source: `SetCommonEncodingVersion`
//! and `localUpdateStorageVersion`, `apiserver/pkg/storageversion`; KEP-2339.

use jiff::Timestamp;
use k8s_openapi::api::apiserverinternal::v1alpha1::{
    ServerStorageVersion, StorageVersionCondition, StorageVersionStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

const ALL_EQUAL: &str = "AllEncodingVersionsEqual";

/// Puts a server's entry in the place of the one that it has, or behind those of others.
pub fn put(
    status: &mut StorageVersionStatus,
    entry: ServerStorageVersion,
    generation: Option<i64>,
    now: Timestamp,
) {
    let entries = status.storage_versions.get_or_insert_default();
    match entries.iter_mut().find(|known| known.api_server_id == entry.api_server_id) {
        Some(known) => *known = entry,
        None => entries.push(entry),
    }
    agree(status, generation, now);
}

/// Says in which version all servers store, if it is one, and since when that is so or not.
pub fn agree(status: &mut StorageVersionStatus, generation: Option<i64>, now: Timestamp) {
    let mut stored = status.storage_versions.iter().flatten().map(|entry| entry.encoding_version.clone());
    let first = stored.next().map(Option::unwrap_or_default);
    let common = first.filter(|first| stored.all(|other| other.unwrap_or_default() == *first));
    let before = std::mem::replace(&mut status.common_encoding_version, common);
    let common = status.common_encoding_version.as_ref();
    let (is_equal, reason, message) = match common {
        Some(_) => ("True", "CommonEncodingVersionSet", "Common encoding version set"),
        None => ("False", "CommonEncodingVersionUnset", "Common encoding version unset"),
    };
    let is_another = before.is_some() && common.is_some() && before.as_ref() != common;
    let new = StorageVersionCondition {
        last_transition_time: Some(Time(Timestamp::from_second(now.as_second()).unwrap_or(now))),
        message: message.to_owned(),
        observed_generation: generation,
        reason: reason.to_owned(),
        status: is_equal.to_owned(),
        type_: ALL_EQUAL.to_owned(),
    };
    let conditions = status.conditions.get_or_insert_default();
    let Some(known) = conditions.iter_mut().find(|known| known.type_ == ALL_EQUAL) else {
        conditions.push(new);
        return;
    };
    let since = match known.status == new.status && !is_another {
        true => known.last_transition_time.take(),
        false => new.last_transition_time.clone(),
    };
    *known = StorageVersionCondition { last_transition_time: since, ..new };
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG_AGO: &str = "2020-01-01T00:00:00Z";
    const NOW: &str = "2026-01-01T12:00:00Z";

    /// A server and its encoding version.
    type Entry = (&'static str, &'static str);

    fn entry((server, version): Entry) -> ServerStorageVersion {
        ServerStorageVersion {
            api_server_id: Some(server.to_owned()),
            decodable_versions: Some(vec!["v1".to_owned(), "v2".to_owned()]),
            encoding_version: Some(version.to_owned()),
            served_versions: Some(vec!["v1".to_owned()]),
        }
    }

    fn status(entries: &[Entry], more: &str) -> StorageVersionStatus {
        let mut status: StorageVersionStatus = serde_saphyr::from_str(&format!("{{{more}}}")).unwrap();
        status.storage_versions = Some(entries.iter().copied().map(entry).collect());
        status
    }

    /// That servers agree on `v1`, or that they do not, since long ago; beside something else.
    fn since_long_ago(is_equal: bool) -> String {
        let common = if is_equal { "commonEncodingVersion: v1, " } else { "" };
        let value = if is_equal { "True" } else { "False" };
        format!(
            "{common}conditions: [{{type: Other, status: 'True', reason: R, message: m}}, {{type: {ALL_EQUAL}, status: \
             '{value}', reason: R, message: m, lastTransitionTime: '{LONG_AGO}'}}]"
        )
    }

    /// On what servers agree, whether they do, and since when.
    fn told(status: &StorageVersionStatus) -> (Option<&str>, &str, &'static str) {
        let all: Vec<_> = status.conditions.iter().flatten().filter(|one| one.type_ == ALL_EQUAL).collect();
        let [one] = all.as_slice() else { panic!("{all:?}") };
        let reason =
            if one.status == "True" { "CommonEncodingVersionSet" } else { "CommonEncodingVersionUnset" };
        assert_eq!((one.reason.as_str(), one.observed_generation), (reason, Some(3)));
        let since = one.last_transition_time.as_ref().map(|since| since.0.to_string()).unwrap_or_default();
        let since = [NOW, LONG_AGO].into_iter().find(|time| **time == since).unwrap();
        (status.common_encoding_version.as_deref(), &one.status, since)
    }

    /// Source: `TestSetCommonEncodingVersion`.
    #[test]
    fn since_when_servers_agree_is_told_when_it_changes() {
        let (agreed, differed) = (since_long_ago(true), since_long_ago(false));
        let (one, two, other) = (("1", "v1"), ("2", "v1"), ("3", "v2"));
        for (name, entries, before, expect) in [
            ("they never agreed", vec![one, two, other], "", (None, "False", NOW)),
            ("they no longer agree", vec![one, two, other], &*agreed, (None, "False", NOW)),
            ("they still do not agree", vec![one, two, other], &*differed, (None, "False", LONG_AGO)),
            ("they agree from the beginning", vec![one, two], "", (Some("v1"), "True", NOW)),
            ("they still agree", vec![one, two], &*agreed, (Some("v1"), "True", LONG_AGO)),
            ("they agree now", vec![one, two], &*differed, (Some("v1"), "True", NOW)),
            ("they agree on another", vec![other, ("5", "v2")], &*agreed, (Some("v2"), "True", NOW)),
            ("there is nobody", vec![], &*agreed, (None, "False", NOW)),
        ] {
            let mut status = status(&entries, before);
            agree(&mut status, Some(3), NOW.parse().unwrap());
            assert_eq!(told(&status), expect, "{name}");
        }
    }

    /// Source: `TestLocalUpdateStorageVersion`.
    #[test]
    fn a_server_has_one_entry() {
        let (agreed, differed) = (since_long_ago(true), since_long_ago(false));
        let (one, two, other) = (("1", "v1"), ("2", "v1"), ("3", "v2"));
        for (name, entries, before, new, (order, expect)) in [
            ("the first", vec![], "", one, ("1", (Some("v1"), "True", NOW))),
            ("one that differs", vec![one, two], &*agreed, other, ("1 2 3", (None, "False", NOW))),
            (
                "one that agrees",
                vec![one, two],
                &*agreed,
                ("4", "v1"),
                ("1 2 4", (Some("v1"), "True", LONG_AGO)),
            ),
            (
                "one more where they differ",
                vec![one, two, other],
                &*differed,
                ("4", "v1"),
                ("1 2 3 4", (None, "False", LONG_AGO)),
            ),
            (
                "a known one that agrees now",
                vec![other, one],
                &*differed,
                ("3", "v1"),
                ("3 1", (Some("v1"), "True", NOW)),
            ),
        ] {
            let mut status = status(&entries, before);
            put(&mut status, entry(new), Some(3), NOW.parse().unwrap());
            let servers =
                status.storage_versions.iter().flatten().filter_map(|entry| entry.api_server_id.as_deref());
            assert_eq!(
                (servers.collect::<Vec<_>>().join(" ").as_str(), told(&status)),
                (order, expect),
                "{name}"
            );
        }
    }
}
