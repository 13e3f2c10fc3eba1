use tokio::io::DuplexStream;

use super::*;

/// A client that speaks frames.
struct Client {
    io: DuplexStream,
    encoder: Encoder,
    decoder: Decoder,
}

impl Client {
    async fn send(&mut self, frame: Frame) {
        let mut out = BytesMut::new();
        self.encoder.encode(&frame, &mut out).unwrap();
        self.io.write_all(&out).await.unwrap();
    }

    async fn open(&mut self, stream: u32, kind: &str) {
        let headers = vec![("streamtype".to_owned(), kind.to_owned())];
        self.send(Frame::SynStream { stream, fin: false, headers }).await;
        let reply = Frame::SynReply { stream, fin: false, headers: Headers::new() };
        assert_eq!(self.next().await, Some(reply));
    }

    async fn data(&mut self, stream: u32, content: &[u8], fin: bool) {
        self.send(Frame::Data { stream, fin, bytes: Bytes::copy_from_slice(content) }).await;
    }

    async fn next(&mut self) -> Option<Frame> {
        loop {
            if let Some(frame) = self.decoder.next().unwrap() {
                return Some(frame);
            }
            if read(&mut self.io, self.decoder.buffer()).await.unwrap() == 0 {
                return None;
            }
        }
    }
}

/// Runs a client against a server that sends back, in capitals, what comes on each stream, and ends with stream 99.
async fn check<F: Future<Output = ()>>(client: impl FnOnce(Client) -> F) {
    let (ours, theirs) = tokio::io::duplex(1 << 20);
    let serving = serve(theirs, |mut streams| async move {
        let mut last = None;
        while let Some(mut stream) = streams.recv().await {
            if stream.id == 99 {
                last = Some(stream);
                break;
            }
            while let Ok(Some(bytes)) = stream.reader.next().await {
                stream.writer.send(bytes.to_ascii_uppercase().into()).await.unwrap();
            }
            let _ended = stream.writer.finish().await;
        }
        if let Some(last) = last {
            last.writer.send(Bytes::from_static(b"bye")).await.unwrap();
            last.writer.finish().await.unwrap();
        }
    });
    let client = client(Client { io: ours, encoder: Encoder::default(), decoder: Decoder::default() });
    let (served, ()) = tokio::join!(serving, client);
    served.unwrap();
}

fn data(stream: u32, content: &'static [u8], fin: bool) -> Option<Frame> {
    Some(Frame::Data { stream, fin, bytes: Bytes::from_static(content) })
}

#[tokio::test]
async fn content_goes_both_ways_and_each_half_ends_by_itself() {
    check(|mut client| async move {
        client.open(1, "data").await;
        client.data(1, b"hello", false).await;
        assert_eq!(client.next().await, data(1, b"HELLO", false));
        client.data(1, b"again", true).await;
        assert_eq!(client.next().await, data(1, b"AGAIN", false));
        assert_eq!(client.next().await, data(1, b"", true));
    })
    .await;
}

#[tokio::test]
async fn everything_sent_is_delivered_before_the_server_leaves() {
    check(|mut client| async move {
        client.open(99, "last").await;
        assert_eq!(client.next().await, data(99, b"bye", false));
        assert_eq!(client.next().await, data(99, b"", true));
        assert_eq!(client.next().await, Some(Frame::GoAway { last_stream: 0, status: 0 }));
        assert_eq!(client.next().await, None);
    })
    .await;
}

#[tokio::test]
async fn a_reset_stream_is_over_and_others_go_on() {
    check(|mut client| async move {
        client.open(1, "data").await;
        client.send(Frame::Reset { stream: 1, status: 5 }).await;
        client.open(3, "data").await;
        client.data(3, b"x", true).await;
        assert_eq!(client.next().await, data(3, b"X", false));
        assert_eq!(client.next().await, data(3, b"", true));
    })
    .await;
}

#[tokio::test]
async fn pings_are_answered_and_wrong_stream_numbers_reset() {
    check(|mut client| async move {
        client.send(Frame::Ping(3)).await;
        client.send(Frame::Ping(4)).await;
        client.send(Frame::SynStream { stream: 2, fin: false, headers: Headers::new() }).await;
        assert_eq!(client.next().await, Some(Frame::Ping(3)));
        let refused = Frame::Reset { stream: 2, status: reset::PROTOCOL_ERROR };
        assert_eq!(client.next().await, Some(refused));
    })
    .await;
}

#[tokio::test]
async fn streams_without_number_are_bounded() {
    let (ours, theirs) = tokio::io::duplex(1 << 20);
    let serving = serve(theirs, |mut streams| async move {
        let mut kept = Vec::new();
        while let Some(stream) = streams.recv().await {
            kept.push(stream);
        }
    });
    let client = async {
        let mut client = Client { io: ours, encoder: Encoder::default(), decoder: Decoder::default() };
        let streams = u32::try_from(STREAMS_MAX).unwrap();
        for number in 0..streams {
            client.open(number * 2 + 1, "data").await;
        }
        let stream = streams * 2 + 1;
        client.send(Frame::SynStream { stream, fin: false, headers: Headers::new() }).await;
        let refused = Frame::Reset { stream, status: reset::REFUSED_STREAM };
        assert_eq!(client.next().await, Some(refused));
    };
    let (served, ()) = tokio::join!(serving, client);
    assert!(served.unwrap().is_none(), "the client left first");
}

/// Runs a client against `work`.
async fn with<F, C, T>(
    work: impl FnOnce(mpsc::Receiver<Stream>) -> F,
    client: impl FnOnce(Client) -> C,
) -> Result<Option<T>, SpdyError>
where
    F: Future<Output = T>,
    C: Future<Output = ()>,
{
    let (ours, theirs) = tokio::io::duplex(1 << 20);
    let client = client(Client { io: ours, encoder: Encoder::default(), decoder: Decoder::default() });
    tokio::join!(serve(theirs, work), client).0
}

async fn all(reader: &mut StreamReader) -> Result<Vec<u8>, StreamReset> {
    let mut all = Vec::new();
    while let Some(piece) = reader.next().await? {
        all.extend_from_slice(&piece);
    }
    Ok(all)
}

#[tokio::test]
async fn numbers_of_streams_rise_and_are_odd() {
    check(|mut client| async move {
        client.open(5, "data").await;
        for stream in [0, 2, 3, 5, 6] {
            client.send(Frame::SynStream { stream, fin: false, headers: Headers::new() }).await;
            let refused = Frame::Reset { stream, status: reset::PROTOCOL_ERROR };
            assert_eq!(client.next().await, Some(refused), "stream {stream}");
        }
        client.data(5, b"x", true).await;
        assert_eq!(client.next().await, data(5, b"X", false), "the stream of that number goes on");
        assert_eq!(client.next().await, data(5, b"", true));
        client.open(7, "data").await;
    })
    .await;
}

#[tokio::test]
async fn what_belongs_to_no_stream_is_nobodys() {
    check(|mut client| async move {
        client.data(9, b"x", false).await;
        client.data(9, b"", true).await;
        client.send(Frame::Reset { stream: 9, status: 5 }).await;
        client.send(Frame::Headers { stream: 9, fin: true, headers: Headers::new() }).await;
        client.send(Frame::SynReply { stream: 9, fin: true, headers: Headers::new() }).await;
        client.send(Frame::WindowUpdate { stream: 9, bytes: 0 }).await;
        client.send(Frame::Settings).await;
        client.send(Frame::GoAway { last_stream: 0, status: 0 }).await;
        client.open(9, "data").await;
        client.data(9, b"y", true).await;
        assert_eq!(client.next().await, data(9, b"Y", false));
        assert_eq!(client.next().await, data(9, b"", true));
    })
    .await;
}

/// How the client can say that nothing more comes: with the stream, with content, with headers.
#[tokio::test]
async fn the_clients_half_ends_in_each_of_three_ways() {
    let work = |mut streams: mpsc::Receiver<Stream>| async move {
        let mut found = Vec::new();
        for _ in 0..3 {
            let mut stream = streams.recv().await.unwrap();
            assert_eq!(stream.header("streamtype"), Some("data"));
            assert_eq!(stream.header("port"), None);
            found.push(all(&mut stream.reader).await.unwrap());
            stream.writer.finish().await.unwrap();
        }
        found
    };
    let client = |mut client: Client| async move {
        let headers = vec![("streamtype".to_owned(), "data".to_owned())];
        client.send(Frame::SynStream { stream: 1, fin: true, headers }).await;
        client.data(1, b"too late", true).await;
        assert!(matches!(client.next().await, Some(Frame::SynReply { stream: 1, fin: false, .. })));
        assert_eq!(client.next().await, data(1, b"", true));
        client.open(3, "data").await;
        client.data(3, b"with content", true).await;
        client.data(3, b"too late", true).await;
        assert_eq!(client.next().await, data(3, b"", true));
        client.open(5, "data").await;
        client.data(5, b"with headers", false).await;
        client.send(Frame::Headers { stream: 5, fin: false, headers: Headers::new() }).await;
        client.data(5, b", after others", false).await;
        client.send(Frame::Headers { stream: 5, fin: true, headers: Headers::new() }).await;
        client.data(5, b"too late", true).await;
        assert_eq!(client.next().await, data(5, b"", true));
        assert_eq!(client.next().await, Some(Frame::GoAway { last_stream: 0, status: 0 }));
    };
    let found = with(work, client).await.unwrap().unwrap();
    assert_eq!(found, [&b""[..], b"with content", b"with headers, after others"]);
}

#[tokio::test]
async fn a_stream_that_the_server_resets_is_over_for_both() {
    let work = |mut streams: mpsc::Receiver<Stream>| async move {
        let first = streams.recv().await.unwrap();
        first.writer.reset().await.unwrap();
        let mut second = streams.recv().await.unwrap();
        assert_eq!(all(&mut second.reader).await.unwrap(), b"x");
        second.writer.finish().await.unwrap();
    };
    let client = |mut client: Client| async move {
        client.open(1, "data").await;
        assert_eq!(client.next().await, Some(Frame::Reset { stream: 1, status: reset::CANCEL }));
        client.data(1, b"too late", true).await;
        client.open(3, "data").await;
        client.data(3, b"x", true).await;
        assert_eq!(client.next().await, data(3, b"", true));
    };
    assert!(with(work, client).await.unwrap().is_some());
}

#[tokio::test]
async fn whoever_waits_on_a_stream_learns_that_it_was_reset() {
    let work = |mut streams: mpsc::Receiver<Stream>| async move {
        let mut stream = streams.recv().await.unwrap();
        assert_eq!(stream.reader.next().await, Ok(Some(Bytes::from_static(b"x"))));
        stream.writer.closed().await;
        assert_eq!(stream.reader.next().await, Err(StreamReset));
        assert_eq!(stream.writer.send(Bytes::from_static(b"y")).await, Err(StreamReset));
        assert_eq!(stream.writer.finish().await, Err(StreamReset));
    };
    let client = |mut client: Client| async move {
        client.open(1, "data").await;
        client.data(1, b"x", false).await;
        client.send(Frame::Reset { stream: 1, status: 5 }).await;
        assert_eq!(client.next().await, Some(Frame::GoAway { last_stream: 0, status: 0 }));
    };
    assert!(with(work, client).await.unwrap().is_some());
}

#[tokio::test]
async fn a_half_that_nobody_reads_holds_nothing_up() {
    let work = |mut streams: mpsc::Receiver<Stream>| async move {
        let Stream { reader, writer, .. } = streams.recv().await.unwrap();
        drop(reader);
        let mut second = streams.recv().await.unwrap();
        assert_eq!(all(&mut second.reader).await.unwrap(), b"x");
        writer.finish().await.unwrap();
        second.writer.finish().await.unwrap();
    };
    let client = |mut client: Client| async move {
        client.open(1, "data").await;
        for _ in 0..PIECES_MAX * 3 {
            client.data(1, b"nobody's", false).await;
        }
        client.open(3, "data").await;
        client.data(3, b"x", true).await;
        assert_eq!(client.next().await, data(1, b"", true));
        assert_eq!(client.next().await, data(3, b"", true));
    };
    assert!(with(work, client).await.unwrap().is_some());
}

#[tokio::test]
async fn streams_that_nobody_takes_are_refused() {
    let work = |streams: mpsc::Receiver<Stream>| async move {
        drop(streams);
        std::future::pending::<()>().await;
    };
    let client = |mut client: Client| async move {
        client.open(1, "data").await;
        let refused = Frame::Reset { stream: 1, status: reset::REFUSED_STREAM };
        assert_eq!(client.next().await, Some(refused));
    };
    assert_eq!(with(work, client).await.unwrap(), None, "the client left first");
}

#[tokio::test]
async fn what_is_no_frame_ends_the_connection() {
    for (name, bytes, expect) in [
        ("HTTP", &b"GET / HTTP/1.1\r\n\r\n"[..], None),
        ("another version", &[0x80, 2, 0, 6, 0, 0, 0, 4, 0, 0, 0, 1], Some("frame of SPDY version 2, not 3")),
        ("a short frame", &[0x80, 3, 0, 6, 0, 0, 0, 0], Some("malformed frame: it ends early")),
        (
            "a broken header block",
            &[0x80, 3, 0, 1, 0, 0, 0, 12, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, 1],
            Some("malformed header block: it cannot be decompressed"),
        ),
        ("half a frame", &[0x80, 3, 0, 6, 0, 0, 0, 4, 0], None),
    ] {
        let work =
            |mut streams: mpsc::Receiver<Stream>| async move { while streams.recv().await.is_some() {} };
        let client = |mut client: Client| async move { client.io.write_all(bytes).await.unwrap() };
        let served = with(work, client).await;
        assert_eq!(served.err().map(|error| error.to_string()).as_deref(), expect, "{name}");
    }
}

#[tokio::test]
async fn much_content_comes_whole_and_in_pieces() {
    let content: Vec<u8> = (0..DATA_BYTES_MAX * 2 + 5).map(|at| u8::try_from(at % 251).unwrap()).collect();
    let sent = Bytes::from(content.clone());
    let work = |mut streams: mpsc::Receiver<Stream>| async move {
        let stream = streams.recv().await.unwrap();
        stream.writer.send(Bytes::new()).await.unwrap();
        stream.writer.send(sent).await.unwrap();
        stream.writer.finish().await.unwrap();
    };
    let client = |mut client: Client| async move {
        client.open(1, "data").await;
        let mut found = Vec::new();
        loop {
            let Some(Frame::Data { stream: 1, fin, bytes }) = client.next().await else { panic!("data") };
            assert!(bytes.len() <= DATA_BYTES_MAX);
            found.extend_from_slice(&bytes);
            if fin {
                break;
            }
        }
        assert!(found == content);
    };
    assert!(with(work, client).await.unwrap().is_some());
}
