use bytes::Bytes;
use futures::{SinkExt, StreamExt};
use serde_json::Value;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::Role;

use super::websocket::{CLOSE, Framing, RESULT, STDIN, STDOUT, converse};
use super::*;

const WISHES: Wishes = Wishes { stdin: true, stdout: true, stderr: false, tty: false };
/// More than all buffers on the way together.
const MUCH: usize = 2 << 20;

/// A process that echoes its stdin and ends with code 3 when stdin closes.
fn process() -> (Streams, impl Future<Output = ()>) {
    let (stdin, mut process_in) = tokio::io::duplex(1024);
    let (mut process_out, stdout) = tokio::io::duplex(1024);
    let (exit_sender, exit) = tokio::sync::oneshot::channel();
    let streams = Streams {
        stdin: Some(Box::new(stdin)),
        stdout: Some(Box::new(stdout)),
        stderr: None,
        resize: None,
        exit: Box::pin(async { exit.await.map_err(|_| cri::NoExitCode::Unreported) }),
    };
    let running = async move {
        tokio::io::copy(&mut process_in, &mut process_out).await.unwrap();
        drop(process_out);
        // Nobody asks a process how it ended whose client has left.
        exit_sender.send(3).unwrap_or(());
    };
    (streams, running)
}

/// What a client of `protocol` sees that sends `input` and closes stdin if it can, or else leaves.
async fn check(protocol: &'static str, input: Vec<u8>) -> (Vec<u8>, Value) {
    let framing = Framing::of(protocol);
    let (client, server) = tokio::io::duplex(64 * 1024);
    let (streams, running) = process();
    let serving = async {
        let start = async { Ok(streams) };
        converse(server, framing, WISHES, start, Ending::ExitCode).await
    };
    let user = async {
        let (mut sink, mut source) =
            WebSocketStream::from_raw_socket(client, Role::Client, None).await.split();
        let expected = input.len();
        let sending = async {
            for piece in input.chunks(10_000) {
                sink.send(framing.message(STDIN, piece)).await.unwrap();
            }
            if protocol.starts_with("v5") {
                sink.send(framing.message(CLOSE, &[STDIN])).await.unwrap();
            }
        };
        let receiving = async {
            let (mut output, mut result) = (Vec::new(), Value::Null);
            while let Some(Ok(message)) = source.next().await {
                match framing.content(message) {
                    Some((STDOUT, data)) => output.extend_from_slice(&data),
                    Some((RESULT, data)) => result = serde_json::from_slice(&data).unwrap(),
                    _ => {}
                }
                if !protocol.starts_with("v5") && output.len() == expected {
                    break;
                }
            }
            (output, result)
        };
        tokio::join!(sending, receiving).1
    };
    let (_, _, seen) = futures::future::join3(running, serving, user).await;
    seen
}

#[tokio::test]
async fn a_client_sees_output_and_exit_code_after_closing_stdin() {
    let (output, result) = check("v5.channel.k8s.io", b"hello".to_vec()).await;
    assert_eq!(output, b"hello");
    assert_eq!(result["reason"], "NonZeroExitCode");
    assert_eq!(result["details"]["causes"][0]["message"], "3");
}

#[tokio::test]
async fn a_process_that_writes_while_it_reads_holds_nothing_up() {
    let (output, _) = check("v5.channel.k8s.io", vec![7; MUCH]).await;
    assert_eq!(output.len(), MUCH);
}

#[tokio::test]
async fn browsers_get_text() {
    let (output, _) = check("v4.base64.channel.k8s.io", b"hello".to_vec()).await;
    assert_eq!(output, b"hello");
}

/// The same over SPDY, with frames made by hand.
#[tokio::test]
async fn older_clients_see_output_and_exit_code_over_spdy() {
    let (client, server) = tokio::io::duplex(64 * 1024);
    let (streams, running) = process();
    let serving = spdy::serve(server, |opened| {
        let start = async { Ok(streams) };
        multiplexed::converse(opened, "v4.channel.k8s.io", WISHES, start, Ending::ExitCode)
    });
    let user = async {
        let (mut from, mut to) = tokio::io::split(client);
        let sending = async {
            let mut encoder = spdy::Encoder::default();
            let mut out = bytes::BytesMut::new();
            for (stream, kind) in [(1, "error"), (3, "stdin"), (5, "stdout")] {
                let headers = vec![("streamtype".to_owned(), kind.to_owned())];
                encoder.encode(&spdy::Frame::SynStream { stream, fin: false, headers }, &mut out).unwrap();
            }
            let bytes = Bytes::from(vec![7; MUCH]);
            encoder.encode(&spdy::Frame::Data { stream: 3, fin: true, bytes }, &mut out).unwrap();
            tokio::io::AsyncWriteExt::write_all(&mut to, &out).await.unwrap();
        };
        let receiving = async {
            let mut decoder = spdy::Decoder::default();
            let (mut output, mut result) = (0, Vec::new());
            while tokio::io::AsyncReadExt::read_buf(&mut from, decoder.buffer()).await.unwrap() > 0 {
                while let Some(frame) = decoder.next().unwrap() {
                    match frame {
                        spdy::Frame::Data { stream: 5, bytes, .. } => output += bytes.len(),
                        spdy::Frame::Data { stream: 1, bytes, .. } => result.extend_from_slice(&bytes),
                        _ => {}
                    }
                }
            }
            (output, serde_json::from_slice::<Value>(&result).unwrap())
        };
        tokio::join!(sending, receiving).1
    };
    let (_, served, (output, result)) = futures::future::join3(running, serving, user).await;
    served.unwrap();
    assert_eq!(output, MUCH);
    assert_eq!(result["details"]["causes"][0]["message"], "3");
}

#[test]
fn a_channel_is_read_from_text_and_from_binary_alike() {
    for protocol in ["v5.channel.k8s.io", "base64.channel.k8s.io"] {
        let framing = Framing::of(protocol);
        let sent = framing.message(STDIN, b"typed").into_data();
        for message in
            [Message::text(String::from_utf8_lossy(&sent).into_owned()), Message::Binary(sent.clone())]
        {
            assert_eq!(framing.content(message), Some((STDIN, "typed".into())), "{protocol}");
        }
        assert_eq!(framing.content(Message::text("")), None);
    }
}
