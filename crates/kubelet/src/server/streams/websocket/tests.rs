//! How channels are carried, and what becomes of what clients send: `conn_test.go`, `stream_test.go` of upstream's
//! `wsstream`, `server_websocket_test.go` of its kubelet.

use tokio::io::AsyncReadExt;

use super::*;

#[test]
fn a_message_has_its_channel_before_its_content() {
    for (protocol, channel, data, expect) in [
        ("v5.channel.k8s.io", 1, &b"abc"[..], Message::binary(b"\x01abc".to_vec())),
        ("v5.channel.k8s.io", 255, &b"\x00"[..], Message::binary(vec![255, 0])),
        ("channel.k8s.io", 0, b"", Message::binary(vec![0])),
        ("base64.channel.k8s.io", 1, b"abc", Message::text("1YWJj")),
        ("v4.base64.channel.k8s.io", 3, b"", Message::text("3")),
        ("base64.channel.k8s.io", 2, b"\xff\x00", Message::text("2/wA=")),
    ] {
        assert_eq!(Framing::of(protocol).message(channel, data), expect, "{protocol} {channel}");
    }
}

#[test]
fn what_clients_send_is_read_as_the_protocol_says() {
    let found = |protocol: &'static str, message: Message| {
        Framing::of(protocol).content(message).map(|(channel, content)| (channel, content.to_vec()))
    };
    let plain = "v4.channel.k8s.io";
    let base64 = "v4.base64.channel.k8s.io";
    for (protocol, bytes, expect) in [
        (plain, &b"\x00abc"[..], Some((0, &b"abc"[..]))),
        (plain, b"\x04", Some((4, b""))),
        (plain, b"\xff\x00", Some((255, b"\x00"))),
        (plain, b"", None),
        (base64, b"0YWJj", Some((0, b"abc"))),
        (base64, b"4", Some((4, b""))),
        (base64, b"", None),
        (base64, b"xYWJj", None),
        (base64, b"\x00YWJj", None),
        (base64, b"0not base64!", None),
        (base64, b"0YWJ", None),
        (base64, b"0YQ=", None),
    ] {
        let expect = expect.map(|(channel, content)| (channel, content.to_vec()));
        assert_eq!(found(protocol, Message::binary(bytes.to_vec())), expect, "{protocol} {bytes:?}");
        // Some send what is typed as text.
        if let Ok(text) = std::str::from_utf8(bytes) {
            assert_eq!(found(protocol, Message::text(text)), expect, "{protocol} {text:?}");
        }
    }
    for message in [Message::Ping(Bytes::from("x")), Message::Pong(Bytes::from("x")), Message::Close(None)] {
        assert_eq!(found(plain, message), None);
    }
}

#[test]
fn every_message_is_read_again() {
    for protocol in ["channel.k8s.io", "base64.channel.k8s.io"] {
        let framing = Framing::of(protocol);
        for channel in 0..5 {
            for data in [&b""[..], b"x", b"\x00\xff\n", &[7; 1000]] {
                let (again, content) = framing.content(framing.message(channel, data)).unwrap();
                assert_eq!((again, &content[..]), (channel, data), "{protocol}");
            }
        }
    }
}

#[test]
fn a_terminal_has_two_sides() {
    for (text, expect) in [
        (r#"{"Width": 80, "Height": 24}"#, Some((80, 24))),
        (r#"{"Height": 0, "Width": 65535}"#, Some((65535, 0))),
        (r#"{"Width": 80, "Height": 24, "Depth": 3}"#, Some((80, 24))),
        (r#"{"width": 80, "height": 24}"#, None),
        (r#"{"Width": 80}"#, None),
        (r#"{"Width": 65536, "Height": 24}"#, None),
        (r#"{"Width": -1, "Height": 24}"#, None),
        (r#"{"Width": "80", "Height": 24}"#, None),
        (r#"{"Width": 80.5, "Height": 24}"#, None),
        ("[80, 24]", None),
        ("null", None),
    ] {
        let size: Value = serde_json::from_str(text).unwrap();
        assert_eq!(terminal_size(&size), expect, "{text}");
    }
}

/// What a process reads of these frames, the sizes that it is told, and whether its stdin was closed.
async fn taken(frames: &[(u8, &[u8])]) -> (Vec<u8>, Vec<(u16, u16)>, bool) {
    let (ours, mut theirs) = tokio::io::duplex(1024);
    let (sizes, mut told) = mpsc::channel(8);
    let mut stdin: Stdin = Some(Box::new(ours));
    let mut resize = Some(sizes);
    for (channel, content) in frames {
        incoming(*channel, content, &mut stdin, &mut resize).await;
    }
    let is_closed = stdin.is_none();
    drop((stdin, resize));
    let mut read = Vec::new();
    theirs.read_to_end(&mut read).await.unwrap();
    let mut all = Vec::new();
    while let Some(size) = told.recv().await {
        all.push(size);
    }
    (read, all, is_closed)
}

#[tokio::test]
async fn frames_reach_whom_they_are_for() {
    let size = br#"{"Width": 80, "Height": 24}"#;
    for (name, frames, read, sizes, is_closed) in [
        ("nothing", &[][..], &b""[..], &[][..], false),
        ("two pieces", &[(STDIN, &b"ab"[..]), (STDIN, b"c")], b"abc", &[], false),
        ("an empty piece", &[(STDIN, b""), (STDIN, b"a")], b"a", &[], false),
        ("the end", &[(STDIN, b"a"), (CLOSE, &[STDIN]), (STDIN, b"b")], b"a", &[], true),
        ("the end of something else", &[(CLOSE, &[STDOUT]), (STDIN, b"b")], b"b", &[], false),
        ("the end of more than one", &[(CLOSE, &[STDIN, STDOUT]), (STDIN, b"b")], b"b", &[], false),
        ("a size", &[(RESIZE, size), (STDIN, b"a")], b"a", &[(80, 24)], false),
        ("a size that is none", &[(RESIZE, b"{"), (RESIZE, b""), (RESIZE, size)], b"", &[(80, 24)], false),
        ("what only we send", &[(STDOUT, b"x"), (STDERR, b"x"), (RESULT, b"x"), (77, b"x")], b"", &[], false),
    ] {
        let found = taken(frames).await;
        assert_eq!(found, (read.to_vec(), sizes.to_vec(), is_closed), "{name}");
    }
}

#[tokio::test]
async fn a_process_that_does_not_read_any_more_keeps_nobody_waiting() {
    let (ours, theirs) = tokio::io::duplex(16);
    drop(theirs);
    let mut stdin: Stdin = Some(Box::new(ours));
    incoming(STDIN, b"abc", &mut stdin, &mut None).await;
    assert!(stdin.is_none());
    incoming(STDIN, b"abc", &mut stdin, &mut None).await;
    incoming(RESIZE, br#"{"Width": 80, "Height": 24}"#, &mut stdin, &mut None).await;
    let (sizes, told) = mpsc::channel(1);
    drop(told);
    incoming(RESIZE, br#"{"Width": 80, "Height": 24}"#, &mut stdin, &mut Some(sizes)).await;
}
