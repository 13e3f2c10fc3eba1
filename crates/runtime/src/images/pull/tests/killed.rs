//! kill -9 in the middle of a pull, of a process that does nothing else: this program once more.

use super::*;

const NAME: &str = "images::pull::tests::killed::a_pull_that_is_killed_leaves_nothing_half_usable";
const FOLDER: &str = "KNARR_TEST_PULL_INTO";
const IMAGE: &str = "KNARR_TEST_PULL";
const LAYER_BYTES: usize = 8 << 20;
/// How often one may end before it is seen to have begun.
const MISSES_MAX: usize = 50;

async fn pull_until_killed(folder: &Path) {
    let store = Arc::new(ImageStore::open(&folder.join("images")).unwrap());
    let (puller, _tasks) = Node::puller(folder, &store);
    let credentials = Credentials::from_parts("knarr", "secret", "", "", "").unwrap();
    puller.pull(&std::env::var(IMAGE).unwrap(), credentials, |_| {}).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pull_that_is_killed_leaves_nothing_half_usable() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        return pull_until_killed(Path::new(&folder)).await;
    }
    let server = Server::start();
    let authority = format!("localhost:{}", server.address.port());
    server.put(&TestImage::new("x", LAYER_BYTES, OCI));
    let image = format!("{authority}/x:1");
    // While layers come, and while the first is unpacked.
    let (mut stages, mut missed) = (["downloads", "tmp"].into_iter().peekable(), 0);
    while let Some(stage) = stages.peek().copied() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("registries.yaml"), server.settings(&authority)).unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", NAME])
            .env(FOLDER, dir.path())
            .env(IMAGE, &image)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let began = std::time::Instant::now();
        let has_begun = || {
            let mut entries =
                fs::read_dir(dir.path().join("images").join(stage)).into_iter().flatten().flatten();
            entries.any(|entry| stage != "downloads" || entry.metadata().is_ok_and(|it| it.len() > 0))
        };
        while !has_begun() && child.try_wait().unwrap().is_none() {
            assert!(began.elapsed() < DEADLINE, "{stage}");
            std::thread::yield_now();
        }
        child.kill().unwrap();
        if child.wait().unwrap().code().is_some() {
            // A busy machine let it end before it looked: once more.
            missed += 1;
            assert!(missed < MISSES_MAX, "it ends before it is killed, in {stage}");
            continue;
        }
        stages.next();
        let node = Node::open(dir);
        assert_eq!((node.store.list().len(), node.left()), (0, Vec::new()), "killed in {stage}");
        let pulled = node.pull(&image, "secret").await.unwrap();
        for n in 0..3 {
            assert!(node.file(&pulled, &format!("file-{n}")) == noise(LAYER_BYTES, n), "file {n}");
        }
        assert_eq!(node.left(), Vec::<String>::new(), "killed in {stage}");
    }
}
