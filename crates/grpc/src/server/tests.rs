use tonic::Code;
use tonic::transport::Channel;

use super::*;

const LIMIT: Option<Duration> = Some(Duration::from_secs(30));

/// Answers at once; at `/wait`, it says that the call has begun and answers when it is let to.
struct Waiting {
    begun: Arc<Semaphore>,
    may_end: Arc<Semaphore>,
}

impl Router for Waiting {
    fn answer(&self, path: &str, request: Asked) -> BoxFuture<'static, Answer> {
        let (waits, begun, may_end) = (path == "/wait", self.begun.clone(), self.may_end.clone());
        unary(request, move |(): ()| {
            async move {
                if waits {
                    begun.add_permits(1);
                    drop(may_end.acquire().await);
                }
                Ok::<(), Status>(())
            }
            .boxed()
        })
    }
}

/// A server with room for two.
struct Server {
    socket: std::path::PathBuf,
    begun: Arc<Semaphore>,
    may_end: Arc<Semaphore>,
    tasks: Tasks,
}

fn server(folder: &tempfile::TempDir) -> Server {
    let socket = folder.path().join("server.sock");
    let (begun, may_end, tasks) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)), Tasks::new());
    let router = Arc::new(Waiting { begun: begun.clone(), may_end: may_end.clone() });
    let listener = crate::bind(&socket).unwrap();
    tasks.spawn("server", serve_at_most(2, listener, "test", router, tasks.clone()));
    Server { socket, begun, may_end, tasks }
}

async fn ask(channel: &Channel, path: &'static str) -> Result<(), Code> {
    crate::call::<(), ()>(channel, path, (), LIMIT).await.map_err(|status| status.code())
}

#[tokio::test]
async fn as_many_clients_are_answered_as_come_and_stay_open() {
    let folder = tempfile::tempdir().unwrap();
    let Server { socket, tasks, .. } = server(&folder);
    let channels: Vec<Channel> = (0..20).map(|_| crate::channel(&socket)).collect();
    for channel in &channels {
        assert_eq!(ask(channel, "/now").await, Ok(()));
    }
    // One that says nothing takes nobody's place for good either.
    let _silent: Vec<_> = (0..5).map(|_| crate::socket::connect(&socket).unwrap()).collect();
    assert_eq!(ask(&crate::channel(&socket), "/now").await, Ok(()));
    tasks.stop_and_wait().await;
}

#[tokio::test]
async fn calls_that_run_are_not_cut_off_and_who_finds_no_room_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let Server { socket, begun, may_end, tasks } = server(&folder);
    let busy = [crate::channel(&socket), crate::channel(&socket)];
    let calls = busy.map(|channel| tokio::spawn(async move { ask(&channel, "/wait").await }));
    drop(begun.acquire_many(2).await);
    for _ in 0..3 {
        let refused = ask(&crate::channel(&socket), "/now").await;
        assert!(matches!(refused, Err(Code::ResourceExhausted | Code::Unavailable)), "{refused:?}");
    }
    may_end.add_permits(2);
    for call in calls {
        assert_eq!(call.await.unwrap(), Ok(()));
    }
    assert_eq!(ask(&crate::channel(&socket), "/now").await, Ok(()));
    tasks.stop_and_wait().await;
}

/// Rooms of two: who comes, calls, ends and leaves, and who is told to go.
#[test]
fn the_one_that_has_been_idle_for_longest_makes_room() {
    let connections = Arc::new(Connections::default());
    let admit = || connections.admit(2).0;
    let leaving = || {
        let known = connections.lock();
        known.open.iter().filter(|(_, it)| it.is_leaving).map(|(id, _)| *id).collect::<Vec<_>>()
    };
    let (one, two) = (admit().unwrap(), admit().unwrap());
    assert_eq!(leaving(), [0; 0]);
    // One has asked something since it came, two has not.
    drop(Call::begin(&connections, one));
    let three = admit().unwrap();
    assert_eq!(leaving(), [two]);
    // Who is on its way out takes no room, also while it still answers.
    let last = Call::begin(&connections, two);
    let running = [Call::begin(&connections, one), Call::begin(&connections, three)];
    assert_eq!(admit(), None, "both are busy");
    drop(running);
    let four = admit().unwrap();
    assert_eq!(leaving(), [one, two], "it was idle before the other");
    drop(last);
    for id in [one, two] {
        connections.forget(id);
    }
    assert!(!connections.is_busy(two) && !connections.is_busy(99));
    let busy = Call::begin(&connections, three);
    assert!(connections.is_busy(three));
    assert!(admit().is_some());
    assert_eq!(leaving(), [four], "who is busy stays, however long it has been there");
    drop(busy);
    // A call of a connection that is forgotten counts nowhere.
    drop(Call::begin(&connections, one));
    assert!(!connections.is_busy(one));
}

#[tokio::test]
async fn two_calls_at_once_keep_a_connection_busy_until_both_have_ended() {
    let connections = Arc::new(Connections::default());
    let id = connections.admit(1).0.unwrap();
    let (first, second) = (Call::begin(&connections, id), Call::begin(&connections, id));
    drop(first);
    assert!(connections.is_busy(id));
    let (refused, close) = connections.admit(1);
    assert_eq!(refused, None);
    // It is told to go at once.
    close.notified().await;
    drop(second);
    assert!(!connections.is_busy(id) && connections.admit(1).0.is_some());
}

/// What a router makes of requests of every kind.
struct Odd;

impl Router for Odd {
    fn answer(&self, path: &str, request: Asked) -> BoxFuture<'static, Answer> {
        match path {
            "/odd/echo" => unary(request, |text: String| async move { Ok::<String, Status>(text) }.boxed()),
            "/odd/double" => {
                unary(request, |text: String| async move { Ok::<String, Status>(text.repeat(2)) }.boxed())
            }
            "/odd/refuse" => unary(request, |(): ()| {
                async { Err::<(), Status>(Status::failed_precondition("not\nnow")) }.boxed()
            }),
            "/odd/panic" => {
                unary(request, |(): ()| async { Err::<(), Status>(Vec::new().remove(0)) }.boxed())
            }
            "/odd/never" => unary(request, |(): ()| std::future::pending::<Result<(), Status>>().boxed()),
            _ => unknown(path),
        }
    }
}

fn odd(folder: &tempfile::TempDir) -> (std::path::PathBuf, Tasks) {
    let (socket, tasks) = (folder.path().join("odd.sock"), Tasks::new());
    let listener = crate::bind(&socket).unwrap();
    tasks.spawn("server", serve(listener, "test", Arc::new(Odd), tasks.clone()));
    (socket, tasks)
}

#[tokio::test]
async fn calls_end_with_what_became_of_them() {
    let folder = tempfile::tempdir().unwrap();
    let (socket, tasks) = odd(&folder);
    let channel = crate::channel(&socket);
    let echo = |text: String| crate::call::<String, String>(&channel, "/odd/echo", text, LIMIT);
    assert_eq!(echo("a".into()).await.unwrap(), "a");
    let large = "x".repeat(1 << 20);
    assert_eq!(echo(large.clone()).await.unwrap(), large);
    let told = |path: &'static str, limit| {
        let channel = channel.clone();
        async move {
            let status = crate::call::<(), ()>(&channel, path, (), limit).await.unwrap_err();
            (status.code(), status.message().to_owned())
        }
    };
    assert_eq!(told("/odd/refuse", LIMIT).await, (Code::FailedPrecondition, "not\nnow".into()));
    assert_eq!(
        told("/odd/nothing", LIMIT).await,
        (Code::Unimplemented, "unknown method /odd/nothing".into())
    );
    assert_eq!(told("/", LIMIT).await, (Code::Unimplemented, "unknown method /".into()));
    let (code, message) = told("/odd/panic", LIMIT).await;
    assert_eq!(code, Code::Internal, "{message}");
    let soon = Some(Duration::from_millis(1));
    assert_eq!(told("/odd/never", soon).await, (Code::DeadlineExceeded, "context deadline exceeded".into()));
    // The connection is as good as it was.
    assert_eq!(echo("b".into()).await.unwrap(), "b");
    tasks.stop_and_wait().await;
}

#[tokio::test]
async fn a_message_that_is_too_large_is_refused_by_whoever_sends_it() {
    let folder = tempfile::tempdir().unwrap();
    let (socket, tasks) = odd(&folder);
    let channel = crate::channel(&socket);
    let told = async |path: &'static str, text: String| {
        let status = crate::call::<String, String>(&channel, path, text, LIMIT).await.unwrap_err();
        (status.code(), status.message().to_owned())
    };
    let (code, text) = told("/odd/echo", "x".repeat(MESSAGE_BYTES_MAX)).await;
    assert_eq!(code, Code::ResourceExhausted);
    assert_eq!(text, "trying to send message larger than max (16777221 vs. 16777216)");
    let (code, text) = told("/odd/double", "x".repeat(MESSAGE_BYTES_MAX - 16)).await;
    assert_eq!(code, Code::OutOfRange, "{text}");
    tasks.stop_and_wait().await;
}

#[tokio::test]
async fn clients_that_do_not_speak_it_harm_nobody() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let folder = tempfile::tempdir().unwrap();
    let (socket, tasks) = odd(&folder);
    for bytes in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff\xff\xff",
        b"\0",
        &[0xff; 4096],
    ] {
        let mut client = crate::socket::connect(&socket).unwrap();
        client.write_all(bytes).await.unwrap();
        client.shutdown().await.unwrap();
        // Whatever is answered, the connection ends.
        let mut answer = Vec::new();
        drop(client.read_to_end(&mut answer).await);
    }
    let channel = crate::channel(&socket);
    assert_eq!(crate::call::<String, String>(&channel, "/odd/echo", "a".into(), LIMIT).await.unwrap(), "a");
    tasks.stop_and_wait().await;
}

#[tokio::test]
async fn a_server_that_comes_back_is_found_by_the_channel_that_there_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("odd.sock");
    let channel = crate::channel(&path);
    let echo = || crate::call::<String, String>(&channel, "/odd/echo", "a".into(), LIMIT);
    let nobody = echo().await.unwrap_err();
    assert_eq!(nobody.code(), Code::Unavailable, "{nobody}");
    for _ in 0..2 {
        let (_, tasks) = odd(&folder);
        // The end of the last one may be seen by the first call only.
        if echo().await.is_err() {
            assert_eq!(echo().await.unwrap(), "a");
        }
        tasks.stop_and_wait().await;
    }
}
