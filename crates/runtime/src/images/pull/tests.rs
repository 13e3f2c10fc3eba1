//! Against Debian's `docker-registry`, on a port of loopback that the kernel chooses, with TLS and a password; behind it,
//! where a test wants that, a door that breaks connections off.

use std::io::{Cursor, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use base::{Clock, Random, Tasks};
use serde_json::json;

use super::*;

mod killed;
mod token;

const DEADLINE: Duration = Duration::from_secs(60);

/// A registry that lives as long as the test.
struct Server {
    child: Child,
    dir: tempfile::TempDir,
    address: SocketAddr,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

fn run(program: &str, arguments: &[&str], dir: &Path) -> Vec<u8> {
    let output = Command::new(program).args(arguments).current_dir(dir).output().unwrap();
    assert!(output.status.success(), "{program}: {output:?}");
    output.stdout
}

impl Server {
    /// With a certificate for `localhost`, and the user `knarr` with the password `secret`.
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let certificate = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -keyout key.pem \
            -out ca.pem -subj /CN=localhost -addext subjectAltName=DNS:localhost,IP:127.0.0.1 \
            -addext basicConstraints=critical,CA:FALSE";
        run("openssl", &certificate.split_whitespace().collect::<Vec<_>>(), dir.path());
        // bcrypt of `secret`: Apache's htpasswd is not needed for that.
        let users = "knarr:$2b$05$M5FHvbCQpnDB4mNNYpLhJe6IZ7PN.gYTDgxA/DviWzkt2/mBRIMp.\n";
        fs::write(dir.path().join("users"), users).unwrap();
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        let child = spawn(dir.path(), address);
        Self { child, dir, address }
    }

    /// Ends it and starts it again on the same port, with the same content.
    fn restart(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.child = spawn(self.dir.path(), self.address);
    }

    fn url(&self, path: &str) -> String {
        format!("https://localhost:{}{path}", self.address.port())
    }

    /// Uploads as any client would; curl knows how.
    fn put(&self, image: &TestImage) {
        for blob in image.layers.iter().map(|(_, blob)| blob).chain([&image.config]) {
            let digest = Digest::of(blob);
            fs::write(self.dir.path().join("blob"), blob).unwrap();
            let headers =
                self.curl(&["-X", "POST", "-D", "-", "-o", "x", &self.url(&image.path("blobs/uploads/"))]);
            let is_location = |line: &&str| line.to_ascii_lowercase().starts_with("location:");
            let (_, location) = headers.lines().find(is_location).unwrap().split_once(':').unwrap();
            let location = location.trim();
            let kind = "Content-Type: application/octet-stream";
            let target = format!("{location}&digest={digest}");
            self.curl(&["-X", "PUT", "-H", kind, "--data-binary", "@blob", &target]);
        }
        for (reference, kind, body) in &image.manifests {
            fs::write(self.dir.path().join("blob"), body).unwrap();
            let kind = format!("Content-Type: {kind}");
            let url = self.url(&image.path(&format!("manifests/{reference}")));
            self.curl(&["-X", "PUT", "-H", &kind, "--data-binary", "@blob", &url]);
        }
    }

    fn curl(&self, arguments: &[&str]) -> String {
        let usual = ["--silent", "--fail-with-body", "--cacert", "ca.pem", "--user", "knarr:secret"];
        String::from_utf8(run("curl", &[&usual, arguments].concat(), self.dir.path())).unwrap()
    }

    /// `registries.yaml` for it, reached at `authority`.
    fn settings(&self, authority: &str) -> String {
        let ca = self.dir.path().join("ca.pem");
        format!("configs: {{'{authority}': {{tls: {{ca_file: {}}}}}}}\n", ca.display())
    }
}

fn spawn(dir: &Path, address: SocketAddr) -> Child {
    let path = |name: &str| dir.join(name).display().to_string();
    let config = json!({
        "version": 0.1,
        "storage": {"filesystem": {"rootdirectory": path("store")}},
        "http": {"addr": address.to_string(), "tls": {"certificate": path("ca.pem"), "key": path("key.pem")}},
        "auth": {"htpasswd": {"realm": "test", "path": path("users")}},
    });
    fs::write(dir.join("config.yml"), config.to_string()).unwrap();
    let log = fs::File::create(dir.join("log")).unwrap();
    let child = Command::new("docker-registry")
        .args(["serve", &path("config.yml")])
        .env("OTEL_TRACES_EXPORTER", "none")
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .unwrap();
    let deadline = std::time::Instant::now() + DEADLINE;
    while TcpStream::connect(address).is_err() {
        assert!(std::time::Instant::now() < deadline, "{}", fs::read_to_string(dir.join("log")).unwrap());
        std::thread::yield_now();
    }
    child
}

/// An image as a registry has it.
struct TestImage {
    name: String,
    /// Uncompressed, and as it is stored.
    layers: Vec<(Vec<u8>, Vec<u8>)>,
    config: Vec<u8>,
    /// Reference, media type, content; in the order in which a registry takes them.
    manifests: Vec<(String, &'static str, Vec<u8>)>,
}

const OCI: &str = "application/vnd.oci.image.manifest.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const DOCKER: &str = "application/vnd.docker.distribution.manifest.v2+json";

fn tar_of(path: &str, content: &[u8]) -> Vec<u8> {
    let mut header = tar::Header::new_gnu();
    header.set_size(content.len() as u64);
    header.set_mode(0o644);
    header.set_mtime(1);
    let mut builder = tar::Builder::new(Vec::new());
    builder.append_data(&mut header, path, content).unwrap();
    builder.into_inner().unwrap()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Bytes that do not compress.
fn noise(len: usize, seed: u64) -> Vec<u8> {
    let random = Random::seeded(seed);
    (0..len / 8).flat_map(|_| random.below(u64::MAX).to_le_bytes()).collect()
}

impl TestImage {
    /// Of three layers: gzip, zstd and none. As an OCI image behind an index, or as Docker's schema 2.
    fn new(name: &str, layer_bytes: usize, kind: &'static str) -> Self {
        let contents: Vec<Vec<u8>> = (0..3).map(|n| noise(layer_bytes, n)).collect();
        let mut layers = Vec::new();
        let mut descriptors = Vec::new();
        for (n, content) in contents.iter().enumerate() {
            let tar = tar_of(&format!("file-{n}"), content);
            let level = ruzstd::encoding::CompressionLevel::Fastest;
            let (blob, suffix) = match (n, kind) {
                (1, OCI) => (ruzstd::encoding::compress_to_vec(tar.as_slice(), level), "+zstd"),
                (2, OCI) => (tar.clone(), ""),
                _ => (gzip(&tar), "+gzip"),
            };
            let media_type = match kind {
                DOCKER => "application/vnd.docker.image.rootfs.diff.tar.gzip".to_owned(),
                _ => format!("application/vnd.oci.image.layer.v1.tar{suffix}"),
            };
            descriptors.push(
                json!({"mediaType": media_type, "digest": Digest::of(&blob).to_string(), "size": blob.len()}),
            );
            layers.push((tar, blob));
        }
        let diff_ids: Vec<_> = layers.iter().map(|(tar, _)| Digest::of(tar).to_string()).collect();
        let config = json!({"architecture": "amd64", "os": "linux", "config": {"Cmd": ["/x"], "User": "7"},
            "rootfs": {"type": "layers", "diff_ids": diff_ids}})
        .to_string()
        .into_bytes();
        let config_type = match kind {
            DOCKER => "application/vnd.docker.container.image.v1+json",
            _ => "application/vnd.oci.image.config.v1+json",
        };
        let manifest = json!({"schemaVersion": 2, "mediaType": kind, "layers": descriptors,
            "config": {"mediaType": config_type, "digest": Digest::of(&config).to_string(), "size": config.len()}})
        .to_string()
        .into_bytes();
        let mut manifests = Vec::new();
        if kind == DOCKER {
            manifests.push(("1".to_owned(), kind, manifest));
        } else {
            let digest = Digest::of(&manifest).to_string();
            let platform = json!({"os": "linux", "architecture": Platform::host().architecture});
            let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": [
                {"mediaType": OCI, "digest": digest, "size": manifest.len(), "platform": platform}]});
            manifests.push((digest, kind, manifest));
            manifests.push(("1".to_owned(), INDEX, index.to_string().into_bytes()));
        }
        Self { name: name.to_owned(), layers, config, manifests }
    }

    fn path(&self, what: &str) -> String {
        format!("/v2/{}/{what}", self.name)
    }

    fn digest(&self) -> Digest {
        Digest::of(&self.manifests.last().unwrap().2)
    }

    fn id(&self) -> String {
        Digest::of(&self.config).to_string()
    }
}

/// A store and a puller into it.
struct Node {
    dir: tempfile::TempDir,
    store: Arc<ImageStore>,
    puller: Puller,
    tasks: Tasks,
}

impl Node {
    fn new(settings: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("registries.yaml"), settings).unwrap();
        Self::open(dir)
    }

    /// As it was left.
    fn open(dir: tempfile::TempDir) -> Self {
        let store = Arc::new(ImageStore::open(&dir.path().join("images")).unwrap());
        let (puller, tasks) = Self::puller(dir.path(), &store);
        Self { dir, store, puller, tasks }
    }

    fn puller(dir: &Path, store: &Arc<ImageStore>) -> (Puller, Tasks) {
        let tasks = Tasks::new();
        let config = PullerConfig {
            registries: dir.join("registries.yaml"),
            tasks: tasks.clone(),
            clock: Clock::system(),
            random: Random::seeded(1),
        };
        (Puller::new(Arc::clone(store), config), tasks)
    }

    async fn pull(&self, name: &str, password: &str) -> Result<Image, String> {
        let credentials = Credentials::from_parts("knarr", password, "", "", "").unwrap();
        let pulled = self.puller.pull(name, credentials, |_| {}).await;
        pulled.map_err(|error| base::error_chain(&*error))
    }

    fn file(&self, image: &Image, name: &str) -> Vec<u8> {
        let dirs = self.store.lower_dirs(image);
        let path = dirs.iter().map(|dir| dir.join(name)).find(|path| path.exists()).unwrap();
        fs::read(path).unwrap()
    }

    /// Bytes of layers that have come and are not unpacked.
    fn downloaded(&self) -> u64 {
        let entries = fs::read_dir(self.store.root().join(downloads::DIR)).unwrap();
        entries.map(|entry| entry.unwrap().metadata().unwrap().len()).sum()
    }

    /// What is neither index nor layer.
    fn left(&self) -> Vec<String> {
        let names = |dir: &str| fs::read_dir(self.store.root().join(dir)).unwrap();
        let all = names("tmp").chain(names("downloads"));
        all.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn images_come_from_a_registry_with_tls_and_a_password() {
    let server = Server::start();
    let authority = format!("localhost:{}", server.address.port());
    let node = Node::new(&server.settings(&authority));
    for (name, kind) in [("a/oci", OCI), ("docker", DOCKER)] {
        let image = TestImage::new(name, 20_000, kind);
        server.put(&image);
        let full = format!("{authority}/{name}:1");
        let pulled = node.pull(&full, "secret").await.unwrap();
        assert_eq!(pulled.id, image.id(), "{name}");
        let by_digest = format!("{authority}/{name}@{}", image.digest());
        assert!(pulled.names.is_superset(&BTreeSet::from([full.clone(), by_digest.clone()])), "{pulled:?}");
        assert_eq!((pulled.config.user.as_str(), pulled.layers.len()), ("7", 3));
        for n in 0..3 {
            assert!(node.file(&pulled, &format!("file-{n}")) == noise(20_000, n), "{name} file {n}");
        }
        assert_eq!(node.pull(&by_digest, "secret").await.unwrap().id, pulled.id);
        let wrong = format!("{authority}/{name}@{}", Digest::of(b"another"));
        assert!(node.pull(&wrong, "secret").await.unwrap_err().ends_with(": not found"), "{name}");
    }
    assert_eq!(node.left(), Vec::<String>::new());
    let usage = node.store.usage().unwrap();
    assert!(
        (60_000..100_000).contains(&usage.bytes) && usage.inodes == 3,
        "shared layers count once: {usage:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_not_is_told_so_and_the_settings_can_change_while_it_runs() {
    let server = Server::start();
    let authority = format!("localhost:{}", server.address.port());
    let image = TestImage::new("x", 1000, OCI);
    server.put(&image);
    let name = format!("{authority}/x:1");
    let node = Node::new("");
    let error = node.pull(&name, "secret").await.unwrap_err();
    assert!(error.contains("400 Bad Request"), "plain HTTP to a port with TLS: {error}");
    fs::write(node.dir.path().join("registries.yaml"), server.settings(&authority)).unwrap();
    let error = node.pull(&name, "wrong").await.unwrap_err();
    let url = format!("https://{authority}/v2/x/manifests/1");
    assert_eq!(
        error,
        format!(
            "failed to pull and unpack image \"{name}\": failed to resolve reference \"{name}\": \
             unexpected status from HEAD request to {url}: 401 Unauthorized"
        )
    );
    let anonymous = node.puller.pull(&name, None, |_| {}).await.unwrap_err();
    assert!(base::error_chain(&*anonymous).ends_with("authorization failed: no basic auth credentials"));
    let settings =
        server.settings(&authority).replace("tls:", "auth: {username: knarr, password: secret}, tls:");
    fs::write(node.dir.path().join("registries.yaml"), settings).unwrap();
    assert_eq!(node.puller.pull(&name, None, |_| {}).await.unwrap().id, image.id());
    fs::write(node.dir.path().join("registries.yaml"), "mirrors: 7").unwrap();
    assert!(node.pull(&name, "secret").await.unwrap_err().contains("registries.yaml"));
    let missing = node.pull(&name.replace(":1", ":2"), "secret").await;
    assert!(missing.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mirror_is_asked_first_and_the_registry_need_not_be_there() {
    let server = Server::start();
    let mirror = format!("localhost:{}", server.address.port());
    let image = TestImage::new("proxy/library/x", 1000, DOCKER);
    server.put(&image);
    let settings = format!(
        "mirrors: {{docker.io: {{endpoint: ['https://127.0.0.1:1', 'https://{mirror}'], \
         rewrite: {{'^library/(.*)$': 'proxy/library/$1'}}}}}}\n{}",
        server.settings(&mirror).replace("tls:", "auth: {username: knarr, password: secret}, tls:")
    );
    let node = Node::new(&settings);
    let pulled = node.puller.pull("x:1", None, |_| {}).await.unwrap();
    assert!(pulled.names.contains("docker.io/library/x:1"), "{pulled:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn many_pulls_of_one_image_are_one_and_tell_how_far_they_are() {
    let server = Server::start();
    let door = Door::before(server.address, u64::MAX);
    let authority = format!("localhost:{}", door.address.port());
    server.put(&TestImage::new("x", 200_000, OCI));
    let node = Node::new(&server.settings(&authority));
    let name = format!("{authority}/x:1");
    let credentials = Credentials::from_parts("knarr", "secret", "", "", "").unwrap();
    let mut steps = Vec::new();
    let first = node.puller.pull(&name, credentials.clone(), |step| steps.push(step));
    let others = (0..20).map(|_| node.puller.pull(&name, credentials.clone(), |_| {}));
    let (first, others) = tokio::join!(first, futures::future::join_all(others));
    let id = first.unwrap().id;
    assert!(others.into_iter().all(|other| other.unwrap().id == id));
    assert!(door.passed.load(Ordering::Relaxed) < 800_000, "each layer once");
    let last = steps.last().unwrap();
    assert_eq!((last.layers, last.layers_done, last.bytes_done), (3, 3, last.bytes), "{steps:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_download_that_breaks_off_goes_on_where_it_was() {
    let server = Server::start();
    // Each connection carries half a megabyte, then breaks.
    let door = Door::before(server.address, 500_000);
    let authority = format!("localhost:{}", door.address.port());
    let image = TestImage::new("x", 1_000_000, OCI);
    server.put(&image);
    let node = Node::new(&server.settings(&authority));
    let pulled = node.pull(&format!("{authority}/x:1"), "secret").await.unwrap();
    assert!(node.file(&pulled, "file-2") == noise(1_000_000, 2));
    let passed = door.passed.load(Ordering::Relaxed);
    assert!(passed < 5_000_000, "what has come does not come again: {passed} bytes for 3,000,000");
    assert_eq!(node.left(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registry_that_dies_in_the_middle_may_come_back_for_the_next_pull() {
    let mut server = Server::start();
    let door = Door::before(server.address, 300_000);
    let authority = format!("localhost:{}", door.address.port());
    let image = TestImage::new("x", 1_000_000, OCI);
    server.put(&image);
    let node = Node::new(&server.settings(&authority));
    let name = format!("{authority}/x:1");
    // Nothing more passes: the pull is given up, and what has come stays.
    door.left.store(900_000, Ordering::Relaxed);
    let credentials = Credentials::from_parts("knarr", "secret", "", "", "").unwrap();
    let error = node.puller.pull(&name, credentials, |_| {}).await.unwrap_err();
    assert!(error.is_unavailable(), "{error:?}");
    assert!(node.store.list().is_empty(), "nothing half-usable");
    assert!(!node.left().is_empty(), "to go on from");
    server.restart();
    door.left.store(u64::MAX, Ordering::Relaxed);
    let before = door.passed.load(Ordering::Relaxed);
    let pulled = node.pull(&name, "secret").await.unwrap();
    assert!(node.file(&pulled, "file-0") == noise(1_000_000, 0));
    assert!(door.passed.load(Ordering::Relaxed) - before < 3_000_000, "it has gone on");
    // As after a kill: whoever opens the store next removes what is not whole, and nobody goes on from.
    fs::write(node.store.root().join("tmp/x"), "x").unwrap();
    node.tasks.stop_and_wait().await;
    let again = ImageStore::open(node.store.root()).unwrap();
    assert_eq!((node.left(), again.list().len()), (Vec::<String>::new(), 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_imported_needs_no_registry() {
    let node = Node::new("");
    let hints = super::super::import::Hints { name: Some("127.0.0.1:1/x:1".into()), ..Default::default() };
    let tar = Cursor::new(tar_of("f", b"text"));
    let imported = super::super::import::import(&node.store, tar, &hints, &Random::seeded(2)).unwrap();
    assert_eq!(node.pull("127.0.0.1:1/x:1", "secret").await.unwrap().id, imported[0].id);
    assert!(node.pull("127.0.0.1:1/y:1", "secret").await.unwrap_err().contains("failed to do request"));
    assert!(node.pull("Wrong", "secret").await.unwrap_err().contains("must be lowercase"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_what_its_digest_says_is_not_taken() {
    let server = Server::start();
    let authority = format!("localhost:{}", server.address.port());
    let image = TestImage::new("x", 1000, OCI);
    server.put(&image);
    let node = Node::new(&server.settings(&authority));
    // The registry's own disk lies: one byte of a layer is another.
    let layer = Digest::of(&image.layers[1].1);
    let path = server.dir.path().join("store/docker/registry/v2/blobs/sha256");
    let path = path.join(&layer.hex()[..2]).join(layer.hex()).join("data");
    let mut bytes = fs::read(&path).unwrap();
    bytes[500] ^= 1;
    fs::write(&path, bytes).unwrap();
    let error = node.pull(&format!("{authority}/x:1"), "secret").await.unwrap_err();
    assert!(error.contains("is damaged"), "{error}");
    assert!(node.store.list().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_earlier_pull_has_left_may_be_damaged() {
    let server = Server::start();
    let authority = format!("localhost:{}", server.address.port());
    let image = TestImage::new("x", 1000, OCI);
    server.put(&image);
    let node = Node::new(&server.settings(&authority));
    let left = [image.layers[0].1.len(), image.layers[1].1.len() / 2, image.layers[2].1.len() + 1];
    for ((_, blob), bytes) in image.layers.iter().zip(left) {
        fs::write(node.store.download(&Digest::of(blob)), vec![0; bytes]).unwrap();
    }
    let pulled = node.pull(&format!("{authority}/x:1"), "secret").await.unwrap();
    assert_eq!((pulled.id, node.left()), (image.id(), Vec::new()));
}

/// A door before the registry that lets only so many bytes through: on each connection, and in all.
struct Door {
    address: SocketAddr,
    passed: Arc<AtomicU64>,
    left: Arc<AtomicU64>,
}

impl Door {
    fn before(target: SocketAddr, connection_bytes_max: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (passed, left) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(u64::MAX)));
        let counters = (Arc::clone(&passed), Arc::clone(&left));
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let (client, counters) = (client.unwrap(), counters.clone());
                let Ok(server) = TcpStream::connect(target) else { continue };
                let (mut up, mut into) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                std::thread::spawn(move || drop(io::copy(&mut up, &mut into)));
                std::thread::spawn(move || carry(server, client, connection_bytes_max, &counters));
            }
        });
        Self { address, passed, left }
    }
}

fn carry(mut from: TcpStream, mut to: TcpStream, mut most: u64, counters: &(Arc<AtomicU64>, Arc<AtomicU64>)) {
    let mut buffer = [0; 16 << 10];
    while let Ok(len @ 1..) = from.read(&mut buffer) {
        let left = counters.1.load(Ordering::Relaxed);
        most = most.saturating_sub(len as u64);
        if most == 0 || left < len as u64 || to.write_all(&buffer[..len]).is_err() {
            break;
        }
        if left != u64::MAX {
            counters.1.fetch_sub(len as u64, Ordering::Relaxed);
        }
        counters.0.fetch_add(len as u64, Ordering::Relaxed);
    }
    for side in [&from, &to] {
        // The other side may have gone before.
        drop(side.shutdown(std::net::Shutdown::Both));
    }
}
