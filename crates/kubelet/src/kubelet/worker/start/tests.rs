//! Why a container does not start, and files with its environment.

use super::*;

#[test]
fn reasons_are_of_the_step_that_failed() {
    for (error, expect) in [
        (StartError::Config(StepError::MemoryUnknown { name: "a".into() }), "CreateContainerConfigError"),
        (StartError::Create(CriError::Internal("gone".into())), "CreateContainerError"),
        (StartError::Run(CriError::NotFound("c1".into())), "RunContainerError"),
        (StartError::PostStart(HookError::Invalid), "PostStartHookError"),
    ] {
        assert_eq!(error.reason().as_str(), expect, "{error}");
        assert!(!error.reason().is_pull_failure());
    }
}

#[test]
fn environment_files_are_read_within_their_volume_and_no_further() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("volumes/kubernetes.io~empty-dir/env");
    std::fs::create_dir_all(root.join("sub")).unwrap();
    std::fs::write(root.join("plain"), "A=1\n").unwrap();
    std::fs::write(root.join("sub/deep"), "B=2\n").unwrap();
    std::fs::write(root.join("binary"), [0xff, 0xfe]).unwrap();
    std::fs::write(root.join("full"), vec![b'x'; usize::try_from(FILE_BYTES_MAX).unwrap()]).unwrap();
    std::fs::write(root.join("large"), vec![b'x'; usize::try_from(FILE_BYTES_MAX).unwrap() + 1]).unwrap();
    std::fs::write(dir.path().join("secret"), "C=3\n").unwrap();
    std::os::unix::fs::symlink("plain", root.join("link")).unwrap();
    std::os::unix::fs::symlink(dir.path().join("secret"), root.join("out")).unwrap();
    std::os::unix::fs::symlink("../../../secret", root.join("up")).unwrap();
    for (path, expect) in [
        ("plain", Some("A=1\n")),
        ("sub/deep", Some("B=2\n")),
        ("sub/../plain", Some("A=1\n")),
        ("link", Some("A=1\n")),
        ("out", None),
        ("up", None),
        ("../../../secret", None),
        ("none", None),
        ("sub", None),
        ("binary", None),
        ("large", None),
    ] {
        assert_eq!(env_file(&root, Path::new(path)).ok().as_deref(), expect, "{path}");
    }
    assert!(env_file(&root, Path::new("full")).is_ok(), "as large as may be");
    let pod: Pod = serde_saphyr::from_str(
        "{metadata: {uid: u}, spec: {containers: [], volumes: [{name: env, emptyDir: {}}]}}",
    )
    .unwrap();
    let of = |volume: &str, path: &str| {
        format!("{{name: X, valueFrom: {{fileKeyRef: {{volumeName: {volume}, path: {path}, key: A}}}}}}")
    };
    let env = [of("env", "plain"), of("env", "none"), of("other", "plain"), "{name: Y, value: z}".to_owned()];
    let spec: Container = serde_saphyr::from_str(&format!("{{name: a, env: [{}]}}", env.join(", "))).unwrap();
    let files = env_files(dir.path(), &pod, &spec);
    let shown: Vec<(&str, &str, Option<&str>)> = files
        .iter()
        .map(|((volume, path), read)| {
            (volume.as_str(), path.as_str(), read.as_ref().ok().map(String::as_str))
        })
        .collect();
    assert_eq!(shown, [("env", "none", None), ("env", "plain", Some("A=1\n"))], "no volume, no file");
}
