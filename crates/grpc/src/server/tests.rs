use tonic::Code;
use tonic::transport::Channel;

use super::*;

const LIMIT: Option<Duration> = Some(Duration::from_secs(30));

/// Answers at once, or when it is let to.
struct Waiting(Arc<Semaphore>);

impl Router for Waiting {
    fn answer(&self, path: &str, request: Asked) -> BoxFuture<'static, Answer> {
        let (waits, semaphore) = (path == "/wait", self.0.clone());
        unary(request, move |(): ()| {
            async move {
                if waits {
                    drop(semaphore.acquire().await);
                }
                Ok::<(), Status>(())
            }
            .boxed()
        })
    }
}

/// A server with room for two, and who lets waiting calls go on.
fn server(folder: &tempfile::TempDir) -> (std::path::PathBuf, Arc<Semaphore>, Tasks) {
    let socket = folder.path().join("server.sock");
    let (semaphore, tasks) = (Arc::new(Semaphore::new(0)), Tasks::new());
    let router = Arc::new(Waiting(semaphore.clone()));
    let listener = crate::bind(&socket).unwrap();
    tasks.spawn("server", serve_at_most(2, listener, "test", router, tasks.clone()));
    (socket, semaphore, tasks)
}

async fn ask(channel: &Channel, path: &'static str) -> Result<(), Code> {
    crate::call::<(), ()>(channel, path, (), LIMIT).await.map_err(|status| status.code())
}

#[tokio::test]
async fn as_many_clients_are_answered_as_come_and_stay_open() {
    let folder = tempfile::tempdir().unwrap();
    let (socket, _semaphore, tasks) = server(&folder);
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
    let (socket, semaphore, tasks) = server(&folder);
    let busy = [crate::channel(&socket), crate::channel(&socket)];
    let begun: Vec<_> =
        busy.clone().map(|channel| tokio::spawn(async move { ask(&channel, "/wait").await })).into();
    // When a call is refused, both are there.
    let late = crate::channel(&socket);
    while ask(&late, "/now").await.is_ok() {
        tokio::task::yield_now().await;
    }
    semaphore.add_permits(2);
    for call in begun {
        assert_eq!(call.await.unwrap(), Ok(()));
    }
    assert_eq!(ask(&crate::channel(&socket), "/now").await, Ok(()));
    tasks.stop_and_wait().await;
}
