//! What names mean, as tables.

use expect_test::{Expect, expect};

use super::*;

const GPU: &str = "{cdiVersion: 0.6.0, kind: example.com/gpu, containerEdits: {env: [ALL=1]}, devices: [
    {name: g0, containerEdits: {env: [GPU=0], deviceNodes: [{path: /dev/gpu0, hostPath: /dev/null, uid: 7, permissions: rw}],
        mounts: [{hostPath: /usr/lib, containerPath: /lib/gpu, options: [ro, nosuid, rbind]}]}},
    {name: g1, containerEdits: {env: [GPU=1], additionalGids: [44, 0],
        hooks: [{hookName: createRuntime, path: /bin/true, args: [true, x]}]}}]}";

/// `specs` by folder, least important first; the configuration has `GPU=none` already.
fn check(folders: &[&[&str]], names: &[&str], expect: Expect) {
    let root = tempfile::tempdir().unwrap();
    let mut dirs = Vec::new();
    for (index, specs) in folders.iter().enumerate() {
        let dir = root.path().join(index.to_string());
        std::fs::create_dir(&dir).unwrap();
        for (index, spec) in specs.iter().enumerate() {
            std::fs::write(dir.join(format!("{index}.yaml")), spec).unwrap();
        }
        dirs.push(dir);
    }
    let mut config = v1::ContainerConfig {
        envs: vec![v1::KeyValue { key: "GPU".into(), value: "none".into() }],
        cdi_devices: names.iter().map(|name| v1::CdiDevice { name: (*name).into() }).collect(),
        ..v1::ContainerConfig::default()
    };
    let done = inject(&dirs, &mut config).and_then(|(_, edits)| Ok((edits.devices((1000, 0))?, edits)));
    let text = match done {
        Err(refusal) => base::error_chain(&refusal),
        Ok((devices, edits)) => {
            let envs: Vec<_> = config.envs.iter().map(|env| format!("{}={}", env.key, env.value)).collect();
            let mut lines = vec![envs.join(" ")];
            lines.extend(config.mounts.iter().map(|mount| {
                let options =
                    edits.mount_options.get(&mount.container_path).cloned().unwrap_or_default().join(",");
                format!("mount {} {} ro={} {options}", mount.container_path, mount.host_path, mount.readonly)
            }));
            lines.extend(devices.iter().map(|device| {
                let HostDevice { path, major, minor, uid, access, .. } = device;
                format!("device {path} {major}:{minor} uid={uid} {access}")
            }));
            if !edits.hooks.is_empty() {
                lines.push(format!("hooks {}", Value::Object(edits.hooks)));
            }
            if !edits.groups.is_empty() {
                lines.push(format!("groups {:?}", edits.groups));
            }
            lines.join("\n")
        }
    };
    expect.assert_eq(&text);
}

#[test]
fn names_bring_environment_nodes_mounts_groups_and_hooks() {
    check(&[&[GPU]], &[], expect!["GPU=none"]);
    check(
        &[&[GPU]],
        &["example.com/gpu=g0"],
        expect![[r#"
        ALL=1 GPU=0
        mount /lib/gpu /usr/lib ro=true nosuid
        device /dev/gpu0 1:3 uid=7 rw"#]],
    );
    check(
        &[&[GPU]],
        &["example.com/gpu=g1"],
        expect![[r#"
        ALL=1 GPU=1
        hooks {"createRuntime":[{"args":["true","x"],"env":[],"path":"/bin/true"}]}
        groups [44]"#]],
    );
}

#[test]
fn the_later_folder_counts_and_two_files_of_one_folder_make_a_device_unknown() {
    let other = "{cdiVersion: 1.0.0, kind: example.com/gpu, devices: [{name: g0, containerEdits: {env: [GPU=other]}}]}";
    check(&[&[GPU], &[other]], &["example.com/gpu=g0"], expect!["GPU=other"]);
    check(
        &[&[GPU, other]],
        &["example.com/gpu=g0"],
        expect!["CDI device injection failed: unresolvable CDI devices example.com/gpu=g0"],
    );
}

#[test]
fn what_is_unknown_or_impossible_is_refused() {
    let unknown = ["example.com/gpu=g7", "nobody", "example.com/gpu=g0"];
    check(
        &[&[GPU]],
        &unknown,
        expect!["CDI device injection failed: unresolvable CDI devices example.com/gpu=g7, nobody"],
    );
    let with = |edits: &str| {
        format!("{{cdiVersion: 0.6.0, kind: e.com/c, devices: [{{name: d, containerEdits: {{{edits}}}}}]}}")
    };
    let cases = [
        ("env: [x]", expect![[r#"CDI device injection failed: invalid environment variable "x""#]]),
        (
            "hooks: [{hookName: never, path: /x}]",
            expect![[r#"CDI device injection failed: invalid hook, hook name "never""#]],
        ),
        (
            "mounts: [{hostPath: x, containerPath: /x}]",
            expect![[r#"CDI device injection failed: mount "/x" from "x" must be absolute"#]],
        ),
        (
            "mounts: [{hostPath: /x, containerPath: /x, type: tmpfs}]",
            expect![[
                r#"CDI device injection failed: mount "/x" of type "tmpfs" is not supported by this runtime"#
            ]],
        ),
        (
            "deviceNodes: [{path: /dev/knarr-nothing}]",
            expect![[r#"CDI device injection failed: failed to stat CDI host device "/dev/knarr-nothing""#]],
        ),
        ("intelRdt: {}", expect!["CDI device injection failed: intelRdt is not supported by this runtime"]),
    ];
    for (edits, expect) in cases {
        check(&[&[&with(edits)]], &["e.com/c=d"], expect);
    }
    // A file with an error says nothing.
    check(
        &[&["{cdiVersion: 9.0.0}", "[", "kind: 1"]],
        &["e.com/c=d"],
        expect!["CDI device injection failed: unresolvable CDI devices e.com/c=d"],
    );
}

#[test]
fn a_node_that_the_host_does_not_have_is_made_if_its_numbers_are_told() {
    let spec = "{cdiVersion: 0.6.0, kind: e.com/c, devices: [{name: d, containerEdits: {deviceNodes: [{path: /dev/x, type: c, major: 10, minor: 200}]}}]}";
    check(
        &[&[spec]],
        &["e.com/c=d"],
        expect![[r#"
        GPU=none
        device /dev/x 10:200 uid=1000 rwm"#]],
    );
}
