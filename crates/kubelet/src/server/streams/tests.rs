use super::*;

/// A conversation with a process that echoes its stdin and ends with code 3 when stdin closes.
#[tokio::test]
async fn a_client_sees_output_and_exit_code_after_closing_stdin() {
    let (client, server) = tokio::io::duplex(64 * 1024);
    let (stdin, process_in) = tokio::io::duplex(1024);
    let (mut process_out, stdout) = tokio::io::duplex(1024);
    let (exit_sender, exit) = tokio::sync::oneshot::channel();
    let streams = Streams {
        stdin: Some(Box::new(stdin)),
        stdout: Some(Box::new(stdout)),
        stderr: None,
        resize: None,
        exit,
    };
    let process = async move {
        let mut process_in = process_in;
        tokio::io::copy(&mut process_in, &mut process_out).await.unwrap();
        drop(process_out);
        exit_sender.send(3).unwrap();
    };
    let serving = async {
        let socket = WebSocketStream::from_raw_socket(server, Role::Server, None).await;
        converse(socket, Ok(streams), true, Ending::ExitCode).await
    };
    let user = async {
        let mut socket = WebSocketStream::from_raw_socket(client, Role::Client, None).await;
        socket.send(frame(STDIN, b"hello")).await.unwrap();
        socket.send(frame(CLOSE, &[STDIN])).await.unwrap();
        let (mut output, mut result) = (Vec::new(), Value::Null);
        while let Some(Ok(message)) = socket.next().await {
            let Message::Binary(data) = message else { continue };
            match data[0] {
                STDOUT => output.extend_from_slice(&data[1..]),
                RESULT => result = serde_json::from_slice(&data[1..]).unwrap(),
                _ => {}
            }
        }
        (output, result)
    };
    let ((), _, (output, result)) = futures::future::join3(process, serving, user).await;
    assert_eq!(output, b"hello");
    assert_eq!(result["reason"], "NonZeroExitCode");
    assert_eq!(result["details"]["causes"][0]["message"], "3");
}
