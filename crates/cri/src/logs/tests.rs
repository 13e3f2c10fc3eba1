use super::*;

#[test]
fn as_many_files_stay_as_are_wanted() {
    for (rotated, files_max, expect) in [(0, 5, 0), (3, 5, 0), (4, 5, 1), (9, 5, 6), (1, 2, 1), (0, 0, 0)] {
        assert_eq!(excess(rotated, files_max), expect, "{rotated} rotated, at most {files_max}");
    }
}

#[test]
fn names_sort_by_age_also_within_a_second() {
    let at = |nanos: i32| Timestamp::new(1_700_000_000, nanos).unwrap();
    let log = Path::new("/l/0.log");
    let first = rotated_name(log, None, at(5));
    assert_eq!(first, Path::new("/l/0.log.20231114-221320"));
    let second = rotated_name(log, Some(&first), at(6));
    assert_eq!(second, Path::new("/l/0.log.20231114-221320.000000006"));
    let third = rotated_name(log, Some(&second), at(7));
    assert!(first < second && second < third);
    let later = rotated_name(log, Some(&third), Timestamp::new(1_700_000_001, 0).unwrap());
    assert!(third < later);
}

#[test]
fn older_files_are_compressed_and_go_in_any_form() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("0.log");
    for number in 0..6 {
        fs::write(&log, format!("{number}")).unwrap();
        let now = Timestamp::new(1_700_000_000 + number, 0).unwrap();
        let (name, older) = remove_excess(&log, 4, now).unwrap();
        fs::rename(&log, name).unwrap();
        for older in older {
            let modified = older.metadata().unwrap().modified().unwrap();
            pack(&older).unwrap();
            pack(&older).unwrap();
            let packed = with_suffix(&older, PACKED).metadata().unwrap();
            assert_eq!(packed.modified().unwrap(), modified);
        }
    }
    let mut names: Vec<String> =
        fs::read_dir(&dir).unwrap().map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    assert_eq!(names, ["0.log.20231114-221323.gz", "0.log.20231114-221324.gz", "0.log.20231114-221325"]);
    let mut text = String::new();
    let oldest = File::open(dir.path().join("0.log.20231114-221323.gz")).unwrap();
    io::Read::read_to_string(&mut flate2::read::GzDecoder::new(oldest), &mut text).unwrap();
    assert_eq!(text, "3");
}

/// What is in a folder.
fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Source: `TestRemoveExcessLog` and `TestCleanupUnusedLog` of upstream's `pkg/kubelet/logs`. What there is, how many may
/// stay, what is left before the next is rotated away, and what of it may be compressed.
#[test]
fn the_oldest_go_in_all_their_forms() {
    const FOUR: &str = "0.log.3 0.log.1 0.log.2 0.log.4";
    for (name, found, files_max, left, may_be_packed) in [
        ("two stay", FOUR, 2, "", ""),
        ("three stay", FOUR, 3, "0.log.4", "0.log.4"),
        (
            "more than there are",
            FOUR,
            6,
            "0.log.1 0.log.2 0.log.3 0.log.4",
            "0.log.1 0.log.2 0.log.3 0.log.4",
        ),
        ("fewer than there must be", FOUR, 0, "", ""),
        ("one that was not finished counts once", "0.log.1 0.log.1.tmp 0.log.2", 3, "0.log.2", "0.log.2"),
        (
            "one that was finished and not taken away",
            "0.log.1 0.log.1.gz",
            5,
            "0.log.1 0.log.1.gz",
            "0.log.1",
        ),
        ("compressed ones are done", "0.log.1.gz 0.log.2", 5, "0.log.1.gz 0.log.2", "0.log.2"),
        ("compressed ones go, too", "0.log.1.gz 0.log.2.gz 0.log.3", 3, "0.log.3", "0.log.3"),
        ("what is left of one goes with it", "0.log.1.tmp 0.log.2 0.log.3", 3, "0.log.3", "0.log.3"),
        (
            "what is no such file stays",
            "0.log.old 0.log. 0.logs.1 1.log.1 0.log.1",
            2,
            "0.log. 0.log.old 0.logs.1 1.log.1",
            "",
        ),
        ("the log itself stays", "0.log 0.log.1", 2, "0.log", ""),
        ("there is nothing", "", 5, "", ""),
    ] {
        let dir = tempfile::tempdir().unwrap();
        for file in found.split_whitespace() {
            fs::write(dir.path().join(file), file).unwrap();
        }
        let now = Timestamp::new(1_700_000_000, 0).unwrap();
        let (_, older) = remove_excess(&dir.path().join("0.log"), files_max, now).unwrap();
        assert_eq!(names(dir.path()), left.split_whitespace().collect::<Vec<_>>(), "{name}");
        let older: Vec<_> = older.iter().map(|file| file.file_name().unwrap().to_str().unwrap()).collect();
        assert_eq!(older, may_be_packed.split_whitespace().collect::<Vec<_>>(), "{name}");
    }
    assert!(remove_excess(Path::new("/none/such/0.log"), 5, Timestamp::UNIX_EPOCH).is_err());
}

/// Source: `TestCompressLog` of upstream's `pkg/kubelet/logs`.
#[test]
fn what_is_compressed_reads_as_before() {
    for (name, before) in
        [("a fresh one", ""), ("one that a kill has left unfinished", "half of something else")]
    {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("0.log.1");
        let text = "test content\n".repeat(10_000);
        fs::write(&log, &text).unwrap();
        if !before.is_empty() {
            fs::write(with_suffix(&log, UNFINISHED), before).unwrap();
        }
        pack(&log).unwrap();
        assert_eq!(names(dir.path()), ["0.log.1.gz"], "{name}");
        let mut found = String::new();
        let packed = File::open(with_suffix(&log, PACKED)).unwrap();
        assert!(packed.metadata().unwrap().len() < text.len() as u64 / 10, "{name}");
        io::Read::read_to_string(&mut flate2::read::GzDecoder::new(packed), &mut found).unwrap();
        assert_eq!(found, text, "{name}");
    }
    let dir = tempfile::tempdir().unwrap();
    assert!(pack(&dir.path().join("0.log.1")).is_ok(), "it went meanwhile");
    assert!(names(dir.path()).is_empty());
}

#[test]
fn two_do_not_compress_the_same_file() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("0.log.1");
    fs::write(&log, "text").unwrap();
    let other = File::open(&log).unwrap();
    other.try_lock().unwrap();
    pack(&log).unwrap();
    assert_eq!(names(dir.path()), ["0.log.1"], "somebody else is at it");
    drop(other);
    pack(&log).unwrap();
    assert_eq!(names(dir.path()), ["0.log.1.gz"]);
}
