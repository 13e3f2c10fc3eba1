use super::*;

fn items() -> Vec<Item> {
    let record = |key: &str, value: &'static str| {
        Item::Record(Record {
            key: key.to_owned(),
            value: Bytes::from(value),
            create_revision: 3,
            revision: 7,
            expires_us: -1,
            cause: Bytes::from_static(b"why"),
        })
    };
    let file =
        File { path: "server/tls/ca.crt".to_owned(), mode: 0o600, content: Bytes::from_static(b"pem") };
    vec![Item::File(file), record("/registry/a", "{}"), record("/registry/empty", "")]
}

fn head() -> Head {
    Head { revision: 7, seen: 9, created: "2026-01-01T00:00:00Z".into(), writer: "0.1.0".into(), left_out: 0 }
}

fn written() -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), &head()).unwrap();
    items().iter().for_each(|item| writer.add(item).unwrap());
    let (bytes, records) = writer.finish().unwrap();
    assert_eq!(records, 2);
    bytes
}

fn read(bytes: &[u8]) -> Result<(Head, Vec<Item>), BackupError> {
    let (mut reader, head) = Reader::new(bytes)?;
    let mut items = Vec::new();
    while let Some(item) = reader.next_item()? {
        items.push(item);
    }
    Ok((head, items))
}

#[test]
fn what_is_written_is_read() {
    assert_eq!(read(&written()).unwrap(), (head(), items()));
}

#[test]
fn the_first_lines_are_for_people() {
    let bytes = written();
    let text = String::from_utf8_lossy(&bytes);
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("knarr-backup 1"));
    let head = r#"{"revision":7,"seen":9,"created":"2026-01-01T00:00:00Z","writer":"0.1.0","leftOut":0}"#;
    assert_eq!(lines.next(), Some(head));
}

#[test]
fn every_changed_missing_or_added_byte_is_noticed() {
    let bytes = written();
    for at in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 0x20;
        assert!(read(&changed).is_err(), "byte {at}");
        assert!(read(&bytes[..at]).is_err(), "cut off at {at}");
    }
    assert!(read(&[&bytes[..], b"x"].concat()).is_err());
}

#[test]
fn a_block_that_is_missing_is_noticed() {
    let mut writer = Writer::new(Vec::new(), &head()).unwrap();
    writer.add(&items()[1]).unwrap();
    let whole = writer.finish().unwrap().0;
    let without = Writer::new(Vec::new(), &head()).unwrap().finish().unwrap().0;
    let start = without.len() - 57;
    let end = &whole[whole.len() - 57..];
    assert!(read(&[&without[..start], end].concat()).is_err());
}

#[test]
fn what_is_no_backup_and_what_is_newer_is_said() {
    assert!(matches!(read(b"PK\x03\x04"), Err(BackupError::Foreign)));
    assert!(matches!(read(b""), Err(BackupError::Foreign)));
    assert!(matches!(read(b"knarr-backup 2\n{}\n"), Err(BackupError::Newer(2))));
}

/// A block with a right checksum.
fn block(content: &[u8]) -> Vec<u8> {
    let mut block = u32::try_from(content.len()).unwrap().to_le_bytes().to_vec();
    block.extend_from_slice(&crc32fast::hash(content).to_le_bytes());
    block.extend_from_slice(content);
    block
}

/// A stream of these blocks, ended as its writer would end it.
fn stream(blocks: &[Vec<u8>], files: u64, records: u64) -> Vec<u8> {
    let mut bytes = format!("knarr-backup 1\n{}\n", serde_json::to_string(&head()).unwrap()).into_bytes();
    bytes.extend(blocks.concat());
    let mut end = vec![b'E'];
    end.extend_from_slice(&files.to_le_bytes());
    end.extend_from_slice(&records.to_le_bytes());
    end.extend_from_slice(&Sha256::digest(&bytes));
    bytes.extend(block(&end));
    bytes
}

/// Streams that somebody made who knows the checksums.
#[test]
fn blocks_of_no_known_form_are_refused_whatever_their_checksums_say() {
    let record = |key_length: u16, cause_length: u32, rest: &[u8]| {
        let mut content = vec![b'R'];
        content.extend_from_slice(&[0; 24]);
        content.extend_from_slice(&key_length.to_le_bytes());
        content.extend_from_slice(&cause_length.to_le_bytes());
        content.extend_from_slice(rest);
        content
    };
    let file = |path_length: u16, rest: &[u8]| {
        let mut content = vec![b'F', 0, 0, 0, 0];
        content.extend_from_slice(&path_length.to_le_bytes());
        content.extend_from_slice(rest);
        content
    };
    assert_eq!(read(&stream(&[block(&record(1, 1, b"kcv"))], 0, 1)).unwrap().1.len(), 1);
    assert_eq!(read(&stream(&[block(&file(1, b"pcontent"))], 1, 0)).unwrap().1.len(), 1);
    for (name, content) in [
        ("an empty block", vec![]),
        ("an unknown kind", b"X".to_vec()),
        ("a record of nothing", b"R".to_vec()),
        ("a record without its lengths", vec![b'R'; 30]),
        ("a key beyond the end", record(4, 0, b"key")),
        ("the longest key", record(u16::MAX, 0, b"key")),
        ("a cause beyond the end", record(1, 3, b"kcv")),
        ("the longest cause", record(1, u32::MAX, b"kcv")),
        ("a key that is no text", record(1, 0, b"\xff")),
        ("a file of nothing", b"F".to_vec()),
        ("a path beyond the end", file(2, b"p")),
        ("a path that is no text", file(1, b"\xff")),
        ("an end that is cut off", b"E\0\0\0".to_vec()),
    ] {
        let records = u64::from(content.first() == Some(&b'R'));
        let files = u64::from(content.first() == Some(&b'F'));
        let error = read(&stream(&[block(&content)], files, records)).unwrap_err();
        assert!(matches!(error, BackupError::Damaged(_)), "{name}: {error}");
    }
}

#[test]
fn an_end_that_counts_otherwise_is_refused() {
    let record = block(&encode(&items()[1]).unwrap());
    let file = block(&encode(&items()[0]).unwrap());
    let blocks = [file, record];
    assert_eq!(read(&stream(&blocks, 1, 1)).unwrap().1.len(), 2);
    for (files, records) in [(0, 1), (1, 0), (2, 1), (1, 2), (0, 0), (u64::MAX, u64::MAX)] {
        assert!(read(&stream(&blocks, files, records)).is_err(), "{files} {records}");
    }
    let whole = stream(&blocks, 1, 1);
    let twice = [&whole[..], &whole].concat();
    assert!(matches!(read(&twice), Err(BackupError::Damaged(_))), "something follows");
    // After its end nothing more is read, however often it is asked for.
    let (mut reader, _) = Reader::new(&whole[..]).unwrap();
    while reader.next_item().unwrap().is_some() {}
    assert!(reader.next_item().unwrap().is_none());
}

#[test]
fn what_is_read_is_bounded_by_what_a_block_may_have() {
    let head = format!("knarr-backup 1\n{}\n", serde_json::to_string(&head()).unwrap());
    for length in [BLOCK_BYTES_MAX + 1, u32::MAX] {
        let bytes = [head.as_bytes(), &length.to_le_bytes(), &[0; 4]].concat();
        let error = read(&bytes).unwrap_err().to_string();
        assert_eq!(error, "it is damaged: a block says that it is larger than any can be", "{length}");
    }
    let mut writer = Writer::new(io::sink(), &self::head()).unwrap();
    let content = Bytes::from(vec![0; BLOCK_BYTES_MAX as usize]);
    let file = File { path: "p".into(), mode: 0, content };
    assert_eq!(writer.add(&Item::File(file)).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    let key = "k".repeat(usize::from(u16::MAX) + 1);
    let Item::Record(record) = items().remove(1) else { panic!("a record") };
    assert!(writer.add(&Item::Record(Record { key, ..record })).is_err());
}

#[test]
fn heads_that_are_none_are_refused() {
    for (name, text, expect) in [
        ("another first line", "knarr backup 1\n{}\n", "it is no knarr backup"),
        ("no version", "knarr-backup \n{}\n", "it is no knarr backup"),
        ("no number", "knarr-backup one\n{}\n", "it is no knarr backup"),
        ("a number below nothing", "knarr-backup -1\n{}\n", "it is no knarr backup"),
        ("version nothing", "knarr-backup 0\n{}\n", "it has format 0"),
        ("a newer one", "knarr-backup 18446744073709551615\n{}\n", "it has format 18446744073709551615"),
        ("no second line", "knarr-backup 1\n", "it is damaged: it was cut off"),
        ("no end of it", "knarr-backup 1\n{", "it is damaged: it was cut off"),
        ("no JSON", "knarr-backup 1\nhead\n", "it is damaged: its head: "),
        ("no fields", "knarr-backup 1\n{}\n", "it is damaged: its head: missing field"),
        ("a revision below nothing", "knarr-backup 1\n{\"revision\": -1}\n", "it is damaged: its head: "),
        (
            "a line without an end",
            &format!("knarr-backup 1\n{}", " ".repeat(5000)),
            "it is damaged: its head has no end",
        ),
        ("a first line without an end", &"x".repeat(5000), "it is no knarr backup"),
    ] {
        let error = read(text.as_bytes()).unwrap_err().to_string();
        assert!(error.starts_with(expect), "{name}: {error}");
    }
    assert!(read(b"knarr-backup 1\n\xff\n").unwrap_err().to_string().contains("no text"));
    // Fields of later versions are passed over, and one that came later may be missing.
    let text = "knarr-backup 1\n{\"revision\":1,\"seen\":2,\"created\":\"c\",\"writer\":\"w\",\"new\":1}\n";
    let (_, head) = Reader::new(text.as_bytes()).unwrap();
    assert_eq!((head.revision, head.left_out), (1, 0));
}
