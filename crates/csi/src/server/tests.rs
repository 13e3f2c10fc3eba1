//! The seam itself: which call reaches whom, and what is said of those that reach nobody.

use super::*;
use crate::client::Client;
use crate::{Code, v1};

/// Has none of the calls.
struct Nothing;

impl Identity for Nothing {}
impl Controller for Nothing {}
impl Node for Nothing {}

struct NoRegistrar;

impl Registration for NoRegistrar {}

/// Echoes what it was asked, ends with the code that it is asked for, and has a call that panics.
struct Marked;

#[async_trait]
impl Identity for Marked {
    async fn probe(&self, _: v1::ProbeRequest) -> Result<v1::ProbeResponse> {
        Ok(v1::ProbeResponse { ready: None })
    }
}

#[async_trait]
impl Controller for Marked {
    async fn create_volume(&self, request: v1::CreateVolumeRequest) -> Result<v1::CreateVolumeResponse> {
        let volume = v1::Volume { volume_id: request.name, ..Default::default() };
        Ok(v1::CreateVolumeResponse { volume: Some(volume) })
    }

    async fn delete_volume(&self, request: v1::DeleteVolumeRequest) -> Result<v1::DeleteVolumeResponse> {
        Err(Status::new(
            Code::from(request.volume_id.parse::<i32>().unwrap()),
            "the driver's own words: \u{fc}\n%",
        ))
    }
}

#[async_trait]
impl Node for Marked {
    async fn node_get_info(&self, _: v1::NodeGetInfoRequest) -> Result<v1::NodeGetInfoResponse> {
        panic!("a driver with a mistake in it")
    }
}

struct Rig {
    dir: tempfile::TempDir,
    tasks: Tasks,
}

impl Rig {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap(), tasks: Tasks::new() }
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("csi.sock")
    }

    fn serve<T: Identity + Controller + Node>(driver: T) -> (Self, Client) {
        let rig = Self::new();
        serve(Arc::new(driver), &rig.socket(), &rig.tasks).unwrap();
        let client = Client::new(&rig.socket());
        (rig, client)
    }
}

/// What a driver leaves out is unimplemented, which is what callers take for "not needed" where the specification lets
/// them.
#[tokio::test]
async fn calls_that_a_driver_has_not_are_told_by_name() {
    let (rig, client) = Rig::serve(Nothing);
    macro_rules! check {
        ($trait:ident $service:literal $module:ident $($name:literal $method:ident $request:ident $response:ident;)*) => {
            $(
                let error = client.$method(crate::$module::$request::default()).await.unwrap_err();
                let expect = concat!($name, " is not supported");
                assert_eq!((error.code(), error.message()), (Code::Unimplemented, expect));
            )*
        };
    }
    identity_calls!(check);
    controller_calls!(check);
    node_calls!(check);
    let error = NoRegistrar.get_info(registration::InfoRequest {}).await.unwrap_err();
    assert_eq!((error.code(), error.message()), (Code::Unimplemented, "GetInfo is not supported"));
    rig.tasks.stop();
}

/// Only the three services are there, under their whole names: a driver's socket is no way to register, nor the other
/// way round.
#[tokio::test]
async fn calls_of_other_services_reach_nobody() {
    let (rig, client) = Rig::serve(Marked);
    let error = client.get_info(registration::InfoRequest {}).await.unwrap_err();
    assert_eq!(
        (error.code(), error.message()),
        (Code::Unimplemented, "unknown method /pluginregistration.Registration/GetInfo")
    );
    let channel = grpc::channel(&rig.socket());
    for path in [
        "/csi.v1.Node/Probe",
        "/csi.v1.Identity/probe",
        "/csi.v1.Identity/Probe/",
        "/csi.v1.Identity/",
        "/csi.v1.Identity",
        "//csi.v1.Identity/Probe",
        "/csi.v0.Identity/Probe",
        "/csi.v1.IdentityProbe",
        "/csi.v1.SnapshotMetadata/GetMetadataDelta",
        "/",
    ] {
        let outcome = grpc::call::<_, v1::ProbeResponse>(&channel, path, v1::ProbeRequest {}, None).await;
        let error = outcome.unwrap_err();
        assert_eq!(
            (error.code(), error.message()),
            (Code::Unimplemented, &*format!("unknown method {path}"))
        );
    }
    assert!(client.probe(v1::ProbeRequest {}).await.unwrap().ready.is_none());
    rig.tasks.stop();
}

#[tokio::test]
async fn what_a_driver_says_arrives_as_it_was_said() {
    let (rig, client) = Rig::serve(Marked);
    for name in ["", "pvc-1", "\u{0}\u{fc}\n"] {
        let request = v1::CreateVolumeRequest { name: name.into(), ..Default::default() };
        let volume = client.create_volume(request).await.unwrap().volume.unwrap();
        assert_eq!(volume.volume_id, name);
    }
    for code in 1..=16 {
        let request = v1::DeleteVolumeRequest { volume_id: code.to_string(), ..Default::default() };
        let error = client.delete_volume(request).await.unwrap_err();
        assert_eq!((error.code(), error.message()), (Code::from(code), "the driver's own words: \u{fc}\n%"));
    }
    // A request that is another message: a number where there is to be a text.
    let channel = grpc::channel(&rig.socket());
    let wrong = v1::ListVolumesRequest { max_entries: 1, starting_token: String::new() };
    let path = "/csi.v1.Controller/CreateVolume";
    let error = grpc::call::<_, v1::CreateVolumeResponse>(&channel, path, wrong, None).await.unwrap_err();
    assert_eq!(error.code(), Code::Internal, "{error}");
    // A mistake ends its own call.
    client.node_get_info(v1::NodeGetInfoRequest {}).await.unwrap_err();
    client.probe(v1::ProbeRequest {}).await.unwrap();
    rig.tasks.stop();
}

/// Source: `getPluginRegistrationInfo` of node-driver-registrar: the endpoint is the driver's socket, the version that
/// kubelets ask for is 1.0.0.
#[tokio::test]
async fn a_kubelet_learns_of_a_driver_and_says_what_it_thinks() {
    let rig = Rig::new();
    register("csi.example.com", Path::new("/var/lib/kubelet/plugins/x/csi.sock"), &rig.socket(), &rig.tasks)
        .unwrap();
    let client = Client::new(&rig.socket());
    for _ in 0..2 {
        let info = client.get_info(registration::InfoRequest {}).await.unwrap();
        assert_eq!((&*info.r#type, &*info.name), ("CSIPlugin", "csi.example.com"));
        assert_eq!(info.endpoint, "/var/lib/kubelet/plugins/x/csi.sock");
        assert_eq!(info.supported_versions, ["1.0.0"]);
        for (plugin_registered, error) in [(true, ""), (false, "there is another")] {
            let status = registration::RegistrationStatus { plugin_registered, error: error.into() };
            client.notify_registration_status(status).await.unwrap();
        }
    }
    let error = client.probe(v1::ProbeRequest {}).await.unwrap_err();
    assert_eq!(
        (error.code(), error.message()),
        (Code::Unimplemented, "unknown method /csi.v1.Identity/Probe")
    );
    rig.tasks.stop();
}

/// A socket that a killed driver left behind is taken over.
#[tokio::test]
async fn sockets_of_killed_drivers_are_taken_over() {
    use std::os::unix::fs::PermissionsExt;

    let rig = Rig::new();
    drop(std::os::unix::net::UnixListener::bind(rig.socket()).unwrap());
    let client = Client::new(&rig.socket());
    let error = client.probe(v1::ProbeRequest {}).await.unwrap_err();
    assert_eq!(error.code(), Code::Unavailable, "{error}");
    serve(Arc::new(Marked), &rig.socket(), &rig.tasks).unwrap();
    client.probe(v1::ProbeRequest {}).await.unwrap();
    let mode = rig.socket().metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "only the owner connects");
    rig.tasks.stop();
}
