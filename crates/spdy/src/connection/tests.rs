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
