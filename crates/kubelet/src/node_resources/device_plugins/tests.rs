//! Which plugins are taken on, and what comes of what they say of a container.

use super::*;

/// Source: `IsExtendedResourceName` of upstream's `pkg/apis/core/v1/helper`, and its test.
#[test]
fn what_a_plugin_offers_is_an_extended_resource() {
    for (name, expect) in [
        ("example.com/gpu", true),
        ("example.com/gpu-2_x.y", true),
        ("example.com/GPU", true),
        ("EXAMPLE.com/gpu", false),
        ("pod.alpha.kubernetes.io/opaque-int-resource-foo", false),
        ("kubernetes.io/foo", false),
        ("xkubernetes.io/foo", false),
        ("requests.example.com/gpu", false),
        ("cpu", false),
        ("gpu", false),
        ("hugepages-2Mi", false),
        ("", false),
        ("/", false),
        ("/gpu", false),
        ("example.com/", false),
        ("example.com/a/b", false),
        ("example.com/-gpu", false),
        ("example.com/gpu ", false),
        ("example .com/gpu", false),
        ("example.com/g\npu", false),
    ] {
        let found = check_name(name).map_err(|error| error.to_string());
        let told = if expect { Ok(()) } else { Err(format!("the ResourceName \"{name}\" is invalid")) };
        assert_eq!(found, told);
    }
    let long = format!("example.com/{}", "x".repeat(63));
    assert!(check_name(&long).is_ok() && check_name(&format!("{long}x")).is_err());
    // With what quotas put before it, it is too long.
    let domain = ["a".repeat(63), "b".repeat(63), "c".repeat(63), "d".repeat(52)].join(".");
    assert!(check_name(&format!("{domain}/gpu")).is_ok(), "{}", domain.len());
    assert!(check_name(&format!("{domain}d/gpu")).is_err());
}

/// Source: `ValidatePlugin` of upstream's `devicemanager/plugin/v1beta1/handler.go`.
#[test]
fn a_plugin_that_is_found_by_its_socket_speaks_what_is_known() {
    for (name, versions, expect) in [
        ("example.com/gpu", &["v1beta1"][..], None),
        ("example.com/gpu", &["v1alpha1", "v1beta1"], None),
        (
            "example.com/gpu",
            &["v1alpha1", "v1"],
            Some("manager version, v1beta1, is not among plugin supported versions [v1alpha1 v1]"),
        ),
        ("example.com/gpu", &[], Some("manager version, v1beta1, is not among plugin supported versions []")),
        (
            "gpu",
            &["v1beta1"],
            Some("invalid name of device plugin socket: the ResourceName \"gpu\" is invalid"),
        ),
        (
            "gpu",
            &["V1BETA1"],
            Some("manager version, v1beta1, is not among plugin supported versions [V1BETA1]"),
        ),
    ] {
        let versions: Vec<String> = versions.iter().map(|version| (*version).to_owned()).collect();
        let found = check(name, &versions).err().map(|error| error.to_string());
        assert_eq!(found.as_deref(), expect, "{name} {versions:?}");
    }
}

/// What plugins say in words: `env A=b`, `note a=b`, `mount /in=/out:ro`, `dev /in=/out:rw`, `cdi name`.
fn answer(words: &[&str]) -> ContainerAllocateResponse {
    let mut answer = ContainerAllocateResponse::default();
    for word in words {
        let (kind, what) = word.split_once(' ').unwrap();
        let (left, right) = what.split_once('=').unwrap_or((what, ""));
        let (path, flags) = right.split_once(':').unwrap_or((right, ""));
        let (container_path, host_path) = (left.to_owned(), path.to_owned());
        match kind {
            "env" => drop(answer.envs.insert(left.into(), right.into())),
            "note" => drop(answer.annotations.insert(left.into(), right.into())),
            "mount" => answer.mounts.push(api::Mount { container_path, host_path, read_only: flags == "ro" }),
            "dev" => {
                answer.devices.push(api::DeviceSpec { container_path, host_path, permissions: flags.into() })
            }
            _ => answer.cdi_devices.push(api::CdiDevice { name: what.into() }),
        }
    }
    answer
}

fn shown(config: &v1::ContainerConfig) -> Vec<String> {
    let mut all: Vec<String> =
        config.envs.iter().map(|env| format!("env {}={}", env.key, env.value)).collect();
    all.extend(config.annotations.iter().map(|(key, value)| format!("note {key}={value}")));
    all.extend(config.mounts.iter().map(|mount| {
        let flags = if mount.readonly { "ro" } else { "" };
        format!("mount {}={}:{flags}", mount.container_path, mount.host_path)
    }));
    all.extend(
        config.devices.iter().map(|device| {
            format!("dev {}={}:{}", device.container_path, device.host_path, device.permissions)
        }),
    );
    all.extend(config.cdi_devices.iter().map(|device| format!("cdi {}", device.name)));
    all.sort();
    all
}

/// Source: `TestDeviceRunContainerOptions` of upstream's `pod_devices_test.go`, `TestPodContainerDeviceAllocation` of its
/// `manager_test.go`.
#[test]
fn a_container_has_what_its_plugins_say_and_of_two_that_disagree_what_the_first_says() {
    let vendors = ["cdi vendor1.com/class1=device1", "cdi vendor2.com/class2=device2"];
    for (name, answers, expect) in [
        ("nothing", &[&[][..]][..], &[][..]),
        ("names of devices", &[&vendors[..]], &vendors[..]),
        ("of two plugins", &[&vendors[..1], &vendors[1..]], &vendors[..]),
        ("the same name twice", &[&vendors[..], &vendors[1..]], &vendors[..]),
        (
            "everything",
            &[&[
                "env key1=val1",
                "note a=b",
                "mount /home/r1lib1=/home/r1lib1:ro",
                "dev /dev/aaa=/dev/aaa:mrw",
            ][..]],
            &["dev /dev/aaa=/dev/aaa:mrw", "env key1=val1", "mount /home/r1lib1=/home/r1lib1:ro", "note a=b"],
        ),
        ("the same variable", &[&["env A=1"][..], &["env A=2", "env B=3"]], &["env A=1", "env B=3"]),
        ("the same annotation", &[&["note a=1"][..], &["note a=2"]], &["note a=1"]),
        (
            "the same place of a mount",
            &[&["mount /lib=/one:ro"][..], &["mount /lib=/two:", "mount /bin=/two:"]],
            &["mount /bin=/two:", "mount /lib=/one:ro"],
        ),
        (
            "the same place of a device",
            &[&["dev /dev/x=/dev/a:rw"][..], &["dev /dev/x=/dev/b:r", "dev /dev/y=/dev/b:r"]],
            &["dev /dev/x=/dev/a:rw", "dev /dev/y=/dev/b:r"],
        ),
        (
            "one plugin that repeats itself",
            &[&["dev /dev/x=/dev/a:rw", "dev /dev/x=/dev/b:rw"][..]],
            &["dev /dev/x=/dev/a:rw"],
        ),
    ] {
        let mut config = v1::ContainerConfig::default();
        for words in answers {
            add(&mut config, answer(words));
        }
        assert_eq!(shown(&config), expect, "{name}");
    }
    // What the Pod says comes before what plugins say.
    let own = v1::KeyValue { key: "A".into(), value: "own".into() };
    let mut config = v1::ContainerConfig { envs: vec![own], ..v1::ContainerConfig::default() };
    add(&mut config, answer(&["env A=plugin"]));
    assert_eq!(shown(&config), ["env A=own"]);
}
