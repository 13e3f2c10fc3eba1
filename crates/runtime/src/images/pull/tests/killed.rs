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
        assert_eq!(node.store.list().len(), 0, "killed in {stage}");
        assert_eq!(fs::read_dir(node.store.root().join("tmp")).unwrap().count(), 0, "killed in {stage}");
        let pulled = node.pull(&image, "secret").await.unwrap();
        for n in 0..3 {
            assert!(node.file(&pulled, &format!("file-{n}")) == noise(LAYER_BYTES, n), "file {n}");
        }
        assert_eq!(node.left(), Vec::<String>::new(), "killed in {stage}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pull_that_is_killed_in_the_middle_of_a_layer_goes_on_there() {
    /// What is asked for beside the layers, and what was on its way to the disk.
    const BESIDE_BYTES: u64 = 1 << 20;
    if let Some(folder) = std::env::var_os(FOLDER) {
        return pull_until_killed(Path::new(&folder)).await;
    }
    let server = Server::start();
    let door = Door::before(server.address, u64::MAX);
    let authority = format!("localhost:{}", door.address.port());
    let test_image = TestImage::new("x", LAYER_BYTES, OCI);
    server.put(&test_image);
    let image = format!("{authority}/x:1");
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("registries.yaml"), server.settings(&authority)).unwrap();
    // Less than any two layers: none can be whole with all at work, and the pull waits for more.
    door.left.store(LAYER_BYTES as u64 * 3 / 4, Ordering::Relaxed);
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "images::pull::tests::killed::a_pull_that_is_killed_in_the_middle_of_a_layer_goes_on_there",
        ])
        .env(FOLDER, dir.path())
        .env(IMAGE, &image)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let downloaded = || -> u64 {
        let entries = fs::read_dir(dir.path().join("images").join(downloads::DIR)).into_iter().flatten();
        entries.flatten().filter_map(|entry| entry.metadata().ok()).map(|it| it.len()).sum()
    };
    let began = std::time::Instant::now();
    while downloaded() < LAYER_BYTES as u64 / 2 {
        assert!(began.elapsed() < DEADLINE && child.try_wait().unwrap().is_none(), "{}", downloaded());
        std::thread::yield_now();
    }
    child.kill().unwrap();
    assert_eq!(child.wait().unwrap().code(), None, "killed");
    let node = Node::open(dir);
    let (kept, before) = (node.downloaded(), door.passed.load(Ordering::Relaxed));
    assert!(kept >= LAYER_BYTES as u64 / 2, "{kept}");
    door.left.store(u64::MAX, Ordering::Relaxed);
    let pulled = node.pull(&image, "secret").await.unwrap();
    for n in 0..3 {
        assert!(node.file(&pulled, &format!("file-{n}")) == noise(LAYER_BYTES, n), "file {n}");
    }
    let whole: usize = test_image.layers.iter().map(|(_, blob)| blob.len()).sum();
    let came = door.passed.load(Ordering::Relaxed) - before;
    assert!(came + kept < whole as u64 + BESIDE_BYTES, "{came} bytes came for {whole}, {kept} were there");
    assert_eq!(node.left(), Vec::<String>::new());
}
