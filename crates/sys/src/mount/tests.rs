use super::*;

#[test]
fn a_mountinfo_line_is_read_with_its_escapes_and_its_peer_group() {
    let line = r"36 35 98:0 /mnt1 /mnt\0402 rw,noatime master:1 shared:7 - ext3 /dev/root rw,errors=continue";
    let mount = parse_mountinfo_line(line.as_bytes()).unwrap();
    assert_eq!(mount.target, Path::new("/mnt 2"));
    assert_eq!(mount.root, Path::new("/mnt1"));
    assert_eq!((mount.fs_type.as_str(), mount.source.as_str()), ("ext3", "/dev/root"));
    assert!(mount.is_shared && mount.is_slave);
    let private = parse_mountinfo_line(b"36 35 98:0 / /mnt rw - ext3 /dev/root rw").unwrap();
    assert!(!private.is_shared && !private.is_slave);
}

#[test]
fn commas_and_colons_in_layer_paths_are_escaped() {
    for (path, escaped) in [
        ("/a:b,c", r"/a\:b\,c"),
        ("/plain", "/plain"),
        (r"/back\slash", r"/back\\slash"),
        (r"/a\:b", r"/a\\\:b"),
        (r"/ends\", r"/ends\\"),
        ("/with blank=and\"quote\"", "/with blank=and\"quote\""),
        ("/sha256:0a", r"/sha256\:0a"),
        ("/\u{fc}:", "/\u{fc}\\:"),
        ("", ""),
    ] {
        assert_eq!(escape_overlay(Path::new(path)).unwrap(), escaped, "{path}");
    }
    let no_text = PathBuf::from(OsString::from_vec(b"/a\xff".to_vec()));
    assert!(escape_overlay(&no_text).unwrap_err().to_string().contains("mount overlay layer"));
    let paths = ["/top:1", "/middle", "/low,2"].map(PathBuf::from);
    let writable = Some((Path::new("/up,per"), Path::new("/wo:rk")));
    for (layers, upper, options) in [
        (&paths[..1], None, r"lowerdir=/top\:1"),
        (&paths[..], None, r"lowerdir=/top\:1:/middle:/low\,2"),
        (&paths[1..], writable, r"lowerdir=/middle:/low\,2,upperdir=/up\,per,workdir=/wo\:rk"),
    ] {
        assert_eq!(overlay_options(layers, upper).unwrap(), options);
    }
    assert!(overlay_options(&[paths[0].clone(), no_text.clone()], None).is_err());
    assert!(overlay_options(&paths, Some((&no_text, Path::new("/w")))).is_err());
}

#[test]
fn an_overlay_has_as_many_layers_as_images_have() {
    assert!(nix::unistd::geteuid().is_root(), "this test mounts: run it as root");
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| {
        let path = dir.path().join(name);
        fs::create_dir_all(&path).unwrap();
        path
    };
    let (ram, merged) = (path("ram"), path("merged"));
    tmpfs(&ram, Some(4 << 20), 0o700).unwrap();
    // As long as names of layers are; Docker allows 127 of them.
    let layers: Vec<PathBuf> = (0..127).map(|n| path(&format!("ram/layers/{n:064}"))).collect();
    for layer in &layers {
        fs::write(layer.join("all"), layer.file_name().unwrap().as_encoded_bytes()).unwrap();
    }
    fs::write(layers[126].join("lowest"), "here").unwrap();
    let (upper, work) = (path("ram/upper"), path("ram/work"));
    overlay(&layers, Some((&upper, &work)), &merged).unwrap();
    assert_eq!(fs::read_to_string(merged.join("all")).unwrap(), format!("{:064}", 0));
    assert_eq!(fs::read_to_string(merged.join("lowest")).unwrap(), "here");
    fs::write(merged.join("own"), "").unwrap();
    detach_below(dir.path()).unwrap();
}

#[test]
fn an_overlay_shows_both_layers_and_is_gone_after_detach() {
    assert!(nix::unistd::geteuid().is_root(), "this test mounts: run it as root");
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| {
        let path = dir.path().join(name);
        fs::create_dir_all(&path).unwrap();
        path
    };
    let (ram, merged) = (path("ram"), path("merged"));
    tmpfs(&ram, Some(1 << 20), 0o700).unwrap();
    let (a, b, upper, work) = (path("ram/a"), path("ram/b"), path("ram/upper"), path("ram/work"));
    fs::write(a.join("top"), "a").unwrap();
    fs::write(b.join("bottom"), "b").unwrap();
    overlay(&[a, b], Some((&upper, &work)), &merged).unwrap();
    assert_eq!(fs::read_to_string(merged.join("top")).unwrap(), "a");
    assert_eq!(fs::read_to_string(merged.join("bottom")).unwrap(), "b");
    let view = path("view");
    bind(&merged, &view, BindOptions { read_only: true, ..BindOptions::default() }).unwrap();
    assert!(fs::write(view.join("x"), "").is_err());
    assert!(is_mounted(&view).unwrap() && is_mounted(Path::new("/")).unwrap());
    assert!(!is_mounted(dir.path()).unwrap() && !is_mounted(&view.join("not/there")).unwrap());
    assert_eq!(detach_below(dir.path()).unwrap().len(), 3);
    assert!(!is_mounted(&merged).unwrap());
    unmount(&merged).unwrap();
}

/// A line, and its ID, root, target, options, whether it is shared and a slave, kind, source and options of the kind.
type Line<'a> = (&'a str, u32, &'a str, &'a str, &'a str, (bool, bool), [&'a str; 3]);

fn check_lines(rows: &[Line<'_>]) {
    for &(line, id, root, target, options, tags, rest) in rows {
        let mount = parse_mountinfo_line(line.as_bytes()).unwrap_or_else(|| panic!("{line}"));
        assert_eq!((mount.id, &mount.root, &mount.target), (id, &root.into(), &target.into()), "{line}");
        assert_eq!(
            (mount.options.as_str(), mount.is_shared, mount.is_slave),
            (options, tags.0, tags.1),
            "{line}"
        );
        assert_eq!([mount.fs_type, mount.source, mount.super_options], rest.map(str::to_owned), "{line}");
    }
}

/// Source: `TestParseMountInfo` of upstream's `k8s.io/mount-utils`.
#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn lines_of_mountinfo_are_read_as_upstreams_rows_have_them() {
    let kubelet = "/var/lib/kubelet/plugins/kubernetes.io/iscsi/iface-default/127.0.0.1:3260-iqn.2003-01.org.linux-iscsi.f21.x8664:sn.4b0aae584f7c-lun-0";
    let iscsi = format!(
        "761 60 8:0 / {kubelet} rw,relatime shared:421 - ext4 /dev/sda rw,context=\"system_u:object_r:container_file_t:s0:c314,c894\",data=ordered"
    );
    check_lines(&[
        (
            "189 80 8:1 /var/lib/kubelet /var/lib/kubelet rw,relatime shared:30 - ext4 /dev/sda1 rw,commit=30,data=ordered",
            189,
            "/var/lib/kubelet",
            "/var/lib/kubelet",
            "rw,relatime",
            (true, false),
            ["ext4", "/dev/sda1", "rw,commit=30,data=ordered"],
        ),
        (
            "222 24 253:0 /tmp/src /mnt/dst rw,relatime shared:1 - ext4 /dev/mapper/vagrant--vg-root rw,errors=remount-ro,data=ordered",
            222,
            "/tmp/src",
            "/mnt/dst",
            "rw,relatime",
            (true, false),
            ["ext4", "/dev/mapper/vagrant--vg-root", "rw,errors=remount-ro,data=ordered"],
        ),
        (
            "224 62 253:0 /var/lib/docker/test/shared /var/lib/docker/test/shared rw,relatime master:1 shared:44 - ext4 /dev/mapper/ssd-root rw,seclabel,data=ordered",
            224,
            "/var/lib/docker/test/shared",
            "/var/lib/docker/test/shared",
            "rw,relatime",
            (true, true),
            ["ext4", "/dev/mapper/ssd-root", "rw,seclabel,data=ordered"],
        ),
        (
            "28 18 0:24 / /sys/fs/cgroup ro,nosuid,nodev,noexec shared:9 - tmpfs tmpfs ro,mode=755",
            28,
            "/",
            "/sys/fs/cgroup",
            "ro,nosuid,nodev,noexec",
            (true, false),
            ["tmpfs", "tmpfs", "ro,mode=755"],
        ),
        (
            "29 28 0:25 / /sys/fs/cgroup/systemd rw,nosuid shared:10 - cgroup cgroup rw,xattr,release_agent=/lib/systemd/systemd-cgroups-agent,name=systemd",
            29,
            "/",
            "/sys/fs/cgroup/systemd",
            "rw,nosuid",
            (true, false),
            ["cgroup", "cgroup", "rw,xattr,release_agent=/lib/systemd/systemd-cgroups-agent,name=systemd"],
        ),
        (
            "83 63 0:44 / /var/lib/bar rw,relatime - tmpfs tmpfs rw",
            83,
            "/",
            "/var/lib/bar",
            "rw,relatime",
            (false, false),
            ["tmpfs", "tmpfs", "rw"],
        ),
        (
            &iscsi,
            761,
            "/",
            kubelet,
            "rw,relatime",
            (true, false),
            [
                "ext4",
                "/dev/sda",
                "rw,context=\"system_u:object_r:container_file_t:s0:c314,c894\",data=ordered",
            ],
        ),
    ]);
}

#[test]
fn blanks_dashes_and_escapes_of_mountinfo_are_read() {
    check_lines(&[
        ("1 0 0:1 / /a rw -  - - rw", 1, "/", "/a", "rw", (false, false), ["", "-", "-"]),
        (
            "1 0 0:1 / /a\\040-\\040b rw - tmpfs  rw",
            1,
            "/",
            "/a - b",
            "rw",
            (false, false),
            ["tmpfs", "", "rw"],
        ),
        (
            r"1 0 0:1 /x\011y /a\134040\012 rw propagate_from:2 unbindable - fuse.a\b a\040b rw",
            1,
            "/x\ty",
            "/a\\040\n",
            "rw",
            (false, false),
            ["fuse.a\\b", "a b", "rw"],
        ),
        ("1 0 0:1 / /a rw - tmpfs tmpfs", 1, "/", "/a", "rw", (false, false), ["tmpfs", "tmpfs", ""]),
    ]);
}

/// Source: `TestBadParseMountInfo` of upstream's `k8s.io/mount-utils`.
#[test]
fn lines_that_are_none_hide_no_others() {
    for bad in [
        "224 62 /var/lib/docker /var/lib/docker rw,relatime master:1 shared:44 - ext4 /dev/mapper/ssd-root rw",
        "224 62 :0 / /a rw - ext4 /dev/sda rw",
        "224 62 253: / /a rw - ext4 /dev/sda rw",
        "224 62 foo:0 / /a rw - ext4 /dev/sda rw",
        "224 62 253:bar / /a rw - ext4 /dev/sda rw",
        "224 62 253:0:0 / /a rw - ext4 /dev/sda rw",
        "x 62 253:0 / /a rw - ext4 /dev/sda rw",
        "-1 62 253:0 / /a rw - ext4 /dev/sda rw",
        "4294967296 62 253:0 / /a rw - ext4 /dev/sda rw",
        "224 62 253:0 / /a rw shared:1 ext4 /dev/sda rw",
        "224 62 253:0 / /a rw - ext4",
        "224 62 253:0 / /a rw -",
        "224 62 253:0 / /a",
        "224",
        "",
        " ",
    ] {
        assert_eq!(parse_mountinfo_line(bad.as_bytes()), None, "{bad:?}");
        let text = format!("1 0 0:1 / /one rw - tmpfs a rw\n{bad}\n2 0 0:1 / /two rw - tmpfs b rw\n");
        let ids: Vec<u32> = parse_mountinfo(text.as_bytes()).iter().map(|mount| mount.id).collect();
        assert_eq!(ids, [1, 2], "{bad:?}");
    }
    let whole =
        b"36 35 98:0 /mnt1 /mnt\\0402 rw,noatime master:1 shared:7 - ext3 /dev/root rw,errors=continue";
    for cut in 0..whole.len() {
        // It need not be an error; it must be no panic, and no other mount point.
        if let Some(mount) = parse_mountinfo_line(&whole[..cut]) {
            assert_eq!(mount.target, Path::new("/mnt 2"), "cut at {cut}");
        }
    }
}

#[test]
fn a_path_that_is_no_text_is_a_path_all_the_same() {
    let mounts =
        parse_mountinfo(b"1 0 0:1 / /a\xff\\040b rw - fuse.x \xfe rw\n2 0 0:1 / /two rw - tmpfs b rw\n");
    let target = mounts[0].target.as_os_str().as_encoded_bytes();
    assert_eq!((target, mounts[0].source.as_str()), (&b"/a\xff b"[..], "\u{fffd}"));
    assert_eq!(mounts[1].target, Path::new("/two"));
}

#[test]
fn octal_escapes_are_three_digits_of_a_byte() {
    for (text, expect) in [
        (&br"a\040b"[..], &b"a b"[..]),
        (br"\134", b"\\"),
        (br"\377", b"\xff"),
        (br"\400", br"\400"),
        (br"\04", br"\04"),
        (br"\+12", br"\+12"),
        (br"\089", br"\089"),
        (br"\\040", b"\\ "),
        (br"\", br"\"),
        (b"", b""),
    ] {
        assert_eq!(unescape(text), expect, "{}", text.escape_ascii());
    }
}
