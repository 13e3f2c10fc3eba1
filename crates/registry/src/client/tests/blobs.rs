//! Blobs into files, from servers that know ranges, do not, or lie about them.

use super::*;

const CONTENT: &[u8] = b"0123456789";

struct Row {
    name: &'static str,
    /// What the file has at first.
    had: &'static [u8],
    /// The blob's size by its descriptor.
    size: u64,
    answers: Vec<Vec<u8>>,
    /// The ranges that are asked for.
    ranges: &'static [&'static str],
    /// The end of the error.
    error: Option<&'static str>,
}

impl Row {
    async fn check(self) {
        let ranges = Arc::new(Mutex::new(Vec::new()));
        let (log, answers) = (Arc::clone(&ranges), Mutex::new(self.answers.into_iter()));
        let fake = Fake::start(move |request| {
            log.lock().push(request.range.clone());
            answers.lock().next().unwrap_or_else(|| answer("410 Gone", &[], b""))
        });
        let descriptor: Descriptor = serde_json::from_value(serde_json::json!({
            "digest": Digest::of(CONTENT).to_string(), "size": self.size,
            // Without TLS no foreign layer is asked for.
            "urls": [format!("http://{}/foreign", fake.authority)],
        }))
        .unwrap();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("blob");
        if !self.had.is_empty() {
            std::fs::write(&path, self.had).unwrap();
        }
        let told = Mutex::new(0);
        let session = fake.session(None);
        let result = session.blob(&descriptor, &path, &|bytes| *told.lock() += bytes).await;
        let left = std::fs::read(&path).unwrap();
        match (result, self.error) {
            (Ok(()), None) => assert_eq!(left, CONTENT, "{}", self.name),
            (Err(error), Some(end)) => assert!(error.to_string().ends_with(end), "{}: {error}", self.name),
            (result, _) => panic!("{}: {result:?}", self.name),
        }
        assert_eq!(*ranges.lock(), self.ranges, "{}", self.name);
        assert_eq!(*told.lock(), i64::try_from(left.len()).unwrap(), "{}: what was told of", self.name);
    }
}

fn part(range: &str, body: &[u8]) -> Vec<u8> {
    answer("206 Partial Content", &[&format!("Content-Range: {range}")], body)
}

fn all() -> Vec<u8> {
    answer("200 OK", &[], CONTENT)
}

#[tokio::test]
async fn a_blob_is_what_it_says_whatever_was_there_and_whatever_comes() {
    let row = |name, had, answers, ranges| Row { name, had, size: 10, answers, ranges, error: None };
    let fails = |name, had, answers, ranges, error| Row { name, had, size: 10, answers, ranges, error };
    let damaged = "not sha256:84d89877f0d4041efb6bf91a16f0248f2fd573e6af05c19f96bedb9f882f7882";
    let rest = || part("bytes 5-9/10", b"56789");
    let rows = vec![
        row("all of it", b"", vec![all()], &[""]),
        row("it is there already", CONTENT, vec![], &[]),
        row("the rest", b"01234", vec![rest()], &["bytes=5-"]),
        row(
            "the rest, of which nobody knows how much it is",
            b"01234",
            vec![part("bytes 5-9/*", b"56789")],
            &["bytes=5-"],
        ),
        row("all instead of the rest", b"01234", vec![all()], &["bytes=5-"]),
        row("all, as a part", b"01234", vec![part("bytes 0-9/10", CONTENT)], &["bytes=5-"]),
        row(
            "a part that does not say where it begins",
            b"01234",
            vec![part("bytes */10", CONTENT)],
            &["bytes=5-"],
        ),
        row("a part in another unit", b"01234", vec![part("words 5-9/10", CONTENT)], &["bytes=5-"]),
        row(
            "no range is to its liking",
            b"01234",
            vec![answer("416 Range Not Satisfiable", &[], b""), all()],
            &["bytes=5-", ""],
        ),
        row("a part that nobody asked for", b"", vec![part("bytes 0-9/10", CONTENT)], &[""]),
        row("the beginning is damaged", b"x1234", vec![rest(), all()], &["bytes=5-", ""]),
        row("all of it is damaged", b"x123456789", vec![all()], &[""]),
        row("there is too much", b"0123456789x", vec![all()], &[""]),
        Row { size: 0, ..row("it does not say how large it is", b"", vec![all()], &[""]) },
        Row {
            size: 0,
            ..row("that, and some is there", b"012", vec![part("bytes 3-9/10", b"3456789")], &["bytes=3-"])
        },
        fails("something else", b"", vec![answer("200 OK", &[], b"012345678x")], &[""], Some(damaged)),
        fails(
            "a rest that is another",
            b"x1234",
            vec![rest(), answer("200 OK", &[], b"x123456789")],
            &["bytes=5-", ""],
            Some(damaged),
        ),
        fails(
            "more than it says",
            b"",
            vec![answer("200 OK", &[], b"0123456789x")],
            &[""],
            Some("is larger than 10 bytes"),
        ),
        fails(
            "nothing of the kind",
            b"",
            vec![answer("404 Not Found", &[], b"")],
            &[""],
            Some(": not found"),
        ),
        fails(
            "nobody may",
            b"0123",
            vec![answer("403 Forbidden", &[], b"")],
            &["bytes=4-"],
            Some("403 Forbidden"),
        ),
    ];
    for row in rows {
        row.check().await;
    }
}
