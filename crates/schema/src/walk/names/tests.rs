use super::*;

fn message(kind: &str) -> &'static Message {
    crate::builtin().message(kind).expect("a message").message
}

#[test]
fn named_types_are_named_at_every_level() {
    for (kind, field, levels, expect) in [
        ("io.k8s.api.core.v1.ServiceSpec", "type", 0, Some("v1.ServiceType")),
        ("io.k8s.api.core.v1.ServiceSpec", "clusterIP", 0, None),
        (
            "io.k8s.api.core.v1.PersistentVolumeClaimSpec",
            "accessModes",
            0,
            Some("[]v1.PersistentVolumeAccessMode"),
        ),
        (
            "io.k8s.api.core.v1.PersistentVolumeClaimSpec",
            "accessModes",
            1,
            Some("v1.PersistentVolumeAccessMode"),
        ),
        ("io.k8s.api.core.v1.PersistentVolumeClaimSpec", "accessModes", 2, None),
        ("io.k8s.api.core.v1.ResourceRequirements", "limits", 0, Some("v1.ResourceList")),
        ("io.k8s.api.core.v1.ResourceRequirements", "limits", 1, None),
        ("io.k8s.api.authorization.v1.SubjectAccessReviewSpec", "extra", 1, Some("v1.ExtraValue")),
        ("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta", "uid", 0, Some("types.UID")),
        ("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta", "name", 0, None),
    ] {
        assert_eq!(name_of(message(kind), field, levels), expect, "{kind} {field} {levels}");
    }
}

#[test]
fn embedded_structs_are_named_from_the_outside_in() {
    for (kind, field, expect) in [
        ("io.k8s.api.core.v1.Volume", "name", ""),
        ("io.k8s.api.core.v1.Volume", "hostPath", "VolumeSource"),
        ("io.k8s.api.core.v1.Probe", "httpGet", "ProbeHandler"),
        ("io.k8s.api.core.v1.Probe", "periodSeconds", ""),
        ("io.k8s.api.core.v1.SecretKeySelector", "name", "LocalObjectReference"),
        ("io.k8s.api.admissionregistration.v1.RuleWithOperations", "resources", "Rule"),
        (
            "io.k8s.api.admissionregistration.v1.NamedRuleWithOperations",
            "resources",
            "RuleWithOperations Rule",
        ),
        ("io.k8s.api.admissionregistration.v1.NamedRuleWithOperations", "operations", "RuleWithOperations"),
        ("io.k8s.api.networking.v1.IngressRule", "http", "IngressRuleValue"),
    ] {
        let message = message(kind);
        let (_, field) = message.field(field).expect("a field");
        assert_eq!(embedded(message, field).collect::<Vec<_>>().join(" "), expect, "{kind} {}", field.name);
    }
}

/// A row of a message or a field that is not there would never be found.
#[test]
fn every_row_is_of_a_message_and_its_fields() {
    let messages = &crate::builtin().messages;
    for line in ROWS.lines() {
        let mut words = line.split(' ');
        let (group, name) = (words.next().unwrap(), words.next().unwrap());
        let end = format!(".{}.{name}", group.replace('/', "."));
        let message = messages.iter().find(|message| message.name.ends_with(&end));
        let message = message.unwrap_or_else(|| panic!("no message for {line}"));
        for word in words.filter(|word| !word.starts_with('+')) {
            let (field, _) = word.split_once('=').unwrap();
            assert!(message.field(field).is_some(), "{line}: {field}");
        }
        let depth = message.fields.iter().map(|field| field.via.len()).max().unwrap_or_default();
        assert_eq!(line.matches('+').count(), depth, "{line}");
    }
}

/// The other way round: no struct that is embedded lacks its name.
#[test]
fn every_message_with_embedded_ones_has_a_row() {
    for message in crate::builtin().messages.iter() {
        let depth = message.fields.iter().map(|field| field.via.len()).max().unwrap_or_default();
        let names = row(message).filter(|word| word.starts_with('+')).count();
        assert_eq!(names, depth, "{}", message.name);
    }
}
