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
    assert!(ask(&crate::channel(&socket), "/now").await.is_err(), "nobody is idle");
    may_end.add_permits(2);
    for call in calls {
        assert_eq!(call.await.unwrap(), Ok(()));
    }
    assert_eq!(ask(&crate::channel(&socket), "/now").await, Ok(()));
    tasks.stop_and_wait().await;
}
