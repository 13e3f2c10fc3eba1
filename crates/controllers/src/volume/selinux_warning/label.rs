//! Labels of SELinux as Pods ask for them: `user:role:type:level`.
//!
//! What a Pod leaves open its Node's policy fills, and nobody here knows that policy: such parts stay empty, and fit any.
//! Only the level is no policy's, so an absent one is another one. Source: `selinuxwarning/translator` and
//! `internal/parse` of upstream.

use k8s_openapi::api::core::v1::SELinuxOptions;

const PARTS: usize = 4;
/// The place of the level, which may have colons of its own.
const LEVEL: usize = 3;

/// The label that these options ask for; empty if they ask for nothing.
pub(super) fn of(options: &SELinuxOptions) -> String {
    let parts = [&options.user, &options.role, &options.type_, &options.level];
    if parts.iter().all(|part| part.as_deref().unwrap_or_default().is_empty()) {
        return String::new();
    }
    parts.map(|part| part.as_deref().unwrap_or_default()).join(":")
}

/// Whether no volume can have both labels.
pub(super) fn conflicts(one: &str, other: &str) -> bool {
    let both = parts(one).into_iter().zip(parts(other)).enumerate();
    both.into_iter().any(|(place, (one, other))| {
        one != other && (place == LEVEL || (!one.is_empty() && !other.is_empty()))
    })
}

/// User, role, type and level; those that the label does not have are empty.
fn parts(label: &str) -> [&str; PARTS] {
    let mut split = label.splitn(PARTS, ':');
    std::array::from_fn(|_| split.next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::parse;

    /// Source: `TestParseSELinuxLabel`.
    #[test]
    fn a_label_has_four_parts_and_the_last_has_the_rest() {
        for (label, expect) in [
            ("", ["", "", "", ""]),
            ("system_u:system_r:container_t:s0:c0,c1", ["system_u", "system_r", "container_t", "s0:c0,c1"]),
            ("system_u:system_r:container_t", ["system_u", "system_r", "container_t", ""]),
            ("system_u:system_r", ["system_u", "system_r", "", ""]),
            ("system_u", ["system_u", "", "", ""]),
            (":system_r:container_t", ["", "system_r", "container_t", ""]),
            ("::container_t", ["", "", "container_t", ""]),
            ("::container_t:s0", ["", "", "container_t", "s0"]),
            (":::s0:c0,c1", ["", "", "", "s0:c0,c1"]),
            ("a_b:c-d:e.f:s0:c0.c1", ["a_b", "c-d", "e.f", "s0:c0.c1"]),
            ("user:role:type:s0:c0,c1:extra", ["user", "role", "type", "s0:c0,c1:extra"]),
            (":::", ["", "", "", ""]),
            (":::::", ["", "", "", "::"]),
        ] {
            assert_eq!(parts(label), expect, "{label}");
        }
    }

    /// Source: `TestSELinuxOptionsToFileLabel`.
    #[test]
    fn what_is_left_open_stays_open() {
        for (options, expect) in [
            ("{}", ""),
            ("{user: '', role: '', type: '', level: ''}", ""),
            (
                "{user: system_u, role: system_r, type: container_t, level: 's0:c0,c1'}",
                "system_u:system_r:container_t:s0:c0,c1",
            ),
            ("{type: container_t, level: 's0:c0,c1'}", "::container_t:s0:c0,c1"),
            ("{level: 's0:c0,c1'}", ":::s0:c0,c1"),
            ("{user: system_u}", "system_u:::"),
        ] {
            assert_eq!(of(&parse(options)), expect, "{options}");
        }
    }

    /// Source: `TestLabelsConflict`.
    #[test]
    fn open_parts_fit_any_and_levels_only_themselves() {
        for (name, one, other, expect) in [
            ("nothing and nothing", "", "", false),
            ("nothing and all but a level", "", "system_u:system_r:container_t", false),
            ("nothing and a level", "", "system_u:system_r:container_t:s0:c1,c2", true),
            ("empty parts", ":::", "system_u:system_r:container_t", false),
            ("fewer parts", "system_u:system_r:container_t:", "system_u:system_r", false),
            ("another type", "system_u:system_r:conflict_t:", "system_u:system_r:container_t", true),
            ("only another type", "::conflict_t", "::container_t", true),
            ("each has what the other lacks", "system_u::container_t", ":system_r::", false),
            ("only a level", ":::s0:c1,c2", "", true),
            ("the same level", ":::s0:c1,c2", "system_u:system_r:container_t:s0:c1,c2", false),
            ("other categories", ":::s0:c98,c99", "system_u:system_r:container_t:s0:c1,c2", true),
        ] {
            assert_eq!(conflicts(one, other), expect, "{name}");
            assert_eq!(conflicts(other, one), expect, "{name}, the other way round");
        }
    }
}
