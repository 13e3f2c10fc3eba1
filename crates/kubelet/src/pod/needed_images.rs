//! Which images a container needs: its own, and those that are its volumes.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, Volume};

use crate::pod::roles::ephemeral;

/// The image of a volume and its pull policy. Source: `ImageVolumeSource`, core/v1; the policy's default is that of
/// containers, which the API server has filled in.
fn of_volume(volume: &Volume) -> Option<(String, String)> {
    let source = volume.image.as_ref()?;
    let policy = source.pull_policy.clone().filter(|it| !it.is_empty());
    Some((source.reference.clone()?, policy.unwrap_or_else(|| "IfNotPresent".into())))
}

/// Images and pull policies: first the container's own, then those of the volumes that it mounts.
pub(crate) fn needed_by(spec: &PodSpec, container: &Container) -> Vec<(String, String)> {
    let policy = container.image_pull_policy.clone().unwrap_or_else(|| "IfNotPresent".into());
    let mut needed = vec![(container.image.clone().unwrap_or_default(), policy)];
    let mounted: BTreeSet<&str> =
        container.volume_mounts.iter().flatten().map(|it| it.name.as_str()).collect();
    let volumes = spec.volumes.iter().flatten().filter(|volume| mounted.contains(volume.name.as_str()));
    for image in volumes.filter_map(of_volume) {
        if !needed.iter().any(|(name, _)| *name == image.0) {
            needed.push(image);
        }
    }
    needed
}

/// How many of a container's mounts are of images.
pub(crate) fn image_mounts(pod: &Pod, container: &Container) -> usize {
    let volumes = || pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let is_image = |name: &str| volumes().any(|volume| volume.name == name && volume.image.is_some());
    container.volume_mounts.iter().flatten().filter(|mount| is_image(&mount.name)).count()
}

/// The images that are a Pod's volumes.
pub(crate) fn in_volumes(pod: &Pod) -> impl Iterator<Item = String> {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    volumes.filter_map(of_volume).map(|(image, _)| image)
}

/// The first container that needs `image`.
pub(crate) fn container_of(pod: &Pod, image: &str) -> Option<String> {
    let spec = pod.spec.as_ref()?;
    let ephemeral = ephemeral(spec);
    let mut all = spec.init_containers.iter().flatten().chain(&spec.containers).chain(&ephemeral);
    let needs = |container: &&Container| needed_by(spec, container).iter().any(|(name, _)| name == image);
    all.find(needs).map(|container| container.name.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_needs_its_image_and_those_of_its_volumes() {
        let pod: Pod = serde_saphyr::from_str(
            "spec: {containers: [{name: a, image: one, imagePullPolicy: Never, volumeMounts: [{name: v, mountPath: /v}, \
             {name: w, mountPath: /w}]}, {name: b, image: two}], volumes: [{name: v, image: {reference: vol, \
             pullPolicy: Always}}, {name: w, emptyDir: {}}, {name: x, image: {reference: unused}}]}",
        )
        .unwrap();
        let spec = pod.spec.as_ref().unwrap();
        let names = |n: usize| {
            let needed = needed_by(spec, &spec.containers[n]);
            needed.iter().map(|(image, policy)| format!("{image} {policy}")).collect::<Vec<_>>().join(", ")
        };
        assert_eq!((names(0).as_str(), names(1).as_str()), ("one Never, vol Always", "two IfNotPresent"));
        assert_eq!(container_of(&pod, "vol").as_deref(), Some("a"));
        assert_eq!(container_of(&pod, "two").as_deref(), Some("b"));
        assert_eq!(in_volumes(&pod).collect::<Vec<_>>(), ["vol", "unused"]);
    }

    #[test]
    fn what_is_named_twice_is_needed_once_and_what_is_not_mounted_is_not() {
        let volume = "{name: v, image: {reference: vol}}";
        for (name, container, volumes, expect, mounts) in [
            ("no image", "", "", " IfNotPresent", 0),
            ("one that is always pulled", "image: one, imagePullPolicy: Always", "", "one Always", 0),
            ("a volume that nobody mounts", "image: one", volume, "one IfNotPresent", 0),
            (
                "one that is mounted twice",
                "image: one, volumeMounts: [{name: v, mountPath: /a}, {name: v, mountPath: /b}]",
                volume,
                "one IfNotPresent, vol IfNotPresent",
                2,
            ),
            (
                "its own image as a volume too",
                "image: vol, imagePullPolicy: Never, volumeMounts: [{name: v, mountPath: /a}]",
                volume,
                "vol Never",
                1,
            ),
            (
                "two volumes of one image: the first one's policy counts",
                "image: one, volumeMounts: [{name: w, mountPath: /a}, {name: v, mountPath: /b}]",
                "{name: v, image: {reference: vol, pullPolicy: ''}}, {name: w, image: {reference: vol, pullPolicy: Always}}",
                "one IfNotPresent, vol IfNotPresent",
                2,
            ),
            (
                "a volume without an image's name",
                "image: one, volumeMounts: [{name: v, mountPath: /a}]",
                "{name: v, image: {}}",
                "one IfNotPresent",
                1,
            ),
            (
                "a mount of a volume that there is not",
                "image: one, volumeMounts: [{name: none, mountPath: /a}]",
                volume,
                "one IfNotPresent",
                0,
            ),
        ] {
            let text = format!("spec: {{containers: [{{name: a, {container}}}], volumes: [{volumes}]}}");
            let pod: Pod = serde_saphyr::from_str(&text).unwrap();
            let spec = pod.spec.as_ref().unwrap();
            let needed = needed_by(spec, &spec.containers[0]);
            let needed: Vec<_> = needed.iter().map(|(image, policy)| format!("{image} {policy}")).collect();
            assert_eq!(needed.join(", "), expect, "{name}");
            assert_eq!(image_mounts(&pod, &spec.containers[0]), mounts, "{name}");
        }
    }

    #[test]
    fn the_container_of_an_image_is_the_first_to_start_that_needs_it() {
        let pod: Pod = serde_saphyr::from_str(
            "spec: {ephemeralContainers: [{name: e, image: debug}, {name: f, image: one}], containers: [{name: a, image: one}, \
             {name: b, image: two}], initContainers: [{name: i, image: two}], volumes: [{name: v, image: {reference: unused}}]}",
        )
        .unwrap();
        for (image, expect) in
            [("one", Some("a")), ("two", Some("i")), ("debug", Some("e")), ("unused", None), ("", None)]
        {
            assert_eq!(container_of(&pod, image).as_deref(), expect, "{image}");
        }
        assert_eq!(container_of(&Pod::default(), "one"), None);
    }
}
