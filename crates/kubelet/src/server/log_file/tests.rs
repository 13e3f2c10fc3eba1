use super::*;

const LOG: &str = "2026-01-01T00:00:01Z stdout F one\n2026-01-01T00:00:02Z stderr F two\n2026-01-01T00:00:03Z stdout P thr\n2026-01-01T00:00:03Z stdout F ee\n";

fn check(wanted: Wanted, expect: &str) {
    for (rotated_lines, packed_lines) in [(0, 0), (1, 0), (2, 0), (1, 1), (2, 1), (2, 2)] {
        let dir = tempfile::tempdir().unwrap();
        let path = log(&dir, rotated_lines);
        (0..packed_lines).for_each(|number| pack(&dir.path().join(rotated(number))));
        let mut reader = LogReader::open(&path, wanted.clone()).unwrap();
        let text = String::from_utf8(reader.read().unwrap()).unwrap();
        assert_eq!(text, expect, "with {rotated_lines} lines rotated away, {packed_lines} packed");
    }
}

#[test]
fn a_line_that_a_rotation_has_parted_counts_once() {
    for (packed_lines, lines, expect) in [
        (0, 1, "three\n"),
        (0, 2, "two\nthree\n"),
        (3, 1, "three\n"),
        (3, 2, "two\nthree\n"),
        (3, 9, "one\ntwo\nthree\n"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let path = log(&dir, 3);
        (0..packed_lines).for_each(|number| pack(&dir.path().join(rotated(number))));
        let wanted = Wanted { tail_lines: Some(lines), ..Wanted::default() };
        let text = LogReader::open(&path, wanted).unwrap().read().unwrap();
        assert_eq!(String::from_utf8(text).unwrap(), expect, "{packed_lines} packed, the last {lines}");
    }
}

#[test]
fn a_parted_line_that_is_not_among_the_last_is_not_shown() {
    let older = "2026-01-01T00:00:01Z stdout F one\n2026-01-01T00:00:02Z stdout P tw\n";
    let newer = "2026-01-01T00:00:02Z stdout F o\n2026-01-01T00:00:03Z stdout F three\n2026-01-01T00:00:04Z stdout F four\n";
    for is_packed in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("0.log");
        std::fs::write(dir.path().join(rotated(0)), older).unwrap();
        std::fs::write(&path, newer).unwrap();
        if is_packed {
            pack(&dir.path().join(rotated(0)));
        }
        for (lines, expect) in [
            (0, ""),
            (1, "four\n"),
            (2, "three\nfour\n"),
            (3, "two\nthree\nfour\n"),
            (4, "one\ntwo\nthree\nfour\n"),
        ] {
            let wanted = Wanted { tail_lines: Some(lines), ..Wanted::default() };
            let text = LogReader::open(&path, wanted).unwrap().read().unwrap();
            assert_eq!(String::from_utf8(text).unwrap(), expect, "packed: {is_packed}, the last {lines}");
        }
    }
}

fn rotated(number: usize) -> String {
    format!("0.log.2026010{number}-000000")
}

/// As the container runtime does.
fn pack(path: &Path) {
    let plain = File::open(path).unwrap();
    let packed = File::create(with_suffix(path, PACKED)).unwrap();
    let mut encoder = flate2::write::GzEncoder::new(packed, flate2::Compression::default());
    std::io::copy(&mut &plain, &mut encoder).unwrap();
    let packed = encoder.finish().unwrap();
    packed.set_modified(plain.metadata().unwrap().modified().unwrap()).unwrap();
    std::fs::remove_file(path).unwrap();
}

/// [`LOG`], the first lines of which were rotated away, each into a file of its own.
fn log(dir: &tempfile::TempDir, rotated_lines: usize) -> PathBuf {
    let path = dir.path().join("0.log");
    let lines: Vec<&str> = LOG.split_inclusive('\n').collect();
    for (number, line) in lines.iter().take(rotated_lines).enumerate() {
        std::fs::write(dir.path().join(rotated(number)), line).unwrap();
    }
    std::fs::write(&path, lines[rotated_lines..].concat()).unwrap();
    path
}

#[test]
fn nothing_is_missed_however_often_the_log_is_rotated() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("0.log");
    let rotate = |name: &str| std::fs::rename(&path, dir.path().join(format!("0.log.{name}"))).unwrap();
    let write =
        |text: &str| std::fs::write(&path, format!("2026-01-01T00:00:01Z stdout F {text}\n")).unwrap();
    write("a");
    let mut reader = LogReader::open(&path, Wanted::default()).unwrap();
    assert_eq!(reader.read().unwrap(), b"a\n");
    rotate("20260101-000000");
    write("b");
    rotate("20260102-000000");
    write("c");
    // The reader knows what it has read, also in another form.
    pack(&dir.path().join("0.log.20260101-000000"));
    reader.follow_rotation().unwrap();
    assert_eq!(reader.read().unwrap(), b"b\nc\n");
    reader.follow_rotation().unwrap();
    assert_eq!(reader.read().unwrap(), b"");
}

#[test]
fn lines_are_joined_cut_and_filtered() {
    check(Wanted::default(), "one\ntwo\nthree\n");
    check(Wanted { tail_lines: Some(3), ..Wanted::default() }, "two\nthree\n");
    check(Wanted { tail_lines: Some(0), ..Wanted::default() }, "");
    check(Wanted { tail_lines: Some(9), ..Wanted::default() }, "one\ntwo\nthree\n");
    check(Wanted { since: "2026-01-01T00:00:02Z".parse().ok(), ..Wanted::default() }, "two\nthree\n");
    check(
        Wanted { stream: Some("stderr".into()), timestamps: true, ..Wanted::default() },
        "2026-01-01T00:00:02.000000000Z two\n",
    );
    check(
        Wanted { tail_lines: Some(2), timestamps: true, ..Wanted::default() },
        "2026-01-01T00:00:03.000000000Z three\n",
    );
    check(Wanted { limit_bytes: Some(5), ..Wanted::default() }, "one\nt");
}

#[test]
fn a_line_that_is_being_written_waits_for_its_rest() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "2026-01-01T00:00:01Z stdout F on").unwrap();
    let mut reader = LogReader::open(file.path(), Wanted::default()).unwrap();
    assert!(reader.read().unwrap().is_empty());
    std::fs::write(file.path(), "2026-01-01T00:00:01Z stdout F one\n").unwrap();
    assert_eq!(reader.read().unwrap(), b"one\n");
}

/// Options in short: `tail`, `bytes`, `since`, `stream`, `time`.
fn wanted(options: &str) -> Wanted {
    let mut wanted = Wanted::default();
    for option in options.split_whitespace() {
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        match name {
            "tail" => wanted.tail_lines = value.parse().ok(),
            "bytes" => wanted.limit_bytes = value.parse().ok(),
            "since" => wanted.since = value.parse().ok(),
            "stream" => wanted.stream = Some(value.to_owned()),
            "time" => wanted.timestamps = true,
            other => panic!("{other}"),
        }
    }
    wanted
}

fn shown_of(text: &str, options: &str) -> String {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    let mut reader = LogReader::open(file.path(), wanted(options)).unwrap();
    String::from_utf8(reader.read().unwrap()).unwrap()
}

/// Source: `TestReadLogs`, `TestWriteLogs*` and `TestOnlyStdoutStream` of upstream's `k8s.io/cri-client/pkg/logs`.
#[test]
fn as_much_is_shown_as_upstream_shows() {
    let line = |format: &str, second: u32, stream: &str| {
        format
            .replace("TIME", &format!("2020-09-27T11:18:0{second}.00000000Z"))
            .replace("STREAM", stream)
            .replace("N", &second.to_string())
    };
    const CRI: &str = "TIME STREAM F lineN\n";
    const DOCKER: &str = "{\"log\":\"lineN\\n\",\"stream\":\"STREAM\",\"time\":\"TIME\"}\n";
    for format in [CRI, DOCKER] {
        let log: String = (1..=3).map(|second| line(format, second, "stdout")).collect();
        for (options, expect) in [
            ("", "line1\nline2\nline3\n"),
            ("tail=2", "line2\nline3\n"),
            ("tail=4", "line1\nline2\nline3\n"),
            ("tail=0", ""),
            ("bytes=9", "line1\nlin"),
            ("bytes=100", "line1\nline2\nline3\n"),
            ("bytes=0", ""),
            ("since=2020-09-27T11:18:02Z", "line2\nline3\n"),
            ("since=2030-01-01T00:00:00Z", ""),
            ("tail=2 since=2020-09-27T11:18:03Z", "line3\n"),
            ("tail=1 bytes=3", "lin"),
            ("stream=stdout", "line1\nline2\nline3\n"),
            ("stream=stderr", ""),
            ("time tail=1", "2020-09-27T11:18:03.000000000Z line3\n"),
            ("time bytes=39", "2020-09-27T11:18:01.000000000Z line1\n20"),
        ] {
            assert_eq!(shown_of(&log, options), expect, "{options}, of {format}");
        }
        let mixed = [(1, "stdout"), (2, "stderr"), (3, "stdout")];
        let mixed: String = mixed.into_iter().map(|(second, stream)| line(format, second, stream)).collect();
        for (options, expect) in [
            ("stream=stdout", "line1\nline3\n"),
            ("stream=stdout bytes=8", "line1\nli"),
            ("stream=stderr bytes=8", "line2\n"),
            ("bytes=9", "line1\nlin"),
        ] {
            assert_eq!(shown_of(&mixed, options), expect, "{options}, of both streams of {format}");
        }
    }
}

/// Source: `TestReadLogsLimitsWithTimestamps` of upstream's `k8s.io/cri-client/pkg/logs`.
#[test]
fn a_line_of_many_parts_has_one_time() {
    const TIME: &str = "2022-10-29T16:10:22.592603036-05:00";
    let parts: String = (0..2000).map(|part| format!("{TIME} stdout P {part}\n")).collect();
    let text = shown_of(&format!("{parts}{TIME} stdout F \n{parts}{TIME} stdout F \n"), "time");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 2);
    for line in lines {
        let (time, content) = line.split_once(' ').unwrap();
        assert_eq!(time, TIME);
        assert!(content.starts_with("012345") && content.ends_with("1999"), "{content}");
    }
}

#[test]
fn what_is_no_line_of_a_log_is_left_out() {
    let log = "nonsense\n2020-09-27T11:18:01Z stdout F one\n\n2020-09-27T11:18:02Z stdlog F two\nnever stdout F three\n\
               2020-09-27T11:18:03Z stdout P:TAG fo\n2020-09-27T11:18:03Z stdout F:TAG ur\n";
    assert_eq!(shown_of(log, ""), "one\nfour\n");
}

/// Source: `TestTail` of upstream's `k8s.io/cri-client/pkg/logs`.
#[test]
fn the_last_lines_are_counted_without_the_one_that_is_not_complete() {
    let line = "a".repeat(CHUNK);
    let whole = format!("{line}\n").repeat(4);
    let length = line.len() as u64 + 1;
    let mut file = tempfile::tempfile().unwrap();
    std::io::Write::write_all(&mut file, format!("{whole}{}", &line[CHUNK / 2..]).as_bytes()).unwrap();
    for (lines, start, found) in [(0, 4 * length, 0), (1, 3 * length, 1), (4, 0, 4), (9999, 0, 4)] {
        assert_eq!(tail_start(&mut file, lines).unwrap(), (start, found), "the last {lines}");
    }
    let mut none = tempfile::tempfile().unwrap();
    assert_eq!(tail_start(&mut none, 3).unwrap(), (0, 0));
}

#[test]
fn who_wants_no_lines_and_follows_sees_the_one_that_is_being_written_whole() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "2026-01-01T00:00:01Z stdout F one\n2026-01-01T00:00:02Z stdout F tw")
        .unwrap();
    let mut reader = LogReader::open(file.path(), wanted("tail=0")).unwrap();
    assert!(reader.read().unwrap().is_empty());
    let mut log = std::fs::OpenOptions::new().append(true).open(file.path()).unwrap();
    std::io::Write::write_all(&mut log, b"o\n").unwrap();
    assert_eq!(reader.read().unwrap(), b"two\n");
}
