//! What a client and a runtime's streaming server say to each other. Source: `server_test.go` of upstream's
//! `pkg/kubelet/cri/streaming`, `remotecommand` v4 and `portforward` of client-go.

use futures::future::BoxFuture;
use spdy::{Stream, StreamReader};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::*;

const SWITCHING: &str =
    "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n";

type Work = Box<dyn FnOnce(mpsc::Receiver<Stream>) -> BoxFuture<'static, ()> + Send>;

/// The URL of a server that answers one request so, and goes on with `work` if it upgrades; and what it was asked.
async fn server(answer: &'static str, work: Work) -> (String, JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/exec/token", listener.local_addr().unwrap());
    let served = tokio::spawn(async move {
        let (mut io, _) = listener.accept().await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(io.read_u8().await.unwrap());
        }
        io.write_all(answer.as_bytes()).await.unwrap();
        if answer == SWITCHING {
            drop(spdy::serve(io, work).await);
        }
        String::from_utf8(head).unwrap()
    });
    (url, served)
}

/// The streams that a client opens, by what they are for.
async fn opened(streams: &mut mpsc::Receiver<Stream>, count: usize) -> BTreeMap<String, Stream> {
    let mut opened = BTreeMap::new();
    for _ in 0..count {
        let stream = streams.recv().await.unwrap();
        opened.insert(stream.header("streamtype").unwrap().to_owned(), stream);
    }
    opened
}

async fn said(reader: &mut StreamReader) -> String {
    let mut text = Vec::new();
    while let Ok(Some(piece)) = reader.next().await {
        text.extend_from_slice(&piece);
    }
    String::from_utf8(text).unwrap()
}

/// Says this, and nothing more.
async fn say(stream: Option<Stream>, text: &str) {
    let writer = stream.unwrap().writer;
    writer.send(Bytes::copy_from_slice(text.as_bytes())).await.unwrap();
    writer.finish().await.unwrap();
}

async fn heard(reader: Option<impl AsyncRead + Unpin>) -> String {
    let mut text = String::new();
    reader.unwrap().read_to_string(&mut text).await.unwrap();
    text
}

/// Source: `TestServeExec`, `TestServeAttach`.
#[tokio::test]
async fn a_command_has_a_stream_for_each_of_its_ends_and_one_for_its_result() {
    for (status, expect) in [
        (r#"{"metadata":{},"status":"Success"}"#, Ok(0)),
        (
            r#"{"status":"Failure","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"7"}]}}"#,
            Ok(7),
        ),
        (r#"{"status":"Failure","message":"no such file"}"#, Err(NoExitCode::Told("no such file".into()))),
        (r#"{"status":"Succ"#, Err(NoExitCode::Unreported)),
    ] {
        let work: Work = Box::new(move |mut streams| {
            Box::pin(async move {
                let mut opened = opened(&mut streams, 4).await;
                say(opened.remove("stderr"), "ERROR!!!").await;
                assert_eq!(said(&mut opened.get_mut("stdin").unwrap().reader).await, "abcdefg");
                say(opened.remove("stdout"), "fooBARbaz").await;
                say(opened.remove("error"), status).await;
            })
        });
        let (url, asked) = server(SWITCHING, work).await;
        let (tasks, wishes) = (Tasks::new(), Wishes { stdin: true, stdout: true, stderr: true, tty: false });
        let mut streams = command(&url, wishes, &tasks).await.unwrap();
        assert!(streams.resize.is_none(), "there is no terminal");
        assert_eq!(heard(streams.stderr.take()).await, "ERROR!!!");
        let mut stdin = streams.stdin.take().unwrap();
        stdin.write_all(b"abcdefg").await.unwrap();
        drop(stdin);
        assert_eq!(heard(streams.stdout.take()).await, "fooBARbaz");
        assert_eq!(streams.exit.await, expect, "{status}");
        let asked = asked.await.unwrap().to_lowercase();
        for line in
            ["post /exec/token http/1.1", "upgrade: spdy/3.1", "x-stream-protocol-version: v4.channel.k8s.io"]
        {
            assert!(asked.lines().any(|one| one == line), "{line}: {asked}");
        }
    }
}

#[tokio::test]
async fn a_terminal_has_sizes_and_no_stderr() {
    let asked = v1::ExecRequest { stdout: true, stderr: true, tty: true, ..Default::default() };
    let work: Work = Box::new(|mut streams| {
        Box::pin(async move {
            let mut opened = opened(&mut streams, 3).await;
            assert_eq!(opened.keys().collect::<Vec<_>>(), ["error", "resize", "stdout"]);
            let (mut sizes, mut told) = (opened.remove("resize").unwrap().reader, Vec::new());
            while told.iter().filter(|byte| **byte == b'\n').count() < 2 {
                told.extend_from_slice(&sizes.next().await.unwrap().unwrap());
            }
            say(opened.remove("stdout"), std::str::from_utf8(&told).unwrap()).await;
        })
    });
    let (url, _) = server(SWITCHING, work).await;
    let tasks = Tasks::new();
    let mut streams = command(&url, Wishes::of_exec(&asked), &tasks).await.unwrap();
    assert!(streams.stdin.is_none() && streams.stderr.is_none());
    let sizes = streams.resize.take().unwrap();
    for size in [(80, 24), (0, 65535)] {
        sizes.send(size).await.unwrap();
    }
    let expect = "{\"Width\":80,\"Height\":24}\n{\"Width\":0,\"Height\":65535}\n";
    assert_eq!(heard(streams.stdout.take()).await, expect);
    assert_eq!(streams.exit.await, Err(NoExitCode::Unreported), "it has left without a word");
}

/// Source: `TestServePortForward`; what a server complains of is on the stream `error`.
#[tokio::test]
async fn a_port_is_one_stream_both_ways_and_another_for_complaints() {
    let long = "x".repeat(RESULT_BYTES_MAX + 1);
    for complaint in ["", "connect to port 12345: connection refused", long.as_str()] {
        let text = complaint.to_owned();
        let work: Work = Box::new(|mut streams| {
            Box::pin(async move {
                let mut opened = opened(&mut streams, 2).await;
                for stream in opened.values() {
                    assert_eq!(
                        [stream.header("port"), stream.header("requestid")],
                        [Some("12345"), Some("0")]
                    );
                }
                assert_eq!(said(&mut opened.get_mut("data").unwrap().reader).await, "abcdefg");
                say(opened.remove("data"), "fooBARbaz").await;
                say(opened.remove("error"), &text).await;
            })
        });
        let (url, asked) = server(SWITCHING, work).await;
        let tasks = Tasks::new();
        let mut streams = port(&url, 12345, &tasks).await.unwrap();
        let mut stdin = streams.stdin.take().unwrap();
        stdin.write_all(b"abcdefg").await.unwrap();
        drop(stdin);
        assert_eq!(heard(streams.stdout.take()).await, "fooBARbaz");
        assert!(asked.await.unwrap().contains("portforward.k8s.io"));
        let told = streams.exit.now_or_never();
        let cut = complaint.get(..complaint.len().min(RESULT_BYTES_MAX)).unwrap();
        let expect = (!cut.is_empty()).then(|| Err(NoExitCode::Told(cut.to_owned())));
        assert_eq!(told, expect, "{} bytes", complaint.len());
    }
}

#[tokio::test]
async fn who_is_told_to_stop_says_that_the_connection_is_gone() {
    let (url, _) = server(SWITCHING, Box::new(|_| Box::pin(std::future::pending()))).await;
    let (tasks, wishes) = (Tasks::new(), Wishes { stdin: false, stdout: true, stderr: false, tty: false });
    let mut streams = command(&url, wishes, &tasks).await.unwrap();
    tasks.stop_and_wait().await;
    assert_eq!(heard(streams.stdout.take()).await, "");
    assert_eq!(streams.exit.await, Err(NoExitCode::Disconnected));
}

#[tokio::test]
async fn a_server_that_does_not_upgrade_is_told_with_what_it_says() {
    let wishes = Wishes { stdin: false, stdout: true, stderr: false, tty: false };
    let refused = async |url: &str| {
        let refused = command(url, wishes, &Tasks::new()).await.map(drop).unwrap_err();
        refused.to_string().replace("the container runtime's streaming server", "it")
    };
    for (answer, expect) in [
        ("HTTP/1.1 404 Not Found\r\nContent-Length: 7\r\n\r\nno such", "upgrade it: 404 Not Found: no such"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "upgrade it: 200 OK: "),
        ("HTTP/1.1 403 Forbidden\r\nContent-Length: 9\r\n\r\nhalf", "upgrade it: 403 Forbidden: "),
        ("SSH-2.0-OpenSSH_9.6\r\n", "ask it: invalid HTTP version parsed"),
        ("", "ask it: connection closed before message completed"),
    ] {
        let (url, _) = server(answer, Box::new(|_| Box::pin(async {}))).await;
        assert_eq!(refused(&url).await, expect, "{answer:?}");
    }
    for (url, expect) in [
        ("https://127.0.0.1/exec/a", r#"connect to it: "https://127.0.0.1/exec/a" must be an http URL"#),
        ("/exec/a", r#"connect to it: "/exec/a" must be an http URL"#),
        ("", "understand the URL of it: empty string"),
        ("http://", "understand the URL of it: empty string"),
    ] {
        assert_eq!(refused(url).await, expect, "{url}");
    }
}

/// Where a result's and an output's stream are, and what is said on both.
const RESULT: u32 = 1;
const OUTPUT: u32 = 3;

/// What comes of a server's frames: the result, the output, what is sent back, and whether it goes on.
async fn received(frames: &[Frame], ends_with: Option<u32>) -> String {
    let (mut encoder, mut bytes) = (Encoder::default(), BytesMut::new());
    frames.iter().for_each(|frame| encoder.encode(frame, &mut bytes).unwrap());
    // A stream that nobody knows and nothing should come of.
    encoder.encode(&data(9, false, "stray"), &mut bytes).unwrap();
    let (sender, result) = oneshot::channel();
    let (ours, theirs) = tokio::io::duplex(PIPE_BYTES);
    let mut lanes = BTreeMap::from([
        (RESULT, Lane::Result(Vec::new(), Some(sender))),
        (OUTPUT, Lane::Output(Some(ours))),
    ]);
    let (frames, mut sent) = mpsc::channel(FRAMES_MAX);
    receive(&bytes[..], &mut lanes, ends_with, &frames).await.unwrap();
    let is_told = result.now_or_never().map(|result| format!("{:?}", result.unwrap()));
    lanes.clear();
    let back = sent.try_recv().map_or("nothing".to_owned(), |frame| format!("{frame:?}"));
    format!("{} | {} | {back}", is_told.unwrap_or("open".to_owned()), heard(Some(theirs)).await)
}

fn data(stream: u32, fin: bool, text: &'static str) -> Frame {
    Frame::Data { stream, fin, bytes: Bytes::from_static(text.as_bytes()) }
}

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "a table")]
async fn frames_of_a_server_are_taken_as_they_come() {
    let success = r#"{"status":"Success"}"#;
    let reply = |stream, fin| Frame::SynReply { stream, fin, headers: Headers::new() };
    let reset = |stream| Frame::Reset { stream, status: 5 };
    let away = Frame::GoAway { last_stream: 3, status: 0 };
    let opens = Frame::SynStream { stream: 2, fin: false, headers: Headers::new() };
    for (name, frames, ends_with, expect) in [
        ("nothing", vec![], None, "open |  | nothing"),
        (
            "replies are no ends",
            vec![reply(1, false), reply(3, false), data(3, false, "a")],
            None,
            "open | a | nothing",
        ),
        (
            "a result in parts",
            vec![data(1, false, r#"{"status":"#), data(1, true, r#""Success"}"#)],
            None,
            "Ok(0) |  | nothing",
        ),
        ("an end in a reply", vec![reply(1, true)], None, "Err(Unreported) |  | nothing"),
        (
            "a stream that is reset has ended",
            vec![data(3, false, "a"), reset(3), data(3, false, "b")],
            None,
            "open | a | nothing",
        ),
        (
            "a result that is reset is none",
            vec![data(1, false, "{"), reset(1)],
            None,
            "Err(Unreported) |  | nothing",
        ),
        (
            "a second result counts for nothing",
            vec![data(1, true, success), data(1, true, "{}")],
            None,
            "Ok(0) |  | nothing",
        ),
        ("a server's ping comes back", vec![Frame::Ping(2), Frame::Ping(3)], None, "open |  | Ping(2)"),
        ("the answer to one of ours does not", vec![Frame::Ping(3)], None, "open |  | nothing"),
        (
            "settings and windows say nothing",
            vec![Frame::Settings, Frame::WindowUpdate { stream: 3, bytes: 9 }, data(3, false, "a")],
            None,
            "open | a | nothing",
        ),
        (
            "a server opens nothing",
            vec![opens, data(2, true, "x"), data(3, false, "a")],
            None,
            "open | a | nothing",
        ),
        (
            "nothing comes after it has left",
            vec![data(3, false, "a"), away, data(3, false, "b")],
            None,
            "open | a | nothing",
        ),
        (
            "an end that ends all",
            vec![data(1, false, success), data(1, true, ""), data(3, false, "b")],
            Some(1),
            "open |  | nothing",
        ),
        (
            "no other ends before it",
            vec![data(3, true, "a"), data(3, false, "b"), data(1, true, "")],
            Some(1),
            "open | ab | nothing",
        ),
    ] {
        assert_eq!(received(&frames, ends_with).await, expect, "{name}");
    }
    let (frames, _sent) = mpsc::channel(1);
    for torn in [&b"\x80\x03\x00\x02\x00\x00"[..], b"\x00\x00\x00\x03\x00\x00\x00\xffhalf"] {
        assert!(receive(torn, &mut BTreeMap::new(), None, &frames).await.is_ok(), "cut off is an end");
    }
    assert!(receive(&b"HTTP/1.1 200 OK\r\n"[..], &mut BTreeMap::new(), None, &frames).await.is_ok());
    assert!(
        receive(
            &b"\x80\x02\x00\x01\x00\x00\x00\x04\x00\x00\x00\x01"[..],
            &mut BTreeMap::new(),
            None,
            &frames
        )
        .await
        .is_err(),
        "SPDY/2"
    );
}

#[test]
fn a_status_tells_the_exit_code_or_why_there_is_none() {
    let check = |text: &str, expect: Result<i32, &str>| {
        let found = exit_code(text.as_bytes()).map_err(|why| why.to_string());
        assert_eq!(found, expect.map_err(str::to_owned), "{text}");
    };
    let causes =
        |causes: &str| format!(r#"{{"status":"Failure","message":"ended","details":{{"causes":{causes}}}}}"#);
    check(r#"{"metadata":{},"status":"Success"}"#, Ok(0));
    check(&causes(r#"[{"reason":"ExitCode","message":"7"}]"#), Ok(7));
    check(&causes(r#"[{"reason":"Signal","message":"9"},{"reason":"ExitCode","message":"137"}]"#), Ok(137));
    check(&causes(r#"[{"reason":"ExitCode","message":"-1"}]"#), Ok(-1));
    for none in [
        r#"[{"reason":"ExitCode","message":7}]"#,
        r#"[{"reason":"ExitCode","message":"seven"}]"#,
        r#"[{"reason":"ExitCode","message":"4294967296"}]"#,
        r#"[{"reason":"ExitCode"}]"#,
        r#"[{"message":"7"}]"#,
        r#"{"reason":"ExitCode","message":"7"}"#,
        "[[]]",
        "null",
    ] {
        check(&causes(none), Err("ended"));
    }
    check(r#"{"status":"Failure","message":"no such file"}"#, Err("no such file"));
    check(
        r#"{"status":"Failure","message":"Internal error occurred: error executing command in container: no such file"}"#,
        Err("no such file"),
    );
    check(r#"{"status":"Failure"}"#, Err("the command failed"));
    check("[]", Err("the command failed"));
    check("", Err("the command's end was not reported"));
    check(r#"{"status":"Success"} {}"#, Err("the command's end was not reported"));
}

/// Source: `TestValidateExecAttachRequest`: a terminal has no stderr of its own.
#[test]
fn what_is_wished_for_is_asked_for_and_a_terminal_has_no_stderr() {
    for bits in 0..16_u8 {
        let [stdin, stdout, stderr, tty] = [1, 2, 4, 8].map(|bit| bits & bit != 0);
        let expect = (stdin, stdout, stderr && !tty, tty);
        let exec = v1::ExecRequest { stdin, stdout, stderr, tty, ..Default::default() };
        let attach = v1::AttachRequest { stdin, stdout, stderr, tty, ..Default::default() };
        for wishes in [Wishes::of_exec(&exec), Wishes::of_attach(&attach)] {
            assert_eq!((wishes.stdin, wishes.stdout, wishes.stderr, wishes.tty), expect);
        }
    }
}
